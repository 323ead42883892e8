package backingimage_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/emptypb"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/api/rpc/bimrpc"
	"ankole.storage/controlplane/backingimage/image"
	"ankole.storage/controlplane/backingimage/manager"
	"ankole.storage/controlplane/backingimage/source"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/object/index"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/test/wait"
)

const managerImage = "bim:1"

// disk plays the process of a manager, whose files come at once.
type disk struct {
	bimrpc.UnimplementedBackingImageManagerServiceServer
	mu      sync.Mutex
	files   map[string]*bimrpc.BackingImageResponse
	changed chan struct{}
}

func (d *disk) change(edit func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	edit()
	close(d.changed)
	d.changed = make(chan struct{})
}

func (d *disk) put(spec *bimrpc.BackingImageSpec) (*bimrpc.BackingImageResponse, error) {
	r := &bimrpc.BackingImageResponse{
		Spec:   &bimrpc.BackingImageSpec{Name: spec.Name, Uuid: spec.Uuid, Size: 512, VirtualSize: 512, RealSize: 512},
		Status: &bimrpc.BackingImageStatus{State: "ready", Checksum: "sum"}}
	d.change(func() { d.files[spec.Name] = r })
	return r, nil
}

func (d *disk) VersionGet(context.Context, *emptypb.Empty) (*bimrpc.VersionResponse, error) {
	return &bimrpc.VersionResponse{}, nil
}

func (d *disk) List(context.Context, *emptypb.Empty) (*bimrpc.ListResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := map[string]*bimrpc.BackingImageResponse{}
	for name, f := range d.files {
		all[name] = f
	}
	return &bimrpc.ListResponse{BackingImages: all}, nil
}

func (d *disk) Fetch(_ context.Context, q *bimrpc.FetchRequest) (*bimrpc.BackingImageResponse, error) {
	return d.put(q.Spec)
}

func (d *disk) Sync(_ context.Context, q *bimrpc.SyncRequest) (*bimrpc.BackingImageResponse, error) {
	if q.Spec.Checksum != "sum" || q.FromAddress == "" {
		return nil, status.Errorf(codes.InvalidArgument, "%v", q)
	}
	return d.put(q.Spec)
}

func (d *disk) Delete(_ context.Context, q *bimrpc.DeleteRequest) (*emptypb.Empty, error) {
	d.change(func() { delete(d.files, q.Name) })
	return &emptypb.Empty{}, nil
}

func (d *disk) Watch(_ *emptypb.Empty, stream grpc.ServerStreamingServer[emptypb.Empty]) error {
	for {
		d.mu.Lock()
		changed := d.changed
		d.mu.Unlock()
		if err := stream.Send(&emptypb.Empty{}); err != nil {
			return err
		}
		select {
		case <-changed:
		case <-stream.Context().Done():
			return nil
		}
	}
}

// bench is a small cluster: an API server in memory, nodes with a disk each, and Pods that run as
// soon as they are made.
type bench struct {
	t       *testing.T
	client  client.Client
	disks   map[string]*disk // by the address of the manager
	listens map[string]*bufconn.Listener
	loops   []step
}

// step is a controller and the kind that it looks after.
type step struct {
	of   client.ObjectList
	loop reconcile.Reconciler
}

func node(n int) *v1beta2.Node {
	yes := func(kinds ...string) (all []v1beta2.Condition) {
		for _, k := range kinds {
			all = append(all, v1beta2.Condition{Type: k, Status: v1beta2.ConditionTrue})
		}
		return all
	}
	return &v1beta2.Node{ObjectMeta: metav1.ObjectMeta{Namespace: naming.Namespace, Name: fmt.Sprint("n", n)},
		Spec: v1beta2.NodeSpec{AllowScheduling: true, Disks: map[string]v1beta2.DiskSpec{"d": {Path: "/p",
			AllowScheduling: true}}},
		Status: v1beta2.NodeStatus{Conditions: yes("Ready", "Schedulable"), DiskStatus: map[string]v1beta2.DiskStatus{
			"d": {DiskUUID: fmt.Sprint("d", n), StorageMaximum: 1 << 40, StorageAvailable: 1 << 40,
				Conditions: yes("Ready", "Schedulable")}}}}
}

