package sim

import (
	"math/rand/v2"
	"time"
)

// Fault is one thing that may go wrong.
type Fault struct {
	Name   string
	Weight int
	// Longest is the longest time it lasts, 0 for what is over at once.
	Longest time.Duration
	// Do makes it happen, choosing with rnd; false: it cannot happen now. undo ends a fault that
	// lasts.
	Do func(r *run, rnd *rand.Rand) (undo func(), ok bool)
	// Survived says why the promise holds through it, and what bounds it.
	Survived string
}

// Atlas lists the faults. It names only what the promise says must be survived, so every violation
// is a defect.
var Atlas []Fault

const second = time.Second

func init() {
	Atlas = []Fault{
		{"kill-replica", 6, 0, killReplica, "the others have everything"},
		{"end-replica", 6, 4 * second, endReplica,
			"a clean stop is recorded when nothing is under way; else the next open puts the head right"},
		{"kill-engine", 4, 0, killEngine, "regions written to are compared at the next start"},
		{"kill-all", 3, 0, killAll, "what was written is in the files, and its regions are marked"},
		{"power-node", 4, 2 * second, powerNode, "what was flushed is on every member's disk; what was not may be gone"},
		{"power-all", 3, second, powerAll, "what was flushed is on every member's disk; what was not may be gone"},
		{"kill-midway", 5, second, killMidway, "every change of a directory is whole or can be taken up again"},
		{"disk-read-errors", 2, second, diskReads, "another replica has the data; on the last one reads fail"},
		{"disk-write-errors", 2, second, diskWrites, "another replica takes the write; with one left it fails"},
		{"disk-sync-fails", 2, second, diskSyncs,
			"the replica ends itself; a flush counts only what is stable on those that stay"},
		{"disk-full", 2, 3 * second, diskFull,
			"another replica takes the write; where all are full it fails, and everything can be read"},
		{"disk-slow", 2, 3 * second, diskSlow, "it is waited for, or the replica is dropped"},
		{"net-pair", 3, 5 * second, netPair, "who is silent is dropped, if enough members or the witness agree"},
		{"net-one-way", 2, 5 * second, netOneWay, "as above"},
		{"net-slow", 2, 2 * second, netSlow, "it is waited for, or the replica is dropped"},
		{"net-cut", 3, 0, netCut, "a broken connection drops the replica"},
		{"net-forged", 2, 2 * second, netForged, "a frame that somebody has changed has no valid tag: its session ends"},
		{"net-replayed", 2, 2 * second, netReplayed,
			"a frame that is repeated, moved or left out does not have the expected tag: its session ends"},
		{"net-relayed", 1, second, netRelayed, "a hello names the replica it is for: no other takes it"},
		{"isolate-node", 3, 20 * second, isolateNode, "an engine that was replaced acknowledges nothing"},
		{"stall-node", 2, 20 * second, stallNode, "an engine that wakes up replaced acknowledges nothing"},
		{"pause-engine", 2, 20 * second, pauseEngine,
			"an engine that was replaced answers no read that came later; one that was not drops nobody who has answered"},
		{"freeze-engine", 2, 3 * second, freezeEngine, "nothing is lost by waiting"},
		{"freeze-replica", 2, 10 * second, freezeReplica, "it is waited for, or dropped"},
		{"witness-down", 2, 5 * second, witnessDown, "what needs the witness is held"},
		{"witness-slow", 1, 5 * second, witnessSlow, "what needs the witness is held"},
		{"witness-lossy", 2, 5 * second, witnessLossy,
			"a swap that was carried out shows when it is asked for again; a late one is refused"},
		{"rot", 4, 0, rot, "older content below it is what it was: a scrub puts it right from the other replicas, and " +
			"nobody reads it meanwhile"},
		{"disk-unreadable", 2, second, diskUnreadable,
			"another replica has the data, and it is written again; on the last one reads fail"},
		{"witness-restored", 2, 0, witnessRestored,
			"every replica remembers more: the engine tells the witness again, or the next start needs all members"},
		{"left-behind", 2, 5 * second, leftBehind,
			"a start that hears only who was dropped waits: it is not half of the members that it was dropped by"},
	}
}

func killReplica(r *run, rnd *rand.Rand) (func(), bool) {
	x := pick(rnd, r.v.Replicas...)
	if !x.Alive() {
		return nil, false
	}
	x.Kill()
	return nil, true
}

