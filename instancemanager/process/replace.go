package process

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// Replace starts a second process under the name of a listed one, with another binary and on ports
// of its own, waits until it is running, and then signals the first one (SIGHUP) to end. With the
// same binary nothing happens and the present process is returned.
//
// An engine with --upgrade is told where the first one listens, has that leave the volume, and is
// running when it has (docs/design/upgrade.md): the first one ends by itself then, and its end is
// not shown as long as this one is on its way. Nothing but its running makes it take over: not
// Config.ReplaceTimeout, after which it is killed, and a caller who goes away cannot stop it any
// more. Any other replacement that is still starting after Config.ReplaceTimeout takes over all the
// same: it may be waiting for what the first one holds.
//
// The first one is out of the list from then on; its ports come back when it has ended, at the
// latest after the stop timeout. Until the swap the second one is not seen in List and Watch.
//
// Errors: ErrInvalid, ErrNotFound, ErrNoPorts, ErrClosed, ErrNotReady (it ended or failed; it is
// cleaned up), ErrExists (the first one changed meanwhile, and the second is cleaned up; or it is
// being replaced already), and that of ctx.
func (m *Manager) Replace(ctx context.Context, spec Spec, signal string) (Status, error) {
	if err := spec.check(m.cfg.Binaries); err != nil {
		return Status{}, err
	}
	if signal != "SIGHUP" {
		return Status{}, fmt.Errorf("%w: process %s: terminate signal %q, only SIGHUP is supported", ErrInvalid,
			spec.Name, signal)
	}
	old, p, err := m.addReplacement(spec)
	if p == nil {
		return old, err
	}
	p.start()
	if spec.follows() {
		ctx = context.WithoutCancel(ctx)
	}
	if err := p.awaitTakeover(ctx, m.cfg.ReplaceTimeout); err != nil {
		return Status{}, m.discard(p, err)
	}
	return m.swap(p)
}

// addReplacement makes the process that is to replace the listed one of its name, linked to it.
// Without one it returns the result of Replace.
func (m *Manager) addReplacement(spec Spec) (present Status, p *Process, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	old, err := m.find(spec.Name, "")
	switch {
	case err != nil:
		return Status{}, nil, err
	case old.spec.Binary == spec.Binary:
		return old.status(), nil, nil
	case old.next != nil:
		return Status{}, nil, fmt.Errorf("%w: %s is being replaced already; look at it again", ErrExists, spec.Name)
	}
	if p, err = m.add(spec); err != nil {
		return Status{}, nil, err
	}
	p.before, old.next = old, p
	if spec.follows() {
		p.predecessor = old.listen
	}
	return Status{}, p, nil
}

// awaitTakeover returns nil when the process is running, or still starting after the timeout unless
// it takes a volume over.
func (p *Process) awaitTakeover(ctx context.Context, timeout time.Duration) error {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	for {
		p.m.mu.Lock()
		state, errorMsg, said, changed := p.state, p.errorMsg, p.said, p.changed
		p.m.mu.Unlock()
		switch state {
		case Running:
			return nil
		case Starting:
		default:
			if state != Error { // whose message has it already
				errorMsg += "it said last: " + orNothing(said)
			}
			return fmt.Errorf("%w: %s became %s: %s", ErrNotReady, p.spec.Name, state, errorMsg)
		}
		select {
		case <-changed:
		case <-timer.C:
			if p.spec.follows() {
				return fmt.Errorf("%w: %s does not run within %s; it said last: %s", ErrNotReady, p.spec.Name,
					timeout, orNothing(said))
			}
			p.m.log.Warn("replacement is still starting; it takes over all the same", "process", p.spec.Name)
			return nil
		case <-ctx.Done():
			return fmt.Errorf("replace process %s: %w", p.spec.Name, ctx.Err())
		}
	}
}

func orNothing(said string) string {
	if said == "" {
		return "nothing"
	}
	return said
}

// swap puts a replacement in the place of the process before it, if that one is still to be
// replaced.
func (m *Manager) swap(p *Process) (Status, error) {
	m.mu.Lock()
	if err := p.overtaken(); err != nil || p.ended {
		m.mu.Unlock()
		return Status{}, m.discard(p, fmt.Errorf("%w: %s has ended: %s", ErrNotReady, p.spec.Name, p.errorMsg))
	}
	defer m.mu.Unlock()
	old := p.before
	p.unlink()
	old.listed = false
	old.end(stopRequest{signal: replaceSignal, timeout: m.cfg.StopTimeout, why: "replaced"})
	p.listed = true
	m.listed[p.spec.Name] = p
	m.publish(p, false)
	return p.status(), nil
}

// overtaken says why nothing is to be replaced any more, nil if something is. The lock is held.
func (p *Process) overtaken() error {
	switch {
	case p.m.closed:
		return fmt.Errorf("%w: process %s is not replaced", ErrClosed, p.spec.Name)
	case p.before == nil || p.before.deleting:
		return fmt.Errorf("%w: %s changed while it was being replaced; look at it again", ErrExists, p.spec.Name)
	}
	return nil
}

// discard stops a replacement that does not take over, and returns the reason: err, or that it was
// overtaken. An engine that hangs on the way is killed: asked politely it might take the volume's
// device down that it had taken over; killed, it leaves it to the next engine. One that was
// overtaken has no next engine, and is stopped like any other process. Where the process before it
// has left the volume nobody has it now, and that one is shown as failed.
func (m *Manager) discard(p *Process, err error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := stopRequest{signal: stopSignal, timeout: m.cfg.StopTimeout}
	if overtaken := p.overtaken(); overtaken != nil {
		err = overtaken
	} else {
		if p.spec.follows() {
			r.signal = unix.SIGKILL
		}
		old := p.before
		p.unlink() // another replacement may begin
		if old.left {
			old.set(Error, "it has left its volume to an engine that does not serve it: "+err.Error())
		}
	}
	r.why = err.Error()
	if !m.closed || p.ended { // stopping all it has been told already, with another time
		p.end(r)
	}
	p.deleting = true
	return err
}
