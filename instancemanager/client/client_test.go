package client_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"ankole.storage/api/rpc/imrpc"
	"ankole.storage/instancemanager/client"
	"ankole.storage/instancemanager/instancetest"
	"ankole.storage/instancemanager/process"
	"ankole.storage/instancemanager/server"
	"ankole.storage/test/wait"
)

func TestMain(m *testing.M) {
	instancetest.Main()
	os.Exit(m.Run())
}

// host is where this run's servers and instances listen.
var host = instancetest.Host()

func newManager(t *testing.T) *process.Manager {
	m, err := process.New(process.Config{LogsDir: t.TempDir(), PodIP: host, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		if err := m.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return m
}

// serve serves at addr until stop is called, which is done at the end of the test at the latest.
func serve(t *testing.T, addr string, register func(grpc.ServiceRegistrar)) (bound string, stop func()) {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	s := server.New(nil, register)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = s.Serve(l)
	}()
	stop = sync.OnceFunc(func() {
		s.Stop()
		<-ended
	})
	t.Cleanup(stop)
	return l.Addr().String(), stop
}

func dial(t *testing.T, addr string) *client.Client {
	c, err := client.Dial(addr, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func TestCallsAndErrors(t *testing.T) {
	addr, stop := serve(t, host+":0", server.Processes(newManager(t), ""))
	c := dial(t, addr)
	ctx := t.Context()
	spec := instancetest.Spec(t, "demo-r-1", instancetest.Print, "", 0, "--count", "2")
	p, err := c.ProcessCreate(ctx, spec)
	if err != nil || p.GetStatus().GetState() == "" {
		t.Fatal(p, err)
	}
	if _, err := c.ProcessCreate(ctx, spec); !errors.Is(err, client.ErrExists) || status.Code(err) != codes.AlreadyExists {
		t.Errorf("name twice: %v", err)
	}
	if _, err := c.ProcessCreate(ctx, &imrpc.ProcessSpec{}); !errors.Is(err, client.ErrInvalid) {
		t.Errorf("no name: %v", err)
	}
	if _, err := c.ProcessCreate(ctx, &imrpc.ProcessSpec{Name: "x", Binary: "/x", PortCount: 60000}); !errors.Is(err,
		client.ErrExhausted) {
		t.Errorf("no ports: %v", err)
	}
	if _, err := c.ProcessGet(ctx, "no"); !errors.Is(err, client.ErrNotFound) ||
		!strings.Contains(err.Error(), "instance manager "+addr+": ProcessGet no: no such process") {
		t.Errorf("unknown: %v", err)
	}
	if list, err := c.ProcessList(ctx); err != nil || len(list) != 1 ||
		list["demo-r-1"].GetStatus().GetUuid() != p.GetStatus().GetUuid() {
		t.Errorf("list: %v %v", list, err)
	}
	wait.Until(t, "the log has both lines", func() bool {
		var lines []string
		if err := c.ProcessLog(ctx, "demo-r-1", client.LogOptions{}, func(l string) error {
			lines = append(lines, l)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		return strings.Join(lines, ",") == "line 0,line 1"
	})
	enough := errors.New("enough")
	if err := c.ProcessLog(ctx, "demo-r-1", client.LogOptions{}, func(string) error {
		return enough
	}); !errors.Is(err, enough) {
		t.Errorf("log cut short: %v", err)
	}
	if v, err := c.VersionGet(ctx); err != nil || v.GetInstanceManagerAPIVersion() != server.APIVersion {
		t.Errorf("version: %v %v", v, err)
	}
	if err := c.Check(ctx); err != nil {
		t.Error(err)
	}
	if _, err := c.ProcessReplace(ctx, spec); err != nil {
		t.Errorf("replace with the same binary: %v", err)
	}
	if p, err := c.ProcessDelete(ctx, "demo-r-1", p.GetStatus().GetUuid()); err != nil ||
		p.GetStatus().GetState() != "stopping" {
		t.Errorf("delete: %v %v", p, err)
	}
	stop()
	if _, err := c.ProcessList(ctx); !errors.Is(err, client.ErrUnavailable) {
		t.Errorf("nobody there: %v", err)
	}
}

// watcher keeps what Watch delivers: the processes known, and how often it was listed and lost.
type watcher struct {
	mu           sync.Mutex
	known        map[string]string // name: state
	listed, lost int
	history      []string
}

func (w *watcher) deliver(u client.Update) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case u.List != nil:
		w.listed++
		w.known = map[string]string{}
		for name, p := range u.List {
			w.known[name] = p.GetStatus().GetState()
		}
	case u.Changed.GetDeleted():
		delete(w.known, u.Changed.GetSpec().GetName())
		w.history = append(w.history, "deleted")
	case u.Changed != nil:
		w.known[u.Changed.GetSpec().GetName()] = u.Changed.GetStatus().GetState()
		w.history = append(w.history, u.Changed.GetStatus().GetState())
	case u.Lost != nil:
		w.lost++
		w.known = nil
	}
}

func (w *watcher) sees(name, state string) func() bool {
	return func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.known != nil && w.known[name] == state
	}
}

// watch runs Watch until the end of the test.
func watch(t *testing.T, c *client.Client) *watcher {
	w := &watcher{}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c.Watch(ctx, w.deliver)
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	return w
}

// TestWatch: list, changes in order, loss of the instance manager, list again.
func TestWatch(t *testing.T) {
	m := newManager(t)
	addr, stop := serve(t, host+":0", server.Processes(m, ""))
	w := watch(t, dial(t, addr))
	wait.Until(t, "the empty list", func() bool { w.mu.Lock(); defer w.mu.Unlock(); return w.listed == 1 })
	create := func(name string) {
		t.Helper()
		s := instancetest.Spec(t, name, instancetest.Serve, "0.0.0.0", 1)
		if _, err := m.Create(process.Spec{Name: s.Name, Binary: s.Binary, Args: s.Args, PortCount: 1,
			PortArgs: s.PortArgs, Environment: s.Environment}); err != nil {
			t.Fatal(err)
		}
	}
	create("demo-r-1")
	wait.Until(t, "demo-r-1 runs", w.sees("demo-r-1", "running"))
	stop()
	wait.Until(t, "lost", func() bool { w.mu.Lock(); defer w.mu.Unlock(); return w.lost > 0 })
	// What happens unseen is in the next list.
	if _, err := m.Delete("demo-r-1", ""); err != nil {
		t.Fatal(err)
	}
	create("demo-r-2")
	serve(t, addr, server.Processes(m, ""))
	wait.Until(t, "demo-r-2 runs", w.sees("demo-r-2", "running"))
	wait.Until(t, "demo-r-1 is gone", w.sees("demo-r-1", ""))
	if _, err := m.Delete("demo-r-2", ""); err != nil {
		t.Fatal(err)
	}
	wait.Until(t, "demo-r-2 is gone", w.sees("demo-r-2", ""))
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.listed != 2 {
		t.Errorf("listed %d times", w.listed)
	}
	if got := strings.Join(w.history[:2], " "); got != "starting running" {
		t.Errorf("history %q", w.history)
	}
}

// stranger is an instance manager that confirms no watch, numbers nothing, and cuts each stream
// after one event.
type stranger struct {
	imrpc.UnimplementedProcessManagerServiceServer
	mu      sync.Mutex
	lists   int
	release chan struct{}
}

func (s *stranger) ProcessList(context.Context, *imrpc.ProcessListRequest) (*imrpc.ProcessListResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lists++
	return &imrpc.ProcessListResponse{}, nil
}

func (s *stranger) ProcessWatch(_ *emptypb.Empty, stream grpc.ServerStreamingServer[imrpc.ProcessResponse]) error {
	select {
	case <-s.release:
	case <-stream.Context().Done():
	}
	return stream.Send(&imrpc.ProcessResponse{Spec: &imrpc.ProcessSpec{Name: "a"},
		Status: &imrpc.ProcessStatus{State: "running"}})
}

// TestWatchStranger: it is listed without confirmation, listed again at the first event, and
// watched again after the cut.
func TestWatchStranger(t *testing.T) {
	s := &stranger{release: make(chan struct{})}
	addr, _ := serve(t, host+":0", func(r grpc.ServiceRegistrar) { imrpc.RegisterProcessManagerServiceServer(r, s) })
	w := watch(t, dial(t, addr))
	lists := func(n int) func() bool {
		return func() bool { s.mu.Lock(); defer s.mu.Unlock(); return s.lists >= n }
	}
	wait.Until(t, "listed without confirmation", lists(1))
	close(s.release)
	wait.Until(t, "listed at the first event", lists(2))
	wait.Until(t, "the event and the cut", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.history) > 0 && w.lost > 0
	})
	wait.Until(t, "listed after the cut", lists(3))
}

