package scale

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	enginev1 "ankole.storage/api/rpc/engine/v1"
	"ankole.storage/api/rpc/imrpc"
	"ankole.storage/host/hostpath"
	"ankole.storage/instancemanager/enginebinary"
	"ankole.storage/instancemanager/server"
)

// program is the name under which the test binary plays an instance manager.
const program = "instance-manager"

func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == program {
		if err := serveModel(os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// startTime is how long a process of the model takes from starting to running.
const startTime = 20 * time.Millisecond

// model is an instance manager without processes.
type model struct {
	imrpc.UnimplementedProcessManagerServiceServer

	mu        sync.Mutex
	revision  int64
	port      int32
	processes map[string]*imrpc.ProcessResponse
	watchers  map[chan *imrpc.ProcessResponse]bool
}

// serveModel serves at the address after --listen, and as the proxy at the port after it, until it
// is told to end.
func serveModel(args []string) error {
	i := slices.Index(args, "--listen")
	if i < 0 || i+1 == len(args) {
		return fmt.Errorf("no --listen in %q", args)
	}
	host, _, err := net.SplitHostPort(args[i+1])
	if err != nil {
		return err
	}
	m := &model{port: 10000, processes: map[string]*imrpc.ProcessResponse{},
		watchers: map[chan *imrpc.ProcessResponse]bool{}}
	ended := make(chan error, 2)
	binaries := enginebinary.New([]string{"/engine-binaries"}, hostpath.Resolve)
	for port, register := range map[string]func(grpc.ServiceRegistrar){
		"8500": func(s grpc.ServiceRegistrar) { imrpc.RegisterProcessManagerServiceServer(s, m) },
		"8501": func(s grpc.ServiceRegistrar) {
			imrpc.RegisterProxyEngineServiceServer(s, proxy{})
			enginev1.RegisterEngineServer(s, engines{model: m})
			binaries.Register(s)
		},
	} {
		l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", net.JoinHostPort(host, port))
		if err != nil {
			return err
		}
		s := server.New(nil, register)
		go func() { ended <- s.Serve(l) }()
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)
	select {
	case err := <-ended:
		return err
	case <-stop:
		return nil
	}
}

// tell publishes a process as it is now. The caller holds the lock.
func (m *model) tell(p *imrpc.ProcessResponse) *imrpc.ProcessResponse {
	m.revision++
	p.Revision = m.revision
	c := proto.CloneOf(p)
	for w := range m.watchers {
		w <- c
	}
	return c
}

func (m *model) ProcessCreate(_ context.Context, q *imrpc.ProcessCreateRequest) (*imrpc.ProcessResponse, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	spec := proto.CloneOf(q.GetSpec())
	if m.processes[spec.GetName()] != nil {
		return nil, status.Errorf(codes.AlreadyExists, "process %s exists", spec.GetName())
	}
	count := max(spec.GetPortCount(), 1)
	p := &imrpc.ProcessResponse{Spec: spec, Status: &imrpc.ProcessStatus{State: "starting", PortStart: m.port,
		PortEnd: m.port + count - 1, Uuid: fmt.Sprintf("run-%d", m.port)}}
	spec.Environment = nil
	m.port += count
	m.processes[spec.GetName()] = p
	time.AfterFunc(startTime, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.processes[spec.GetName()] == p {
			p.Status.State = "running"
			m.tell(p)
		}
	})
	return m.tell(p), nil
}

func (m *model) ProcessDelete(_ context.Context, q *imrpc.ProcessDeleteRequest) (*imrpc.ProcessResponse, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.processes[q.GetName()]
	if p == nil || q.GetUuid() != "" && q.GetUuid() != p.GetStatus().GetUuid() {
		return nil, status.Errorf(codes.NotFound, "there is no process %s", q.GetName())
	}
	delete(m.processes, q.GetName())
	p.Status.State, p.Deleted = "stopped", true
	return m.tell(p), nil
}

func (m *model) ProcessGet(_ context.Context, q *imrpc.ProcessGetRequest) (*imrpc.ProcessResponse, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p := m.processes[q.GetName()]; p != nil {
		return proto.CloneOf(p), nil
	}
	return nil, status.Errorf(codes.NotFound, "there is no process %s", q.GetName())
}

func (m *model) ProcessList(context.Context, *imrpc.ProcessListRequest) (*imrpc.ProcessListResponse, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := map[string]*imrpc.ProcessResponse{}
	for name, p := range m.processes {
		out[name] = proto.CloneOf(p)
	}
	return &imrpc.ProcessListResponse{Processes: out, Revision: m.revision}, nil
}

func (m *model) ProcessWatch(_ *emptypb.Empty, s grpc.ServerStreamingServer[imrpc.ProcessResponse]) error {
	events := make(chan *imrpc.ProcessResponse, 1<<16)
	m.mu.Lock()
	m.watchers[events] = true
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		delete(m.watchers, events)
		m.mu.Unlock()
	}()
	if err := s.SendHeader(nil); err != nil {
		return err
	}
	for {
		select {
		case e := <-events:
			if err := s.Send(e); err != nil {
				return err
			}
		case <-s.Context().Done():
			return s.Context().Err()
		}
	}
}

func (m *model) VersionGet(context.Context, *emptypb.Empty) (*imrpc.VersionResponse, error) {
	return server.Version(), nil
}

// proxy answers that it is there.
type proxy struct {
	imrpc.UnimplementedProxyEngineServiceServer
}

func (proxy) Ping(context.Context, *emptypb.Empty) (*emptypb.Empty, error) {
	return &emptypb.Empty{}, nil
}

// engines are the engines of a model.
type engines struct {
	enginev1.UnimplementedEngineServer
	*model
}

// Watch shows an engine whose replicas are all in sync, for as long as it runs.
func (m engines) Watch(_ *enginev1.GetRequest, s grpc.ServerStreamingServer[enginev1.State]) error {
	md, _ := metadata.FromIncomingContext(s.Context())
	name := strings.Join(md.Get("instance-name"), "")
	m.mu.Lock()
	p := m.processes[name]
	m.mu.Unlock()
	if p == nil {
		return status.Errorf(codes.NotFound, "there is no engine %s", name)
	}
	volume := strings.Join(md.Get("volume-name"), "")
	state := &enginev1.State{VolumeName: volume, InstanceName: name, Size: volumeSize, Frontend: "tgt-blockdev",
		FrontendState: "up", Endpoint: "/dev/longhorn/" + volume, Epoch: 1, Generation: 1}
	for arg := range slices.Values(p.GetSpec().GetArgs()) {
		if strings.HasPrefix(arg, "tcp://") {
			state.Replicas = append(state.Replicas, &enginev1.Replica{Address: arg, Mode: enginev1.Mode_MODE_RW})
		}
	}
	if err := s.Send(state); err != nil {
		return err
	}
	<-s.Context().Done()
	return s.Context().Err()
}

// makeImage builds the image of the model, for the nodes of a cluster.
func makeImage(t testing.TB) (images string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	images = t.TempDir()
	addImage(t, images, "ankole-instance-manager-dev", program, self, "")
	return images
}