// mostStops bounds how far a blocking call comes before its process is killed: most changes of a
// directory have fewer steps.
const mostStops = 24

// killMidway kills a replica's process, or takes its node's power, at some step of a blocking call.
// If the operator is at leisure something is done that has many.
func killMidway(r *run, rnd *rand.Rand) (func(), bool) {
	x := pick(rnd, r.v.Replicas...)
	if !x.Alive() {
		return nil, false
	}
	p, power := x.proc, rnd.IntN(4) == 0
	p.fuse = 1 + rnd.IntN(mostStops)
	p.blown = func() {
		switch {
		case !p.alive || x.proc != p:
		case power && r.faulting && !x.Node.off:
			r.v.log("%s loses power midway", x.Name)
			r.powerOff(x.Node)
			r.w.After(10*time.Millisecond, x.Node.PowerOn)
		default:
			r.v.log("%s is killed midway", x.Name)
			x.Kill()
		}
	}
	r.chore(rnd)
	return func() { p.fuse = 0 }, true
}

func killEngine(r *run, _ *rand.Rand) (func(), bool) {
	e := r.v.Current
	if e == nil || !e.Alive() {
		return nil, false
	}
	r.v.KillEngine(e)
	return nil, true
}

func killAll(r *run, _ *rand.Rand) (func(), bool) {
	for _, e := range append([]*EngineProcess(nil), r.v.Engines...) {
		r.v.KillEngine(e)
	}
	for _, x := range r.v.Replicas {
		x.Kill()
	}
	return nil, true
}

// powerNode takes the power of one machine. Unflushed writes that only others still have may be
// gone with it if the engine dies before it has dropped the replica: nobody can tell later who was
// ahead.
func powerNode(r *run, rnd *rand.Rand) (func(), bool) {
	n := pick(rnd, r.v.Nodes...)
	if e := r.v.Current; e != nil && rnd.IntN(4) == 0 {
		n = e.node // the engine's, which may have no replica
	}
	if n.off {
		return nil, false
	}
	r.powerOff(n)
	return n.PowerOn, true
}

func powerAll(r *run, _ *rand.Rand) (func(), bool) {
	var off []*Node
	for _, n := range r.v.Nodes {
		if !n.off {
			off = append(off, n)
			r.powerOff(n)
		}
	}
	return func() {
		for _, n := range off {
			n.PowerOn()
		}
	}, len(off) > 0
}

func (r *run) powerOff(n *Node) {
	lost := false
	for _, x := range r.v.Replicas {
		if x.Node == n {
			r.unheard[x.Addr()] = true
			lost = true
		}
	}
	r.v.PowerOff(n)
	if lost { // else nothing that was written was on a disk there
		r.check.PowerLost(r.w.Now())
	}
}

// schedule plants the faults of the plan. Clients are in a hurry when something goes wrong and when
// it ends: a fault that nobody notices finds nothing.
func (r *run) schedule() {
	p := &r.plan
	window := time.Millisecond
	if n := len(p.Faults); n > 0 {
		window = time.Duration(p.Operations/(2*n*p.Clients)+1) * time.Millisecond
	}
	for i, f := range p.Faults {
		r.w.After(max(0, f.At-window/4), func() {
			if r.faulting {
				r.hurry(window)
			}
		})
		r.w.After(f.At, func() { r.inject(i, &f, window) })
	}
}

func (r *run) inject(i int, f *Planned, window time.Duration) {
	if !r.faulting {
		return
	}
	for j := range Atlas {
		a := &Atlas[j]
		if a.Name != f.Name {
			continue
		}
		undo, ok := a.Do(r, stream(f.Seed, 0))
		if !ok {
			return
		}
		r.faults[a.Name]++
		r.v.log("fault %s", f.Name)
		if undo == nil {
			return
		}
		r.undo[i] = undo
		r.w.After(f.For, func() {
			if r.endFault(i); r.faulting {
				r.hurry(window)
			}
		})
	}
}

func (r *run) endFault(i int) {
	if undo := r.undo[i]; undo != nil {
		delete(r.undo, i)
		undo()
		r.v.log("fault %s ends", r.plan.Faults[i].Name)
	}
}

// endFaults ends everything that is still wrong.
func (r *run) endFaults() {
	for i := range r.plan.Faults {
		r.endFault(i)
	}
}
