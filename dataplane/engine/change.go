package engine

import (
	"errors"
	"fmt"
	"strings"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/wire"
)

// A change of the chain (a snapshot, an expansion, …) is made by every RW replica, at one point
// between writes where it matters. All refuse: nothing has changed, and the caller gets the error.
// Some refuse: their chains differ from the others' now, so they are dropped. Some never answered:
// nobody knows, and their connection is lost anyway. The caller is answered when the set of
// replicas that made the change is agreed, because until then the next start might choose one that
// did not.
//
// No request that changes a chain is sent while a drop is open, be it the first step of a change, a
// later one, or a repair at a start: it waits until the set without whoever was lost is agreed
// (whenNoDropIsOpen). Every replica that gets a step then has the account of all that are absent,
// so that the step is on it; and a crash never finds members that are more than one step apart,
// which is what agree.go can put right.
type change struct {
	// what it is, for messages: "snapshot x".
	what    string
	request *wire.ControlRequest
	// between: no write is in flight meanwhile.
	between bool
	// check asks everybody whether they would refuse before anybody begins: limits are judged by
	// what each occupies, and that may differ without any of them being wrong.
	check bool
	// repairs: what a write that failed has left different is made the same first, since the change
	// would freeze it.
	repairs bool
	// checkOnly: that is all that is wanted.
	checkOnly bool
	// notFound: who does not know what it is about has nothing to do.
	notFound bool
	// beside: it can be made while a replica is rebuilt, and the target makes it too.
	beside bool
	// own: it is a part of the import under way, during which nobody else may change anything.
	own bool
	// followed runs after made if the target of a rebuild has made the change too.
	followed func(j *rebuildJob)
	// made runs when the outcome is known and a replica has made the change, before writes go on.
	made func()
	// done gets the outcome.
	done func(err error)
}

// changes makes one change of the replicas' chains at a time.
type changes struct {
	e *Engine
	// current is the change that is under way, empty for none; made counts those that were made.
	current   string
	made      uint64
	expansion Expansion
}

// errNotAgreed: the engine ended, or failed everything, before the set was agreed.
var errNotAgreed = errors.New(
	"engine: the set of replicas that carried it out was not agreed; look at the state before trying again")

// unavailable says why nothing can be asked of the replicas now, nil if it can. An engine that is
// not at its end serves later: ErrBusy.
func (e *Engine) unavailable() error {
	switch {
	case e.stopping != nil:
		return fmt.Errorf("%w: the engine is shutting down", ErrState)
	case e.fatal != "":
		return fmt.Errorf("%w: %s", ErrState, e.fatal)
	case !e.serving || e.links.mask(RW) == 0:
		return fmt.Errorf("%w: %s", ErrBusy, e.why())
	}
	return nil
}

// nobodyToAsk is unavailable where no replica is connected.
func (e *Engine) nobodyToAsk() error {
	if err := e.unavailable(); err != nil {
		return err
	}
	return fmt.Errorf("%w: no replica is connected", ErrBusy)
}

// may tells whether a change of the chain can be made now.
func (k *changes) may() error {
	if err := k.e.imports.reason(); err != nil {
		return err
	}
	if err := k.e.passing.reason(); err != nil {
		return err
	}
	return k.mayContent()
}

// reason refuses what a live upgrade would have to wait for, or would lose.
func (h *passing) reason() error {
	if h.leaving != nil {
		return fmt.Errorf("%w: %s is under way; try again", ErrBusy, handing)
	}
	return nil
}

// mayContent is may for an import.
func (k *changes) mayContent() error {
	if err := k.e.unavailable(); err != nil {
		return err
	}
	if j := k.e.rebuilds.job(); j != nil {
		return j.inTheWay()
	}
	return k.reason()
}

// reason refuses what cannot be done beside a change.
func (k *changes) reason() error {
	if k.current != "" {
		return fmt.Errorf("%w: %s is under way; try again", ErrBusy, k.current)
	}
	return nil
}

// mayMake tells whether c can be made now.
func (k *changes) mayMake(c *change) error {
	e := k.e
	switch {
	case c.beside:
		for _, reason := range []func() error{e.imports.reason, e.passing.reason, e.unavailable, k.reason} {
			if err := reason(); err != nil {
				return err
			}
		}
		return nil
	case c.own:
		return k.mayContent()
	}
	return k.may()
}

