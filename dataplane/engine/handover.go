package engine

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/clock"
	"ankole.storage/dataplane/frontend"
	"ankole.storage/dataplane/quorum"
	"ankole.storage/dataplane/wire"
)

// This file is an engine's part of a live upgrade, as docs/design/upgrade.md has it in whole. The
// one that leaves is told HandOver: it lets its frontend pause, finishes what it has, leaves
// nothing to compare, and has the replicas release their directories. The one that comes was made
// with Config.Successor: it has Prepared itself, is told Succeed when the other one has left, and
// Own when the volume is its own for good.

// Messages of a live upgrade, posted to the core.
type (
	// HandOver gives the volume away. An error without Left: nothing has changed, for the reason
	// given. Otherwise the engine has ended; an error beside Left says that a replica did not
	// release its directory.
	HandOver struct {
		// Members are those that the successor has reached.
		Members []string
		// Draining is called when the engine begins to leave, and only then. It must not block.
		Draining func()
		// ReleaseTime bounds how long replicas may take to give their directories up, while users
		// wait: who has not by then is hung up on. 0 means 5 s.
		ReleaseTime time.Duration
		Reply       func(*Left, error)
	}
	// Stay gives a hand-over up that takes too long. The one who asked for it is answered.
	Stay struct{ Reason string }
	// Prepare replies when a successor has reached its replicas, or could not: the members it has
	// reached, and why not others.
	Prepare struct {
		Reply func(members []string, missing []string)
	}
	// Succeed lets a successor begin after Left. It replies when the volume could be served.
	Succeed struct {
		Left  Left
		Reply func(error)
	}
	// Own makes a successor keep the replicas' directories: nobody takes the volume back any more.
	Own struct{}
)

