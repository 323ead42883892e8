package engine

import (
	"errors"
	"fmt"

	"ankole.storage/block"
	"ankole.storage/clock"
	"ankole.storage/dataplane/frontend"
	"ankole.storage/dataplane/wire"
)

// Messages posted to the core. Reply functions are called from the core's thread, at most once, and must not block.
type (
	// AttachFrontend starts offering the volume; the frontend must have been built with OwnerFrontend.
	AttachFrontend struct {
		Frontend frontend.Frontend
		Reply    func(error)
	}
	// DetachFrontend stops offering it. Reply comes when nothing of the frontend is outstanding.
	DetachFrontend struct{ Reply func(error) }
	// AddReplica admits a replica and rebuilds it.
	AddReplica struct {
		Address string
		Reply   func(error)
	}
	// RemoveReplica drops a replica. The last RW one is refused.
	RemoveReplica struct {
		Address string
		Reply   func(error)
	}
	// TakeSnapshot takes a snapshot on all replicas at one point between writes.
	TakeSnapshot struct {
		Request wire.SnapshotRequest
		Reply   func(error)
	}
	// Refresh asks for fresh snapshot sizes; the state changes when they arrive.
	Refresh struct{}
	// Shutdown ends the engine cleanly: frontend, flush, marks, connections.
	Shutdown struct{ Reply func(error) }
)

// Errors of control messages.
var (
	// ErrNotFound: no replica with that address.
	ErrNotFound = errors.New("engine: no such replica")
	// ErrState: the engine's state forbids it.
	ErrState = errors.New("engine: not possible now")
)

func (e *Engine) posted(v any) {
	e.changed = true
	switch m := v.(type) {
	case AttachFrontend:
		e.attachFrontend(m)
	case DetachFrontend:
		e.detachFrontend(m.Reply)
	case AddReplica:
		e.addReplica(m.Address, m.Reply)
	case RemoveReplica:
		m.Reply(e.removeReplica(m.Address))
	case TakeSnapshot:
		e.takeSnapshot(m)
	case Refresh:
		e.refreshSnapshots()
	case Shutdown:
		e.shutdown(m.Reply)
	}
}

func (e *Engine) attachFrontend(m AttachFrontend) {
	if e.fe != nil {
		m.Reply(fmt.Errorf("%w: a frontend is attached already", ErrState))
		return
	}
	e.fe = m.Frontend
	e.fe.SetSize(e.cfg.Size, e.out)
	e.fe.Start(e.out)
	m.Reply(nil)
}

// detachFrontend stops the frontend; checkDetached replies when nothing of it is outstanding.
func (e *Engine) detachFrontend(reply func(error)) {
	switch {
	case e.fe == nil:
		reply(nil)
	case e.detached != nil:
		reply(fmt.Errorf("%w: the frontend is being stopped", ErrState))
	default:
		e.detached = reply
		e.fe.Stop(e.out)
	}
}

func (e *Engine) checkDetached() {
	if e.detached == nil || !e.fe.Stopped() {
		return
	}
	reply := e.detached
	e.detached, e.fe = nil, nil
	reply(nil)
}

func (e *Engine) removeReplica(addr string) error {
	for _, l := range e.links {
		if l == nil || l.addr != addr {
			continue
		}
		if l.mode == RW && e.count(RW) == 1 {
			return fmt.Errorf("%w: %s is the last replica with all data; detach the volume instead", ErrState, addr)
		}
		l.removed, l.again = true, false
		l.fail("removed")
		l.settle()
		return nil
	}
	return fmt.Errorf("%w: %s", ErrNotFound, addr)
}

func (e *Engine) takeSnapshot(m TakeSnapshot) {
	switch {
	case !e.serving:
		m.Reply(fmt.Errorf("%w: %s", ErrState, e.why()))
		return
	case e.rebuilding() != nil:
		m.Reply(fmt.Errorf("%w: replica %s is being rebuilt; try again when it is done", ErrState, e.rebuilding().target.addr))
		return
	case e.snapshotting:
		m.Reply(fmt.Errorf("%w: another snapshot is being taken", ErrState))
		return
	}
	e.snapshotting = true
	e.freeze(func() { e.snapshotAll(m) })
}

// snapshotAll runs while no write is in flight.
func (e *Engine) snapshotAll(m TakeSnapshot) {
	var all []*link
	for _, l := range e.links {
		if l != nil && l.mode == RW {
			all = append(all, l)
		}
	}
	done := func(err error) {
		e.snapshotting = false
		e.thaw()
		e.refreshSnapshots()
		m.Reply(err)
	}
	if len(all) == 0 {
		done(fmt.Errorf("%w: no replica", ErrState))
		return
	}
	left, taken := len(all), false
	refused := map[*link]error{}
	for _, l := range all {
		e.control(l, &wire.ControlRequest{Snapshot: &m.Request}, func(code block.Code, r *wire.ControlReply) {
			taken = taken || code == block.OK
			if code != block.OK {
				refused[l] = fmt.Errorf("%w: %s", code, r.Error)
				e.snapshotRefused(l, code, r)
			}
			if left--; left == 0 {
				done(e.snapshotResult(taken, refused))
			}
		})
	}
}

// snapshotRefused drops a replica that failed. A name that exists or a limit reached may be the caller's error: that is judged
// when all have answered.
func (e *Engine) snapshotRefused(l *link, code block.Code, r *wire.ControlReply) {
	switch code {
	case block.Exists, block.LimitReached, block.Invalid:
	default:
		l.fail("snapshot failed: " + code.String() + ": " + r.Error)
	}
}

// snapshotResult is the outcome for the caller. Where some replicas have taken the snapshot those that refused it have
// another chain and must be rebuilt.
func (e *Engine) snapshotResult(taken bool, refused map[*link]error) error {
	for l, err := range refused {
		if !taken {
			return err
		}
		l.fail("snapshot taken elsewhere, not here: " + err.Error())
	}
	return nil
}

// shutdown ends cleanly: no new requests, everything stable, marks cleared, so that the next start compares nothing.
func (e *Engine) shutdown(reply func(error)) {
	if e.stopping != nil {
		return
	}
	e.stopping = func() { reply(nil) }
	if e.fe != nil {
		e.fe.Stop(e.out)
	}
	if !e.serving {
		e.failBacklog(block.Unavailable)
		e.hangUp()
		return
	}
	e.freeze(func() {
		t := e.newTask(wire.Flush)
		e.internal(t, e.mask(RW)|e.mask(WO), func(t *task) {
			ok := t.bad|t.full == 0
			e.freeOf(t)
			if !ok {
				e.hangUp()
				return
			}
			e.closeReplicas()
		})
	})
}

func (e *Engine) closeReplicas() {
	keep := []uint32{}
	for n, r := range e.dirty.regions {
		if r.torn {
			keep = append(keep, n)
		}
	}
	e.controlAll(&wire.ControlRequest{ClearDirty: &wire.ClearDirty{Keep: keep}}, "cannot clear dirty regions", func(bool) {
		e.controlAll(&wire.ControlRequest{Close: &wire.CloseRequest{}}, "cannot close", func(bool) { e.hangUp() })
	})
}

// hangUp closes every connection and reports the end.
func (e *Engine) hangUp() {
	e.serving, e.stopped = false, true
	e.witnessWait, e.gatherUntil, e.lostSince = clock.Never, clock.Never, clock.Never
	e.failBacklog(block.Unavailable)
	e.failHeld()
	for _, l := range e.links {
		if l != nil {
			l.close()
		}
	}
	e.changed = true
	e.stopping()
}
