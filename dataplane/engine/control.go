package engine

import (
	"errors"
	"fmt"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/clock"
	"ankole.storage/dataplane/frontend"
	"ankole.storage/dataplane/wire"
)

// Messages posted to the core. Reply functions are called from the core's thread, at most once, and
// must not block.
type (
	// AttachFrontend starts offering the volume; the frontend must have been built with
	// OwnerFrontend.
	AttachFrontend struct {
		Frontend frontend.Frontend
		Reply    func(error)
	}
	// DetachFrontend stops offering it. Reply comes when nothing of the frontend is outstanding.
	DetachFrontend struct{ Reply func(error) }
	// FrontendKept tells whether what the users of the frontend are connected by is kept outside of
	// this process for the next engine. While it is, an engine that cannot go on and was not
	// replaced answers nothing any more and ends at once: its users wait for the next one.
	FrontendKept struct{ Kept bool }
	// Discontinue says that the frontend which Config.Follow has told of does not come.
	Discontinue struct{}
	// AddReplica admits a replica and rebuilds it.
	AddReplica struct {
		Address string
		Reply   func(error)
	}
	// SetRebuildBudget bounds what rebuilds send, in bytes per second; 0 means no bound. It holds
	// at once.
	SetRebuildBudget struct{ BytesPerSecond int64 }
	// RemoveReplica drops a replica and replies when the set without it is agreed. The last RW one
	// is refused.
	RemoveReplica struct {
		Address string
		Reply   func(error)
	}
	// Refresh asks for fresh snapshot sizes; the state has them when it replies. What was discarded
	// with UnmapMarkSnapChainRemoved is given back first, if it can be now.
	Refresh struct{ Reply func(error) }
	// Shutdown ends the engine cleanly: frontend, flush, marks, connections.
	Shutdown struct{ Reply func(error) }
)

// Errors of control messages.
var (
	// ErrNotFound: no replica with that address, or no snapshot of that name.
	ErrNotFound = errors.New("engine: not found")
	// ErrState: the engine's state forbids it.
	ErrState = errors.New("engine: not possible now")
	// ErrSuperseded: the cluster has ordered another engine process after this one; it may not take
	// the volume.
	ErrSuperseded = errors.New("engine: replaced by an engine that was ordered later")
	// ErrBusy is ErrState for a reason that passes by itself: whoever asks again later may be let.
	ErrBusy = fmt.Errorf("%w", ErrState)
)

func (e *Engine) posted(v any) {
	switch v.(type) {
	case Refresh, AskHash, HashLocks, Measure, OpenSnapshot, ListSnapshot, ReadSnapshot, CloseSnapshot: // change nothing
	default:
		e.changed = true
	}
	switch m := v.(type) {
	case AttachFrontend:
		e.users.attach(m)
	case DetachFrontend:
		e.detaching.begin(m.Reply)
	case FrontendKept:
		e.users.kept = m.Kept
	case Discontinue:
		e.users.continues = false
	case AddReplica:
		e.rebuilds.add(m.Address, m.Reply)
	case SetRebuildBudget:
		e.rebuilds.setBudget(max(0, m.BytesPerSecond))
	case RemoveReplica:
		// Until the set without it is agreed the replica counts, and its data must not be deleted.
		e.held.whenAgreed(m.Reply, e.removeReplica(m.Address))
	case TakeSnapshot:
		e.changes.takeSnapshot(m)
	case RemoveSnapshot:
		e.changes.removeSnapshot(m)
	case SetOptions:
		e.setOptions(m)
	case Expand:
		e.changes.expand(m)
	case Revert:
		e.changes.revert(m)
	case PurgeSnapshots:
		e.purges.start(m)
	case Scrub:
		e.scrubs.start(m)
	case CancelScrub:
		e.scrubs.cancel(m.Reply)
	case HashSnapshot:
		e.scrubs.hashSnapshot(m)
	case CancelHash:
		m.Reply(e.scrubs.cancelHash(m.Name, "cancelled"))
	case AskHash:
		e.scrubs.askHash(m)
	case HashLocks:
		e.scrubs.hashLocks(m)
	case Measure:
		e.requests.measure(m)
	case Refresh:
		e.chainMarks.whenDone(func() { e.sizes.refreshThen(m.Reply) })
	case Leave:
		e.passing.begin(m)
	case Stay:
		e.passing.stay(m.Reason)
	case Prepare:
		e.passing.prepare(m.Reply)
	case Succeed:
		e.passing.succeed(m)
	case Shutdown:
		e.shutdown(m.Reply)
	default:
		e.postedContent(v)
	}
}

