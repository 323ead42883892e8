package engineclient_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	enginev1 "ankole.storage/api/rpc/engine/v1"
	"ankole.storage/controlplane/process/engineclient"
	"ankole.storage/instancemanager/proxy"
	"ankole.storage/instancemanager/server"
)

// managers plays the proxies of instance managers: dial knows them by IP.
type managers struct {
	address map[string]string
	dials   atomic.Int64
}

func (m *managers) dial(address string) (*grpc.ClientConn, error) {
	m.dials.Add(1)
	ip, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	return grpc.NewClient("passthrough:///"+m.address[ip], grpc.WithTransportCredentials(insecure.NewCredentials()))
}

// serveProxy starts a real proxy server and returns its address and how to stop it.
// systems are file systems of which each trim gives back 4 KiB.
type systems struct{}

func (systems) Remount(string) error                         { return nil }
func (systems) Trim(string) (int64, error)                   { return 4096, nil }
func (systems) Quiesce(context.Context, string, bool) func() { return func() {} }

func serveProxy(t *testing.T) (string, func()) {
	t.Helper()
	engines := &proxy.Engines{Systems: systems{}}
	s := server.NewWith(engines.ServerOptions(), nil, engines.Register)
	return serveGRPC(t, s, engines.Close)
}

func serveGRPC(t *testing.T, s *grpc.Server, closing func()) (string, func()) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Serve(l) }() // ends with Stop
	var stopped atomic.Bool
	stop := func() {
		if stopped.CompareAndSwap(false, true) {
			s.Stop()
			<-done
			closing()
		}
	}
	t.Cleanup(stop)
	return l.Addr().String(), stop
}

// TestRouter: through the proxy where there is one; by the binary only where the API version says
// that there is none.
func TestRouter(t *testing.T) {
	s := &engineStub{}
	g := grpc.NewServer()
	enginev1.RegisterEngineServer(g, s)
	engine, _ := serveGRPC(t, g, func() {})
	target := engineclient.Target{Address: engine, Volume: "v", Engine: "v-e-0", InstanceManager: "im-1", Image: "img"}
	address, stop := serveProxy(t)
	ms := &managers{address: map[string]string{"10.0.0.1": address}}
	proxies := engineclient.NewProxies(ms.dial)
	defer proxies.Close()
	fallback := &counted{}
	router := engineclient.NewRouter(proxies, fallback)
	ctx := t.Context()

	if _, err := router.Get(ctx, target); !errors.Is(err, engineclient.ErrUnavailable) ||
		!strings.Contains(err.Error(), "im-1") {
		t.Errorf("unknown instance manager: %v", err)
	}
	with := engineclient.Manager{Name: "im-1", Pod: "p1", IP: "10.0.0.1", ProxyAPIVersion: 5}
	if err := proxies.Ensure(ctx, with); err != nil {
		t.Fatal(err)
	}
	state, err := router.Get(ctx, target)
	if err != nil || state.Volume != "v" || fallback.calls != 0 {
		t.Fatalf("%+v %v, %d calls by the fallback", state, err, fallback.calls)
	}
	if s.meta.Get("volume-name")[0] != "v" || s.meta.Get("instance-name")[0] != "v-e-0" {
		t.Errorf("the proxy did not pass the identity on: %v", s.meta)
	}
	if st, err := router.ReplicaAdd(ctx, target, "10.0.0.9:10000"); err != nil || len(st.Replicas) != 4 ||
		s.added != "tcp://10.0.0.9:10000" {
		t.Errorf("%+v %v %s", st, err, s.added)
	}
	name, err := router.SnapshotCreate(ctx, target, engineclient.SnapshotRequest{Name: "s", Freeze: true})
	if err != nil || name != "s" || !s.taken.GetFreezeFilesystem() || s.taken.GetUserCreated() {
		t.Errorf("%s %v %v", name, err, s.taken)
	}
	if bytes, err := router.FilesystemTrim(ctx, target); err != nil || bytes != 4096 {
		t.Errorf("%d bytes trimmed, %v", bytes, err)
	}

	stop()
	if err := proxies.Ensure(ctx, with); !errors.Is(err, engineclient.ErrUnavailable) {
		t.Errorf("a dead proxy is taken for alive: %v", err)
	}
	if _, err := router.Get(ctx, target); !errors.Is(err, engineclient.ErrUnavailable) || fallback.calls != 0 {
		t.Errorf("a proxy that is down: %v, %d calls by the fallback", err, fallback.calls)
	}

	dials := ms.dials.Load()
	if err := proxies.Ensure(ctx, engineclient.Manager{Name: "im-1", Pod: "p2", IP: "10.0.0.1"}); err != nil {
		t.Fatal(err)
	}
	if _, err := router.Get(ctx, target); err != nil || fallback.calls != 1 || ms.dials.Load() != dials {
		t.Errorf("without a proxy: %v, %d calls by the fallback, %d connections made", err, fallback.calls,
			ms.dials.Load()-dials)
	}
}

