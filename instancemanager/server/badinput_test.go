package server_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"ankole.storage/api/rpc/imrpc"
	"ankole.storage/test/wait"
)

// TestBadProcesses is the table of processes that cannot be: by whichever service they are asked
// for, each has its code and its text, and nothing is changed.
func TestBadProcesses(t *testing.T) {
	processes, instances := both(t)
	long := strings.Repeat("x", 241)
	for _, row := range []struct {
		name string
		spec *imrpc.ProcessSpec
		want codes.Code
		says string
	}{
		{"no name", &imrpc.ProcessSpec{Binary: "/x"}, codes.InvalidArgument, "name is missing"},
		{"slash", &imrpc.ProcessSpec{Name: "a/b", Binary: "/x"}, codes.InvalidArgument, `process name "a/b"`},
		{"climbing", &imrpc.ProcessSpec{Name: "../../etc/passwd", Binary: "/x"}, codes.InvalidArgument, "process name"},
		{"dots", &imrpc.ProcessSpec{Name: "..", Binary: "/x"}, codes.InvalidArgument, "process name"},
		{"zero byte", &imrpc.ProcessSpec{Name: "a\x00b", Binary: "/x"}, codes.InvalidArgument, "process name"},
		{"line end", &imrpc.ProcessSpec{Name: "a\nb", Binary: "/x"}, codes.InvalidArgument, "process name"},
		{"long name", &imrpc.ProcessSpec{Name: long, Binary: "/x"}, codes.InvalidArgument, "at most 240"},
		{"no binary", &imrpc.ProcessSpec{Name: "x"}, codes.InvalidArgument, "binary is missing"},
		{"relative binary", &imrpc.ProcessSpec{Name: "x", Binary: "bin/x"}, codes.InvalidArgument, "not an absolute path"},
		{"negative ports", &imrpc.ProcessSpec{Name: "x", Binary: "/x", PortCount: -1}, codes.InvalidArgument,
			"port count -1"},
		{"ports beyond TCP", &imrpc.ProcessSpec{Name: "x", Binary: "/x", PortCount: 65536}, codes.InvalidArgument,
			"port count 65536"},
		{"arguments without ports", &imrpc.ProcessSpec{Name: "x", Binary: "/x", PortArgs: []string{"--listen,:"}},
			codes.InvalidArgument, "1 port arguments for 0 ports"},
		{"range exhausted", &imrpc.ProcessSpec{Name: "x", Binary: "/x", PortCount: 101}, codes.ResourceExhausted,
			"cannot allocate 101 ports"},
		{"arguments too many", &imrpc.ProcessSpec{Name: "x", Binary: "/x", Args: make([]string, 1025)},
			codes.InvalidArgument, "1025 arguments"},
		{"arguments too large", &imrpc.ProcessSpec{Name: "x", Binary: "/x",
			Args: []string{strings.Repeat("x", 200<<10)}}, codes.InvalidArgument, "bytes, at most"},
		{"zero byte in an argument", &imrpc.ProcessSpec{Name: "x", Binary: "/x", Args: []string{"a\x00"}},
			codes.InvalidArgument, "zero byte"},
		{"variable without a name", &imrpc.ProcessSpec{Name: "x", Binary: "/x",
			Environment: map[string]string{"": "x"}}, codes.InvalidArgument, "malformed"},
		{"variable with a sign", &imrpc.ProcessSpec{Name: "x", Binary: "/x",
			Environment: map[string]string{"A=B": "x"}}, codes.InvalidArgument, "malformed"},
		{"variable of the instance manager", &imrpc.ProcessSpec{Name: "x", Binary: "/x",
			Environment: map[string]string{"POD_IP": "x"}}, codes.InvalidArgument, "POD_IP is set by"},
		{"message too large", &imrpc.ProcessSpec{Name: "x", Binary: "/x", Args: []string{strings.Repeat("x", 2<<20)}},
			codes.ResourceExhausted, "larger than max"},
	} {
		_, err := processes.ProcessCreate(t.Context(), &imrpc.ProcessCreateRequest{Spec: row.spec})
		s := row.spec
		_, err2 := instances.InstanceCreate(t.Context(),
			&imrpc.InstanceCreateRequest{Spec: &imrpc.InstanceSpec{Name: s.Name, Type: "engine",
				PortCount: s.PortCount, PortArgs: s.PortArgs,
				ProcessInstanceSpec: &imrpc.ProcessInstanceSpec{Binary: s.Binary, Args: s.Args, Environment: s.Environment}}})
		for service, err := range map[string]error{"process": err, "instance": err2} {
			if status.Code(err) != row.want || !strings.Contains(status.Convert(err).Message(), row.says) {
				t.Errorf("%s, by the %s service: %.200v, want %s and %q", row.name, service, err, row.want, row.says)
			}
		}
	}
	nothing(t, processes)
}

