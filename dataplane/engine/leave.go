package engine

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/clock"
	"ankole.storage/dataplane/frontend"
	"ankole.storage/dataplane/wire"
)

// This file is an engine's part of a live upgrade, as docs/design/upgrade.md has it in whole. The
// one that goes is told Leave: it lets its frontend pause, finishes what it has, leaves nothing to
// compare, and has the replicas release their directories. The one that comes was made with
// Config.Successor: it has Prepared itself, is told Succeed when the other one has left, and is an
// engine like any other from then on.

// Messages of a live upgrade, posted to the core.
type (
	// Leave gives the volume up for a successor. Without left nothing has changed, for the reason
	// given. Otherwise the engine has ended; an error beside left says that a replica did not release
	// its directory.
	Leave struct {
		// Members are those that the successor has reached.
		Members []string
		// Draining is called when users begin to wait, and only then. It must not block.
		Draining func()
		// ReleaseTime bounds how long replicas may take to give their directories up, while users
		// wait: who has not by then is hung up on. 0 means 5 s.
		ReleaseTime time.Duration
		Reply       func(left *Left, err error)
	}
	// Stay has the engine stay after all, for that reason. The one who told it to leave is answered.
	Stay struct{ Reason string }
	// Prepare replies when a successor has reached its replicas, or could not: the members it has
	// reached, and why not others.
	Prepare struct {
		Reply func(members []string, missing []string)
	}
	// Succeed lets a successor begin when the engine before has left.
	Succeed struct{ Left Left }
)

// Left is what a successor has to know of the engine before: all the rest is as after a kill.
type Left struct {
	// Purge: one was under way, and somebody has to go on with it.
	Purge bool
}

type leaveStage uint8

const (
	// leaveWaiting: what is under way and soon over ends first, beside requests.
	leaveWaiting leaveStage = iota
	// leaveRepairing: what writes that failed have left different is made the same, beside requests
	// too.
	leaveRepairing
	leaveDraining
	leaveFlushing
	leaveReleasing
)

// passing is an engine's part of a live upgrade, on either side.
type passing struct {
	e *Engine
	// leaving is under way, nil for nothing.
	leaving *leaving
	// onPrepared is what a successor has to answer.
	onPrepared func(members, missing []string)
}

// step goes on with either.
func (h *passing) step() {
	if h.e.now >= h.due() {
		h.releaseLate()
	}
	h.leaveMore()
	h.prepareMore()
}

// leaving is an engine's way out.
type leaving struct {
	Leave
	stage leaveStage
	// releasing are replicas that have not given their directories up yet, and releaseBy is when
	// they must have.
	releasing []*link
	releaseBy clock.Ticks
}

// releaseTime is long for closing a directory, which syncs a few KiB that are on their way already.
const releaseTime = 5 * time.Second

// handing is what e.changing says meanwhile.
const handing = "a live upgrade"

// cannotLeave tells why the volume cannot be left to a successor that has reached the given
// members, nil if it can.
func (h *passing) cannotLeave(members []string) error {
	e := h.e
	err := e.imports.reason()
	switch {
	case err == nil:
		err = e.changes.mayContent()
	case e.imports.job != nil:
		err = fmt.Errorf("%w; wait for its end, or cancel it", err)
	}
	switch {
	case err != nil && e.changes.current != handing:
		return err
	case !e.serving || e.why() != "":
		return fmt.Errorf("%w: %s", ErrState, e.why())
	}
	if _, ok := e.users.fe.(frontend.Suspender); e.users.fe != nil && !(ok && e.users.kept) {
		return fmt.Errorf("%w: the frontend is not kept for another process: detach the volume to upgrade it", ErrState)
	}
	theirs := slices.Sorted(slices.Values(members))
	if ours := e.quorum.Record().Members; !slices.Equal(ours, theirs) || e.links.count(RW) != len(ours) {
		return fmt.Errorf("%w: the volume's members are %s, the successor has reached %s", ErrState, listed(ours),
			listed(theirs))
	}
	return nil
}

func listed(names []string) string {
	if len(names) == 0 {
		return "nobody"
	}
	return strings.Join(names, ", ")
}

