// Package engine is the engine's step core: it takes requests from a frontend, mirrors writes to
// every replica, reads from one, and keeps the set of replicas honest through package quorum.
//
// A replica is RW (holds every acknowledged write, serves reads), WO (is being rebuilt, receives
// writes) or ERR (dropped; it comes back only through a rebuild). A write is acknowledged when
// every RW replica has it, and, if one failed, when the set without it is committed. Requests to
// the same 4 KiB block are ordered here, so replicas see them in one order. Regions are marked
// dirty on every replica before the first write to them, so that after a crash only those need
// comparing.
//
// The core is driven by a loop: see Step. Control reaches it as posted messages (control.go).
// docs/design/engine.md has the states and invariants.
package engine

import (
	"fmt"
	"time"

	"ankole.storage/dataplane/clock"
	"ankole.storage/dataplane/loop"
	"ankole.storage/dataplane/quorum"
	"ankole.storage/dataplane/wire"
)

// Owners of operation tags.
const (
	// OwnerFrontend is the tag owner to give to the frontend.
	OwnerFrontend loop.Owner = 1 + iota
	ownerLink
	ownerWitness
	ownerSource
)

// Bounds of the core.
const (
	// maxLinks bounds the replicas of a volume: 20 by the API, and room for one being rebuilt.
	maxLinks = 32
	// maxSources bounds the connections of readers: a clone has one, as has each snapshot that is
	// read, and those that were given up take a moment.
	maxSources = 4
	// witnessRetry is how often an unanswered question to the witness is repeated.
	witnessRetry = time.Second
	// sizesEvery is how often sizes of snapshots and head are asked for while the volume is written
	// to.
	sizesEvery = 30 * time.Second
	// gatherTimeout is how long a start waits for candidates that do not answer.
	gatherTimeout = 8 * time.Second
)

// Witness is the place outside the replicas where membership is recorded. Both methods block and
// are called away from the loop's thread; they must return within a few seconds.
type Witness interface {
	// Read returns the record, the zero record if there is none, or an error if nobody answers.
	Read() (quorum.WitnessRecord, error)
	// Swap replaces expected by next and returns the record now held and whether it did. The error
	// wraps ErrSuperseded where another engine process was ordered after this one.
	Swap(expected, next quorum.WitnessRecord) (quorum.WitnessRecord, bool, error)
}

// Config is what an engine needs to know. Addresses are "ip:port" of the replica's first port.
type Config struct {
	VolumeName      string
	VolumeUUID      string
	Instance        string
	InstanceManager string
	// Build says which program this is, for the replicas' logs.
	Build  string
	Secret []byte
	// Size is the volume's size in bytes as it was known last. If the replicas have more, an
	// expansion was under way and is finished; if all of them have less, they are not what they
	// should be.
	Size     int64
	Replicas []string
	// LocalHost is the address without port of replicas on this engine's node, which reads prefer;
	// empty: none is known to be there.
	LocalHost string
	// NewWindow makes memory to share with a replica on this machine; it blocks. nil: none is shared.
	NewWindow func() (*Window, error)
	// Options of the volume; the zero value means the defaults.
	Options Options
	// DirtyLog bounds the marks of regions; the zero value means the default. Replicas have room
	// for chain.MaxDirtyRegions.
	DirtyLog LogBounds
	// ReplicaTimeout is how long a replica may keep requests without any answer before it is
	// dropped; the last one is given twice as long.
	ReplicaTimeout time.Duration
	// NoReplicaTimeout is how long requests wait when no replica is left, before they fail.
	NoReplicaTimeout time.Duration
	// GatherTimeout is how long a start waits for candidates that do not answer; 0 means 8 s.
	GatherTimeout time.Duration
	// Lease is how long reads may be answered after the last proof that nobody has taken over; 0
	// means the default.
	Lease time.Duration
	// RebuildBudget bounds what a rebuild sends, in bytes per second; 0 means no bound.
	// SetRebuildBudget changes it.
	RebuildBudget int64
	// Successor: this engine is to follow one that lives; see leave.go. Its replicas are asked and
	// nothing more until Succeed.
	Successor bool
	// Trust names members whose data a person wants to go on with if the start is refused otherwise.
	Trust []string
	// InSync names members that hold the same, as the control plane knows from before there was a
	// record.
	InSync  []string
	Arena   *loop.Arena
	Witness Witness
	// Follow is called once, away from the loop's thread, before this engine's first record is
	// written anywhere; it must return within a few seconds. epoch is this engine's; follows that
	// of the engine whose acknowledgements are the last there are, 0 where that is not certain. It
	// reports whether a frontend of the engine before goes on here: then the content is not
	// replaced before that frontend is attached, or Discontinue says that it does not come. nil:
	// nobody wants to know.
	Follow func(follows, epoch uint64) (continues bool)
	// Nonce returns fresh random bytes for the handshake.
	Nonce func() []byte
	// OnState is called at the end of a step in which the state changed. It must not block.
	OnState func(State)
	// Event reports something a person may want to know. It must not block.
	Event func(e Event)
}

