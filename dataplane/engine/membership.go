package engine

import (
	"errors"
	"fmt"
	"slices"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/clock"
	"ankole.storage/dataplane/loop"
	"ankole.storage/dataplane/quorum"
	"ankole.storage/dataplane/wire"
)

// witnessResult is what a witness call brings back to the core.
type witnessResult struct {
	swap    bool
	swapped bool
	record  quorum.WitnessRecord
	err     error
	sent    quorum.Time
}

// membership carries out what the quorum core decides.
type membership struct {
	untimed
	e *Engine
	// onDropClosed waits until no drop is open.
	onDropClosed []func()
}

// gathering has the deadlines of a start, and of a proposal that the witness does not answer.
type gathering struct {
	e *Engine
	// round is the one of quorum.Round for which the replicas were asked last.
	round int
	// askAt is when the witness is asked again, until how long candidates are waited for, leaseOver
	// the end of another engine's lease; Never when nothing is open.
	askAt, until, leaseOver clock.Ticks
	// promised is when a replica promised the epoch last.
	promised clock.Ticks
}

// due is the first of its deadlines.
func (g *gathering) due() clock.Ticks { return clock.Min(clock.Min(g.askAt, g.until), g.leaseOver) }

// step acts on those that have passed.
func (g *gathering) step() {
	e := g.e
	if e.now >= g.askAt {
		g.askAt = clock.Never
		if p := e.quorum.Phase(); p == quorum.Probing || p == quorum.Gathering {
			g.askAt = e.now.Add(witnessRetry) // a takeover is tried meanwhile
		} else {
			e.quorum.Retry()
		}
	}
	if e.now >= g.until {
		g.until = clock.Never
		e.quorum.GatherTimeout()
	}
	if e.now >= g.leaseOver {
		g.leaseOver = clock.Never
		e.quorum.LeaseOver()
	}
}

// end gives them up.
func (g *gathering) end() { g.askAt, g.until, g.leaseOver = clock.Never, clock.Never, clock.Never }

// step carries out what the quorum core wants done.
func (m *membership) step() {
	for {
		actions := m.e.quorum.Take()
		if len(actions) == 0 {
			return
		}
		for i := range actions {
			m.act(&actions[i])
		}
	}
}

func (m *membership) act(a *quorum.Action) {
	e := m.e
	switch a.Kind {
	case quorum.AskWitness:
		w, sent := e.cfg.Witness, quorum.Time(e.now)
		e.op(loop.Op{Kind: loop.Call, Tag: loop.Tag(ownerWitness, 0), Fn: func() any {
			r, err := w.Read()
			return witnessResult{record: r, err: err, sent: sent}
		}})
	case quorum.SwapWitness:
		w, expected, next, sent := e.cfg.Witness, a.Expected, a.Next, quorum.Time(e.now)
		e.op(loop.Op{Kind: loop.Call, Tag: loop.Tag(ownerWitness, 0), Fn: func() any {
			r, ok, err := w.Swap(expected, next)
			return witnessResult{swap: true, swapped: ok, record: r, err: err, sent: sent}
		}})
	case quorum.Probe, quorum.Contact:
		m.contactAll(a.Kind == quorum.Probe)
	case quorum.WriteRecord:
		m.writeRecord(a.Member, a.Record)
	case quorum.WaitLease:
		e.gathering.until = clock.Never
		e.gathering.leaseOver = e.gathering.promised.Add(quorum.SuccessorWait(e.cfg.Lease))
		e.event("waiting-for-lease", "", a.Reason)
	case quorum.Announce:
		follow, follows, epoch := e.cfg.Follow, a.Epoch, e.quorum.Epoch()
		e.gathering.until = clock.Never
		e.op(loop.Op{Kind: loop.Call, Tag: loop.Tag(ownerWitness, 0), Fn: func() any {
			return followed{continues: follow(follows, epoch)}
		}})
	case quorum.BeginServing:
		e.gathering.until = clock.Never
		m.beginServing(a)
	case quorum.Committed:
		m.committed(a)
	case quorum.Stop:
		e.stop(a.Reason, a.Fenced)
	}
	e.changed = true
}

// contactAll asks every replica that was not removed meanwhile, probing for what it has promised
// only.
func (m *membership) contactAll(probing bool) {
	e := m.e
	e.gathering.until, e.gathering.round = e.now.Add(e.cfg.GatherTimeout), e.quorum.Round()
	left := len(e.cfg.Replicas)
	for _, l := range e.links.all {
		if l == nil || l.removed {
			continue
		}
		left--
		l.mode, l.err, l.probing = Unknown, "", probing
		if !probing && l.phase == sessionProbed {
			l.sayHello()
		} else {
			l.contact()
		}
	}
	for range left {
		e.quorum.NoAnswer()
	}
}

