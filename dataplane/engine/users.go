package engine

import (
	"fmt"

	"ankole.storage/dataplane/clock"
	"ankole.storage/dataplane/frontend"
)

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
	if u.fe != nil || e.handover.leaving != nil {
		m.Reply(fmt.Errorf("%w: a frontend is attached already, or the volume is being handed over", ErrState))
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
	case e.handover.leaving != nil:
		reply(fmt.Errorf("%w: the volume is being handed over", ErrState))
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
