package process

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"ankole.storage/instancemanager/instancetest"
	"ankole.storage/test/lack"
	"ankole.storage/test/wait"
)

// newBinary returns a second path of the test binary, for another version of an instance.
func newBinary(t *testing.T) string {
	path := filepath.Join(t.TempDir(), "longhorn")
	if out, err := exec.Command("cp", instancetest.Binary(t), path).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return path
}

// TestReplace: the new process takes over name and list; the old one gets SIGHUP and gives its
// ports back.
func TestReplace(t *testing.T) {
	m := newManager(t, nil)
	if _, err := m.Create(spec(t, "demo-e-0", instancetest.Serve, 1)); err != nil {
		t.Fatal(err)
	}
	old := await(t, m, "demo-e-0", Running)
	watch := m.Watch()
	defer watch.Cancel()

	s := spec(t, "demo-e-0", instancetest.Serve, 1)
	if p, err := m.Replace(context.Background(), s, "SIGHUP"); err != nil || p.UUID != old.UUID {
		t.Fatalf("with the same binary: %+v %v", p, err)
	}
	s.Binary = newBinary(t)
	p, err := m.Replace(context.Background(), s, "SIGHUP")
	if err != nil || p.State != Running || p.UUID == old.UUID || p.Ports.Start != old.Ports.Start+1 {
		t.Fatalf("%+v %v", p, err)
	}
	// One event: the name now means the new process. Its start and the old one's end are not shown.
	if event := next(t, watch); event.UUID != p.UUID || event.State != Running || event.Deleted {
		t.Errorf("%+v", event)
	}
	wait.Until(t, "the old process has given its port back", func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return m.ports.inUse == 1 && len(m.all) == 1
	})
	if _, err := m.Delete("demo-e-0", p.UUID); err != nil {
		t.Fatal(err)
	}
	if event := next(t, watch); event.State != Stopping {
		t.Errorf("%+v", event)
	}
}

func TestReplaceRefused(t *testing.T) {
	m := newManager(t, func(c *Config) { c.ReplaceTimeout = instancetest.Deadline })
	if _, err := m.Create(spec(t, "demo-e-0", instancetest.Serve, 1)); err != nil {
		t.Fatal(err)
	}
	old := await(t, m, "demo-e-0", Running)
	s := spec(t, "demo-e-0", instancetest.Serve, 1)
	s.Binary = newBinary(t)
	unknown, fails, missing := s, s, s
	unknown.Name = "demo-e-1"
	fails.Args = []string{instancetest.Exit, "--status", "5"}
	missing.Binary = "/missing"
	for _, row := range []struct {
		spec   Spec
		signal string
		want   error
		says   string
	}{
		{s, "SIGTERM", ErrInvalid, "only SIGHUP"},
		{s, "", ErrInvalid, "only SIGHUP"},
		{Spec{Name: "demo-e-0"}, "SIGHUP", ErrInvalid, "binary is missing"},
		{unknown, "SIGHUP", ErrNotFound, "demo-e-1"},
		{fails, "SIGHUP", ErrNotReady, "exit status 5"},
		{missing, "SIGHUP", ErrNotReady, "no such file"},
	} {
		_, err := m.Replace(context.Background(), row.spec, row.signal)
		if !errors.Is(err, row.want) || !strings.Contains(err.Error(), row.says) {
			t.Errorf("%+v with %q: %v", row.spec, row.signal, err)
		}
	}
	if p := await(t, m, "demo-e-0", Running); p.UUID != old.UUID {
		t.Error("a refused replacement took over")
	}
	if m.ports.inUse != 1 || len(m.all) != 1 {
		t.Errorf("left: %d ports, %d processes", m.ports.inUse, len(m.all))
	}
}

// TestReplaceSlowStarter: one that is still starting after the wait takes over all the same.
func TestReplaceSlowStarter(t *testing.T) {
	lack.RealTime(t, "a start within 200 ms")
	m := newManager(t, func(c *Config) { c.ReplaceTimeout = 200 * time.Millisecond })
	if _, err := m.Create(spec(t, "demo-e-0", instancetest.Serve, 1)); err != nil {
		t.Fatal(err)
	}
	await(t, m, "demo-e-0", Running)
	s := spec(t, "demo-e-0", instancetest.Unhealthy, 1)
	s.Binary = newBinary(t)
	if p, err := m.Replace(context.Background(), s, "SIGHUP"); err != nil || p.State != Starting ||
		p.Spec.Binary != s.Binary {
		t.Errorf("%+v %v", p, err)
	}
}

// TestReplaceOvertaken: the process to replace is deleted meanwhile.
func TestReplaceOvertaken(t *testing.T) {
	m := newManager(t, func(c *Config) { c.ReplaceTimeout = instancetest.Deadline })
	if _, err := m.Create(spec(t, "demo-e-0", instancetest.Serve, 1)); err != nil {
		t.Fatal(err)
	}
	await(t, m, "demo-e-0", Running)
	s := spec(t, "demo-e-0", instancetest.NeverListens, 1)
	s.Binary = newBinary(t)
	result := make(chan error, 1)
	go func() {
		_, err := m.Replace(t.Context(), s, "SIGHUP")
		result <- err
	}()
	wait.Until(t, "the replacement has been made", func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return len(m.all) == 2
	})
	if _, err := m.Delete("demo-e-0", ""); err != nil {
		t.Fatal(err)
	}
	answerHealth(t, m.cfg.PodIP+":10001", healthpb.HealthCheckResponse_SERVING) // only now it can be ready
	if err := <-result; !errors.Is(err, ErrExists) {
		t.Errorf("%v", err)
	}
	wait.Until(t, "nothing is left", func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return m.ports.inUse == 0 && len(m.all) == 0
	})
}

