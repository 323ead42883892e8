package daemon

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	enginev1 "ankole.storage/api/rpc/engine/v1"
	"ankole.storage/dataplane/clock"
	"ankole.storage/dataplane/engine"
	"ankole.storage/dataplane/frontend"
	"ankole.storage/dataplane/loop"
	"ankole.storage/dataplane/loop/posix"
	waits "ankole.storage/test/wait"
)

// slowCore is an engine's core that carries a request out when the test lets it.
type slowCore struct {
	arrived, release chan struct{}
	// fe is what is attached; the loop's thread writes it, and the test reads it when nothing is
	// under way.
	fe   frontend.Frontend
	size int64
	// closed are the snapshots that were closed.
	closed chan uint64
}

// Step implements loop.Core.
func (c *slowCore) Step(_ clock.Ticks, in []loop.Done, _ *[]loop.Op) clock.Ticks {
	for i := range in {
		switch m := in[i].Value.(type) {
		case engine.AttachFrontend:
			c.wait()
			c.fe = m.Frontend
			m.Reply(nil)
		case engine.DetachFrontend:
			c.fe = nil
			m.Reply(nil)
		case engine.Expand:
			c.wait()
			c.size = m.Size
			m.Reply(nil)
		case engine.Leave:
			m.Reply(nil, errAsked)
		case engine.OpenSnapshot:
			if m.Snapshot == slowSnapshot {
				c.wait()
			}
			m.Reply(engine.OpenedSnapshot{ID: 7}, nil)
		case engine.CloseSnapshot:
			c.closed <- m.ID
		case engine.Refresh:
			m.Reply(nil)
		case engine.Shutdown:
			m.Reply(nil)
		case engine.Measure:
			m.Reply(engine.Counters{}, engine.Rates{})
		}
	}
	return clock.Never
}

// slowSnapshot is opened when the test lets it.
const slowSnapshot = "slow"

// errAsked: the core was told to leave.
var errAsked = errors.New("the core was asked")

func (c *slowCore) wait() {
	c.arrived <- struct{}{}
	<-c.release
}

// slowEngine runs a process that serves by a slow core, without replicas or a control interface.
func slowEngine(t *testing.T) (*service, *slowCore) {
	t.Helper()
	arena := loop.NewArena(64 << 20)
	l, err := posix.New(arena, posix.Options{})
	if err != nil {
		t.Fatal(err)
	}
	p := &engineProcess{cfg: EngineConfig{VolumeName: "vol", Transport: TransportNBDUnix,
		Log: slog.New(slog.DiscardHandler)}, loop: l, arena: arena, left: make(chan struct{})}
	p.state.init()
	p.state.set(func(w *published) { w.engine.Size, w.engine.Serving = 1<<20, true })
	v := &life{p: p, loop: l, arena: arena, start: make(chan struct{}), begun: make(chan struct{}),
		ended: make(chan struct{})}
	v.offer = v.offerAsToldAtStart
	close(v.start)
	v.ctx, v.fatal = context.WithCancelCause(context.Background())
	var spin context.Context
	spin, v.stop = context.WithCancel(context.Background())
	p.life = v
	c := &slowCore{arrived: make(chan struct{}), release: make(chan struct{}), closed: make(chan uint64, 1)}
	go func() {
		v.err = posix.Run(spin, l, c)
		close(v.ended)
	}()
	t.Cleanup(p.end)
	return &service{p: p}, c
}

// TestCallerLeaves: what was asked of the core is followed to its end, whatever becomes of the
// caller: both halves of the process know the same of a frontend, and a device is told of the size
// that the volume has got.
func TestCallerLeaves(t *testing.T) {
	midway := func(t *testing.T, c *slowCore, call func(ctx context.Context)) {
		t.Helper()
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan struct{})
		go func() { defer close(ended); call(ctx) }()
		<-c.arrived
		cancel()
		close(c.release)
		<-ended
	}
	t.Run("frontend", func(t *testing.T) {
		s, c := slowEngine(t)
		close(s.p.life.begun)
		midway(t, c, func(ctx context.Context) {
			_, _ = s.FrontendStart(ctx, &enginev1.FrontendStartRequest{Frontend: FrontendBlockdev})
		})
		// The core's answer is given by now, so that a question behind it finds what has come of it.
		if err := s.p.ask(context.Background(), func(reply func(error)) any {
			return engine.Refresh{Reply: reply}
		}); err != nil {
			t.Fatal(err)
		}
		v, _ := s.p.state.get()
		if c.fe == nil || s.p.front.stop == nil || !v.up {
			t.Fatalf("the core has %v; the shell has it: %v; it is said to be up: %v", c.fe, s.p.front.stop != nil, v.up)
		}
		path, err := socketPath("vol")
		if err != nil {
			t.Fatal(err)
		}
		conn, err := net.Dial("unix", path)
		if err != nil {
			t.Fatalf("nobody listens: %v", err)
		}
		conn.Close()
		if _, err := s.FrontendShutdown(context.Background(), nil); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(path); c.fe != nil || !os.IsNotExist(err) {
			t.Errorf("after its end the core has %v, the socket: %v", c.fe, err)
		}
	})
	t.Run("growth", func(t *testing.T) {
		s, c := slowEngine(t)
		told := int64(0)
		s.p.front.grown = func(_ context.Context, size int64) error { told = size; return nil }
		midway(t, c, func(ctx context.Context) { _, _ = s.Expand(ctx, &enginev1.ExpandRequest{Size: 2 << 20}) })
		if told != 2<<20 {
			t.Errorf("the volume has %d bytes, its device was told %d", c.size, told)
		}
	})
}