func (h *passing) begin(m Leave) {
	if h.leaving != nil {
		m.Reply(nil, fmt.Errorf("%w: the engine is leaving already, for another successor", ErrState))
		return
	}
	if m.ReleaseTime == 0 {
		m.ReleaseTime = releaseTime
	}
	h.leaving = &leaving{Leave: m, releaseBy: clock.Never}
	h.beginDraining()
}

// underWay says what an engine that leaves waits for, "" for nothing: it is over in moments, and
// users do not wait meanwhile. Whoever told it to leave bounds the time.
func (h *passing) underWay() string {
	e := h.e
	switch {
	case e.changes.expansion.Running:
		return "the volume is being expanded"
	case e.changes.current != "" && e.changes.current != handing:
		return e.changes.current + " is under way"
	case e.purges.job != nil && e.purges.job.waiting > 0:
		return "a piece of a purge of snapshots is under way"
	case e.chainMarks.trimming > 0:
		return "a piece of a trim of snapshots is under way"
	}
	return ""
}

// beginDraining begins to drain when nothing passing is under way. A purge pauses: the next engine
// goes on with it.
func (h *passing) beginDraining() {
	e := h.e
	v := h.leaving
	if e.fatal == "" && e.serving && h.underWay() != "" {
		return
	}
	if !h.mayLeave(v) {
		return
	}
	v.stage = leaveRepairing
	e.torn.repairAll(func() { h.drain(v) })
}

// drain pauses the frontend.
func (h *passing) drain(v *leaving) {
	e := h.e
	if !h.mayLeave(v) || !h.nothingTorn(e.torn.errStaysTorn()) {
		return
	}
	e.event("leaving", "", "requests under way are finished, no others are taken in")
	v.stage = leaveDraining
	v.Draining()
	e.changes.current = handing
	if e.scrubs.job != nil {
		e.scrubs.job.cancel = true
	}
	if f, ok := e.users.fe.(frontend.Suspender); ok {
		f.Suspend(e.out)
	}
}

// leaveMore goes on leaving.
func (h *passing) leaveMore() {
	e := h.e
	v := h.leaving
	if v != nil && v.stage == leaveWaiting {
		h.beginDraining()
	}
	if v == nil || h.leaving != v || v.stage != leaveDraining {
		return
	}
	if e.fatal != "" {
		h.stay(e.fatal)
		return
	}
	f, ok := e.users.fe.(frontend.Suspender)
	if (ok && !f.Suspended()) || e.requests.foreground > 0 || e.scrubs.job != nil || e.tasks.busy() {
		return
	}
	if !h.mayLeave(v) {
		return // a replica was lost meanwhile
	}
	v.stage = leaveFlushing
	e.writes.freeze(func() {
		e.torn.repairAll(func() { // what was torn since
			if h.mayLeave(v) && h.nothingTorn(e.torn.errTorn()) {
				h.flush(v)
			}
		})
	})
}

// nothingTorn has the engine stay if replicas may differ, which err says: the next engine would
// choose anew which of them is right, and clients go on.
func (h *passing) nothingTorn(err error) bool {
	if err != nil {
		h.stay(err.Error())
	}
	return err == nil
}

// busy reports whether anything is asked of a replica.
func (k *tasks) busy() bool {
	return slices.ContainsFunc(k.all, func(t *task) bool { return t.used })
}

// flush makes everything stable and takes the marks away, so that the successor has nothing to
// compare.
func (h *passing) flush(v *leaving) {
	e := h.e
	mark := e.dirty.flushBegin()
	e.tasks.start(e.tasks.take(wire.Flush), e.links.mask(RW), func(t *task) {
		bad := t.bad | t.full
		e.tasks.release(t)
		e.links.drop(bad, "flush failed")
		if h.mayLeave(v) {
			e.dirty.clearAll(mark, func() { h.release(v) })
		}
	})
}

// mayLeave asks again whether the engine can leave, and has it stay if not.
func (h *passing) mayLeave(v *leaving) bool {
	if h.leaving != v {
		return false
	}
	err := h.cannotLeave(v.Members)
	if err != nil {
		h.stay(err.Error())
	}
	return err == nil
}