// postedContent takes messages about content that leaves the volume, or comes from outside.
func (e *Engine) postedContent(v any) {
	switch m := v.(type) {
	case GrantClone:
		e.snapshotReads.grant(m)
	case Clone:
		e.imports.startClone(m)
	case CancelClone:
		e.imports.cancelClone(m.Reply)
	case OpenSnapshot:
		e.snapshotReads.open(m)
	case ListSnapshot:
		e.snapshotReads.list(m)
	case ReadSnapshot:
		e.snapshotReads.read(m)
	case CloseSnapshot:
		e.snapshotReads.close(m.ID)
	case BeginRestore:
		e.imports.beginRestore(m)
	case HeldBackup:
		e.imports.heldBackup(m)
	case RestoreProgress:
		e.imports.restoreProgress(m)
	case EndRestore:
		e.imports.endRestore(m)
	}
}

// users are served by the frontend.
type users struct {
	e *Engine
	// fe is the frontend, nil without one; reqs are requests that it has just handed over.
	fe   frontend.Frontend
	reqs []frontend.Request
	// continues: a frontend of the engine before will be attached, so that the content must stay
	// what its user knows. kept is what FrontendKept has told.
	continues, kept bool
	// replacing counts what puts other content in the place of this one; onReplaced waits for its
	// end.
	replacing  int
	onReplaced []func()
	// expireAt is when the frontend wants to be called.
	expireAt clock.Ticks
}

// due is when the frontend wants to be called.
func (u *users) due() clock.Ticks { return u.expireAt }

// step calls it: requests may have waited for memory.
func (u *users) step() {
	e := u.e
	if r, ok := u.fe.(frontend.Resumer); ok {
		r.Resume(&u.reqs, e.out)
		u.take()
	}
	u.expireAt = clock.Never
	if p, ok := u.fe.(frontend.Expirer); ok {
		u.expireAt = p.Expire(e.now, e.out)
	}
}

func (u *users) take() {
	for i := range u.reqs {
		u.e.requests.begin(&u.reqs[i])
	}
	u.reqs = u.reqs[:0]
}

func (u *users) attach(m AttachFrontend) {
	e := u.e
	if u.fe != nil || e.passing.leaving != nil {
		m.Reply(fmt.Errorf("%w: a frontend is attached already, or the engine leaves", ErrState))
		return
	}
	if e.fatal != "" && (u.continues || u.kept) {
		// This one ends. What its users have sent waits for the next engine: nobody answers it here.
		m.Reply(nil)
		return
	}
	if u.replacing > 0 {
		u.onReplaced = append(u.onReplaced, func() { u.attach(m) }) // nobody is to see it change
		return
	}
	if err := e.imports.reason(); err != nil {
		m.Reply(err)
		return
	}
	u.fe, u.continues = m.Frontend, false
	u.fe.SetSize(e.agreedSize, e.out)
	u.fe.Start(e.out)
	m.Reply(nil)
}

// mayReplace refuses to put other content in the place of the one that somebody uses, or goes on to
// use.
func (u *users) mayReplace() error {
	switch {
	case u.fe != nil:
		return fmt.Errorf("%w: the volume is in use; take its frontend away first", ErrState)
	case u.continues:
		return fmt.Errorf("%w: a frontend of the engine before is taken over; take it away first", ErrState)
	}
	return nil
}