func newBench(t *testing.T) *bench {
	t.Helper()
	s := runtime.NewScheme()
	if err := errors.Join(v1beta2.AddToScheme(s), corev1.AddToScheme(s)); err != nil {
		t.Fatal(err)
	}
	build := fake.NewClientBuilder().WithScheme(s).WithStatusSubresource(&v1beta2.BackingImage{},
		&v1beta2.BackingImageManager{}, &v1beta2.BackingImageDataSource{}).WithObjects(node(1), node(2), node(3),
		&v1beta2.Setting{ObjectMeta: metav1.ObjectMeta{Namespace: naming.Namespace,
			Name: "default-backing-image-manager-image"},
			Value: managerImage})
	for _, i := range index.All() {
		build = build.WithIndex(i.Object, i.Field, i.Of)
	}
	b := &bench{t: t, client: build.Build(), disks: map[string]*disk{}, listens: map[string]*bufconn.Listener{}}
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]any{"state": "ready-for-transfer", "size": 512, "currentChecksum": "sum"})
	}))
	t.Cleanup(web.Close)
	for n := 1; n <= 3; n++ {
		b.serve(fmt.Sprint("10.0.0.", n))
	}
	images := image.New(image.Config{Namespace: naming.Namespace, NodeName: "n1"}).WithClient(b.client)
	sources := source.New(source.Config{Namespace: naming.Namespace, Dial: func(ctx context.Context, _ string) (net.Conn,
		error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", web.Listener.Addr().String())
	}}).WithClient(b.client)
	managers := manager.New(manager.Config{Namespace: naming.Namespace, Dial: b.dial}).WithClient(b.client)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- managers.Follow(ctx) }()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	b.loops = []step{stepOf(t, b, &v1beta2.BackingImageList{}, images.Controller()),
		stepOf(t, b, &v1beta2.BackingImageDataSourceList{}, sources.Controller()),
		stepOf(t, b, &v1beta2.BackingImageManagerList{}, managers.Controller())}
	return b
}

func stepOf[T client.Object, G any](t *testing.T, b *bench, list client.ObjectList, c loop.Controller[T, G]) step {
	t.Helper()
	r, err := loop.NewReconciler(c, b.client, &record.FakeRecorder{})
	if err != nil {
		t.Fatal(err)
	}
	return step{list, r}
}

func (b *bench) serve(ip string) {
	d := &disk{files: map[string]*bimrpc.BackingImageResponse{}, changed: make(chan struct{})}
	l := bufconn.Listen(1 << 16)
	server := grpc.NewServer()
	bimrpc.RegisterBackingImageManagerServiceServer(server, d)
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(l) // ends with the server
	}()
	b.t.Cleanup(func() {
		server.Stop()
		<-served
	})
	b.disks[ip], b.listens[ip] = d, l
}

func (b *bench) dial(address string) (*grpc.ClientConn, error) {
	ip, _, err := net.SplitHostPort(address)
	if err != nil || b.listens[ip] == nil {
		return nil, fmt.Errorf("nobody is at %s", address)
	}
	return grpc.NewClient("passthrough:///"+ip, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return b.listens[ip].DialContext(
				ctx)
		}))
}

// turn has each controller make a step for each of its objects, and kubelets run what there is.
func (b *bench) turn() {
	b.t.Helper()
	b.runPods()
	for _, s := range b.loops {
		if err := b.client.List(b.t.Context(), s.of, client.InNamespace(naming.Namespace)); err != nil {
			b.t.Fatal(err)
		}
		for _, name := range names(s.of) {
			key := types.NamespacedName{Namespace: naming.Namespace, Name: name}
			if _, err := s.loop.Reconcile(b.t.Context(), ctrl.Request{NamespacedName: key}); err != nil {
				b.t.Logf("%s: %v", name, err) // tried again
			}
		}
	}
}