// Event is one notable happening in a stable text form.
type Event struct {
	// Name is a short fixed word, such as "replica-dropped".
	Name string
	// Replica is the address concerned, if any.
	Replica string
	// Text is the rest.
	Text string
}

// Engine is the core.
type Engine struct {
	cfg   Config
	arena *loop.Arena
	// digester is for payloads of all replicas of the volume.
	digester *wire.Digester
	now      clock.Ticks
	out      *[]loop.Op

	// identity is this process: an engine that was started again has the same instance name, and
	// after a restored witness it could be granted the same epoch. Behind the "@" is the instance
	// manager: replicas keep the name, and a takeover asks for it.
	identity string
	quorum   *quorum.Core

	// unwritten is where discards change nothing.
	unwritten unwritten
	resync    *resync
	options   Options
	// size is what every RW replica has, agreedSize what users are told.
	size, agreedSize int64

	serving bool

	stopping func()
	stopped  bool
	changed  bool
	fatal    string
	fenced   bool

	// The parts, each with fields and deadlines of its own: part.go.
	parts         []part
	votes         votes
	lease         lease
	scrubs        scrubs
	memory        memory
	imports       imports
	purges        purges
	rebuilds      rebuilds
	sources       sources
	snapshotReads snapshotReads
	torn          tornRegions
	chainMarks    chainMarks
	passing       passing
	changes       changes
	writes        writes
	links         links
	members       membership
	gathering     gathering
	standstill    standstill
	sizes         snapshotList
	lost          noReplica
	users         users
	detaching     detaching
	requests      requests
	held          held
	tasks         tasks
	dirty         dirtyLog
}

// New returns an engine that starts to gather its replicas at the first Step.
func New(cfg Config) *Engine {
	e := &Engine{
		cfg: cfg, arena: cfg.Arena, digester: wire.NewDigester(cfg.Secret), changed: true,
	}
	if e.cfg.Lease == 0 {
		e.cfg.Lease = quorum.DefaultLease
	}
	if e.cfg.GatherTimeout == 0 {
		e.cfg.GatherTimeout = gatherTimeout
	}
	if e.cfg.OnState == nil {
		e.cfg.OnState = func(State) {}
	}
	if e.cfg.Event == nil {
		e.cfg.Event = func(Event) {}
	}
	e.assemble()
	e.identity = fmt.Sprintf("%s#%x@%s", cfg.Instance, cfg.Nonce()[:4], cfg.InstanceManager)
	e.memory.setAside()
	e.size, e.agreedSize, e.options = cfg.Size, cfg.Size, cfg.Options
	if e.options.SnapshotMaxCount == 0 {
		e.options.SnapshotMaxCount = maxSnapshotCount
	}
	e.rebuilds.budget = cfg.RebuildBudget
	e.dirty.init(cfg.DirtyLog)
	e.quorum = quorum.New(quorum.Config{Engine: cfg.Instance, InstanceManager: cfg.InstanceManager,
		Candidates: len(cfg.Replicas),
		Trust:      cfg.Trust, InSync: cfg.InSync, Takeover: true, Successor: cfg.Successor, Announce: cfg.Follow != nil})
	for _, a := range cfg.Replicas {
		e.links.add(a)
	}
	return e
}

// Step implements loop.Core.
func (e *Engine) Step(now clock.Ticks, in []loop.Done, out *[]loop.Op) clock.Ticks {
	e.now, e.out = now, out
	for i := range in {
		e.handle(&in[i])
	}
	for _, p := range e.parts {
		p.step()
	}
	e.links.flush()
	e.sources.flush()
	if e.changed {
		e.changed = false
		e.cfg.OnState(e.state())
	}
	e.standstill.wakeAt = e.wake()
	return e.standstill.wakeAt
}

// wake is the earliest deadline.
func (e *Engine) wake() clock.Ticks {
	w := clock.Never
	for _, p := range e.parts {
		w = clock.Min(w, p.due())
	}
	return w
}

// Stopped reports that nothing is outstanding any more after Shutdown.
func (e *Engine) Stopped() bool { return e.stopped }

func (e *Engine) handle(d *loop.Done) {
	if d.Kind == loop.Posted {
		switch m := d.Value.(type) {
		case Outside:
			e.requests.outside(m)
		case RestoreIO:
			e.imports.restoreIO(m)
		default:
			e.posted(d.Value)
		}
		return
	}
	switch loop.OwnerOf(d.Tag) {
	case OwnerFrontend:
		if e.users.fe != nil {
			e.users.fe.Handle(e.now, d, &e.users.reqs, e.out)
			e.users.take()
		}
	case ownerLink:
		e.links.done(d)
	case ownerWitness:
		e.members.witnessDone(d)
	case ownerSource:
		e.sources.done(d)
	}
}

func (e *Engine) op(o loop.Op) { *e.out = append(*e.out, o) }

func (e *Engine) event(name, replica, text string) {
	e.changed = true
	e.cfg.Event(Event{Name: name, Replica: replica, Text: text})
}
