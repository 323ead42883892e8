package server_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"ankole.storage/api/rpc/imrpc"
	"ankole.storage/instancemanager/instancetest"
	"ankole.storage/instancemanager/server"
	"ankole.storage/test/wait"
)

// both serves process and instance service of one manager, and returns clients of both.
func both(t *testing.T) (imrpc.ProcessManagerServiceClient, imrpc.InstanceServiceClient) {
	t.Helper()
	conn, _ := start(t, nil)
	return imrpc.NewProcessManagerServiceClient(conn), imrpc.NewInstanceServiceClient(conn)
}

// instance is the specification of a process as the instance service takes it.
func instance(t *testing.T, name, kind, mode string, ports int, args ...string) *imrpc.InstanceSpec {
	p := instancetest.Spec(t, name, mode, "0.0.0.0", ports, args...)
	return &imrpc.InstanceSpec{Name: name, Type: kind, VolumeName: "demo", PortCount: p.PortCount, PortArgs: p.PortArgs,
		ProcessInstanceSpec: &imrpc.ProcessInstanceSpec{Binary: p.Binary, Args: p.Args, Environment: p.Environment}}
}

// TestInstancesAreProcesses: whichever service started it, both know it, by the same state, ports
// and UUID; the type is the name's.
func TestInstancesAreProcesses(t *testing.T) {
	processes, instances := both(t)
	ctx := t.Context()
	engine := instance(t, "demo-e-0", "engine", instancetest.Serve, 1)
	engine.ProcessInstanceSpec.Order = "uid/1"
	created, err := instances.InstanceCreate(ctx, &imrpc.InstanceCreateRequest{Spec: engine})
	if err != nil || created.GetSpec().GetType() != "engine" || created.GetStatus().GetPortStart() != 10000 {
		t.Fatalf("%v %v", created, err)
	}
	if strings.Contains(created.String(), "ANKOLE_TEST_INSTANCE") {
		t.Errorf("the environment is told: %s", created)
	}
	replica := instancetest.Spec(t, "demo-r-12345678", instancetest.Serve, "0.0.0.0", 2)
	replica.Order = "uid/2"
	if _, err := processes.ProcessCreate(ctx, &imrpc.ProcessCreateRequest{Spec: replica}); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		name, kind, order string
		first, end        int32
	}{{"demo-e-0", "engine", "uid/1", 10000, 10000}, {"demo-r-12345678", "replica", "uid/2", 10001, 10002}} {
		wait.Until(t, row.name+" runs", func() bool {
			r, err := instances.InstanceGet(ctx, &imrpc.InstanceGetRequest{Name: row.name})
			return err == nil && r.GetStatus().GetState() == "running"
		})
		list, err := instances.InstanceList(ctx, &emptypb.Empty{})
		if err != nil {
			t.Fatal(err)
		}
		i := list.GetInstances()[row.name]
		p, err := processes.ProcessGet(ctx, &imrpc.ProcessGetRequest{Name: row.name})
		if err != nil {
			t.Fatal(err)
		}
		s := i.GetStatus()
		if i.GetSpec().GetType() != row.kind || s.GetPortStart() != row.first || s.GetPortEnd() != row.end ||
			s.GetUuid() == "" ||
			s.GetUuid() != p.GetStatus().GetUuid() ||
			i.GetSpec().GetProcessInstanceSpec().GetOrder() != row.order || p.GetSpec().GetOrder() != row.order ||
			i.GetSpec().GetProcessInstanceSpec().GetBinary() != p.GetSpec().GetBinary() {
			t.Errorf("%v, as a process %v", i, p)
		}
	}
	if _, err := instances.InstanceDelete(ctx,
		&imrpc.InstanceDeleteRequest{Name: "demo-r-12345678", Type: "replica"}); err != nil {
		t.Fatal(err)
	}
	wait.Until(t, "the deleted one is gone", func() bool {
		_, err := processes.ProcessGet(ctx, &imrpc.ProcessGetRequest{Name: "demo-r-12345678"})
		return status.Code(err) == codes.NotFound
	})
}