// TestProxyVersions is the table of the proxy versions there are, and those to come: 0 alone means
// the binary, and no connection.
func TestProxyVersions(t *testing.T) {
	g := grpc.NewServer()
	enginev1.RegisterEngineServer(g, &engineStub{})
	engine, _ := serveGRPC(t, g, func() {})
	address, _ := serveProxy(t)
	for version := range 9 {
		ms := &managers{address: map[string]string{"10.0.0.1": address}}
		proxies := engineclient.NewProxies(ms.dial)
		fallback := &counted{}
		if err := proxies.Ensure(t.Context(), engineclient.Manager{Name: "im", IP: "10.0.0.1",
			ProxyAPIVersion: version}); err != nil {
			t.Fatal(err)
		}
		_, err := engineclient.NewRouter(proxies, fallback).Get(t.Context(),
			engineclient.Target{Address: engine, InstanceManager: "im"})
		binary, connections := 0, int64(1)
		if version == 0 {
			binary, connections = 1, 0
		}
		if err != nil || fallback.calls != binary || ms.dials.Load() != connections {
			t.Errorf("version %d: %v, %d calls by the binary, %d connections", version, err, fallback.calls, ms.dials.Load())
		}
		proxies.Close()
	}
}

// TestOneConnectionPerManager: looking again makes none, another Pod does, a dead one is made
// again.
func TestOneConnectionPerManager(t *testing.T) {
	first, stop := serveProxy(t)
	ms := &managers{address: map[string]string{"10.0.0.1": first}}
	proxies := engineclient.NewProxies(ms.dial)
	defer proxies.Close()
	m := engineclient.Manager{Name: "im-1", Pod: "p1", IP: "10.0.0.1", ProxyAPIVersion: 5}
	look := func(wantErr bool, dials int64) {
		t.Helper()
		if err := proxies.Ensure(t.Context(), m); (err != nil) != wantErr || ms.dials.Load() != dials {
			t.Errorf("%v, %d connections made so far, want %d", err, ms.dials.Load(), dials)
		}
	}
	look(false, 1)
	look(false, 1)
	stop()
	look(true, 1) // found dead, dropped
	second, _ := serveProxy(t)
	ms.address["10.0.0.1"] = second
	look(false, 2)
	m.Pod = "p2"
	look(false, 3)
	proxies.Drop("im-1")
	look(false, 4)
}

// TestPeerWithoutPing is asked by the health service.
func TestPeerWithoutPing(t *testing.T) {
	g := grpc.NewServer()
	health := &healthy{}
	healthpb.RegisterHealthServer(g, health)
	address, _ := serveGRPC(t, g, func() {})
	ms := &managers{address: map[string]string{"10.0.0.1": address}}
	proxies := engineclient.NewProxies(ms.dial)
	defer proxies.Close()
	if err := proxies.Ensure(t.Context(), engineclient.Manager{Name: "im-1", IP: "10.0.0.1",
		ProxyAPIVersion: 1}); err != nil || health.asked.Load() != 1 {
		t.Errorf("%v, health asked %d times", err, health.asked.Load())
	}
}

type healthy struct {
	healthpb.UnimplementedHealthServer
	asked atomic.Int64
}

func (h *healthy) Check(context.Context, *healthpb.HealthCheckRequest) (*healthpb.HealthCheckResponse, error) {
	h.asked.Add(1)
	return &healthpb.HealthCheckResponse{Status: healthpb.HealthCheckResponse_SERVING}, nil
}

// counted counts calls of Get.
type counted struct {
	engineclient.EngineClient
	calls int
}

func (c *counted) Get(context.Context, engineclient.Target) (engineclient.State, error) {
	c.calls++
	return engineclient.State{}, nil
}
