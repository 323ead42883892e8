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
func (e *Engine) cannotLeave(members []string) error {
	err := e.imports.reason()
	switch {
	case err == nil:
		err = e.mayChangeContent()
	case e.imports.job != nil:
		err = fmt.Errorf("%w; wait for its end, or cancel it", err)
	}
	switch {
	case err != nil && e.changing != handing:
		return err
	case !e.serving || e.why() != "":
		return fmt.Errorf("%w: %s", ErrState, e.why())
	}
	if f, ok := e.fe.(frontend.Exporter); e.fe != nil && (!ok || f == nil) {
		return fmt.Errorf(
			"%w: this kind of frontend cannot be given to another process: detach the volume to upgrade it", ErrState)
	}
	theirs := slices.Sorted(slices.Values(members))
	if ours := e.quorum.Record().Members; !slices.Equal(ours, theirs) || e.count(RW) != len(ours) {
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

func (e *Engine) handOver(m HandOver) {
	if e.leaving != nil {
		m.Reply(nil, fmt.Errorf("%w: another engine is taking the volume over", ErrState))
		return
	}
	if m.ReleaseTime == 0 {
		m.ReleaseTime = releaseTime
	}
	e.leaving = &leaving{HandOver: m, releaseBy: clock.Never}
	e.beginDraining()
}

// passing says what is under way that a hand-over waits for, "" for nothing: it is over in moments,
// and users do not wait meanwhile. Whoever asked for the hand-over bounds the time.
func (e *Engine) passing() string {
	switch {
	case e.expansion.Running:
		return "the volume is being expanded"
	case e.changing != "" && e.changing != handing:
		return e.changing + " is under way"
	case e.purges.job != nil && e.purges.job.waiting > 0:
		return "a piece of a purge of snapshots is under way"
	case e.chainMarks.trimming > 0:
		return "a piece of a trim of snapshots is under way"
	}
	return ""
}

// beginDraining begins to drain when nothing passing is under way. A purge pauses: the next engine
// goes on with it.
func (e *Engine) beginDraining() {
	v := e.leaving
	if e.fatal == "" && e.serving && e.passing() != "" {
		return
	}
	if !e.mayLeave(v) {
		return
	}
	v.stage = leaveRepairing
	e.torn.repairAll(func() { e.drain(v) })
}

// drain pauses the frontend.
func (e *Engine) drain(v *leaving) {
	if !e.mayLeave(v) || !e.nothingTorn(e.torn.errStaysTorn()) {
		return
	}
	e.event("handing-over", "", "requests under way are finished, no others are taken in")
	v.stage = leaveDraining
	v.Draining()
	e.changing = handing
	if e.scrubs.job != nil {
		e.scrubs.job.cancel = true
	}
	if f, ok := e.fe.(frontend.Exporter); ok {
		f.Suspend(e.out)
	}
}

// leaveMore continues a hand-over; it is called at the end of every step.
func (e *Engine) leaveMore() {
	v := e.leaving
	if v != nil && v.stage == leaveWaiting {
		e.beginDraining()
	}
	if v == nil || e.leaving != v || v.stage != leaveDraining {
		return
	}
	if e.fatal != "" {
		e.stay(e.fatal)
		return
	}
	f, ok := e.fe.(frontend.Exporter)
	if (ok && !f.Suspended()) || e.foreground > 0 || e.scrubs.job != nil || e.busy() {
		return
	}
	if !e.mayLeave(v) {
		return // a replica was lost meanwhile
	}
	v.stage = leaveFlushing
	e.freeze(func() {
		e.torn.repairAll(func() { // what was torn since
			if e.mayLeave(v) && e.nothingTorn(e.torn.errTorn()) {
				e.leaveFlush(v)
			}
		})
	})
}

// nothingTorn gives the hand-over up if replicas may differ, which err says: the next engine would
// choose anew which of them is right, and clients go on.
func (e *Engine) nothingTorn(err error) bool {
	if err != nil {
		e.stay(err.Error())
	}
	return err == nil
}

// busy reports whether anything is asked of a replica.
func (e *Engine) busy() bool {
	return slices.ContainsFunc(e.tasks, func(t *task) bool { return t.used })
}

// leaveFlush makes everything stable and takes the marks away, so that the successor has nothing to
// compare.
func (e *Engine) leaveFlush(v *leaving) {
	mark := e.dirty.flushBegin()
	e.internal(e.newTask(wire.Flush), e.mask(RW), func(t *task) {
		bad := t.bad | t.full
		e.freeOf(t)
		e.dropEach(bad, "flush failed")
		if e.mayLeave(v) {
			e.dirty.clearAll(e, mark, func() { e.leaveRelease(v) })
		}
	})
}

// mayLeave asks again whether the hand-over can go on, and gives it up if not.
func (e *Engine) mayLeave(v *leaving) bool {
	if e.leaving != v {
		return false
	}
	err := e.cannotLeave(v.Members)
	if err != nil {
		e.stay(err.Error())
	}
	return err == nil
}

// leaveRelease has every replica give its directory up. From here on there is no way back for this
// core.
func (e *Engine) leaveRelease(v *leaving) {
	if !e.mayLeave(v) {
		return
	}
	v.stage = leaveReleasing
	left := &Left{Epoch: e.quorum.Epoch(), Record: e.quorum.Record(), Size: e.agreedSize, Options: e.options,
		RebuildBudget: e.rebuilds.budget, Counters: e.counters, Purge: e.purges.job != nil || e.purges.again}
	if f, ok := e.fe.(frontend.Exporter); ok {
		x := f.Export()
		left.Export, e.fe = &x, nil
	}
	e.serving = false
	v.releaseBy = e.now.Add(v.ReleaseTime)
	var failed []string
	for _, l := range e.links {
		if l != nil && l.mode == RW {
			v.releasing = append(v.releasing, l)
			left.Replicas = append(left.Replicas, l.addr)
		}
	}
	for _, l := range slices.Clone(v.releasing) {
		e.control(l, &wire.ControlRequest{Release: &wire.ReleaseRequest{}}, func(code block.Code, r *wire.ControlReply) {
			if code != block.OK {
				failed = append(failed, fmt.Sprintf("%s: %s %s", l.addr, code, r.Error))
			}
			if v.releasing = slices.DeleteFunc(v.releasing, func(o *link) bool { return o == l }); len(v.releasing) == 0 {
				e.left(v, left, failed)
			}
		})
	}
}

// releaseDue is when replicas that are releasing their directories are given up.
func (e *Engine) releaseDue() clock.Ticks {
	if e.leaving == nil {
		return clock.Never
	}
	return e.leaving.releaseBy
}

// releaseLate hangs up on replicas that take too long. They may release later: a directory that
// nobody has is nobody's harm.
func (e *Engine) releaseLate() {
	v := e.leaving
	v.releaseBy = clock.Never
	for _, l := range slices.Clone(v.releasing) {
		l.fail("no release within " + v.ReleaseTime.String())
	}
}

// released reports that the replicas are not this engine's any more: losing one is no failure of
// it.
func (e *Engine) released() bool {
	return e.stopped || (e.leaving != nil && e.leaving.stage == leaveReleasing)
}

// left ends the core.
func (e *Engine) left(v *leaving, left *Left, failed []string) {
	if e.leaving != v {
		return
	}
	e.stopping = func() {
		e.leaving = nil
		if len(failed) > 0 {
			v.Reply(left, fmt.Errorf("%w: not released: %s", ErrState, strings.Join(failed, "; ")))
			return
		}
		v.Reply(left, nil)
	}
	e.hangUp()
}

// stay gives a hand-over up while the replicas are still this engine's.
func (e *Engine) stay(reason string) {
	v := e.leaving
	if v == nil || v.stage == leaveReleasing {
		return // it ends when every replica has answered or is given up
	}
	e.leaving = nil
	if v.stage <= leaveRepairing {
		if p := e.passing(); p != "" {
			reason = p + ": " + reason
		}
		e.event("stays", "", reason)
		v.Reply(nil, fmt.Errorf("%w: %s", ErrState, strings.TrimPrefix(reason, ErrState.Error()+": ")))
		return
	}
	e.changing = ""
	e.event("stays", "", reason)
	if f, ok := e.fe.(frontend.Exporter); ok {
		f.Continue(e.out)
	}
	if v.stage == leaveFlushing {
		e.thaw()
	}
	v.Reply(nil, fmt.Errorf("%w: %s", ErrState, strings.TrimPrefix(reason, ErrState.Error()+": ")))
}

// prepare answers when everybody has who will.
func (e *Engine) prepare(reply func(members, missing []string)) {
	e.onPrepared = reply
	e.prepareMore()
}

func (e *Engine) prepareMore() {
	if e.onPrepared == nil {
		return
	}
	heard, all := e.quorum.Prepared()
	if !all {
		return
	}
	e.gatherUntil = clock.Never
	var missing []string
	for _, l := range e.links {
		if l != nil && l.phase != sessionProbed {
			missing = append(missing, l.addr+": "+l.err)
		}
	}
	reply := e.onPrepared
	e.onPrepared = nil
	reply(heard, missing)
}

func (e *Engine) succeed(m Succeed) {
	l := &m.Left
	e.size, e.agreedSize, e.options, e.rebuilds.budget, e.counters = l.Size, l.Size, l.Options, l.RebuildBudget, l.Counters
	e.seconds.goOn(e.now, &e.counters)
	e.purges.again = l.Purge
	e.onServing = m.Reply
	e.quorum.Succeed(l.Epoch)
}

// succeeded tells a successor's owner how its start came out.
func (e *Engine) succeeded(err error) {
	if reply := e.onServing; reply != nil {
		e.onServing = nil
		reply(err)
	}
}

// own has the replicas keep their directories. One that is lost meanwhile is dropped like any
// other.
func (e *Engine) own() {
	e.owner = true
	for _, l := range e.links {
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
	if !l.helloReply.Trial || !l.e.owner {
		return
	}
	l.helloReply.Trial = false
	l.e.control(l, &wire.ControlRequest{Keep: &wire.KeepRequest{}}, func(block.Code, *wire.ControlReply) {})
}
