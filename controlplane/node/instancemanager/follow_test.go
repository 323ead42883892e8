package instancemanager

import (
	"context"
	"errors"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/api/rpc/imrpc"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/process/heard"
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

// following runs streams until the test ends, or stop is called.
func following(t *testing.T, connect Connect) (s *Streams, lists *heard.Lists, stop func()) {
	t.Helper()
	lists = heard.New("ns")
	s = NewStreams(connect, lists)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Start(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return s, lists, stop
}

func TestStreamsFollowOnePod(t *testing.T) {
	server, connect := serveIM(t)
	s, lists, stop := following(t, connect)
	is := func(what string, ok func(p *heard.Processes, since time.Time) bool) {
		t.Helper()
		wait.Until(t, what, func() bool { return ok(lists.Of("im")) })
	}
	s.Follow("im", "pod-1", "127.0.0.1")
	if _, since := lists.Of("im"); since.IsZero() {
		t.Fatal("what nobody has told yet is confirmed")
	}
	is("the list", func(p *heard.Processes, since time.Time) bool {
		return p != nil && since.IsZero() && len(p.Replicas) == 1 && p.APIVersion == 4
	})
	s.Follow("im", "pod-1", "127.0.0.1") // changes nothing
	server.events <- process("v-e-0", "starting")
	is("the event", func(p *heard.Processes, _ time.Time) bool {
		return p != nil && p.Engines["v-e-0"].Status.State == "starting" && len(p.Replicas) == 1
	})
	// What was known stays, unconfirmed, until the next list.
	server.lists <- struct{}{}
	server.events <- nil
	is("the loss", func(p *heard.Processes, since time.Time) bool { return !since.IsZero() && len(p.Engines) == 1 })
	<-server.lists
	is("the next list", func(p *heard.Processes, since time.Time) bool {
		return since.IsZero() && len(p.Engines) == 0 && len(p.Replicas) == 1
	})
	// Another Pod of the same object is another world.
	server.lists <- struct{}{}
	s.Follow("im", "pod-2", "127.0.0.1")
	if p, since := lists.Of("im"); p != nil || since.IsZero() {
		t.Fatal("a new Pod is taken for the old one")
	}
	<-server.lists
	is("the new Pod's list", func(p *heard.Processes, since time.Time) bool { return p != nil && since.IsZero() })
	s.Drop("im")
	if p, _ := lists.Of("im"); p != nil {
		t.Fatal("a Pod that has ended is remembered")
	}
	stop()
	if s.Follow("im", "pod-3", "127.0.0.1"); s.current["im"] != nil {
		t.Fatal("follows after its end")
	}
}

// TestAnotherInstanceManagerAtTheAddress: processes of one that has the address of this one's Pod,
// before that listens or after it has ended, are not this one's, whether listed or told of later.
func TestAnotherInstanceManagerAtTheAddress(t *testing.T) {
	server, connect := serveIM(t)
	server.name.Store("other")
	s, lists, _ := following(t, connect)
	s.Follow("im", "pod", "127.0.0.1")
	known := func() (*heard.Processes, time.Time) { return lists.Of("im") }
	await := func(what string, ok func(p *heard.Processes, since time.Time) bool) {
		t.Helper()
		wait.Until(t, what, func() bool { return ok(known()) })
	}
	// again ends the stream and waits until a list after that is dealt with: the next one is.
	again := func() {
		t.Helper()
		for range 2 {
			before := server.asked.Load()
			server.events <- nil
			await("the next list", func(*heard.Processes, time.Time) bool { return server.asked.Load() > before })
		}
	}
	await("the stream begins", func(*heard.Processes, time.Time) bool { return server.asked.Load() > 0 })
	server.events <- process("x-e-0", "running")
	again()
	if p, since := known(); p != nil || since.IsZero() {
		t.Fatalf("processes of another instance manager: %+v", p)
	}
	server.name.Store("im")
	server.events <- nil
	await("its own processes", func(p *heard.Processes, since time.Time) bool {
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
	s, _, _ := following(t, func(string) (*imclient.Client, error) {
		calls <- struct{}{}
		return nil, errors.New("bad certificate")
	})
	seen := 0
	wait.Until(t, "it connects again", func() bool {
		s.Follow("im", "pod", "127.0.0.1")
		select {
		case <-calls:
			seen++
		default:
		}
		return seen == 2
	})
}
