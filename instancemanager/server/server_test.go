package server_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"ankole.storage/api/rpc/imrpc"
	"ankole.storage/instancemanager/instancetest"
	"ankole.storage/instancemanager/process"
	"ankole.storage/instancemanager/server"
	"ankole.storage/test/wait"
)

func TestMain(m *testing.M) {
	instancetest.Main()
	os.Exit(m.Run())
}

// start serves the processes and instances of one process manager and returns a connection to it
// and its address.
func start(t *testing.T, secure credentials.TransportCredentials, options ...grpc.ServerOption) (*grpc.ClientConn,
	string) {
	t.Helper()
	m, err := process.New(process.Config{LogsDir: t.TempDir(), PodIP: instancetest.Host(),
		Ports: process.PortRange{Start: 10000, End: 10099}, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	l, err := server.Listen(t.Context(), "127.0.0.1:0", "")
	if err != nil {
		t.Fatal(err)
	}
	s := server.NewWith(options, secure, server.Processes(m, "im"), server.Instances(m, &slog.LevelVar{}))
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(l) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		if err := m.Close(ctx); err != nil {
			t.Error(err)
		}
		s.Stop()
		<-ended
	})
	return dial(t, l.Addr().String()), l.Addr().String()
}

func dial(t *testing.T, addr string) *grpc.ClientConn {
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// TestCodes is the table of refusals as a client sees them.
func TestCodes(t *testing.T) {
	conn, _ := start(t, nil)
	c := imrpc.NewProcessManagerServiceClient(conn)
	ctx := t.Context()
	demo := instancetest.Spec(t, "demo-r-1", instancetest.Serve, ":", 0)
	demo.Args = []string{instancetest.NeverListens}
	if _, err := c.ProcessCreate(ctx, &imrpc.ProcessCreateRequest{Spec: demo}); err != nil {
		t.Fatal(err)
	}
	big := instancetest.Spec(t, "demo-r-2", instancetest.Serve, "", 101)
	for _, row := range []struct {
		name string
		err  func() error
		want codes.Code
		says string
	}{
		{"create without a spec", func() error { _, err := c.ProcessCreate(ctx, &imrpc.ProcessCreateRequest{}); return err },
			codes.InvalidArgument, "name is missing"},
		{"create without a binary", func() error {
			_, err := c.ProcessCreate(ctx, &imrpc.ProcessCreateRequest{Spec: &imrpc.ProcessSpec{Name: "x"}})
			return err
		}, codes.InvalidArgument, "binary is missing"},
		{"name twice", func() error { _, err := c.ProcessCreate(ctx, &imrpc.ProcessCreateRequest{Spec: demo}); return err },
			codes.AlreadyExists, "demo-r-1"},
		{"too many ports", func() error {
			_, err := c.ProcessCreate(ctx, &imrpc.ProcessCreateRequest{Spec: big})
			return err
		},
			codes.ResourceExhausted, "cannot allocate 101 ports"},
		{"get unknown", func() error { _, err := c.ProcessGet(ctx, &imrpc.ProcessGetRequest{Name: "no"}); return err },
			codes.NotFound, "no"},
		{"delete unknown", func() error {
			_, err := c.ProcessDelete(ctx, &imrpc.ProcessDeleteRequest{Name: "no"})
			return err
		},
			codes.NotFound, "no"},
		{"delete another", func() error {
			_, err := c.ProcessDelete(ctx, &imrpc.ProcessDeleteRequest{Name: "demo-r-1", Uuid: "x"})
			return err
		}, codes.NotFound, "UUID x"},
		{"replace without signal", func() error {
			_, err := c.ProcessReplace(ctx, &imrpc.ProcessReplaceRequest{Spec: demo})
			return err
		}, codes.InvalidArgument, "SIGHUP"},
		{"replace unknown", func() error {
			_, err := c.ProcessReplace(ctx, &imrpc.ProcessReplaceRequest{Spec: big, TerminateSignal: "SIGHUP"})
			return err
		}, codes.NotFound, "demo-r-2"},
		{"log of unknown", func() error {
			stream, err := c.ProcessLog(ctx, &imrpc.LogRequest{Name: "no"})
			if err == nil {
				_, err = stream.Recv()
			}
			return err
		}, codes.NotFound, "no"},
	} {
		err := row.err()
		if status.Code(err) != row.want || !strings.Contains(status.Convert(err).Message(), row.says) {
			t.Errorf("%s: %v, want %s", row.name, err, row.want)
		}
	}
	list, err := c.ProcessList(ctx, &imrpc.ProcessListRequest{})
	if err != nil || len(list.GetProcesses()) != 1 {
		t.Errorf("the refusals changed the list: %v %v", list, err)
	}
}

// TestClose: the order to close comes with the list, and is answered there.
func TestClose(t *testing.T) {
	conn, _ := start(t, nil)
	c := imrpc.NewProcessManagerServiceClient(conn)
	ctx := t.Context()
	spec := instancetest.Spec(t, "demo-r-1", instancetest.NeverListens, "0.0.0.0", 0)
	if _, err := c.ProcessCreate(ctx, &imrpc.ProcessCreateRequest{Spec: spec}); err != nil {
		t.Fatal(err)
	}
	list, err := c.ProcessList(ctx, &imrpc.ProcessListRequest{Close: true})
	if err != nil || list.GetClosed() || len(list.GetProcesses()) != 1 {
		t.Fatalf("while a process runs: %v %v", list, err)
	}
	if _, err := c.ProcessDelete(ctx, &imrpc.ProcessDeleteRequest{Name: "demo-r-1"}); err != nil {
		t.Fatal(err)
	}
	wait.Until(t, "it is closed", func() bool {
		list, err := c.ProcessList(ctx, &imrpc.ProcessListRequest{Close: true})
		return err == nil && list.GetClosed()
	})
	if _, err := c.ProcessCreate(ctx, &imrpc.ProcessCreateRequest{Spec: spec}); status.Code(err) !=
		codes.FailedPrecondition || !strings.Contains(err.Error(), "about to be removed") {
		t.Errorf("created after the close: %v", err)
	}
}

// TestSecretsStayInside: neither answers nor list nor events carry the environment.
func TestSecretsStayInside(t *testing.T) {
	conn, _ := start(t, nil)
	c := imrpc.NewProcessManagerServiceClient(conn)
	watch, err := c.ProcessWatch(t.Context(), &emptypb.Empty{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := watch.Header(); err != nil {
		t.Fatal(err)
	}
	spec := instancetest.Spec(t, "demo-r-1", instancetest.Serve, "0.0.0.0", 1)
	spec.Environment["ANKOLE_VOLUME_SECRET"] = "0123456789abcdef"
	created, err := c.ProcessCreate(t.Context(), &imrpc.ProcessCreateRequest{Spec: spec})
	if err != nil {
		t.Fatal(err)
	}
	list, err := c.ProcessList(t.Context(), &imrpc.ProcessListRequest{})
	if err != nil {
		t.Fatal(err)
	}
	event, err := watch.Recv()
	if err != nil {
		t.Fatal(err)
	}
	for _, message := range []fmt.Stringer{created, list, event} {
		if text := message.String(); strings.Contains(text, "0123456789abcdef") || !strings.Contains(text, "demo-r-1") {
			t.Errorf("%s", text)
		}
	}
}

// TestClientThatNeverReads its watch is cut off, and the server can still stop.
func TestClientThatNeverReads(t *testing.T) {
	conn, _ := start(t, nil)
	c := imrpc.NewProcessManagerServiceClient(conn)
	stream, err := c.ProcessWatch(t.Context(), &emptypb.Empty{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Header(); err != nil {
		t.Fatal(err)
	}
	// Events as large as names and arguments allow fill the stream's window (64 KiB) soon.
	spec := &imrpc.ProcessSpec{Name: "x-r-1", Binary: "/missing", Args: []string{strings.Repeat("x", 8<<10)}}
	for range 100 {
		if _, err := c.ProcessCreate(t.Context(), &imrpc.ProcessCreateRequest{Spec: spec}); err != nil {
			t.Fatal(err)
		}
		if _, err := c.ProcessDelete(t.Context(), &imrpc.ProcessDeleteRequest{Name: "x-r-1"}); err != nil {
			t.Fatal(err)
		}
	}
	for n := 0; ; n++ {
		_, err := stream.Recv()
		if err == nil && n < 300 {
			continue
		}
		if status.Code(err) != codes.Aborted {
			t.Errorf("after %d events: %v", n, err)
		}
		break
	}
}

func TestHealthAndReflection(t *testing.T) {
	conn, _ := start(t, nil)
	h := healthpb.NewHealthClient(conn)
	for _, service := range []string{"", "ProcessManagerService", "anything"} {
		r, err := h.Check(t.Context(), &healthpb.HealthCheckRequest{Service: service})
		if err != nil || r.GetStatus() != healthpb.HealthCheckResponse_SERVING {
			t.Errorf("%q: %v %v", service, r, err)
		}
	}
	watch, err := h.Watch(t.Context(), &healthpb.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // it repeats itself
		if r, err := watch.Recv(); err != nil || r.GetStatus() != healthpb.HealthCheckResponse_SERVING {
			t.Errorf("%v %v", r, err)
		}
	}
	reflection, err := reflectionpb.NewServerReflectionClient(conn).ServerReflectionInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := reflection.Send(&reflectionpb.ServerReflectionRequest{
		MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}}); err != nil {
		t.Fatal(err)
	}
	services, err := reflection.Recv()
	if err != nil || !strings.Contains(services.String(), `"ProcessManagerService"`) {
		t.Errorf("%v %v", services, err)
	}
}

func TestVersion(t *testing.T) {
	conn, _ := start(t, nil)
	v, err := imrpc.NewProcessManagerServiceClient(conn).VersionGet(t.Context(), &emptypb.Empty{})
	if err != nil || v.GetInstanceManagerAPIVersion() != 4 || v.GetInstanceManagerAPIMinVersion() != 1 ||
		v.GetInstanceManagerProxyAPIVersion() != 5 || v.GetInstanceManagerProxyAPIMinVersion() != 1 ||
		v.GetInstanceManager() != "im" {
		t.Errorf("%v %v", v, err)
	}
}

// TestListen is the table of wildcard addresses.
func TestListen(t *testing.T) {
	for _, row := range []struct{ addr, podIP, host string }{
		{"0.0.0.0:0", "127.0.7.3", "127.0.7.3"},
		{":0", "127.0.7.3", "127.0.7.3"},
		{"[::]:0", "127.0.7.3", "127.0.7.3"},
		{"127.0.7.4:0", "127.0.7.3", "127.0.7.4"},
		{"localhost:0", "", "127.0.0.1"},
	} {
		l, err := server.Listen(t.Context(), row.addr, row.podIP)
		if err != nil {
			t.Errorf("%s: %v", row.addr, err)
			continue
		}
		if host, _, _ := net.SplitHostPort(l.Addr().String()); host != row.host {
			t.Errorf("%s with Pod address %s: %s", row.addr, row.podIP, host)
		}
		l.Close()
	}
	for _, addr := range []string{"", "8500", "127.0.0.1", "127.0.0.1:x", "203.0.113.1:1"} {
		if l, err := server.Listen(t.Context(), addr, ""); err == nil {
			t.Errorf("%q is served at %s", addr, l.Addr())
		}
	}
}