// replaced ends what replacing has counted.
func (u *users) replaced() {
	if u.replacing--; u.replacing > 0 {
		return
	}
	waiting := u.onReplaced
	u.onReplaced = nil
	for _, f := range waiting {
		f()
	}
}

// detaching is a frontend that is being stopped.
type detaching struct {
	untimed
	e *Engine
	// reply waits for nothing of it to be outstanding.
	reply func(error)
}

// begin stops the frontend; step replies when nothing of it is outstanding.
func (k *detaching) begin(reply func(error)) {
	e := k.e
	switch {
	case e.users.fe == nil:
		reply(nil)
	case e.passing.leaving != nil:
		reply(fmt.Errorf("%w: the engine leaves", ErrState))
	case k.reply != nil:
		reply(fmt.Errorf("%w: the frontend is being stopped", ErrState))
	default:
		k.reply = reply
		e.users.fe.Stop(e.out)
	}
}

func (k *detaching) step() {
	if k.reply == nil || !k.e.users.fe.Stopped() {
		return
	}
	reply := k.reply
	k.reply, k.e.users.fe = nil, nil
	reply(nil)
}

func (e *Engine) removeReplica(addr string) error {
	if e.passing.released() {
		// The set of members stays as it is, and with it whoever was to be removed.
		return fmt.Errorf("%w: the engine leaves, or has ended", ErrState)
	}
	for _, l := range e.links.all {
		if l == nil || l.addr != addr {
			continue
		}
		if l.mode == RW && e.links.count(RW) == 1 {
			return fmt.Errorf("%w: %s is the last replica with all data; detach the volume instead", ErrState, addr)
		}
		l.removed, l.again = true, false
		l.fail("removed")
		l.checkDown()
		return nil
	}
	return fmt.Errorf("%w: %s", ErrNotFound, addr)
}

// shutdown ends cleanly: no new requests, everything stable, marks cleared, so that the next start
// compares nothing.
func (e *Engine) shutdown(reply func(error)) {
	e.passing.stay("the engine is shutting down")
	if e.passing.leaving != nil || e.stopped {
		reply(nil) // it has given its replicas away
		return
	}
	if others := e.stopping; others != nil {
		e.stopping = func() { others(); reply(nil) }
		return
	}
	e.stopping = func() { reply(nil) }
	if e.users.fe != nil {
		e.users.fe.Stop(e.out)
	}
	if !e.serving {
		e.requests.failBacklog(block.Unavailable)
		e.hangUp()
		return
	}
	e.writes.freeze(func() {
		t := e.tasks.take(wire.Flush)
		e.tasks.start(t, e.links.mask(RW)|e.links.mask(WO), func(t *task) {
			// Marks are all that says where a replica differs that has failed, until those that
			// keep account of it have stored a set without it.
			ok := t.bad|t.full == 0 && !e.dirty.marksStay()
			e.tasks.release(t)
			if !ok {
				e.hangUp()
				return
			}
			e.closeReplicas()
		})
	})
}

func (e *Engine) closeReplicas() {
	e.links.controlAll(&wire.ControlRequest{ClearDirty: &wire.ClearDirty{Keep: e.dirty.tornRegions()}},
		"cannot clear dirty regions", func(bool) {
			e.links.controlAll(&wire.ControlRequest{Close: &wire.CloseRequest{}}, "cannot close", func(bool) { e.hangUp() })
		})
}

// hangUp closes every connection and reports the end.
func (e *Engine) hangUp() {
	e.serving, e.stopped = false, true
	e.gathering.end()
	e.lost.since = clock.Never
	e.lease.checkAt = clock.Never
	e.purges.job = nil
	if e.imports.job != nil {
		e.imports.job.fail(fmt.Errorf("%w: the engine has ended", ErrState))
	}
	e.imports.wentBack()
	e.requests.failBacklog(block.Unavailable)
	e.held.fail()
	for _, l := range e.links.all {
		if l != nil {
			l.hangUp()
		}
	}
	e.members.dropClosed()
	e.changed = true
	e.stopping()
}