// TestReplaceAbandoned: the client goes away; the replacement is stopped, the old process stays.
func TestReplaceAbandoned(t *testing.T) {
	lack.RealTime(t, "a start within 200 ms")
	m := newManager(t, func(c *Config) { c.ReplaceTimeout = instancetest.Deadline })
	if _, err := m.Create(spec(t, "demo-e-0", instancetest.Serve, 1)); err != nil {
		t.Fatal(err)
	}
	old := await(t, m, "demo-e-0", Running)
	s := spec(t, "demo-e-0", instancetest.Unhealthy, 1)
	s.Binary = newBinary(t)
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	if _, err := m.Replace(ctx, s, "SIGHUP"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
	wait.Until(t, "the replacement is gone", func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return len(m.all) == 1
	})
	if p, err := m.Get("demo-e-0"); err != nil || p.UUID != old.UUID || p.State != Running {
		t.Errorf("%+v %v", p, err)
	}
}

// TestReplaceByASuccessor: an engine that follows another one takes its place when it is running
// and not before, whatever the caller does.
func TestReplaceByASuccessor(t *testing.T) {
	m := newManager(t, nil)
	if _, err := m.Create(spec(t, "demo-e-0", instancetest.Serve, 1)); err != nil {
		t.Fatal(err)
	}
	old := await(t, m, "demo-e-0", Running)
	hangs := spec(t, "demo-e-0", instancetest.Unhealthy, 1, "--upgrade")
	hangs.Binary = newBinary(t)
	refuses := spec(t, "demo-e-0", instancetest.Serve, 1, "--upgrade")
	refuses.Binary, refuses.PortArgs = hangs.Binary, nil
	stubborn := spec(t, "demo-e-0", instancetest.NeverListens, 1, "--upgrade")
	stubborn.Binary = hangs.Binary
	for _, row := range []struct {
		spec Spec
		wait time.Duration
		says string
	}{
		{hangs, 300 * time.Millisecond, "does not run within 300ms; it said last: nothing"},
		{stubborn, 300 * time.Millisecond, "does not run"},
		{refuses, instancetest.Deadline, "exit status 1: --listen is missing"},
	} {
		m.cfg.ReplaceTimeout = row.wait
		if _, err := m.Replace(context.Background(), row.spec, "SIGHUP"); !errors.Is(err, ErrNotReady) ||
			!strings.Contains(err.Error(), row.says) {
			t.Errorf("%v, want %q", err, row.says)
		}
		if p, err := m.Get("demo-e-0"); err != nil || p.UUID != old.UUID || p.State != Running {
			t.Errorf("the old one is %+v, %v", p, err)
		}
	}
	wait.Until(t, "the replacements are gone", func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return len(m.all) == 1 && m.ports.inUse == 1
	})
	m.cfg.ReplaceTimeout = instancetest.Deadline
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	good := spec(t, "demo-e-0", instancetest.Serve, 1, "--upgrade")
	good.Binary = hangs.Binary
	if p, err := m.Replace(gone, good, "SIGHUP"); err != nil || p.UUID == old.UUID || p.State != Running {
		t.Errorf("with a caller who has gone: %+v %v", p, err)
	}
}

// TestOldEngineLeaves: an engine that is being followed ends in order, since it has left its
// volume. That is not shown: either the successor runs, or nobody has the volume, and then the
// engine has failed. The successor is told where the one before listens.
func TestOldEngineLeaves(t *testing.T) {
	for _, runs := range []bool{true, false} {
		m := newManager(t, func(c *Config) { c.ReplaceTimeout = instancetest.Deadline })
		if _, err := m.Create(spec(t, "demo-e-0", instancetest.Serve, 1)); err != nil {
			t.Fatal(err)
		}
		old := await(t, m, "demo-e-0", Running)
		s := spec(t, "demo-e-0", instancetest.Env, 1, "--upgrade")
		s.Binary = newBinary(t)
		result := make(chan error, 1)
		go func() {
			_, err := m.Replace(context.Background(), s, "SIGHUP")
			result <- err
		}()
		wait.Until(t, "the successor is told where the old one listens", func() bool {
			return strings.Contains(logOf(t, m, "demo-e-0"), fmt.Sprintf("ANKOLE_PREDECESSOR=%s:%d\n", m.cfg.PodIP,
				old.Ports.Start))
		})
		m.mu.Lock()
		first := m.listed["demo-e-0"]
		next := first.next.child.cmd.Process.Pid
		m.mu.Unlock()
		if err := unix.Kill(first.child.cmd.Process.Pid, unix.SIGINT); err != nil {
			t.Fatal(err)
		}
		wait.Until(t, "the old one has ended", func() bool {
			m.mu.Lock()
			defer m.mu.Unlock()
			return first.ended
		})
		if p, err := m.Get("demo-e-0"); err != nil || p.UUID != old.UUID || p.State != Running {
			t.Errorf("the old one is shown as %+v, %v", p, err)
		}
		if runs {
			answerHealth(t, fmt.Sprintf("%s:%d", m.cfg.PodIP, old.Ports.Start+1), healthpb.HealthCheckResponse_SERVING)
			if err := <-result; err != nil {
				t.Error(err)
			}
			if p, err := m.Get("demo-e-0"); err != nil || p.UUID == old.UUID || p.State != Running {
				t.Errorf("in its place is %+v, %v", p, err)
			}
			continue
		}
		if err := unix.Kill(next, unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if err := <-result; !errors.Is(err, ErrNotReady) {
			t.Error(err)
		}
		if p, err := m.Get("demo-e-0"); err != nil || p.UUID != old.UUID || p.State != Error ||
			!strings.Contains(p.ErrorMsg, "has left its volume") {
			t.Errorf("nobody has the volume, and the old one is shown as %+v, %v", p, err)
		}
	}
}
