package process

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"ankole.storage/api/rpc/imrpc"
	"ankole.storage/instancemanager/instancetest"
	"ankole.storage/test/lack"
	"ankole.storage/test/wait"
)

func TestMain(m *testing.M) {
	instancetest.Main()
	os.Exit(m.Run())
}

// newManager returns a Manager with short timeouts that is closed, and left without a process, at
// the end of the test.
func newManager(t *testing.T, change func(*Config)) *Manager {
	t.Helper()
	cfg := Config{
		LogsDir:     t.TempDir(),
		Ports:       PortRange{Start: 10000, End: 10099},
		PodIP:       instancetest.Host(),
		StopTimeout: instancetest.Deadline,
		Log:         slog.New(slog.NewTextHandler(testWriter{t}, nil)),
	}
	if change != nil {
		change(&cfg)
	}
	m, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		if err := m.Close(ctx); err != nil {
			t.Error(err)
		}
		if m.ports.inUse != 0 && len(m.listed) == 0 {
			t.Errorf("%d ports are still taken although no process is left", m.ports.inUse)
		}
	})
	return m
}

type testWriter struct{ t *testing.T }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Log(strings.TrimSpace(string(p)))
	return len(p), nil
}

func spec(t *testing.T, name, mode string, ports int, args ...string) Spec {
	return fromWire(instancetest.Spec(t, name, mode, "0.0.0.0", ports, args...))
}

func fromWire(s *imrpc.ProcessSpec) Spec {
	return Spec{Name: s.Name, Binary: s.Binary, Args: s.Args, PortCount: int(s.PortCount), PortArgs: s.PortArgs,
		Environment: s.Environment}
}

// await returns the status of a process once it is in one of the states.
func await(t *testing.T, m *Manager, name string, states ...State) Status {
	t.Helper()
	var p Status
	wait.Until(t, fmt.Sprintf("%s is %v", name, states), func() bool {
		var err error
		if p, err = m.Get(name); err != nil {
			t.Fatal(err)
		}
		for _, s := range states {
			if p.State == s {
				return true
			}
		}
		return false
	})
	return p
}

func awaitGone(t *testing.T, m *Manager, name string) {
	t.Helper()
	wait.Until(t, name+" is gone", func() bool {
		_, err := m.Get(name)
		return errors.Is(err, ErrNotFound)
	})
}

// TestStates holds the table of states: one row for each way through it.
func TestStates(t *testing.T) {
	lack.RealTime(t, "a stop within 200 ms, probes of 3 s")
	missing := filepath.Join(t.TempDir(), "missing")
	plain := filepath.Join(t.TempDir(), "plain")
	if err := os.WriteFile(plain, []byte("#!/bin/sh\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	short := func(c *Config) { c.StopTimeout = 200 * time.Millisecond }
	for _, row := range []struct {
		name   string
		spec   func(*testing.T) Spec
		change func(*Config)
		stop   bool // delete it once running
		want   []State
		msg    string // contained in the error message of the last state
	}{
		{name: "running, then deleted", spec: with(instancetest.Serve, 1), stop: true,
			want: []State{Starting, Running, Stopping, Stopped}},
		{name: "no ports: running at once", spec: with(instancetest.Exit, 0, "--status", "0"),
			want: []State{Starting, Running, Stopped}},
		{name: "exit 0 while starting", spec: with(instancetest.Exit, 1, "--status", "0"),
			want: []State{Starting, Stopped}},
		{name: "exit 61 while starting", spec: with(instancetest.Exit, 1, "--status", "61"),
			want: []State{Starting, Error}, msg: "exit status 61"},
		{name: "the last line is the reason", spec: func(t *testing.T) Spec {
			s := spec(t, "x-r-1", instancetest.Serve, 1)
			s.PortArgs = nil
			return s
		}, want: []State{Starting, Error}, msg: "exit status 1: --listen is missing"},
		{name: "non-zero exit after SIGINT", spec: with(instancetest.Unclean, 1), stop: true,
			want: []State{Starting, Running, Stopping, Error}, msg: "exit status 3"},
		{name: "SIGINT ignored, killed", spec: with(instancetest.Stubborn, 1), change: short, stop: true,
			want: []State{Starting, Running, Stopping, Error}, msg: "signal: killed"},
		// The process has to be there before it is told to end, which may take its time on a machine
		// with much to do.
		{name: "never listens", spec: with(instancetest.NeverListens, 1),
			change: func(c *Config) { c.ProbeTimeout = 3 * time.Second },
			want:   []State{Starting, Stopping, Stopped}, msg: "readiness: not serving"},
		{name: "never healthy", spec: with(instancetest.NeverListens, 1),
			change: func(c *Config) {
				c.ProbeTimeout = 3 * time.Second
				answerHealth(t, c.PodIP+":10000", healthpb.HealthCheckResponse_NOT_SERVING)
			},
			want: []State{Starting, Stopping, Stopped}, msg: "health is NOT_SERVING"},
		{name: "binary missing", spec: func(*testing.T) Spec { return Spec{Name: "x-r-1", Binary: missing} },
			want: []State{Starting, Error}, msg: "start " + missing + ": no such file or directory"},
		{name: "binary not executable", spec: func(*testing.T) Spec { return Spec{Name: "x-r-1", Binary: plain} },
			want: []State{Starting, Error}, msg: "permission denied"},
	} {
		t.Run(row.name, func(t *testing.T) {
			m := newManager(t, row.change)
			watch := m.Watch()
			defer watch.Cancel()
			if _, err := m.Create(row.spec(t)); err != nil {
				t.Fatal(err)
			}
			var last Status
			for i, want := range row.want {
				last = next(t, watch)
				if last.State != want {
					t.Fatalf("change %d: state %s (%s), want %s", i, last.State, last.ErrorMsg, want)
				}
				if want == Running && row.stop {
					if p, err := m.Delete(last.Spec.Name, last.UUID); err != nil || p.State != Stopping {
						t.Fatalf("delete: %v %v", p.State, err)
					}
				}
			}
			if !strings.Contains(last.ErrorMsg, row.msg) {
				t.Errorf("error message %q does not say %q", last.ErrorMsg, row.msg)
			}
			if !row.stop {
				// It stays in the list with its ports until it is deleted, then leaves at once.
				if p, err := m.Delete(last.Spec.Name, ""); err != nil || !p.Deleted {
					t.Fatalf("delete of an ended process: %+v %v", p, err)
				}
			}
			if gone := next(t, watch); !gone.Deleted || gone.State != last.State {
				t.Errorf("last change %+v, want deleted", gone)
			}
			if list, _ := m.List(); len(list) != 0 || m.ports.inUse != 0 {
				t.Errorf("left: %v, %d ports", list, m.ports.inUse)
			}
		})
	}
}

// answerHealth answers in place of an instance that listens nowhere itself.
func answerHealth(t *testing.T, addr string, status healthpb.HealthCheckResponse_ServingStatus) {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	h, s := health.NewServer(), grpc.NewServer()
	h.SetServingStatus("", status)
	healthpb.RegisterHealthServer(s, h)
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Serve(l) }() // ends with Stop
	t.Cleanup(func() { s.Stop(); <-done })
}

func with(mode string, ports int, args ...string) func(*testing.T) Spec {
	return func(t *testing.T) Spec { return spec(t, "x-r-1", mode, ports, args...) }
}

// next returns the next change, and asserts that revisions grow.
func next(t *testing.T, s *Subscription) Status {
	t.Helper()
	event := wait.Receive(t, "a change", s.C)
	if event.Spec.Name == "" {
		t.Fatal("the subscription has ended")
	}
	return event
}
