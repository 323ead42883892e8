package process

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ankole.storage/instancemanager/instancetest"
	"ankole.storage/test/wait"
)

// TestPortsComeBack holds every way in which a process can fail or be given up: its ports are its
// own until it is deleted, and then free, and nothing else is left of it.
func TestPortsComeBack(t *testing.T) {
	dir := t.TempDir()
	other := newBinary(t)
	file := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	plain, garbage := file("plain", "#!/bin/sh\n", 0o644), file("garbage", "\x7fELF nonsense", 0o755)
	dead := file("no-interpreter", "#!/missing/interpreter\n", 0o755)
	binary := func(path string) func(*testing.T, *Manager) {
		return func(t *testing.T, m *Manager) {
			s := spec(t, "x-e-0", instancetest.Serve, 3)
			s.Binary = path
			p, err := m.Create(s)
			if err != nil || p.State != Error || p.ErrorMsg == "" || !strings.Contains(p.ErrorMsg, path) {
				t.Fatalf("%+v %v", p, err)
			}
		}
	}
	mode := func(mode string, until []State, args ...string) func(*testing.T, *Manager) {
		return func(t *testing.T, m *Manager) {
			if _, err := m.Create(spec(t, "x-e-0", mode, 3, args...)); err != nil {
				t.Fatal(err)
			}
			if until != nil {
				await(t, m, "x-e-0", until...)
			}
		}
	}
	replace := func(ctx context.Context, mode string, want error, args ...string) func(*testing.T, *Manager) {
		return func(t *testing.T, m *Manager) {
			if _, err := m.Create(spec(t, "x-e-0", instancetest.Serve, 3)); err != nil {
				t.Fatal(err)
			}
			await(t, m, "x-e-0", Running)
			s := spec(t, "x-e-0", mode, 3, args...)
			s.Binary = other
			if _, err := m.Replace(ctx, s, "SIGHUP"); !errors.Is(err, want) {
				t.Fatalf("replace: %v, want %v", err, want)
			}
		}
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for _, row := range []struct {
		name string
		do   func(*testing.T, *Manager)
	}{
		{"binary missing", binary(filepath.Join(dir, "missing"))},
		{"binary not executable", binary(plain)},
		{"binary is a directory", binary(dir)},
		{"binary is no program", binary(garbage)},
		{"interpreter missing", binary(dead)},
		{"path through a file", binary(filepath.Join(plain, "longhorn"))},
		{"dies at once", mode(instancetest.Exit, []State{Error}, "--status", "1")},
		{"ends at once", mode(instancetest.Exit, []State{Stopped}, "--status", "0")},
		{"never ready", mode(instancetest.Unhealthy, []State{Stopped, Error})},
		{"deleted at once", mode(instancetest.Serve, nil)},
		{"deleted while starting", mode(instancetest.NeverListens, []State{Starting})},
		{"deleted while running", mode(instancetest.Serve, []State{Running})},
		{"ignores the signal", mode(instancetest.Stubborn, []State{Running})},
		{"replaced", replace(t.Context(), instancetest.Serve, nil)},
		{"replaced by one that never gets ready", replace(t.Context(), instancetest.Unhealthy, nil)},
		{"replacement dies", replace(t.Context(), instancetest.Exit, ErrNotReady, "--status", "1")},
		{"replacement given up", replace(gone, instancetest.Serve, context.Canceled)},
	} {
		t.Run(row.name, func(t *testing.T) {
			m := newManager(t, func(c *Config) {
				c.Ports = PortRange{10000, 10007}
				c.ReplaceTimeout, c.StopTimeout = instancetest.Deadline, 300*time.Millisecond
				switch row.name {
				case "never ready":
					c.ProbeTimeout = 300 * time.Millisecond
				case "replaced by one that never gets ready":
					c.ReplaceTimeout = 300 * time.Millisecond
				}
			})
			row.do(t, m)
			if p, err := m.Get("x-e-0"); err != nil || p.Ports.Len() != 3 {
				t.Fatalf("%+v %v", p, err)
			}
			if _, err := m.Delete("x-e-0", ""); err != nil {
				t.Fatal(err)
			}
			wait.Until(t, "ports, process and log are gone", func() bool {
				m.mu.Lock()
				defer m.mu.Unlock()
				m.logs.mu.Lock()
				defer m.logs.mu.Unlock()
				return m.ports.inUse == 0 && len(m.all) == 0 && len(m.listed) == 0 && len(m.logs.open) == 0
			})
			// All of them can be had in one piece again.
			r, err := m.ports.take(8)
			if err != nil {
				t.Fatal(err)
			}
			m.ports.release(r)
		})
	}
}

// TestSameNameAtOnce: of many who create the same name at the same moment one succeeds, the others
// are told that it exists and leave nothing.
func TestSameNameAtOnce(t *testing.T) {
	m := newManager(t, nil)
	const clients = 32
	results := make(chan error, clients)
	begin := make(chan struct{})
	for range clients {
		s := spec(t, "demo-r-1", instancetest.Serve, 3)
		go func() {
			<-begin
			_, err := m.Create(s)
			results <- err
		}()
	}
	close(begin)
	created := 0
	for range clients {
		if err := <-results; err == nil {
			created++
		} else if !errors.Is(err, ErrExists) {
			t.Error(err)
		}
	}
	await(t, m, "demo-r-1", Running)
	m.mu.Lock()
	defer m.mu.Unlock()
	if created != 1 || m.ports.inUse != 3 || len(m.all) != 1 {
		t.Errorf("%d created, %d ports, %d processes", created, m.ports.inUse, len(m.all))
	}
}

// TestProcessesAreBounded: one process more than allowed is refused, and takes no port.
func TestProcessesAreBounded(t *testing.T) {
	m := newManager(t, nil)
	m.mu.Lock()
	var others []*Process
	for len(m.all) < maxProcesses {
		p := &Process{ended: true}
		others = append(others, p)
		m.all[p] = struct{}{}
	}
	m.mu.Unlock()
	if _, err := m.Create(spec(t, "x-e-0", instancetest.Serve, 3)); !errors.Is(err, ErrTooMany) || m.ports.inUse != 0 {
		t.Errorf("%v, %d ports are taken", err, m.ports.inUse)
	}
	m.mu.Lock()
	delete(m.all, others[0])
	m.mu.Unlock()
	if _, err := m.Create(spec(t, "x-e-0", instancetest.Serve, 3)); err != nil {
		t.Error(err)
	}
	m.mu.Lock()
	for _, p := range others {
		delete(m.all, p)
	}
	m.mu.Unlock()
}