func names(list client.ObjectList) (all []string) {
	switch l := list.(type) {
	case *v1beta2.BackingImageList:
		for i := range l.Items {
			all = append(all, l.Items[i].Name)
		}
	case *v1beta2.BackingImageDataSourceList:
		for i := range l.Items {
			all = append(all, l.Items[i].Name)
		}
	case *v1beta2.BackingImageManagerList:
		for i := range l.Items {
			all = append(all, l.Items[i].Name)
		}
	}
	return all
}

// runPods makes Pods ready, at the address of their node.
func (b *bench) runPods() {
	b.t.Helper()
	for _, p := range b.pods() {
		if p.Status.Phase != "" {
			continue
		}
		p.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.0.0." + p.Spec.NodeName[1:],
			ContainerStatuses: []corev1.ContainerStatus{{Ready: true}}}
		if err := b.client.Status().Update(b.t.Context(), &p); err != nil {
			b.t.Fatal(err)
		}
	}
}

func (b *bench) pods() []corev1.Pod {
	b.t.Helper()
	var pods corev1.PodList
	if err := b.client.List(b.t.Context(), &pods); err != nil {
		b.t.Fatal(err)
	}
	return pods.Items
}

func (b *bench) until(what string, holds func() bool) {
	b.t.Helper()
	wait.Until(b.t, what, func() bool {
		b.turn()
		return holds()
	})
}

func (b *bench) image() *v1beta2.BackingImage {
	i := &v1beta2.BackingImage{}
	if b.client.Get(b.t.Context(), types.NamespacedName{Namespace: naming.Namespace, Name: "iso"}, i) != nil {
		return nil
	}
	return i
}

// ready are the disks with a copy that is ready, as the user is told.
func (b *bench) ready() (disks []string) {
	for disk, f := range b.image().Status.DiskFileStatusMap {
		if f.State == v1beta2.BackingImageStateReady {
			disks = append(disks, disk)
		}
	}
	slices.Sort(disks)
	return disks
}

// TestLife plays an image from its creation to its end with the controllers as they are: what they
// gather, decide and order fits together.
func TestLife(t *testing.T) {
	b := newBench(t)
	made := &v1beta2.BackingImage{
		ObjectMeta: metav1.ObjectMeta{Namespace: naming.Namespace, Name: "iso", UID: "u1",
			Finalizers: []string{v1beta2.Finalizer}},
		Spec: v1beta2.BackingImageSpec{SourceType: "download", MinNumberOfCopies: 2}}
	if err := b.client.Create(t.Context(), made); err != nil {
		t.Fatal(err)
	}
	b.until("two copies", func() bool { return len(b.ready()) == 2 })
	if i := b.image(); i.Status.Checksum != "sum" || i.Status.Size != 512 || len(i.Status.UUID) != 8 {
		t.Errorf("learnt %+v", i.Status)
	}
	b.until("the Pods of two managers alone", func() bool { return len(b.pods()) == 2 })

	t.Log("a copy is removed by hand")
	lost := b.ready()[0]
	d := b.disks["10.0.0."+lost[1:]]
	d.change(func() { clear(d.files) })
	b.until("it is missing", func() bool { return !slices.Contains(b.ready(), lost) })
	b.until("it is made again", func() bool { return slices.Contains(b.ready(), lost) })

	t.Log("a disk is to be emptied")
	n := &v1beta2.Node{}
	if err := b.client.Get(t.Context(), types.NamespacedName{Namespace: naming.Namespace, Name: "n" + lost[1:]},
		n); err != nil {
		t.Fatal(err)
	}
	n.Spec.AllowScheduling, n.Spec.EvictionRequested = false, true
	if err := b.client.Update(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	b.until("its copy is elsewhere", func() bool {
		_, has := b.image().Spec.DiskFileSpecMap[lost]
		return !has && len(b.ready()) == 2
	})
	b.until("nothing of it is there", func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		return len(d.files) == 0 && len(b.pods()) == 2
	})

	t.Log("deleted")
	if err := b.client.Delete(t.Context(), b.image()); err != nil {
		t.Fatal(err)
	}
	b.until("nothing is left", func() bool {
		for _, d := range b.disks {
			d.mu.Lock()
			n := len(d.files)
			d.mu.Unlock()
			if n > 0 {
				return false
			}
		}
		return b.image() == nil && len(b.pods()) == 0
	})
}