// nothing checks that there is no process and that all ports are free.
func nothing(t *testing.T, c imrpc.ProcessManagerServiceClient) {
	t.Helper()
	list, err := c.ProcessList(t.Context(), &imrpc.ProcessListRequest{})
	if err != nil || len(list.GetProcesses()) != 0 || list.GetRevision() != 0 {
		t.Errorf("something has changed: %v %v", list, err)
	}
	all, err := c.ProcessCreate(t.Context(),
		&imrpc.ProcessCreateRequest{Spec: &imrpc.ProcessSpec{Name: "all-ports", Binary: "/missing", PortCount: 100}})
	if err != nil || all.GetStatus().GetPortStart() != 10000 {
		t.Errorf("all ports at once: %v %v", all, err)
	}
}

// TestUnknownNames: whatever is asked about a process that is not there is NotFound, and names it.
func TestUnknownNames(t *testing.T) {
	processes, instances := both(t)
	for _, name := range []string{"", "no", "a/b", "../../etc/passwd", "..", "a\x00b", strings.Repeat("x", 10_000)} {
		ctx := t.Context()
		log, err := processes.ProcessLog(ctx, &imrpc.LogRequest{Name: name})
		if err == nil {
			_, err = log.Recv()
		}
		log2, err2 := instances.InstanceLog(ctx, &imrpc.InstanceLogRequest{Name: name})
		if err2 == nil {
			_, err2 = log2.Recv()
		}
		_, err3 := processes.ProcessGet(ctx, &imrpc.ProcessGetRequest{Name: name})
		_, err4 := processes.ProcessDelete(ctx, &imrpc.ProcessDeleteRequest{Name: name})
		_, err5 := instances.InstanceGet(ctx, &imrpc.InstanceGetRequest{Name: name})
		_, err6 := instances.InstanceDelete(ctx, &imrpc.InstanceDeleteRequest{Name: name})
		for i, err := range []error{err, err2, err3, err4, err5, err6} {
			if status.Code(err) != codes.NotFound {
				t.Errorf("%.40q, call %d: %.200v", name, i, err)
			}
		}
	}
	nothing(t, processes)
}

