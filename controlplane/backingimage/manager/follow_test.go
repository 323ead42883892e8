package manager

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/emptypb"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/api/rpc/bimrpc"
	"ankole.storage/test/wait"
)

// process plays a backing image manager.
type process struct {
	bimrpc.UnimplementedBackingImageManagerServiceServer
	hints chan struct{}

	mu    sync.Mutex
	files map[string]*bimrpc.BackingImageResponse
	calls []string
	fails error
}

func (p *process) VersionGet(context.Context, *emptypb.Empty) (*bimrpc.VersionResponse, error) {
	return &bimrpc.VersionResponse{BackingImageManagerApiVersion: 3, BackingImageManagerApiMinVersion: 2}, nil
}

func (p *process) List(context.Context, *emptypb.Empty) (*bimrpc.ListResponse, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return &bimrpc.ListResponse{BackingImages: p.files}, nil
}

func (p *process) Watch(_ *emptypb.Empty, stream grpc.ServerStreamingServer[emptypb.Empty]) error {
	for {
		if err := stream.Send(&emptypb.Empty{}); err != nil {
			return err
		}
		select {
		case _, open := <-p.hints:
			if !open {
				return status.Error(codes.Unavailable, "it ends")
			}
		case <-stream.Context().Done():
			return nil
		}
	}
}

func (p *process) called(what string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls = append(p.calls, what)
	return p.fails
}

func (p *process) Delete(_ context.Context, q *bimrpc.DeleteRequest) (*emptypb.Empty, error) {
	return &emptypb.Empty{}, p.called("delete " + q.Name + "-" + q.Uuid)
}

func (p *process) Sync(_ context.Context, q *bimrpc.SyncRequest) (*bimrpc.BackingImageResponse, error) {
	return &bimrpc.BackingImageResponse{}, p.called("sync " + q.Spec.Name + " from " + q.FromAddress)
}

func (p *process) Fetch(_ context.Context, q *bimrpc.FetchRequest) (*bimrpc.BackingImageResponse, error) {
	return &bimrpc.BackingImageResponse{}, p.called("fetch " + q.Spec.Name + " from " + q.DataSourceAddress)
}

// start serves a process at an address of memory; dial connects to the latest one.
func start(t *testing.T, p *process) Dial {
	t.Helper()
	l := bufconn.Listen(1 << 16)
	server := grpc.NewServer()
	bimrpc.RegisterBackingImageManagerServiceServer(server, p)
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(l) // ends with the server
	}()
	t.Cleanup(func() {
		server.Stop()
		<-served
	})
	return func(string) (*grpc.ClientConn, error) {
		return grpc.NewClient("passthrough:///memory", grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))
	}
}

func listedFile(state string) *bimrpc.BackingImageResponse {
	return &bimrpc.BackingImageResponse{
		Spec: &bimrpc.BackingImageSpec{Name: "iso", Uuid: uuid, Size: 7, VirtualSize: 9, RealSize: 3},
		Status: &bimrpc.BackingImageStatus{State: state, ErrorMsg: "why", SendingReference: 2, SenderManagerAddress: "s:1",
			Progress: 40, Checksum: "sum"}}
}

var key = client.ObjectKey{Namespace: "ns", Name: "bim-1"}

