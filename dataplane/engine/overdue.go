package engine

import (
	"time"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/clock"
	"ankole.storage/dataplane/wire"
)

// A replica whose disk hangs still answers what needs no disk, or what the disk has elsewhere: it
// is not silent, and yet a write that it owes waits for ever, and the volume's user with it. So do
// writes to a range that it compares for a rebuild, or all of them while it takes a snapshot. So
// every request has a bound of its own, which is generous, since a slow disk that works its way
// through a long queue is no reason to lose a copy.
//
// The other way round, a replica can be at work for longer than the replica timeout on what the
// size of the volume decides, such as the block map of another chain, and send nothing meanwhile.
// It is asked for a sign of life (Ping), which it answers while it works.

const (
	// overdueTimeouts is how many replica timeouts a request may take while its replica answers
	// others; longTimeouts is how many if the size of the volume decides how long it takes: four
	// minutes by the default timeout, which are 240 million pieces of a block map.
	overdueTimeouts = 4
	longTimeouts    = 30
	// overdueLooks is how often within a replica timeout it is looked for such requests.
	overdueLooks = 4
)

// timeout is twice as long for the last replica, so that a stall of the machine does not end
// the volume.
func (k *links) timeout() time.Duration {
	if k.count(RW) <= 1 {
		return 2 * k.e.cfg.ReplicaTimeout
	}
	return k.e.cfg.ReplicaTimeout
}

// spare reports whether the engine can go on without a replica: the last one that has everything
// is kept.
func (k *links) spare(l *link) bool { return l.mode != RW || k.count(RW) > 1 }

// overdueDue is when to look for requests that take too long: not at all while nobody could be
// dropped for one.
func (k *links) overdueDue() clock.Ticks {
	for _, l := range k.all {
		if l != nil && l.phase == sessionReady && l.load > 0 && k.spare(l) {
			return k.looked.Add(k.e.cfg.ReplicaTimeout / overdueLooks)
		}
	}
	return clock.Never
}

// overdueWake is when a step is wanted for that at the latest; whatever makes one earlier looks
// too.
func (k *links) overdueWake() clock.Ticks {
	due := k.overdueDue()
	if due == clock.Never {
		return due
	}
	return max(due, k.e.now.Add(k.e.cfg.ReplicaTimeout/overdueLooks))
}

// dropOverdue drops replicas that owe an answer for too long, the last one excepted.
func (k *links) dropOverdue() {
	e := k.e
	k.looked = e.now
	var late uint32
	for _, t := range e.tasks.all {
		if !t.used || t.pending == 0 {
			continue
		}
		took := e.now.Sub(max(t.sent, e.standstill.last))
		for _, l := range k.all {
			if l != nil && t.pending&l.bit() != 0 && took >= k.mayTake(t, l) {
				late |= l.bit()
			}
		}
	}
	k.dropSpare(late, "a request is not answered within "+
		(overdueTimeouts*e.cfg.ReplicaTimeout).Round(time.Second).String()+
		" or more although others are: its disk may hang")
}

// mayTake is how long a replica may take to answer a task: a control message also waits for a long
// one before it.
func (k *links) mayTake(t *task, l *link) time.Duration {
	if t.kind == wire.Control && l.long > 0 {
		return longTimeouts * k.e.cfg.ReplicaTimeout
	}
	return overdueTimeouts * k.e.cfg.ReplicaTimeout
}

// isLong reports whether the size of the volume decides how long a control message takes: a block
// map is made, or files are synced as a whole.
func isLong(r *wire.ControlRequest) bool {
	return r.Revert != nil || r.BeginRebuild != nil || r.FinishRebuild != nil || r.OpenView != nil
}

// isSlow reports whether a replica may send nothing for a replica timeout because of a control
// message: it is long, or a piece of work that is bounded, on a disk that is slow.
func isSlow(r *wire.ControlRequest) bool {
	return isLong(r) || r.Verify != nil || r.KeepView != nil || r.Purge != nil || r.Trim != nil || r.HashSnapshot != nil
}

// pingDue is when a replica at work is asked for a sign of life.
func (l *link) pingDue() clock.Ticks {
	if l == nil || l.working == 0 || l.pinging || l.phase != sessionReady {
		return clock.Never
	}
	return l.heard.Add(l.e.links.timeout() / 2)
}

// ping asks for a sign of life. Whatever is answered is one, and confirms the lease: an older
// replica that does not know the message answers too, but not while it makes a block map.
func (l *link) ping() {
	l.pinging = true
	run := l.run
	l.control(&wire.ControlRequest{Ping: &wire.PingRequest{}}, func(block.Code, *wire.ControlReply) {
		if l.run == run {
			l.pinging = false
		}
	})
}
