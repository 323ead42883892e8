// Package replica is the replica's step core: it serves one replica directory to the one engine
// that holds the newest epoch.
//
// A session begins with the handshake of package wire. The replica makes the engine's epoch durable
// before it answers, and before that it ends every other session and waits until all their disk
// operations are complete: an engine that was replaced cannot change anything any more once its
// successor has been answered.
//
// Reads and writes go to the chain's files as loop operations. Metadata operations run away from
// the loop's thread, those on the same part of the directory one at a time; those that change the
// chain (a snapshot, the beginning of a rebuild) run while nothing else is in flight. The loop has
// the chain's Blocks, metadata operations its Files and Sidecars, and neither touches what the
// other has: see worker. A failed sync ends the process: what the disk holds is no longer known, so
// the replica must not answer again.
package replica

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/chain"
	"ankole.storage/dataplane/clock"
	"ankole.storage/dataplane/loop"
	"ankole.storage/dataplane/wire"
)

// Owners of operation tags.
const (
	ownerListener loop.Owner = 1 + iota
	ownerConn
	ownerJob
	ownerMeta
	ownerSync
	ownerSpace
	ownerWhiteouts
)

// Bounds of the core.
const (
	// maxConns bounds connections: one engine, its predecessor during a take-over, and strangers
	// who are refused.
	maxConns = 32
	// maxStrangers of them may be there without having said hello, each for strangerTime: an engine
	// says it as soon as it hears the greeting.
	maxStrangers = 8
	strangerTime = 10 * time.Second
	// maxInitiation bounds the first message of a peer that may be anybody: a grant has two UUIDs and
	// the name of a snapshot. maxHello bounds that of one who has proved it.
	maxInitiation = 4 << 10
	maxHello      = 16 << 10
	// maxBuild is how much of an engine's name for its program is told, in bytes.
	maxBuild = 100
	// maxJobs bounds requests being carried out; more wait in their connection.
	maxJobs = 1024
	// maxWaiting bounds the requests of one session that wait for memory, for the chain or for
	// other changes of metadata, maxUnsent the bytes of answers without data that its peer has not
	// taken. With more nothing is received from it.
	maxWaiting = 4096
	maxUnsent  = 4 << 20
)

// Config is what a replica needs to know.
type Config struct {
	// Member is the data directory's name.
	Member     string
	VolumeName string
	VolumeUUID string
	Secret     []byte
	// Chain is the open directory; nil: another process has it, and this one begins as standby.
	Chain *chain.Chain
	// Directory gives it up and takes it again.
	Directory Directory
	// Recreate gives the present directory another shape and returns it, opened again. A chain
	// beside an error is as it was, or somewhere on the way; nil means that it cannot be opened. It
	// blocks.
	Recreate func(old *chain.Files, side *chain.Sidecars, shape chain.Shape) (*chain.Chain, error)
	Listener loop.Handle
	Arena    *loop.Arena
	// Nonce returns fresh random bytes for the handshake.
	Nonce func() []byte
	// Unix is the machine's clock in seconds since 1970, for the end of grants; nil: nobody is
	// granted anything.
	Unix func() int64
	// OpenWindow maps the memory that an engine on this machine offers, wire.WindowSize bytes, and
	// FreeWindow unmaps it. OpenWindow may block. nil: none is taken.
	OpenWindow func(o *wire.WindowOffer) ([]byte, error)
	FreeWindow func(mem []byte)
	// Exit ends the process because the disk failed it. It must not block.
	Exit func(reason string)
	// Sessions tells how many engines have a session now, one or none but for a moment. It must not
	// block.
	Sessions func(open int)
	// Lost tells how many files that are in use have lost their names. It must not block.
	Lost func(files int64)
	// Event reports something a person may want to know. It must not block.
	Event func(name, text string)
}

// Replica is the core.
type Replica struct {
	cfg   Config
	arena *loop.Arena
	// blocks is nil in a standby.
	blocks *chain.Blocks
	uuid   chain.UUID
	// digester is for payloads of sessions with engines.
	digester *wire.Digester
	now      clock.Ticks
	out      *[]loop.Op

	// The parts, each in the file that is named. They own their fields; r is each one's way to the
	// others.
	sessions sessions  // connections (session.go)
	requests requests  // requests for data that are being carried out (job.go)
	ops      metaOps   // what runs away from the loop's thread, in its order (meta.go)
	syncs    syncs     // the sync of the head (sync.go)
	white    whiteouts // the head's whiteouts on their way to the disk (discard.go)
	space    space     // what removed files have occupied (room.go)
	losing   losing    // files that have lost their names (lost.go)
	handover handover  // whose the directory is (standby.go)

	record   chain.Record
	recorded bool

	// dead: the disk has failed it. ending: it was asked to end; stopped: it has.
	dead, ending, stopped bool
}

// frame is a request kept for later.
type frame struct {
	h       wire.Header
	payload loop.Seg
	message []byte
}