// stop ends service for good. The connections end too, so that what is under way is answered now
// and not when a replica that says nothing is given up: the frontend releases its clients only
// when it owes them nothing. Whoever waits for a replica waits no more.
func (e *Engine) stop(reason string, fenced bool) {
	e.gathering.until, e.lost.since = clock.Never, clock.Never
	e.fatal, e.fenced = reason, fenced
	e.serving = false
	e.event("stopped", "", reason)
	if e.users.kept && !fenced && e.detaching.reply == nil {
		e.users.fe = nil // what it owes is the next engine's to answer
	}
	e.requests.failBacklog(block.IOError)
	e.held.fail()
	for _, l := range e.links.all {
		if l == nil {
			continue
		}
		if j := l.joining; j != nil {
			l.joining = nil
			j.abort(reason)
		}
		l.again = false
		l.hangUp()
	}
	e.members.dropClosed() // whoever waits for the set finds nobody to ask
}

// followed is the answer of Config.Follow.
type followed struct{ continues bool }

func (m *membership) witnessDone(d *loop.Done) {
	e := m.e
	if f, ok := d.Value.(followed); ok {
		e.users.continues = f.continues
		e.quorum.Announced()
		return
	}
	r, ok := d.Value.(witnessResult)
	switch {
	case !ok:
		return
	case errors.Is(r.err, ErrSuperseded):
		e.quorum.WitnessRefused(r.err.Error())
	case r.err != nil:
		e.event("witness-silent", "", r.err.Error())
		e.quorum.WitnessUnavailable()
		e.gathering.askAt = e.now.Add(witnessRetry)
	case r.swap:
		m.witnessConfirmed(&r)
		e.quorum.WitnessSwapped(r.swapped, r.record)
	default:
		m.witnessConfirmed(&r)
		e.quorum.WitnessRead(r.record)
	}
}

func (m *membership) witnessConfirmed(r *witnessResult) {
	m.e.quorum.WitnessConfirmed(r.sent, r.record)
	m.e.lease.news = true
}

func recordFrom(m *wire.RecordMessage) quorum.Record {
	return quorum.Record{Epoch: m.Epoch, Generation: m.Generation, Members: m.Members, Replaces: m.Replaces,
		Agreed: m.Agreed, Accepted: m.Accepted}
}

func (m *membership) recordMessage(r quorum.Record) *wire.RecordMessage {
	return &wire.RecordMessage{VolumeUUID: m.e.cfg.VolumeUUID, Epoch: r.Epoch, Generation: r.Generation,
		Members: r.Members, Replaces: r.Replaces, Agreed: r.Agreed,
		Accepted: r.Accepted}
}

func (m *membership) writeRecord(member string, rec quorum.Record) {
	e := m.e
	l := e.links.byName[member]
	if l == nil || l.phase != sessionReady {
		e.quorum.Failed(member)
		return
	}
	l.control(&wire.ControlRequest{SetRecord: m.recordMessage(rec)}, func(code block.Code, reply *wire.ControlReply) {
		if code != block.OK {
			l.fail(fmt.Sprintf("cannot record its membership: %s: %s", code, reply.Error))
			return
		}
		e.quorum.RecordWritten(member, rec)
	})
}

// beginServing makes the committed members RW and everybody else ERR: they hold stale or no data
// and come back through a rebuild. Regions that were dirty when the last engine ended are compared
// before anything is served.
func (m *membership) beginServing(a *quorum.Action) {
	e := m.e
	e.votes.end()
	dirty, all := map[uint32]bool{}, false
	for _, l := range e.links.all {
		if l == nil || l.mode == ERR {
			continue
		}
		if !slices.Contains(a.Members, l.member) {
			l.fail("stale: not a member of " + a.Record.String())
			continue
		}
		l.mode = RW
		if l.helloReply.Rebuilding {
			m.finishCopy(l)
		}
		for _, r := range l.helloReply.Dirty {
			dirty[r] = true
		}
		all = all || l.helloReply.DirtyAll
	}
	if a.Reason != "" {
		e.event("data-loss-accepted", "", a.Reason)
	}
	e.event("members", "", a.Record.String())
	m.reconcile(func() {
		e.startResync(dirty, all)
	})
}

// finishCopy makes an incomplete copy that a person trusts a complete one.
func (m *membership) finishCopy(l *link) {
	l.control(&wire.ControlRequest{FinishRebuild: &wire.FinishRebuild{}}, func(code block.Code, r *wire.ControlReply) {
		if code != block.OK {
			l.fail("cannot end its rebuild: " + r.Error)
		}
	})
}

// committed releases what waited for the set to be agreed, and promotes a joiner.
func (m *membership) committed(a *quorum.Action) {
	e := m.e
	e.votes.end()
	for _, m := range a.Members {
		l := e.links.byName[m]
		if l == nil || l.mode != WO {
			continue
		}
		l.mode = RW
		e.pushLimits(l)
		e.lost.since = clock.Never
		if j := l.joining; j != nil {
			l.joining = nil
			j.finished()
		}
		e.event("replica-joined", l.addr, a.Record.String())
	}
	e.event("members", "", a.Record.String())
	e.held.release()
	m.dropClosed()
}

// serve opens the volume for requests.
func (e *Engine) serve() {
	if e.passing.released() || e.fatal != "" {
		return // it ended while regions were compared
	}
	e.serving = true
	e.announceSize()
	e.unwritten.begin()
	if e.links.count(RW) == 0 && e.lost.since == clock.Never {
		e.lost.since = e.now // the last one failed while regions were compared
	}
	e.requests.retryBacklog()
	e.sizes.refresh()
	e.held.release() // who had a replica removed meanwhile waits for the set without it
}