// TestWatchNobody: Lost is delivered while nobody answers.
func TestWatchNobody(t *testing.T) {
	addr, stop := serve(t, host+":0", func(grpc.ServiceRegistrar) {})
	stop()
	w := watch(t, dial(t, addr))
	wait.Until(t, "lost twice", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.lost >= 2 && w.listed == 0
	})
}

// slow is an instance manager that has no processor for a while after a watch was asked for: it is
// listed first, then a process ends, and then it begins to watch. No event follows.
type slow struct {
	imrpc.UnimplementedProcessManagerServiceServer
	confirms bool
	listed   chan struct{} // closed at the first list
	mu       sync.Mutex
	lists    int
	state    string
}

func (s *slow) ProcessList(context.Context, *imrpc.ProcessListRequest) (*imrpc.ProcessListResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lists++; s.lists == 1 {
		defer close(s.listed)
	}
	return &imrpc.ProcessListResponse{Revision: int64(s.lists), Processes: map[string]*imrpc.ProcessResponse{
		"a": {Status: &imrpc.ProcessStatus{State: s.state}}}}, nil
}

func (s *slow) ProcessWatch(_ *emptypb.Empty, stream grpc.ServerStreamingServer[imrpc.ProcessResponse]) error {
	<-s.listed
	s.mu.Lock()
	s.state = "error"
	s.mu.Unlock()
	if s.confirms {
		if err := stream.SendHeader(nil); err != nil {
			return err
		}
	}
	<-stream.Context().Done()
	return nil
}

// TestWatchConfirmedLate: a change between the list and the beginning of the watch is heard of,
// when the watch is confirmed after the list and when it never is, although no event follows.
func TestWatchConfirmedLate(t *testing.T) {
	t.Parallel()
	for _, confirms := range []bool{true, false} {
		s := &slow{confirms: confirms, state: "running", listed: make(chan struct{})}
		addr, _ := serve(t, host+":0", func(r grpc.ServiceRegistrar) { imrpc.RegisterProcessManagerServiceServer(r, s) })
		w := watch(t, dial(t, addr))
		wait.Until(t, "the end of a is heard of", w.sees("a", "error"))
	}
}
