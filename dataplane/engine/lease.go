package engine

import (
	"time"

	"ankole.storage/dataplane/clock"
	"ankole.storage/dataplane/quorum"
	"ankole.storage/dataplane/wire"
)

// A read is answered when the lease at that moment covers its arrival: a successor cannot have
// acknowledged anything by then. Every answer of a replica confirms the lease with the time its
// question was sent, so under load nothing is asked for its own sake. There are no heartbeats: a
// read that finds less than half of the lease left makes the engine ping the replicas that have not
// confirmed it lately, and if that does not help, ask the witness. Until then the read is held.

// confirmed notes that the replica has answered a request sent at the given time: it had not
// promised a newer epoch then.
func (l *link) confirmed(sent clock.Ticks) {
	if sent > l.confirmedAt {
		l.confirmedAt = sent
		l.e.leaseNews = true
	}
}

// renewLease works out the lease's end from what was confirmed meanwhile.
func (e *Engine) renewLease() {
	e.leaseNews = false
	end := e.quorum.LeaseEnd(e.cfg.Lease, func(m string) quorum.Time {
		// A member that was dropped confirms nothing more, whatever it said before.
		if l := e.byName[m]; l != nil && l.phase == sessionReady {
			return quorum.Time(l.confirmedAt)
		}
		return 0
	})
	e.leaseEnd = clock.Ticks(end)
}

// leaseCovers reports whether a read that arrived at the given time may be answered.
func (e *Engine) leaseCovers(arrived clock.Ticks) bool {
	if e.leaseEnd <= arrived && e.leaseNews {
		e.renewLease()
	}
	return e.leaseEnd > arrived
}

// useLease is called for every read that arrives: it has the lease confirmed before it ends.
func (e *Engine) useLease() {
	if e.leaseEnd.Sub(e.now) >= e.cfg.Lease/2 || !e.serving {
		return
	}
	if e.renewLease(); e.leaseEnd.Sub(e.now) >= e.cfg.Lease/2 {
		return
	}
	e.ping()
	if e.leaseCheck == clock.Never {
		// A replica that is well answers in a fraction of this.
		e.leaseCheck = e.now.Add(e.cfg.Lease / 8)
	}
}

// ping asks every replica that counts and has not confirmed the lease lately.
func (e *Engine) ping() {
	for _, l := range e.links {
		if l == nil || l.phase != sessionReady || l.pinging || (l.mode != RW && l.mode != WO) ||
			e.now.Sub(l.confirmedAt) < e.cfg.Lease/4 {
			continue
		}
		l.ping()
	}
}

// checkLease asks the witness when the replicas have not confirmed the lease, as long as somebody
// waits for it.
func (e *Engine) checkLease() {
	e.leaseCheck = clock.Never
	e.renewLease()
	e.releaseHeld()
	if e.leaseEnd.Sub(e.now) >= e.cfg.Lease/2 || !e.serving {
		return
	}
	e.ping()
	e.quorum.AskForLease()
	if e.waitForLease() {
		e.changed = true
		e.leaseCheck = e.now.Add(witnessRetry)
	}
}

// waitForLease reports whether a read is held for the lease alone.
func (e *Engine) waitForLease() bool {
	if !e.serving || e.quorum.Holding() {
		return false
	}
	for _, t := range e.held {
		if t.kind == wire.Read && e.leaseEnd <= t.arrived {
			return true
		}
	}
	return false
}

// answerable reports whether a task that is done may be told to the frontend.
func (e *Engine) answerable(t *task) bool {
	return !e.quorum.Holding() && (t.kind != wire.Read || e.leaseCovers(t.arrived))
}

// leaseText is the state's reason while reads wait.
func (e *Engine) leaseText() string {
	return "reads wait: neither a majority of the replicas nor the witness has confirmed within " +
		e.cfg.Lease.Round(time.Second).String() +
		" that no other engine has taken over"
}
