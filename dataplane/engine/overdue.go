package engine

import (
	"time"

	"ankole.storage/clock"
	"ankole.storage/dataplane/wire"
)

// A replica whose disk hangs still answers what needs no disk, or what the disk has elsewhere: it
// is not silent, and yet a write that it owes waits for ever, and the volume's user with it. So
// every request has a bound of its own, which is generous, since a slow disk that works its way
// through a long queue is no reason to lose a copy.

const (
	// overdueTimeouts is how many replica timeouts a request may take while its replica answers
	// others.
	overdueTimeouts = 4
	// overdueLooks is how often within a replica timeout it is looked for such requests.
	overdueLooks = 4
)

// overdueDue is when to look for requests that take too long: not at all while there is nobody else
// to go on with.
func (e *Engine) overdueDue() clock.Ticks {
	if !e.serving || e.count(RW)+e.count(WO) < 2 {
		return clock.Never
	}
	for _, l := range e.links {
		if l != nil && l.phase == sessionReady && l.load > 0 {
			return e.overdueLook.Add(e.cfg.ReplicaTimeout / overdueLooks)
		}
	}
	return clock.Never
}

// overdueWake is when a step is wanted for that at the latest; whatever makes one earlier looks
// too.
func (e *Engine) overdueWake() clock.Ticks {
	due := e.overdueDue()
	if due == clock.Never {
		return due
	}
	return max(due, e.now.Add(e.cfg.ReplicaTimeout/overdueLooks))
}

// dropOverdue drops replicas that owe an answer about content or marks for too long, the last one
// excepted.
func (e *Engine) dropOverdue() {
	e.overdueLook = e.now
	bound := overdueTimeouts * e.cfg.ReplicaTimeout
	var late uint32
	for _, t := range e.tasks {
		if t.used && t.pending != 0 && onDisk(t.kind) && e.now.Sub(max(t.sent, e.stoodStill)) >= bound {
			late |= t.pending
		}
	}
	for _, l := range e.links {
		if l == nil || late&l.bit() == 0 || l.mode == RW && e.count(RW) < 2 {
			continue
		}
		l.fail("a request is not answered within " + bound.Round(time.Second).String() +
			" although others are: its disk may hang")
	}
}

// onDisk reports whether requests of a kind are about the content of the volume or the marks, which
// a disk that works carries out in a fraction of a second. Others may be at work for as long as
// their size makes them.
func onDisk(kind wire.Type) bool {
	switch kind {
	case wire.Read, wire.Write, wire.WriteZeroes, wire.Discard, wire.Flush, wire.MarkDirty, wire.LayerRead,
		wire.LayerWrite:
		return true
	}
	return false
}