// make makes c, or tells why not.
func (k *changes) make(c *change) {
	if err := k.mayMake(c); err != nil {
		c.done(err)
		return
	}
	k.current = c.what
	if !c.beside {
		k.begin(c)
		return
	}
	done := c.done
	c.done = func(err error) {
		k.e.rebuilds.resume()
		done(err)
	}
	k.e.rebuilds.pause(func() { k.begin(c) })
}

// begin stops writes where c wants that, and goes on.
func (k *changes) begin(c *change) {
	e := k.e
	if !c.between {
		k.checkAll(c)
		return
	}
	done := c.done
	c.done = func(err error) {
		e.writes.thaw()
		done(err)
	}
	if !c.repairs {
		e.writes.freeze(func() { k.checkAll(c) })
		return
	}
	// All of it is done beside writes; what they tear from then on, until they are stopped, is done
	// when they are. No write is stopped for what cannot be done.
	e.torn.repairAll(func() {
		if k.refuseTorn(e.torn.errStaysTorn(), done) {
			return
		}
		e.writes.freeze(func() {
			e.torn.repairAll(func() {
				if !k.refuseTorn(e.torn.errTorn(), c.done) {
					k.checkAll(c)
				}
			})
		})
	})
}

// refuseTorn ends a change that would freeze a difference, which err says, and tells whether it
// did.
func (k *changes) refuseTorn(err error, done func(err error)) bool {
	if err == nil || k.e.links.mask(RW) == 0 {
		return false
	}
	k.current = ""
	if why := k.mayContent(); why != nil {
		err = why // nothing was repaired for that
	}
	done(err)
	return true
}

// checkAll asks every RW replica whether it would refuse, if that is wanted, and goes on if none
// would.
func (k *changes) checkAll(c *change) {
	if !c.check && !c.checkOnly {
		k.makeAll(c)
		return
	}
	q := *c.request
	q.Check = true
	k.e.links.askAll(&q, nil, func(verdicts []verdict) {
		for _, v := range verdicts {
			if isRefusal(v.err) {
				k.current = ""
				c.done(v.err)
				return
			}
		}
		if c.checkOnly {
			c.done(nil)
			return
		}
		k.makeAll(c)
	})
}

// verdict is one replica's answer.
type verdict struct {
	l *link
	// follower: it is the target of a rebuild, whose answer decides nothing.
	follower bool
	err      error
}

// isRefusal tells a refusal that is the caller's to deal with from a failure that is the replica's
// own: that one fails again when it comes to it, and is dropped then.
func isRefusal(err error) bool {
	for _, code := range []block.Code{block.Invalid, block.Exists, block.NotFound, block.LimitReached, block.NoSpace} {
		if errors.Is(err, code) {
			return true
		}
	}
	return false
}

// makeAll makes every RW replica do it, when no drop is open.
func (k *changes) makeAll(c *change) {
	e := k.e
	e.members.whenNoDropIsOpen(func() {
		var follower *link
		if j := e.rebuilds.job(); c.beside && j != nil && j.stage == stageCopying {
			follower = j.target
		}
		e.links.askAll(c.request, follower, func(verdicts []verdict) { k.done(c, verdicts) })
	})
}

// askAll sends a request to every RW replica, and to follower if it is not nil. If there is no RW
// replica nobody is asked.
func (k *links) askAll(q *wire.ControlRequest, follower *link, done func(verdicts []verdict)) {
	var all []*link
	for _, l := range k.all {
		if l != nil && l.mode == RW {
			all = append(all, l)
		}
	}
	if len(all) > 0 && follower != nil {
		all = append(all, follower)
	}
	if len(all) == 0 {
		done(nil)
		return
	}
	var verdicts []verdict
	for _, l := range all {
		l.control(q, func(code block.Code, r *wire.ControlReply) {
			v := verdict{l: l, follower: l == follower}
			if code != block.OK {
				v.err = refusal(code, r.Error)
			}
			if verdicts = append(verdicts, v); len(verdicts) == len(all) {
				done(verdicts)
			}
		})
	}
}

