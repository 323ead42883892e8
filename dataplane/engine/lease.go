package engine

import (
	"time"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/clock"
	"ankole.storage/dataplane/quorum"
	"ankole.storage/dataplane/wire"
)

// A read is answered when the lease at that moment covers its arrival: a successor cannot have
// acknowledged anything by then. Every answer of a replica confirms the lease with the time its
// question was sent, so under load nothing is asked for its own sake. There are no heartbeats: a
// read that finds less than half of the lease left makes the engine ping the replicas that have not
// confirmed it lately, and if that does not help, ask the witness. Until then the read is held.

// lease is this engine's own.
type lease struct {
	e *Engine
	// end is when it ends, as far as it has been worked out; news: something was confirmed since.
	end  clock.Ticks
	news bool
	// checkAt is when to ask the witness, Never when nobody waits.
	checkAt clock.Ticks
}

// due is when to ask the witness.
func (s *lease) due() clock.Ticks { return s.checkAt }

// step asks it.
func (s *lease) step() {
	if s.e.now >= s.checkAt {
		s.check()
	}
}

// confirmed notes that the replica has answered a request sent at the given time: it had not
// promised a newer epoch then.
func (l *link) confirmed(sent clock.Ticks) {
	if sent > l.confirmedAt {
		l.confirmedAt = sent
		l.e.lease.news = true
	}
}

// renew works out the lease's end from what was confirmed meanwhile.
func (s *lease) renew() {
	e := s.e
	s.news = false
	end := e.quorum.LeaseEnd(e.cfg.Lease, func(m string) quorum.Time {
		// A member that was dropped confirms nothing more, whatever it said before.
		if l := e.links.byName[m]; l != nil && l.phase == sessionReady {
			return quorum.Time(l.confirmedAt)
		}
		return 0
	})
	s.end = clock.Ticks(end)
}

// covers reports whether a read that arrived at the given time may be answered.
func (s *lease) covers(arrived clock.Ticks) bool {
	if s.end <= arrived && s.news {
		s.renew()
	}
	return s.end > arrived
}

// use is called for every read that arrives: it has the lease confirmed before it ends.
func (s *lease) use() {
	e := s.e
	if s.end.Sub(e.now) >= e.cfg.Lease/2 || !e.serving {
		return
	}
	if s.renew(); s.end.Sub(e.now) >= e.cfg.Lease/2 {
		return
	}
	s.ping()
	if s.checkAt == clock.Never {
		// A replica that is well answers in a fraction of this.
		s.checkAt = e.now.Add(e.cfg.Lease / 8)
	}
}

// ping asks every replica that counts and has not confirmed the lease lately.
func (s *lease) ping() {
	e := s.e
	for _, l := range e.links.all {
		if l == nil || l.phase != sessionReady || l.pinging || (l.mode != RW && l.mode != WO) ||
			e.now.Sub(l.confirmedAt) < e.cfg.Lease/4 {
			continue
		}
		l.ping()
	}
}

// check asks the witness when the replicas have not confirmed the lease, as long as somebody
// waits for it.
func (s *lease) check() {
	e := s.e
	s.checkAt = clock.Never
	s.renew()
	e.held.release()
	if s.end.Sub(e.now) >= e.cfg.Lease/2 || !e.serving {
		return
	}
	s.ping()
	e.quorum.AskForLease()
	if s.awaited() {
		e.changed = true
		s.checkAt = e.now.Add(witnessRetry)
	}
}

// awaited reports whether a read is held for the lease alone.
func (s *lease) awaited() bool {
	e := s.e
	if !e.serving || e.quorum.Holding() {
		return false
	}
	for _, t := range e.held.tasks {
		if t.kind == wire.Read && s.end <= t.arrived {
			return true
		}
	}
	return false
}

// text is the state's reason while reads wait.
func (s *lease) text() string {
	return "reads wait: neither a majority of the replicas nor the witness has confirmed within " +
		s.e.cfg.Lease.Round(time.Second).String() +
		" that no other engine has taken over"
}

// held are tasks that are done and not answered: a member that missed them is still part of the
// committed set, or the lease does not cover them.
type held struct {
	untimed
	e     *Engine
	tasks []*task
	// onAgreed are callers of changes, who are answered with the tasks.
	onAgreed []func(err error)
}

// step answers those that the lease covers since something has confirmed it.
func (h *held) step() {
	if h.e.lease.news && len(h.tasks) > 0 {
		h.release()
	}
}

// add finishes a task, or keeps it while a member that missed it is still part of the committed
// set.
func (h *held) add(t *task, code block.Code) {
	e := h.e
	if e.fatal != "" {
		e.requests.finish(t, block.IOError)
		return
	}
	if !h.answerable(t) {
		t.code = code
		h.tasks = append(h.tasks, t)
		return
	}
	e.requests.finish(t, code)
}

func (h *held) release() {
	if h.e.quorum.Holding() {
		return
	}
	tasks := h.tasks
	h.tasks = nil
	for _, t := range tasks {
		if !h.answerable(t) {
			h.tasks = append(h.tasks, t)
			continue
		}
		h.e.requests.finish(t, t.code)
	}
	h.agreed(nil)
}

func (h *held) fail() {
	tasks := h.tasks
	h.tasks = nil
	for _, t := range tasks {
		h.e.requests.finish(t, block.IOError)
	}
	h.agreed(errNotAgreed)
}

// answerable reports whether a task that is done may be told to the frontend.
func (h *held) answerable(t *task) bool {
	return !h.e.quorum.Holding() && (t.kind != wire.Read || h.e.lease.covers(t.arrived))
}

// whenAgreed replies to the caller of a change with err, after the set of replicas that made it is
// agreed.
func (h *held) whenAgreed(reply func(error), err error) {
	switch {
	case err != nil:
		reply(err)
	case h.e.fatal != "":
		reply(errNotAgreed)
	case h.e.quorum.Holding():
		h.onAgreed = append(h.onAgreed, reply)
	default:
		reply(nil)
	}
}

// agreed answers everybody who waits for the set.
func (h *held) agreed(err error) {
	waiting := h.onAgreed
	h.onAgreed = nil
	for _, reply := range waiting {
		reply(err)
	}
}