// TestFollow: what a process lists is known, each change wakes, and what a process that is lost had
// is not known any more.
func TestFollow(t *testing.T) {
	p := &process{hints: make(chan struct{}), files: map[string]*bimrpc.BackingImageResponse{"iso": listedFile(
		"in-progress")}}
	f := newFollowed(start(t, p))
	if f.of(key, "u1", "10.0.0.1") != nil {
		t.Error("something is known before the start")
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- f.Start(ctx) }()
	wait.Until(t, "it is followed", func() bool { return f.of(key, "u1", "10.0.0.1") != nil })
	wait.Receive(t, "the first list", f.wakeups)
	want := info{Name: "iso", UUID: uuid, Size: 7, VirtualSize: 9, RealSize: 3, State: "in-progress", Message: "why",
		SendingReference: 2, SenderManagerAddress: "s:1", Progress: 40, CurrentChecksum: "sum"}
	l := f.of(key, "u1", "10.0.0.1")
	if got := l.files[fileID{"iso", uuid}]; got != want || l.apiVersion != 3 || l.apiMinimum != 2 {
		t.Errorf("%+v, %d, %d", got, l.apiVersion, l.apiMinimum)
	}
	p.mu.Lock()
	p.files = map[string]*bimrpc.BackingImageResponse{"iso": listedFile("ready")}
	p.mu.Unlock()
	p.hints <- struct{}{}
	if e := wait.Receive(t, "a change", f.wakeups); e.Object.GetName() != key.Name {
		t.Errorf("%s is woken", e.Object.GetName())
	}
	if got := f.of(key, "u1", "10.0.0.1").files[fileID{"iso", uuid}].State; got != v1beta2.BackingImageStateReady {
		t.Errorf("state %s", got)
	}
	close(p.hints)
	wait.Receive(t, "the loss", f.wakeups)
	if f.of(key, "u1", "10.0.0.1") != nil {
		t.Error("what a lost process had is still known")
	}
	if f.of(key, "u2", "10.0.0.2") != nil {
		t.Error("another Pod has the files of the former one")
	}
	f.drop(key)
	cancel()
	if err := wait.Receive(t, "the end", ended); err != nil {
		t.Error(err)
	}
}

// TestOrders: each order reaches the process, and its failure names it; tries are paced, and what
// was deleted is known to be.
func TestOrders(t *testing.T) {
	p := &process{}
	now := t0
	o := newOrders(start(t, p), func() time.Time { return now })
	r, id := &Reconciler{orders: o}, fileID{"iso", uuid}
	m := &v1beta2.BackingImageManager{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	carry := func(order any) error { return r.carry(t.Context(), m, seen{}, order) }
	sync := syncOrder{"10.0.0.1", "10.0.0.2:8000", content{fileID: id}}
	for _, order := range []any{fetchOrder{"10.0.0.1", "10.0.0.9:8000", content{fileID: id}}, deleteOrder{"10.0.0.1", id},
		sync} {
		if err := carry(order); err != nil {
			t.Error(err)
		}
	}
	want := []string{"fetch iso from 10.0.0.9:8000", "delete iso-" + uuid, "delete iso-" + uuid,
		"sync iso from 10.0.0.2:8000"}
	for i, w := range want {
		if i >= len(p.calls) || p.calls[i] != w {
			t.Fatalf("calls %q, want %q", p.calls, want)
		}
	}
	if a := o.of(key, id); a.count != 2 || !a.notBefore.Equal(t0.Add(20*time.Second)) || a.deleted {
		t.Errorf("after two tries: %+v", a)
	}
	if err := carry(deleteOrder{"10.0.0.1", id}); err != nil || !o.of(key, id).deleted {
		t.Errorf("deleted: %v, %+v", err, o.of(key, id))
	}
	p.fails = status.Error(codes.FailedPrecondition, "is being removed")
	err := carry(sync)
	if status.Code(err) != codes.FailedPrecondition || !errors.Is(err, err) || o.of(key, id).deleted {
		t.Errorf("%v", err)
	}
	for range 20 {
		_ = carry(sync)
	}
	if got := o.of(key, id).notBefore; !got.Equal(t0.Add(mostPause)) {
		t.Errorf("after many tries: %s", got)
	}
	o.succeeded(key, id)
	if a := o.of(key, id); a.count != 0 || !a.notBefore.IsZero() {
		t.Errorf("after a success: %+v", a)
	}
	o.forget(key)
	if a := o.of(key, id); a != (attempts{}) {
		t.Errorf("forgotten: %+v", a)
	}
}
