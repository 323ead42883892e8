package sim

import (
	"math/rand/v2"
	"time"

	"ankole.storage/dataplane/replica"
)

// End asks the replica's process to end, as a signal does (daemon.RunReplica): its core ends in
// order. If that has not come about after patience the core makes no more steps; what is under way
// at the disk completes, and the directory stays as that leaves it.
func (r *Replica) End(patience time.Duration) {
	p := r.proc
	if !r.Ready() || p.stopped != nil {
		return
	}
	p.stopped = func() {
		r.v.log("%s has ended in order", r.Name)
		r.v.Ends.InOrder++
		r.Kill() // nothing is under way
	}
	p.Post(replica.End{})
	r.v.W.After(patience, func() {
		if p.alive {
			p.deaf = true
			r.drain(p)
		}
	})
}

// Ends counts orderly ends of replicas: those that came about, and those for which the disk was too
// slow.
type Ends struct{ InOrder, TooSlow int }

// drainPoll is how often it is looked whether a process has something under way at the disk.
const drainPoll = time.Millisecond

// drain ends a process that makes no more steps when nothing of it is under way at the disk.
func (r *Replica) drain(p *Process) {
	if !p.alive {
		return
	}
	if p.forget(); len(p.disk) > 0 || len(p.fibers) > 0 {
		r.v.W.After(drainPoll, func() { r.drain(p) })
		return
	}
	r.v.log("%s has not ended in time: its directory is left as it is", r.Name)
	r.v.Ends.TooSlow++
	r.Kill()
}

// mostChanges bounds how many requests go to the disk before their replica is asked to end.
const mostChanges = 4

// endReplica asks a replica to end, or all of them as where a cluster is stopped, each at a moment
// at which a write, a hole or a sync goes to its disk, while users are in a hurry and the operator
// does something; on disks that fail some of that, as a rule. The engine is killed first, now and
// then.
func endReplica(r *run, rnd *rand.Rand) (func(), bool) {
	which := []*Replica{pick(rnd, r.v.Replicas...)}
	if rnd.IntN(2) == 0 {
		which = r.v.Replicas
	}
	withEngine := rnd.IntN(2) == 0
	var undo []func()
	for _, x := range which {
		if x.Ready() && x.proc.frozen == 0 {
			undo = append(undo, r.endAtAChange(rnd, x, withEngine))
		}
	}
	r.chore(rnd)
	r.hurry(20 * time.Millisecond)
	return func() {
		for _, f := range undo {
			f()
		}
	}, len(undo) > 0
}

func (r *run) endAtAChange(rnd *rand.Rand, x *Replica, withEngine bool) (undo func()) {
	stop := func() {}
	if rnd.IntN(4) > 0 && r.sickDisks < r.mostSick() {
		stop = r.spoil(rnd, x, "write *.img partial", "write *.img partial", "write *.img partial chance 2",
			"write volume-head-* enospc chance 2", "punch *.img eio chance 2", "sync *.img eio times 1",
			"write,create,rename,remove,link * eio chance 4")
	}
	slow, patience := pick(rnd, 0, time.Millisecond, 20*time.Millisecond), pick(rnd, 0, 0, time.Millisecond, time.Second)
	x.Disk.slow += slow
	p := x.proc
	p.changes, p.changing = 1+rnd.IntN(mostChanges), func() {
		if x.proc != p || !p.alive {
			return
		}
		if withEngine {
			r.v.KillEngine(r.v.Current)
		}
		r.v.log("%s is asked to end, and is given %s", x.Name, patience)
		x.End(patience)
	}
	return func() {
		p.changes = 0
		x.Disk.slow -= slow
		stop()
	}
}
