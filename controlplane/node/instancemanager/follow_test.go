package instancemanager

import (
	"context"
	"errors"
	"net"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/api/rpc/imrpc"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/process/instance"
	imclient "ankole.storage/instancemanager/client"
	"ankole.storage/test/wait"
)

// imServer is an instance manager with one process, over real gRPC.
type imServer struct {
	imrpc.UnimplementedProcessManagerServiceServer
	events chan *imrpc.ProcessResponse
	// lists has room for one value: no list is answered while it is full.
	lists chan struct{}
	// order is what its one process was made for.
	order string
	// name is a string: what it says it is. asked counts how often.
	name  atomic.Value
	asked atomic.Int64
}

func (s *imServer) VersionGet(context.Context, *emptypb.Empty) (*imrpc.VersionResponse, error) {
	name, _ := s.name.Load().(string)
	s.asked.Add(1)
	return &imrpc.VersionResponse{InstanceManager: name, InstanceManagerAPIVersion: 4,
		InstanceManagerAPIMinVersion: 1}, nil
}

func (s *imServer) ProcessList(ctx context.Context, _ *imrpc.ProcessListRequest) (*imrpc.ProcessListResponse, error) {
	select {
	case s.lists <- struct{}{}:
		<-s.lists
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return &imrpc.ProcessListResponse{Processes: map[string]*imrpc.ProcessResponse{
		"v-r-12345678": process("v-r-12345678", "running")}}, nil
}

func (s *imServer) ProcessCreate(context.Context, *imrpc.ProcessCreateRequest) (*imrpc.ProcessResponse, error) {
	return nil, status.Error(codes.AlreadyExists, "v-r-12345678 is running")
}

func (s *imServer) ProcessGet(context.Context, *imrpc.ProcessGetRequest) (*imrpc.ProcessResponse, error) {
	p := process("v-r-12345678", "running")
	p.Spec.Order = s.order
	return p, nil
}

// TestANameThatIsTakenIsNoSuccess: only a process that was made for the same order is the answer to
// an earlier attempt.
func TestANameThatIsTakenIsNoSuccess(t *testing.T) {
	server, connect := serveIM(t)
	callers := NewCallers(connect)
	im := manager(v1beta2.InstanceManagerStateRunning)
	im.Status.IP, im.Status.APIVersion, im.Status.APIMinVersion = "127.0.0.1", 4, 1
	for _, tt := range []struct {
		made, order string
		ok          bool
	}{{"a/1", "a/1", true}, {"a/1", "a/2", false}, {"b/1", "a/1", false}, {"", "a/1", true}, {"a/1", "", true}} {
		server.order = tt.made
		err := callers.Create(t.Context(), im, instance.Process{Name: "v-r-12345678", Order: tt.order})
		if (err == nil) != tt.ok || err != nil && !errors.Is(err, imclient.ErrExists) {
			t.Errorf("made for %q, wanted for %q: %v", tt.made, tt.order, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := callers.Start(ctx); err != nil {
		t.Error(err)
	}
}

func (s *imServer) ProcessWatch(_ *emptypb.Empty, stream imrpc.ProcessManagerService_ProcessWatchServer) error {
	if err := stream.SendHeader(nil); err != nil {
		return err
	}
	for {
		select {
		case <-stream.Context().Done():
			return nil
		case e := <-s.events:
			if e == nil {
				return errors.New("end of the test's stream")
			}
			if err := stream.Send(e); err != nil {
				return err
			}
		}
	}
}

// serveIM starts the server and returns a Connect that reaches it, whatever the port asked for.
func serveIM(t *testing.T) (*imServer, Connect) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &imServer{events: make(chan *imrpc.ProcessResponse), lists: make(chan struct{}, 1)}
	g := grpc.NewServer()
	imrpc.RegisterProcessManagerServiceServer(g, s)
	done := make(chan error, 1)
	go func() { done <- g.Serve(l) }()
	t.Cleanup(func() { g.Stop(); <-done })
	return s, func(address string) (*imclient.Client, error) {
		if _, port, _ := net.SplitHostPort(address); port != strconv.Itoa(naming.PortProcessManager) {
			return nil, errors.New("asked for " + address)
		}
		return imclient.Dial(l.Addr().String(), nil)
	}
}

// woken waits for a wake-up of the object.
func woken(t *testing.T, s *streams, key client.ObjectKey) {
	t.Helper()
	e := wait.Receive(t, "a wake-up", s.wakeups)
	if client.ObjectKeyFromObject(e.Object) != key {
		t.Fatalf("woke %v", client.ObjectKeyFromObject(e.Object))
	}
}

func TestStreamsFollowOnePod(t *testing.T) {
	server, connect := serveIM(t)
	s := newStreams(connect)
	key := client.ObjectKey{Namespace: "ns", Name: "im"}
	// The controller may look before the streams may run.
	if p, since := s.Follow(key, "pod-1", "127.0.0.1"); p != nil || since.IsZero() {
		t.Fatal("something is known before any stream")
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Start(ctx) }()
	woken(t, s, key)
	if p, since := s.Follow(key, "pod-1", "127.0.0.1"); p != nil || since.IsZero() {
		t.Fatal("something is known before the list")
	}
	woken(t, s, key)
	p, since := s.Follow(key, "pod-1", "127.0.0.1")
	if p == nil || !since.IsZero() || len(p.Replicas) != 1 || p.APIVersion != 4 {
		t.Fatalf("after the list: %+v", p)
	}
	server.events <- process("v-e-0", "starting")
	woken(t, s, key)
	if p, _ = s.Follow(key, "pod-1", "127.0.0.1"); p.Engines["v-e-0"].Status.State != "starting" || len(p.Replicas) != 1 {
		t.Fatalf("after the event: %+v", p)
	}
	// What was known stays, unconfirmed, until the next list.
	server.lists <- struct{}{}
	server.events <- nil
	woken(t, s, key)
	if p, since = s.Follow(key, "pod-1", "127.0.0.1"); since.IsZero() || len(p.Engines) != 1 {
		t.Fatalf("after the loss: %+v, since %v", p, since)
	}
	<-server.lists
	woken(t, s, key)
	if p, since = s.Follow(key, "pod-1", "127.0.0.1"); !since.IsZero() || len(p.Engines) != 0 || len(p.Replicas) != 1 {
		t.Fatalf("after the next list: %+v, since %v", p, since)
	}
	// Another Pod of the same object is another world.
	if p, _ = s.Follow(key, "pod-2", "127.0.0.1"); p != nil {
		t.Fatal("a new Pod is taken for the old one")
	}
	woken(t, s, key)
	if p, _ = s.Follow(key, "pod-2", "127.0.0.1"); p == nil || len(p.Engines) != 0 {
		t.Fatalf("new Pod: %+v", p)
	}
	s.Drop(key)
	stop()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if p, _ = s.Follow(key, "pod-3", "127.0.0.1"); p != nil {
		t.Fatal("follows after its end")
	}
}

// TestAnotherInstanceManagerAtTheAddress: processes of one that has the address of this one's Pod,
// before that listens or after it has ended, are not this one's, whether listed or told of later.
func TestAnotherInstanceManagerAtTheAddress(t *testing.T) {
	server, connect := serveIM(t)
	server.name.Store("other")
	s := newStreams(connect)
	key := client.ObjectKey{Namespace: "ns", Name: "im"}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Start(ctx) }()
	defer func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	known := func() (*Processes, time.Time) { return s.Follow(key, "pod", "127.0.0.1") }
	await := func(what string, ok func(p *Processes, since time.Time) bool) {
		t.Helper()
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for limit := time.Now().Add(time.Minute); ; <-tick.C {
			select {
			case <-s.wakeups:
			default:
			}
			if p, since := known(); ok(p, since) {
				return
			} else if time.Now().After(limit) {
				t.Fatalf("%s: %+v, since %v", what, p, since)
			}
		}
	}
	// again ends the stream and waits until a list after that is dealt with: the next one is.
	again := func() {
		t.Helper()
		for range 2 {
			before := server.asked.Load()
			server.events <- nil
			await("the next list", func(*Processes, time.Time) bool { return server.asked.Load() > before })
		}
	}
	await("the stream begins", func(*Processes, time.Time) bool { return server.asked.Load() > 0 })
	server.events <- process("x-e-0", "running")
	again()
	if p, since := known(); p != nil || since.IsZero() {
		t.Fatalf("processes of another instance manager: %+v", p)
	}
	server.name.Store("im")
	server.events <- nil
	await("its own processes", func(p *Processes, since time.Time) bool {
		return p != nil && since.IsZero() && len(p.Replicas) == 1
	})
	server.name.Store("other")
	again()
	server.events <- process("x-e-0", "running")
	again()
	if p, since := known(); len(p.Engines) > 0 || since.IsZero() {
		t.Fatalf("a process of another instance manager: %+v, since %v", p, since)
	}
}

func TestAFailedConnectionIsTriedAgain(t *testing.T) {
	calls := make(chan struct{}, 10)
	s := newStreams(func(string) (*imclient.Client, error) {
		calls <- struct{}{}
		return nil, errors.New("bad certificate")
	})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Start(ctx) }()
	defer func() { stop(); <-done }()
	key := client.ObjectKey{Namespace: "ns", Name: "im"}
	seen := 0
	wait.Until(t, "it connects again", func() bool {
		s.Follow(key, "pod", "127.0.0.1")
		select {
		case <-calls:
			seen++
		default:
		}
		return seen == 2
	})
}