// release has every replica give its directory up. From here on there is no way back for this
// core.
func (h *passing) release(v *leaving) {
	e := h.e
	if !h.mayLeave(v) {
		return
	}
	v.stage = leaveReleasing
	left := &Left{Purge: e.purges.job != nil || e.purges.again}
	e.users.fe = nil // what its users ask for waits for the successor
	e.serving = false
	v.releaseBy = e.now.Add(v.ReleaseTime)
	var failed []string
	for _, l := range e.links.all {
		if l != nil && l.mode == RW {
			v.releasing = append(v.releasing, l)
		}
	}
	for _, l := range slices.Clone(v.releasing) {
		l.control(&wire.ControlRequest{Release: &wire.ReleaseRequest{}}, func(code block.Code, r *wire.ControlReply) {
			if code != block.OK {
				failed = append(failed, fmt.Sprintf("%s: %s %s", l.addr, code, r.Error))
			}
			if v.releasing = slices.DeleteFunc(v.releasing, func(o *link) bool { return o == l }); len(v.releasing) == 0 {
				h.left(v, left, failed)
			}
		})
	}
}

// due is when replicas that are releasing their directories are given up.
func (h *passing) due() clock.Ticks {
	if h.leaving == nil {
		return clock.Never
	}
	return h.leaving.releaseBy
}

// releaseLate hangs up on replicas that take too long. They may release later: a directory that
// nobody has is nobody's harm.
func (h *passing) releaseLate() {
	v := h.leaving
	v.releaseBy = clock.Never
	for _, l := range slices.Clone(v.releasing) {
		l.fail("no release within " + v.ReleaseTime.String())
	}
}

// released reports that the replicas are not this engine's any more: losing one is no failure of
// it.
func (h *passing) released() bool {
	return h.e.stopped || (h.leaving != nil && h.leaving.stage == leaveReleasing)
}

// left ends the core.
func (h *passing) left(v *leaving, left *Left, failed []string) {
	if h.leaving != v {
		return
	}
	h.e.stopping = func() {
		h.leaving = nil
		if len(failed) > 0 {
			v.Reply(left, fmt.Errorf("%w: not released: %s", ErrState, strings.Join(failed, "; ")))
			return
		}
		v.Reply(left, nil)
	}
	h.e.hangUp()
}

// stay has the engine go on while the replicas are still its own.
func (h *passing) stay(reason string) {
	e := h.e
	v := h.leaving
	if v == nil || v.stage == leaveReleasing {
		return // it ends when every replica has answered or is given up
	}
	h.leaving = nil
	if v.stage <= leaveRepairing {
		if p := h.underWay(); p != "" {
			reason = p + ": " + reason
		}
		e.event("stays", "", reason)
		v.Reply(nil, fmt.Errorf("%w: %s", ErrState, strings.TrimPrefix(reason, ErrState.Error()+": ")))
		return
	}
	e.changes.current = ""
	e.event("stays", "", reason)
	if f, ok := e.users.fe.(frontend.Suspender); ok {
		f.Continue(e.out)
	}
	if v.stage == leaveFlushing {
		e.writes.thaw()
	}
	v.Reply(nil, fmt.Errorf("%w: %s", ErrState, strings.TrimPrefix(reason, ErrState.Error()+": ")))
}

// prepare answers when everybody has who will.
func (h *passing) prepare(reply func(members, missing []string)) {
	h.onPrepared = reply
	h.prepareMore()
}

func (h *passing) prepareMore() {
	e := h.e
	if h.onPrepared == nil {
		return
	}
	heard, all := e.quorum.Prepared()
	if !all {
		return
	}
	e.gathering.until = clock.Never
	var missing []string
	for _, l := range e.links.all {
		if l != nil && l.phase != sessionProbed {
			missing = append(missing, l.addr+": "+l.err)
		}
	}
	reply := h.onPrepared
	h.onPrepared = nil
	reply(heard, missing)
}

// succeed begins a start like any other.
func (h *passing) succeed(m Succeed) {
	h.e.purges.again = m.Left.Purge
	h.e.quorum.Succeed()
}