// TestBadBinaries: a process that cannot be started is listed with the reason, which names the
// path, and holds its ports until it is deleted.
func TestBadBinaries(t *testing.T) {
	processes, _ := both(t)
	dir := t.TempDir()
	plain := filepath.Join(dir, "plain")
	if err := os.WriteFile(plain, []byte("#!/bin/sh\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for path, says := range map[string]string{filepath.Join(dir, "missing"): "no such file", plain: "permission denied",
		dir: "permission denied", plain + "/longhorn": "not a directory"} {
		p, err := processes.ProcessCreate(t.Context(),
			&imrpc.ProcessCreateRequest{Spec: &imrpc.ProcessSpec{Name: "x-e-0", Binary: path, PortCount: 100}})
		if s := p.GetStatus(); err != nil || s.GetState() != "error" || !strings.Contains(s.GetErrorMsg(), path) ||
			!strings.Contains(s.GetErrorMsg(), says) {
			t.Errorf("%s: %v %v, want %q", path, p, err, says)
		}
		if p, err := processes.ProcessDelete(t.Context(), &imrpc.ProcessDeleteRequest{Name: "x-e-0"}); err != nil ||
			!p.GetDeleted() {
			t.Errorf("%s: delete: %v %v", path, p, err)
		}
	}
}

// raw sends bytes as they are.
type raw struct{}

func (raw) Marshal(v any) ([]byte, error) { return *v.(*[]byte), nil }
func (raw) Unmarshal(p []byte, v any) error {
	*v.(*[]byte) = append([]byte(nil), p...)
	return nil
}
func (raw) Name() string { return "proto" }

var _ encoding.Codec = raw{}

// TestMalformedMessages: bytes that are no message are refused by every method of both services,
// and change nothing.
func TestMalformedMessages(t *testing.T) {
	conn, _ := start(t, nil)
	services := []grpc.ServiceDesc{imrpc.ProcessManagerService_ServiceDesc, imrpc.InstanceService_ServiceDesc}
	n := 0
	for _, service := range services {
		for _, m := range service.Methods {
			for name, p := range map[string][]byte{"cut short": {0x0a, 0x05, 'x'}, "no field": {0xff, 0xff, 0xff, 0xff},
				"wrong group": {0x0b}} {
				var out []byte
				err := conn.Invoke(t.Context(), "/"+service.ServiceName+"/"+m.MethodName, &p, &out, grpc.ForceCodec(raw{}))
				if status.Code(err) != codes.Internal || !strings.Contains(err.Error(), "unmarshal") {
					t.Errorf("%s of %s: %v", m.MethodName, name, err)
				}
				n++
			}
		}
	}
	if n < 40 {
		t.Errorf("only %d calls were tried", n)
	}
	nothing(t, imrpc.NewProcessManagerServiceClient(conn))
}

// TestThousandClients: a thousand clients that watch and list at once are served, and leave nothing
// when they go. One more than may connect is turned away, without harm to the others.
func TestThousandClients(t *testing.T) {
	conn, addr := start(t, nil)
	one := imrpc.NewProcessManagerServiceClient(conn)
	if _, err := one.VersionGet(t.Context(), &emptypb.Empty{}); err != nil {
		t.Fatal(err)
	}
	before := figures()
	const clients = 1000
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	conns := make([]*grpc.ClientConn, clients)
	streams := make([]grpc.ServerStreamingClient[imrpc.ProcessResponse], clients)
	failed := make(chan error, clients)
	for i := range conns {
		go func() {
			var err error
			if conns[i], err = grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials())); err == nil {
				c := imrpc.NewProcessManagerServiceClient(conns[i])
				if streams[i], err = c.ProcessWatch(ctx, &emptypb.Empty{}); err == nil {
					_, err = streams[i].Header()
				}
				if err == nil {
					_, err = c.ProcessList(ctx, &imrpc.ProcessListRequest{})
				}
			}
			failed <- err
		}()
	}
	for range conns {
		if err := <-failed; err != nil {
			t.Error(err)
		}
	}
	if t.Failed() {
		return
	}
	if _, err := one.ProcessCreate(t.Context(),
		&imrpc.ProcessCreateRequest{Spec: &imrpc.ProcessSpec{Name: "x-r-1", Binary: "/missing"}}); err != nil {
		t.Fatal(err)
	}
	for i := range streams {
		for _, want := range []string{"starting", "error"} {
			if p, err := streams[i].Recv(); err != nil || p.GetStatus().GetState() != want {
				t.Fatalf("client %d: %v %v", i, p, err)
			}
		}
	}
	during := figures()
	t.Logf("before: %s; with %d clients, both ends in this process: %s", before, clients, during)
	// Measured 90 kB for both ends of a connection.
	if grown := int(during.heap-before.heap) / clients; grown > 300_000 {
		t.Errorf("%d bytes for each client", grown)
	}
	cancel()
	for _, c := range conns {
		c.Close()
	}
	wait.Until(t, "goroutines and descriptors are back", func() bool {
		after := figures()
		return after.goroutines <= before.goroutines+2 && after.files <= before.files+2
	})
	t.Logf("after: %s", figures())
}

// resources is what a process uses.
type resources struct {
	heap              uint64
	goroutines, files int
}

func (r resources) String() string {
	return fmt.Sprintf("%d kB heap, %d goroutines, %d descriptors", r.heap>>10, r.goroutines, r.files)
}

func figures() resources {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	entries, _ := os.ReadDir("/proc/self/fd") // an empty list shows
	return resources{m.HeapAlloc, runtime.NumGoroutine(), len(entries)}
}
