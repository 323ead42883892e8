// Package replica is the replica's step core: it serves one replica directory to the one engine that holds the newest
// epoch.
//
// A session begins with the handshake of package wire. The replica makes the engine's epoch durable before it answers,
// and before that it ends every other session and waits until all their disk operations are complete: an engine that was
// replaced cannot change anything any more once its successor has been answered.
//
// Reads and writes go to the chain's files as loop operations. Metadata operations run one at a time away from the loop's
// thread; those that change the chain (a snapshot, the beginning of a rebuild) run while nothing else is in flight. A
// failed sync ends the process: what the disk holds is no longer known, so the replica must not answer again.
package replica

import (
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"ankole.storage/block"
	"ankole.storage/clock"
	"ankole.storage/dataplane/chain"
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
)

// Bounds of the core.
const (
	// maxConns bounds connections: one engine, its predecessor during a take-over, and strangers who are refused.
	maxConns = 32
	// maxStrangers of them may be there without having said hello.
	maxStrangers = 8
	// maxHello bounds the first message of a peer that may be anybody.
	maxHello = 16 << 10
	// maxBuild is how much of an engine's name for its program is told, in bytes.
	maxBuild = 100
	// arenaReserve is kept for answers and control messages: headers of maxJobs answers, lists of extents.
	arenaReserve = 8 << 20
	// maxJobs bounds requests being carried out; more wait in their connection.
	maxJobs = 1024
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
	// Directory gives it up and takes it again; nil where that cannot be done.
	Directory Directory
	// Recreate gives the present chain another shape and returns it, opened again. A chain beside an error is as it was, or
	// somewhere on the way; nil means that it cannot be opened. It blocks.
	Recreate func(old *chain.Chain, shape chain.Shape) (*chain.Chain, error)
	Listener loop.Handle
	Arena    *loop.Arena
	// Nonce returns fresh random bytes for the handshake.
	Nonce func() []byte
	// Unix is the machine's clock in seconds since 1970, for the end of grants; nil: nobody is granted anything.
	Unix func() int64
	// Exit ends the process because the disk failed it. It must not block.
	Exit func(reason string)
	// Sessions tells how many engines have a session now, one or none but for a moment. It must not block.
	Sessions func(open int)
	// Event reports something a person may want to know. It must not block.
	Event func(name, text string)
}

// Replica is the core.
type Replica struct {
	cfg   Config
	arena *loop.Arena
	chain *chain.Chain
	uuid  chain.UUID
	now   clock.Ticks
	out   *[]loop.Op

	conns    []*session
	accepted uint64
	open     int // sessions
	jobs     []*job
	freeJobs []uint32
	inFlight int
	// waiting frames came while the chain was being changed or no buffer was free.
	waiting   []frame
	exclusive bool // a metadata operation wants, or has, the chain for itself

	hold       holding
	givingBack bool

	meta     []*metaOp
	metaBusy bool
	// freeing: space of removed files is being given back.
	freeing bool
	// writable is the chain's answer as of the last metadata operation: while one runs the chain must not be asked.
	writable bool

	record   chain.Record
	recorded bool
	dirty    map[uint32]bool
	dirtyAll bool
	// powerLost: the machine has lost power since what is marked at the beginning of the session was.
	powerLost bool

	syncing  bool
	syncNow  []*job
	syncNext []*job

	zeroes  loop.Buf // a buffer of zeroes, shared by every zeroing write
	zeroSum []byte   // hash of a piece of zeroes
	plan    []chain.Extent
	extents []([2]int64) // of the layer listed last
	exLayer uint32
	scrub   scrubbing
	purge   purging
	dead    bool
}

// frame is a request kept for later.
type frame struct {
	s       *session
	h       wire.Header
	payload loop.Seg
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
	if cfg.Event == nil {
		cfg.Event = func(string, string) {}
	}
	r := &Replica{cfg: cfg, arena: cfg.Arena, uuid: uuid, dirty: map[uint32]bool{}}
	cfg.Arena.Reserve(min(arenaReserve, cfg.Arena.Budget()/4))
	z, ok := cfg.Arena.Get(block.MaxTransfer)
	if !ok {
		return nil, errors.New("replica: arena has no room for a buffer of zeroes")
	}
	r.zeroes = z
	r.zeroSum = sum(cfg.Arena.Bytes(z)[:block.MaxTransfer])
	if cfg.Chain == nil {
		if cfg.Directory == nil {
			return nil, errors.New("replica: neither an open directory nor a way to one")
		}
		r.hold, r.writable = standby, true
		return r, nil
	}
	r.adopt(cfg.Chain)
	return r, nil
}

// adopt takes over an opened chain.
func (r *Replica) adopt(c *chain.Chain) {
	if err := r.closeViews(); err != nil {
		r.cfg.Event("view-failed", err.Error())
	}
	r.endReaders("the directory is given another shape")
	r.chain, r.writable = c, c.WriteAllowed()
	r.extents, r.exLayer = nil, 0
	r.purge = purging{}
	r.record, r.recorded = c.Record()
	r.loadDirty()
}

// loadDirty takes the dirty log from the chain. What a session that has ended had queued is dropped, so at the beginning of the
// next one the log is what is on the disk and nothing else. No metadata operation may be running.
func (r *Replica) loadDirty() {
	clear(r.dirty)
	regions, known := r.chain.Dirty()
	// Unknown: another engine used the directory, or none has yet.
	r.dirtyAll, r.powerLost = !known, r.chain.PowerLost()
	for _, n := range regions {
		r.dirty[uint32(n)] = true
	}
}

// dirtyList returns the marked regions in order.
func (r *Replica) dirtyList() []uint32 { return slices.Sorted(maps.Keys(r.dirty)) }

// Step implements loop.Core.
func (r *Replica) Step(now clock.Ticks, in []loop.Done, out *[]loop.Op) clock.Ticks {
	r.now, r.out = now, out
	if r.accepted == 0 {
		r.accept()
	}
	for i := range in {
		r.handle(&in[i])
	}
	r.retry()
	for _, s := range r.conns {
		if s != nil && s.conn != nil {
			s.conn.Flush(out)
		}
	}
	return clock.Never
}

func (r *Replica) handle(d *loop.Done) {
	v := loop.ValueOf(d.Tag)
	switch loop.OwnerOf(d.Tag) {
	case ownerListener:
		r.acceptDone(d)
	case ownerConn:
		r.connDone(v, d)
	case ownerJob:
		r.jobDone(v, d)
	case ownerMeta:
		r.metaDone(d)
	case ownerSync:
		r.syncDone(d)
	case ownerSpace:
		r.spaceFreed(d)
	}
}

func (r *Replica) op(o loop.Op) { *r.out = append(*r.out, o) }

// retry continues what waited for a buffer, for the chain, or for other sessions to end.
func (r *Replica) retry() {
	r.startMeta()
	for len(r.waiting) > 0 && !r.exclusive && r.inFlight < maxJobs {
		f := r.waiting[0]
		if f.s.closing() {
			r.release(f.payload)
		} else if !r.run(f.s, &f.h, f.payload) {
			break
		}
		r.waiting = r.waiting[1:]
	}
	for _, s := range r.conns {
		if s != nil && s.conn != nil {
			s.conn.Resume(s, r.out)
			s.check()
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
	for _, s := range r.conns {
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