// New returns a replica that begins to accept at the first Step.
func New(cfg Config) (*Replica, error) {
	uuid, err := ParseUUID(cfg.VolumeUUID)
	if err != nil {
		return nil, err
	}
	if cfg.Sessions == nil {
		cfg.Sessions = func(int) {}
	}
	if cfg.Lost == nil {
		cfg.Lost = func(int64) {}
	}
	if cfg.Event == nil {
		cfg.Event = func(string, string) {}
	}
	if cfg.Directory == nil {
		return nil, errors.New("replica: no way to its directory")
	}
	r := &Replica{cfg: cfg, arena: cfg.Arena, uuid: uuid, digester: wire.NewDigester(cfg.Secret)}
	r.assemble()
	var present *opened
	r.ops.worker, r.ops.sidecarSet, present = newWorker(&cfg, uuid)
	setAside(cfg.Arena)
	z, ok := cfg.Arena.Get(block.MaxTransfer)
	if !ok {
		return nil, errors.New("replica: arena has no room for a buffer of zeroes")
	}
	r.requests.zeroes = z
	r.requests.zeroSum = sum(cfg.Arena.Bytes(z)[:block.MaxTransfer])
	if cfg.Chain == nil {
		r.handover.standby = true
		return r, nil
	}
	r.adopt(present)
	r.ops.writable = cfg.Chain.WriteAllowed()
	return r, nil
}

// assemble makes the parts.
func (r *Replica) assemble() {
	r.sessions = sessions{r: r}
	r.requests = requests{r: r}
	r.ops = metaOps{r: r, writable: true}
	r.syncs = syncs{r: r}
	r.white = whiteouts{r: r}
	r.space = space{r: r}
	r.losing = losing{r: r}
	r.handover = handover{r: r}
}

// adopt takes over the blocks of a directory that was opened.
func (r *Replica) adopt(o *opened) {
	r.dropBlocks("the directory is given another shape")
	r.blocks, r.ops.writable = o.blocks, true
	r.record, r.recorded = o.held.record, o.held.recorded
}

// dropBlocks gives back the present blocks, and those of the views, which the worker has closed.
func (r *Replica) dropBlocks(reason string) {
	for _, s := range r.sessions.conns {
		if s != nil {
			s.dropView()
		}
	}
	r.sessions.endReaders(reason)
	if r.blocks != nil {
		r.blocks.Free()
	}
	r.blocks = nil
}

// Step implements loop.Core.
func (r *Replica) Step(now clock.Ticks, in []loop.Done, out *[]loop.Op) clock.Ticks {
	r.now, r.out = now, out
	if r.sessions.accepted == 0 {
		r.sessions.accept()
		if r.blocks != nil { // opening has replaced volume.meta
			r.ops.copyMeta()
		}
	}
	for i := range in {
		r.handle(&in[i])
	}
	r.retry()
	due := clock.Min(r.losing.due(), r.sessions.endStrangers())
	for _, s := range r.sessions.conns {
		if s != nil && s.conn != nil {
			s.conn.Flush(out)
		}
	}
	return clock.Min(r.space.late(), due)
}

func (r *Replica) handle(d *loop.Done) {
	if d.Kind == loop.Posted {
		if _, ok := d.Value.(End); ok {
			r.end()
		}
		return
	}
	v := loop.ValueOf(d.Tag)
	switch loop.OwnerOf(d.Tag) {
	case ownerListener:
		r.sessions.acceptDone(d)
	case ownerConn:
		r.sessions.connDone(v, d)
	case ownerJob:
		r.requests.done(v, d)
	case ownerMeta:
		r.ops.done(v, d)
	case ownerSync:
		r.syncs.headDone(d)
	case ownerSpace:
		r.space.spaceFreed(d)
	case ownerWhiteouts:
		r.white.finished(d)
	}
}

func (r *Replica) op(o loop.Op) { *r.out = append(*r.out, o) }

// retry continues what waited for a buffer, for the chain, or for other sessions to end.
func (r *Replica) retry() {
	r.ops.start()
	for _, s := range r.sessions.conns {
		if s != nil {
			s.goOn()
		}
	}
}

func (r *Replica) release(s loop.Seg) {
	if s.Len > 0 {
		r.arena.Release(s.Buf)
	}
}

// fail ends the replica: nothing is answered any more.
func (r *Replica) fail(reason string) {
	if r.dead {
		return
	}
	r.dead = true
	r.cfg.Event("failed", reason)
	for _, s := range r.sessions.conns {
		if s != nil {
			s.end(reason)
		}
	}
	r.cfg.Exit(reason)
}

// codeOf turns an error of chain or disk into a result code.
func codeOf(err error) block.Code {
	switch {
	case err == nil:
		return block.OK
	case errors.Is(err, chain.ErrNoSpace):
		return block.NoSpace
	case errors.Is(err, chain.ErrExists):
		return block.Exists
	case errors.Is(err, chain.ErrNotFound):
		return block.NotFound
	case errors.Is(err, chain.ErrLimit):
		return block.LimitReached
	case errors.Is(err, chain.ErrInvalid):
		return block.Invalid
	case errors.Is(err, chain.ErrCorrupt):
		return block.Corrupt
	}
	return block.IOError
}

// ParseUUID reads a UUID in its usual text form.
func ParseUUID(s string) (u chain.UUID, err error) {
	p, err := hex.DecodeString(strings.ReplaceAll(s, "-", ""))
	if err != nil || len(p) != len(u) {
		return u, fmt.Errorf("replica: volume UUID %q is not a UUID", s)
	}
	copy(u[:], p)
	return u, nil
}