// TestFrontendOrdersWaitForTheFirstOffer: from the moment at which a volume serves it is about to
// be offered. Whoever orders a frontend to come or to go in between is told to try again: an order
// that came first would end the engine, which finds a frontend up that it has not brought up, or
// would be undone.
func TestFrontendOrdersWaitForTheFirstOffer(t *testing.T) {
	s, c := slowEngine(t)
	close(c.release)
	go func() {
		for range c.arrived {
		}
	}()
	defer close(c.arrived)
	s.p.cfg.Frontend = FrontendBlockdev
	start := func() error {
		_, err := s.FrontendStart(context.Background(), &enginev1.FrontendStartRequest{Frontend: FrontendBlockdev})
		return err
	}
	shutdown := func() error {
		_, err := s.FrontendShutdown(context.Background(), nil)
		return err
	}
	for name, order := range map[string]func() error{"start": start, "shutdown": shutdown} {
		if err := order(); status.Code(err) != codes.Unavailable {
			t.Errorf("%s before the volume is offered: %v", name, err)
		}
	}
	if err := s.p.current().offerFirst(context.Background()); err != nil {
		t.Fatalf("the volume is not offered: %v", err)
	}
	for _, step := range []struct {
		name  string
		order func() error
	}{{"shutdown", shutdown}, {"start", start}, {"shutdown", shutdown}} {
		if err := step.order(); err != nil {
			t.Errorf("%s: %v", step.name, err)
		}
	}
}

// TestFrontendOrdersBesideALeavingEngine: an order about the frontend that comes while the engine
// leaves waits for the end of that. Where it has left "done" would be wrong: the frontend goes on
// in another process.
func TestFrontendOrdersBesideALeavingEngine(t *testing.T) {
	for name, order := range map[string]func(s *service) error{
		"start": func(s *service) error {
			_, err := s.FrontendStart(context.Background(), &enginev1.FrontendStartRequest{Frontend: FrontendNone})
			return err
		},
		"shutdown": func(s *service) error {
			_, err := s.FrontendShutdown(context.Background(), nil)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := slowEngine(t)
			close(s.p.life.begun)
			s.p.front.mu.Lock() // as leave does
			result := make(chan error, 1)
			go func() { result <- order(s) }()
			waitsForLock(t)
			if err := s.p.front.leave(); err != nil {
				t.Error(err)
			}
			s.p.front.mu.Unlock()
			if err := <-result; status.Code(err) != codes.FailedPrecondition {
				t.Errorf("the order is answered with %v", err)
			}
		})
	}
}

// TestNoFrontendForAnEngineThatEnds: between the end of its frontend and its own an engine answers
// calls still. A frontend that is brought up then stays behind on the node.
func TestNoFrontendForAnEngineThatEnds(t *testing.T) {
	s, c := slowEngine(t)
	close(s.p.life.begun)
	go func() {
		for range c.arrived {
		}
	}()
	close(c.release)
	defer close(c.arrived)
	s.p.front.end(s.p)
	_, err := s.FrontendStart(context.Background(), &enginev1.FrontendStartRequest{Frontend: FrontendBlockdev})
	if status.Code(err) != codes.FailedPrecondition || s.p.front.stop != nil {
		t.Errorf("%v, and a frontend is up: %v", err, s.p.front.stop != nil)
	}
}

// waitsForLock returns when an order about the frontend waits for the shell's lock.
func waitsForLock(t *testing.T) {
	t.Helper()
	p := make([]byte, 1<<20)
	waits.Until(t, "somebody waits for the lock", func() bool {
		for stack := range strings.SplitSeq(string(p[:runtime.Stack(p, true)]), "\n\n") {
			if strings.Contains(stack, "daemon.(*service).Frontend") && strings.Contains(stack, "sync.Mutex.Lock") {
				return true
			}
		}
		return false
	})
}

// TestLeaveWaitsForTheFirstOffer: an engine that serves and has not offered the volume yet does not
// leave: the volume would go without the frontend that it is to have. One that offers it on a
// socket never does, and says what to do.
func TestLeaveWaitsForTheFirstOffer(t *testing.T) {
	s, c := slowEngine(t)
	ask := func() string {
		_, err := s.Leave(context.Background(), &enginev1.LeaveRequest{})
		return status.Convert(err).Message()
	}
	if reason := ask(); !strings.Contains(reason, "not served yet") {
		t.Errorf("before the first offer the answer is %q", reason)
	}
	close(s.p.life.begun)
	if reason := ask(); reason != errAsked.Error() {
		t.Errorf("after it the answer is %q", reason)
	}
	go func() { <-c.arrived; close(c.release) }()
	if _, err := s.FrontendStart(context.Background(), &enginev1.FrontendStartRequest{
		Frontend: FrontendBlockdev}); err != nil {
		t.Fatal(err)
	}
	if reason := ask(); !strings.Contains(reason, "NBD socket") || !strings.Contains(reason, "detach the volume") {
		t.Errorf("with a socket the answer is %q", reason)
	}
	if _, err := s.FrontendShutdown(context.Background(), nil); err != nil {
		t.Fatal(err)
	}
	for name, r := range map[string]*enginev1.LeaveRequest{"another volume": {VolumeUuid: "other"},
		"another instance manager": {InstanceManager: "other"}} {
		if _, err := s.Leave(context.Background(), r); status.Code(err) != codes.FailedPrecondition {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestBoundsLeaveAMargin: a successor that is told as late as may be runs well before the instance
// manager kills it for being late, 30 s after its start.
func TestBoundsLeaveAMargin(t *testing.T) {
	const gathering, replaced, margin = 8 * time.Second, 30 * time.Second, 5 * time.Second
	if sum := gathering + passingTime + drainTime + releaseTime + answerTime; sum+margin > replaced {
		t.Errorf("%s until the engine before has left, and killed after %s", sum, replaced)
	}
}
