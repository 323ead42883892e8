package engine

import (
	"slices"
	"time"

	"ankole.storage/dataplane/clock"
)

// While a record that replaces members waits to be agreed everything is held. If the witness is
// away, a replaced member that can be reached again makes the majority: it stores the record, and
// hangs up. It missed writes, so it takes part in nothing else and comes back through a rebuild, as
// it would have done if the witness had agreed. The engine looks for it itself: the witness is away
// where the control plane is.

// voteRetry is how often a replaced member is looked for. It bounds what a connection costs that
// broke for a moment; the witness, which is asked at the same time, answers sooner if it is there.
const voteRetry = time.Second

// votes looks for replaced members while their agreement is all that is wanting.
type votes struct {
	e *Engine
	// at is when to look the next time, Never while none could help.
	at clock.Ticks
}

// due is when to look for replaced members.
func (v *votes) due() clock.Ticks { return v.at }

// step connects to replaced members.
func (v *votes) step() {
	e := v.e
	voters := e.quorum.Voters()
	e.links.forgetRemoved()
	switch {
	// a replica that is released must not be taken again
	case e.fatal != "" || e.stopped || e.passing.leaving != nil || len(voters) == 0:
		v.at = clock.Never
		return
	case v.at == clock.Never:
		v.at = e.now.Add(voteRetry)
	}
	if e.now < v.at {
		return
	}
	v.at = e.now.Add(voteRetry)
	for _, l := range e.links.all {
		if l != nil && l.mode == ERR && l.phase == sessionClosed && l.conn == nil && slices.Contains(voters, l.member) {
			l.voting = true
			l.contact()
		}
	}
}

// forgetRemoved forgets the links of replicas that were removed, once they are closed. While a set
// without one of them waits to be agreed those with a name stay: theirs may be the only agreement
// that can be had.
func (k *links) forgetRemoved() {
	for _, l := range k.all {
		if l != nil && l.removed && l.phase == sessionClosed && l.conn == nil && (l.member == "" || !k.e.quorum.Holding()) {
			k.forget(l)
		}
	}
}

// lookAt looks for a replaced member at an address where it was not known before. The link is
// forgotten once it is closed.
func (v *votes) lookAt(addr string) {
	e := v.e
	if e.passing.leaving != nil || e.stopped || e.fatal != "" || len(e.quorum.Voters()) == 0 ||
		e.links.freePlace(nil) < 0 {
		return
	}
	l := e.links.add(addr)
	l.mode, l.err, l.voting, l.removed = ERR, e.why(), true, true
	l.contact()
}

// vote lets a replica that was reached store the record, if its own one counts and this one still
// waits.
func (l *link) vote() {
	e := l.e
	if a := l.answer(&l.helloReply); !a.Record.Valid() || a.Rebuilding || !slices.Contains(e.quorum.Voters(), l.member) {
		l.endVote()
		return
	}
	e.quorum.Reached(l.member)
}

// end ends the sessions of those that were asked.
func (v *votes) end() {
	for _, l := range v.e.links.all {
		if l != nil && l.voting {
			l.endVote()
		}
	}
}

// endVote ends a voter's session. It is no failure.
func (l *link) endVote() {
	l.voting = false
	l.hangUp()
}
