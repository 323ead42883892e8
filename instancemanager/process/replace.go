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
// An engine with --upgrade takes the volume over from the first one before it is running
// (docs/upgrade.md): the signal only ends a process that has nothing left to do. Until it is
// running the first one may serve still, or again, so nothing but its running makes it take over:
// not Config.ReplaceTimeout, after which it is stopped, and a caller who goes away cannot stop it
// any more. Any other replacement that is still starting after Config.ReplaceTimeout takes over all
// the same: it may be waiting for what the first one holds.
//
// The first one is out of the list from then on; its ports come back when it has ended, at the
// latest after the stop timeout. Until the swap the second one is not seen in List and Watch.
//
// Errors: ErrInvalid, ErrNotFound, ErrNoPorts, ErrClosed, ErrNotReady (it ended or failed; it is
// cleaned up), ErrExists (the first one changed meanwhile; the second is cleaned up), and that of
// ctx.
func (m *Manager) Replace(ctx context.Context, spec Spec, signal string) (Status, error) {
	if err := spec.check(); err != nil {
		return Status{}, err
	}
	if signal != "SIGHUP" {
		return Status{}, fmt.Errorf("%w: process %s: terminate signal %q, only SIGHUP is supported", ErrInvalid,
			spec.Name, signal)
	}
	m.mu.Lock()
	old, err := m.find(spec.Name, "")
	if err != nil {
		defer m.mu.Unlock()
		return Status{}, err
	}
	if old.spec.Binary == spec.Binary {
		defer m.mu.Unlock()
		return old.status(), nil
	}
	p, err := m.add(spec)
	m.mu.Unlock()
	if err != nil {
		return Status{}, err
	}
	p.start()
	if spec.takesOver() {
		ctx = context.WithoutCancel(ctx)
	}
	if err := p.awaitTakeover(ctx, m.cfg.ReplaceTimeout); err != nil {
		m.discard(p, err.Error())
		return Status{}, err
	}
	return m.swap(old, p)
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
			return fmt.Errorf("%w: %s became %s: %s; it said last: %s", ErrNotReady, p.spec.Name, state, errorMsg,
				orNothing(said))
		}
		select {
		case <-changed:
		case <-timer.C:
			if p.spec.takesOver() {
				return fmt.Errorf("%w: %s has not taken over within %s; it said last: %s", ErrNotReady, p.spec.Name,
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

// swap puts p in the place of old, if old is still there.
func (m *Manager) swap(old, p *Process) (Status, error) {
	m.mu.Lock()
	if m.listed[p.spec.Name] != old || old.deleting || p.ended || m.closed {
		m.mu.Unlock()
		m.discard(p, "the process to replace changed")
		return Status{}, fmt.Errorf("%w: %s changed while it was being replaced; look at it again", ErrExists, p.spec.Name)
	}
	defer m.mu.Unlock()
	old.listed, old.deleting = false, true
	if old.ended {
		m.remove(old)
	} else {
		old.requestStop(stopRequest{signal: replaceSignal, timeout: m.cfg.StopTimeout, why: "replaced"})
	}
	p.listed = true
	m.listed[p.spec.Name] = p
	m.publish(p, false)
	return p.status(), nil
}

// discard stops a replacement that will not take over. An engine that hangs on the way is killed:
// asked politely it might take the volume's frontend down that it had been given; killed, it leaves
// it to the next engine.
func (m *Manager) discard(p *Process, why string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p.deleting = true
	if p.ended {
		m.remove(p)
		return
	}
	r := stopRequest{signal: stopSignal, timeout: m.cfg.StopTimeout, why: why}
	if p.spec.takesOver() {
		r.signal = unix.SIGKILL
	}
	p.requestStop(r)
}