// outcome tells whether anybody carried it out, and the reason of those who did not that helps
// most: not that of a replica that was lost on the way. With notFound, not to know what it is about
// is no reason where others do.
func outcome(verdicts []verdict, notFound bool) (made bool, err error) {
	for _, v := range verdicts {
		if v.follower {
			continue
		}
		made = made || v.err == nil
		if v.err != nil && (err == nil || errors.Is(err, block.Unavailable)) {
			err = v.err
		}
	}
	if len(verdicts) == 0 {
		err = fmt.Errorf("%w: no replica left", ErrState)
	}
	if made && notFound && errors.Is(err, ErrNotFound) {
		err = nil
	}
	return made, err
}

// refusal is the error of an answer. A refusal keeps its code; what is not there is ErrNotFound.
func refusal(code block.Code, text string) error {
	// Who refuses may say the code's text itself; it is said once.
	if text = strings.TrimPrefix(strings.TrimPrefix(text, code.String()), ": "); text == "" {
		text = "no reason given"
	}
	if code == block.NotFound {
		return fmt.Errorf("%w: %w: %s", ErrNotFound, code, text)
	}
	return fmt.Errorf("%w: %s", code, text)
}

// done judges when all have answered.
func (k *changes) done(c *change, verdicts []verdict) {
	made, err := outcome(verdicts, c.notFound)
	if made {
		for _, v := range verdicts {
			if v.err != nil && !(c.notFound && errors.Is(v.err, ErrNotFound)) {
				v.l.fail(fmt.Sprintf("%s was carried out elsewhere, not here: %v", c.what, v.err))
			}
		}
		err = nil
		k.made++
		if c.made != nil {
			c.made()
		}
	}
	for _, v := range verdicts {
		if j := v.l.joining; v.follower && v.err == nil && j != nil && !made {
			v.l.fail(c.what + " was carried out there, and on no replica that counts")
		} else if v.follower && v.err == nil && j != nil && c.followed != nil {
			c.followed(j)
		}
	}
	k.current = ""
	k.e.changed = true
	c.done(err)
}

// whenNoDropIsOpen calls f when no drop is open: at once, when the set without whoever was lost is
// agreed, or when nothing will be agreed any more, because no replica is left or the engine has
// ended. f finds out by itself which replicas are left.
func (m *membership) whenNoDropIsOpen(f func()) {
	m.onDropClosed = append(m.onDropClosed, f)
	m.dropClosed()
}

// dropClosed continues what waits for the set of replicas to be agreed, until another one is lost.
func (m *membership) dropClosed() {
	for len(m.onDropClosed) > 0 && !m.dropOpen() {
		f := m.onDropClosed[0]
		m.onDropClosed = m.onDropClosed[1:]
		f()
	}
	if !m.dropOpen() {
		m.e.dirty.agreed()
	}
}

// dropOpen tells that a replica was lost which is still a member, and that the set without it may
// yet be agreed.
func (m *membership) dropOpen() bool {
	e := m.e
	return e.quorum.Holding() && e.links.count(RW) > 0 && e.fatal == "" && !e.stopped
}

// writes are those that replicas carry out, and whoever wants none of them.
type writes struct {
	e *Engine
	// inFlight counts mirrored writes, and what stops of writes wait for beside them.
	inFlight int
	// frozen counts who has writes stopped (a snapshot, the start of a rebuild). onQuiet are called
	// when none is in flight any more.
	frozen  int
	onQuiet []func()
}

// quiet calls whoever waits for the end of all writes in flight.
func (w *writes) quiet() {
	if w.inFlight > 0 || len(w.onQuiet) == 0 {
		return
	}
	fs := w.onQuiet
	w.onQuiet = nil
	for _, f := range fs {
		f()
	}
}

// freeze stops new writes and calls f when none is in flight any more. thaw lets them go on.
func (w *writes) freeze(f func()) {
	w.frozen++
	w.onQuiet = append(w.onQuiet, f)
	w.quiet()
}

func (w *writes) thaw() {
	e := w.e
	w.frozen--
	if w.frozen == 0 {
		if e.torn.job != nil {
			e.torn.job.frozen = false // it was given up by who had writes stopped for it
		}
		e.requests.retryBacklog()
		e.dirty.agreed()
	}
}