// TestInstanceRefusals is the table of refusals as a client sees them; nothing is started by any.
func TestInstanceRefusals(t *testing.T) {
	_, c := both(t)
	create := func(change func(*imrpc.InstanceSpec)) func(context.Context) error {
		spec := instance(t, "demo-e-0", "engine", instancetest.NeverListens, 0)
		change(spec)
		return func(ctx context.Context) error {
			_, err := c.InstanceCreate(ctx, &imrpc.InstanceCreateRequest{Spec: spec})
			return err
		}
	}
	for _, row := range []struct {
		name string
		call func(context.Context) error
		want codes.Code
		says string
	}{
		{"no spec", func(ctx context.Context) error {
			_, err := c.InstanceCreate(ctx, &imrpc.InstanceCreateRequest{})
			return err
		}, codes.InvalidArgument, "process_instance_spec"},
		{"no process", create(func(s *imrpc.InstanceSpec) {
			s.ProcessInstanceSpec = nil
		}), codes.InvalidArgument, "process_instance_spec"},
		{"no name", create(func(s *imrpc.InstanceSpec) { s.Name = "" }), codes.InvalidArgument, "name is missing"},
		{"unknown type", create(func(s *imrpc.InstanceSpec) { s.Type = "frontend" }), codes.InvalidArgument, `"frontend"`},
		{"data engine v2", create(func(s *imrpc.InstanceSpec) {
			s.DataEngine = imrpc.DataEngine_DATA_ENGINE_V2
		}), codes.Unimplemented, "v2"},
		{"backend store driver v2", create(func(s *imrpc.InstanceSpec) {
			s.BackendStoreDriver = imrpc.BackendStoreDriver_v2
		}), codes.Unimplemented, "v2"},
		{"get unknown", func(ctx context.Context) error {
			_, err := c.InstanceGet(ctx, &imrpc.InstanceGetRequest{Name: "no"})
			return err
		}, codes.NotFound, "no"},
		{"replace unknown", func(ctx context.Context) error {
			_, err := c.InstanceReplace(ctx,
				&imrpc.InstanceReplaceRequest{
					Spec: instance(t, "no-e-0", "", instancetest.NeverListens, 0), TerminateSignal: "SIGHUP"})
			return err
		}, codes.NotFound, "no"},
		{"suspend", func(ctx context.Context) error {
			_, err := c.InstanceSuspend(ctx, &imrpc.InstanceSuspendRequest{})
			return err
		}, codes.Unimplemented, "v2"},
		{"log level", func(ctx context.Context) error {
			_, err := c.LogSetLevel(ctx, &imrpc.LogSetLevelRequest{Level: "loud"})
			return err
		}, codes.InvalidArgument, `"loud"`},
	} {
		err := row.call(t.Context())
		if status.Code(err) != row.want || !strings.Contains(status.Convert(err).Message(), row.says) {
			t.Errorf("%s: %v, want %s", row.name, err, row.want)
		}
	}
	if list, err := c.InstanceList(t.Context(), &emptypb.Empty{}); err != nil || len(list.GetInstances()) != 0 {
		t.Errorf("%v %v", list, err)
	}
}

// TestInstanceWatch: a hint comes at once, and one after a change; however many changes are missed,
// the stream stays.
func TestInstanceWatch(t *testing.T) {
	_, c := both(t)
	watch, err := c.InstanceWatch(t.Context(), &emptypb.Empty{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := watch.Recv(); err != nil {
		t.Fatal(err)
	}
	for range 200 { // each makes several changes; a subscriber's buffer holds 100
		if _, err := c.InstanceCreate(t.Context(), &imrpc.InstanceCreateRequest{Spec: &imrpc.InstanceSpec{Name: "x-r-1",
			ProcessInstanceSpec: &imrpc.ProcessInstanceSpec{Binary: "/missing"}}}); err != nil {
			t.Fatal(err)
		}
		if _, err := c.InstanceDelete(t.Context(), &imrpc.InstanceDeleteRequest{Name: "x-r-1"}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := watch.Recv(); err != nil {
		t.Errorf("after many changes: %v", err)
	}
}

func TestInstanceLogAndLevel(t *testing.T) {
	_, c := both(t)
	ctx := t.Context()
	if _, err := c.InstanceCreate(ctx,
		&imrpc.InstanceCreateRequest{Spec: instance(t, "demo-r-1", "", instancetest.Print, 0, "--count", "3")}); err != nil {
		t.Fatal(err)
	}
	wait.Until(t, "three lines are logged", func() bool {
		stream, err := c.InstanceLog(ctx, &imrpc.InstanceLogRequest{Name: "demo-r-1"})
		return err == nil && strings.HasSuffix(readLog(t, stream), "line 0 line 1 line 2")
	})
	if _, err := c.LogSetLevel(ctx, &imrpc.LogSetLevelRequest{Level: "Debug"}); err != nil {
		t.Fatal(err)
	}
	if l, err := c.LogGetLevel(ctx, &imrpc.LogGetLevelRequest{}); err != nil || l.GetLevel() != "debug" {
		t.Errorf("%v %v", l, err)
	}
	if v, err := c.VersionGet(ctx, &emptypb.Empty{}); err != nil || v.GetInstanceManagerAPIVersion() != server.APIVersion {
		t.Errorf("%v %v", v, err)
	}
}

func readLog(t *testing.T, stream grpc.ServerStreamingClient[imrpc.LogResponse]) string {
	t.Helper()
	var lines []string
	for {
		l, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return strings.Join(lines, " ")
		}
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, l.GetLine())
	}
}
