package process

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// Stop timeouts when the Pod stops. Together with twice killGrace they stay below the grace period
// of 30 s that Kubernetes gives a Pod by default, after which everything is killed without order.
const (
	stopEngines  = 10 * time.Second
	stopReplicas = 10 * time.Second
)

// killGrace is how long a killed process may take to end: the kernel holds it while it is in an
// uninterruptible call.
const killGrace = 4 * time.Second

// Close stops all processes, engines first, then replicas: an engine that ends while its replicas
// live can flush and leave them clean. Engines that Config.Kept names are killed, except those that
// are deleted already. All are listed as stopping from the beginning: whoever starts the next
// engine of a volume does not count on a replica that is about to end. Nothing is started any more.
// It returns when the last process has been reaped; a shorter ctx means less patience before
// SIGKILL. An error names processes that not even SIGKILL ended in time; the kernel ends them after
// the caller has exited.
func (m *Manager) Close(ctx context.Context) error {
	m.mu.Lock()
	m.closed = true
	for p := range m.all {
		if !p.ended {
			p.set(Stopping, p.errorMsg)
		}
	}
	m.mu.Unlock()
	err := m.stopAll(ctx, IsEngine, m.cfg.Kept(), stopEngines)
	if m.cfg.EnginesEnded != nil {
		m.cfg.EnginesEnded()
	}
	err = errors.Join(err, m.stopAll(ctx, func(string) bool { return true }, nil, stopReplicas))
	m.closeWatchers()
	if err != nil {
		return err
	}
	m.running.Wait()
	m.launcher.close()
	m.strays.close()
	m.logs.echo.Close()
	return nil
}

// stopAll stops the processes whose names match, kills those that are kept, and waits for all.
func (m *Manager) stopAll(ctx context.Context, match func(name string) bool, kept map[string]bool,
	timeout time.Duration) error {
	timeout = min(timeout, m.cfg.StopTimeout)
	if deadline, ok := ctx.Deadline(); ok {
		timeout = max(min(timeout, time.Until(deadline)), 0)
	}
	m.mu.Lock()
	for p := range m.all {
		if match(p.spec.Name) && !p.ended {
			r := stopRequest{signal: stopSignal, timeout: timeout, why: "the instance manager is stopping"}
			if kept[p.spec.Name] && !p.deleting {
				r.signal, r.why = unix.SIGKILL, "the instance manager is stopping, and the block device is kept"
			}
			p.requestStop(r)
		}
	}
	m.mu.Unlock()
	limit := time.NewTimer(timeout + killGrace)
	defer limit.Stop()
	for {
		name, changed := m.anyLive(match)
		if changed == nil {
			return nil
		}
		select {
		case <-changed:
		case <-limit.C:
			return fmt.Errorf("process %s does not end although it was killed", name)
		}
	}
}

// anyLive returns one process that has not ended and what closes at its next change; nil if there
// is none.
func (m *Manager) anyLive(match func(name string) bool) (string, <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for p := range m.all {
		if match(p.spec.Name) && !p.ended {
			return p.spec.Name, p.changed
		}
	}
	return "", nil
}