// Left is what an engine leaves.
type Left struct {
	Epoch  uint64
	Record quorum.Record
	// Replicas are the addresses of the members: not those of the start any more where one has moved.
	Replicas      []string
	Size          int64
	Options       Options
	RebuildBudget int64
	Counters      Counters
	// Purge: one was under way, and somebody has to go on with it.
	Purge bool
	// Export is what the frontend gives away, nil without one.
	Export *frontend.Export
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

// handover is an engine's part of a live upgrade, on either side.
type handover struct {
	e *Engine
	// leaving is a hand-over to a successor that is under way, nil for none.
	leaving *leaving
	// onPrepared and onServing are what a successor has to answer; owner: the volume is its own.
	onPrepared func(members, missing []string)
	onServing  func(error)
	owner      bool
}

// step goes on with either.
func (h *handover) step() {
	if h.e.now >= h.due() {
		h.releaseLate()
	}
	h.leaveMore()
	h.prepareMore()
}

// leaving is a hand-over under way.
type leaving struct {
	HandOver
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

// cannotLeave tells why the volume cannot be given to a successor that has reached the given
// members, nil if it can.
func (h *handover) cannotLeave(members []string) error {
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
	if f, ok := e.users.fe.(frontend.Exporter); e.users.fe != nil && (!ok || f == nil) {
		return fmt.Errorf(
			"%w: this kind of frontend cannot be given to another process: detach the volume to upgrade it", ErrState)
	}
	theirs := slices.Sorted(slices.Values(members))
	if ours := e.quorum.Record().Members; !slices.Equal(ours, theirs) || e.links.count(RW) != len(ours) {
		return fmt.Errorf("%w: the volume's members are %s, the new engine has reached %s", ErrState, listed(ours),
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

func (h *handover) begin(m HandOver) {
	if h.leaving != nil {
		m.Reply(nil, fmt.Errorf("%w: another engine is taking the volume over", ErrState))
		return
	}
	if m.ReleaseTime == 0 {
		m.ReleaseTime = releaseTime
	}
	h.leaving = &leaving{HandOver: m, releaseBy: clock.Never}
	h.beginDraining()
}

// passing says what is under way that a hand-over waits for, "" for nothing: it is over in moments,
// and users do not wait meanwhile. Whoever asked for the hand-over bounds the time.
func (h *handover) passing() string {
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
func (h *handover) beginDraining() {
	e := h.e
	v := h.leaving
	if e.fatal == "" && e.serving && h.passing() != "" {
		return
	}
	if !h.mayLeave(v) {
		return
	}
	v.stage = leaveRepairing
	e.torn.repairAll(func() { h.drain(v) })
}

// drain pauses the frontend.
func (h *handover) drain(v *leaving) {
	e := h.e
	if !h.mayLeave(v) || !h.nothingTorn(e.torn.errStaysTorn()) {
		return
	}
	e.event("handing-over", "", "requests under way are finished, no others are taken in")
	v.stage = leaveDraining
	v.Draining()
	e.changes.current = handing
	if e.scrubs.job != nil {
		e.scrubs.job.cancel = true
	}
	if f, ok := e.users.fe.(frontend.Exporter); ok {
		f.Suspend(e.out)
	}
}

// leaveMore continues a hand-over.
func (h *handover) leaveMore() {
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
	f, ok := e.users.fe.(frontend.Exporter)
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

// nothingTorn gives the hand-over up if replicas may differ, which err says: the next engine would
// choose anew which of them is right, and clients go on.
func (h *handover) nothingTorn(err error) bool {
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
func (h *handover) flush(v *leaving) {
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

// mayLeave asks again whether the hand-over can go on, and gives it up if not.
func (h *handover) mayLeave(v *leaving) bool {
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
func (h *handover) release(v *leaving) {
	e := h.e
	if !h.mayLeave(v) {
		return
	}
	v.stage = leaveReleasing
	left := &Left{Epoch: e.quorum.Epoch(), Record: e.quorum.Record(), Size: e.agreedSize, Options: e.options,
		RebuildBudget: e.rebuilds.budget, Counters: e.requests.counters, Purge: e.purges.job != nil || e.purges.again}
	if f, ok := e.users.fe.(frontend.Exporter); ok {
		x := f.Export()
		left.Export, e.users.fe = &x, nil
	}
	e.serving = false
	v.releaseBy = e.now.Add(v.ReleaseTime)
	var failed []string
	for _, l := range e.links.all {
		if l != nil && l.mode == RW {
			v.releasing = append(v.releasing, l)
			left.Replicas = append(left.Replicas, l.addr)
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
func (h *handover) due() clock.Ticks {
	if h.leaving == nil {
		return clock.Never
	}
	return h.leaving.releaseBy
}

// releaseLate hangs up on replicas that take too long. They may release later: a directory that
// nobody has is nobody's harm.
func (h *handover) releaseLate() {
	v := h.leaving
	v.releaseBy = clock.Never
	for _, l := range slices.Clone(v.releasing) {
		l.fail("no release within " + v.ReleaseTime.String())
	}
}

// released reports that the replicas are not this engine's any more: losing one is no failure of
// it.
func (h *handover) released() bool {
	return h.e.stopped || (h.leaving != nil && h.leaving.stage == leaveReleasing)
}

// left ends the core.
func (h *handover) left(v *leaving, left *Left, failed []string) {
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

// stay gives a hand-over up while the replicas are still this engine's.
func (h *handover) stay(reason string) {
	e := h.e
	v := h.leaving
	if v == nil || v.stage == leaveReleasing {
		return // it ends when every replica has answered or is given up
	}
	h.leaving = nil
	if v.stage <= leaveRepairing {
		if p := h.passing(); p != "" {
			reason = p + ": " + reason
		}
		e.event("stays", "", reason)
		v.Reply(nil, fmt.Errorf("%w: %s", ErrState, strings.TrimPrefix(reason, ErrState.Error()+": ")))
		return
	}
	e.changes.current = ""
	e.event("stays", "", reason)
	if f, ok := e.users.fe.(frontend.Exporter); ok {
		f.Continue(e.out)
	}
	if v.stage == leaveFlushing {
		e.writes.thaw()
	}
	v.Reply(nil, fmt.Errorf("%w: %s", ErrState, strings.TrimPrefix(reason, ErrState.Error()+": ")))
}

// prepare answers when everybody has who will.
func (h *handover) prepare(reply func(members, missing []string)) {
	h.onPrepared = reply
	h.prepareMore()
}

func (h *handover) prepareMore() {
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

func (h *handover) succeed(m Succeed) {
	e := h.e
	l := &m.Left
	e.size, e.agreedSize, e.options = l.Size, l.Size, l.Options
	e.rebuilds.budget, e.requests.counters = l.RebuildBudget, l.Counters
	e.requests.seconds.goOn(e.now, &e.requests.counters)
	e.purges.again = l.Purge
	h.onServing = m.Reply
	e.quorum.Succeed(l.Epoch)
}

// succeeded tells a successor's owner how its start came out.
func (h *handover) succeeded(err error) {
	if reply := h.onServing; reply != nil {
		h.onServing = nil
		reply(err)
	}
}

// own has the replicas keep their directories. One that is lost meanwhile is dropped like any
// other.
func (h *handover) own() {
	e := h.e
	h.owner = true
	for _, l := range e.links.all {
		if l == nil || l.phase != sessionReady {
			continue
		}
		l.keep()
		if e.cfg.Successor && l.mode == RW {
			e.pushLimits(l)
		}
	}
}

// keep ends the trial of a replica that has just taken its directory.
func (l *link) keep() {
	if !l.helloReply.Trial || !l.e.handover.owner {
		return
	}
	l.helloReply.Trial = false
	l.control(&wire.ControlRequest{Keep: &wire.KeepRequest{}}, func(block.Code, *wire.ControlReply) {})
}
