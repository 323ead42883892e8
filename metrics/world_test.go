package metrics

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/api/rpc/imrpc"
	"ankole.storage/api/rpc/ptypes"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/process/engine"
	"ankole.storage/controlplane/process/engineclient"
)

func keyOf(o client.Object) client.ObjectKey { return client.ObjectKeyFromObject(o) }

func meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Namespace: lh.Namespace}
}

func condition(kind string, holds bool, reason string) lh.Condition {
	c := lh.Condition{Type: kind, Status: lh.ConditionFalse, Reason: reason}
	if holds {
		c.Status = lh.ConditionTrue
	}
	return c
}

// nodeObjects are a node with a disk of 100 GiB, of which 40 are in use, its Kubernetes node, its
// instance manager, and the Pod of that.
func nodeObjects(name string) []client.Object {
	im := "instance-manager-" + name
	n := &lh.Node{ObjectMeta: meta(name), Spec: lh.NodeSpec{Name: name, AllowScheduling: true,
		Disks: map[string]lh.DiskSpec{"disk-1": {Path: "/data", StorageReserved: 10 << 30}}}}
	n.Status.Conditions = []lh.Condition{condition(lh.NodeConditionReady, true, ""),
		condition(lh.NodeConditionSchedulable, false, "KubernetesNodeCordoned"),
		condition(lh.NodeConditionMountPropagation, true, "")}
	n.Status.DiskStatus = map[string]lh.DiskStatus{"disk-1": {DiskUUID: "uuid-" + name, StorageMaximum: 100 << 30,
		StorageAvailable: 60 << 30, StorageScheduled: 5 << 30,
		HealthData: map[string]lh.DiskHealth{"sda": {HealthStatus: lh.HealthStatusPassed, Attributes: []lh.HealthAttribute{
			{Name: "Power_On_Hours", ID: 9, RawValue: 5}, {Name: "temperature", RawValue: 40}}},
			"sdb": {Attributes: []lh.HealthAttribute{{Name: "Power_On_Hours", ID: 9, RawValue: 7}}}},
		Conditions: []lh.Condition{condition(lh.DiskConditionReady, true, ""),
			condition(lh.DiskConditionSchedulable, false, lh.DiskReasonDiskPressure)}},
		"gone": {DiskUUID: "u", StorageMaximum: 1 << 40}}
	machine := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	machine.Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("3500m"),
		corev1.ResourceMemory: resource.MustParse("8Gi")}
	m := &lh.InstanceManager{ObjectMeta: meta(im), Spec: lh.InstanceManagerSpec{NodeID: name,
		Type: lh.InstanceManagerTypeAllInOne}}
	m.Status.Conditions = []lh.Condition{{Type: lh.InstanceManagerConditionCertificateUsable,
		Status: lh.ConditionFalse, Reason: lh.InstanceManagerReasonNoCertificate}}
	m.Status.CurrentState, m.Status.IP, m.Status.ProxyAPIVersion = lh.InstanceManagerStateRunning, "ip-of-"+name, 6
	agent := &corev1.Pod{ObjectMeta: meta("longhorn-manager-" + name), Spec: corev1.PodSpec{NodeName: name}}
	agent.Labels = map[string]string{naming.LabelComponent: naming.ComponentManager}
	pod := &corev1.Pod{ObjectMeta: meta(im)}
	pod.Labels = map[string]string{naming.LabelComponent: naming.ComponentInstanceManager}
	for _, cpu := range []string{"1200m", "300m"} {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu),
				corev1.ResourceMemory: resource.MustParse("64Mi")}}})
	}
	return []client.Object{n, machine, m, pod, agent}
}

// volumeObjects are a volume attached to a node, its engine, replica and snapshot.
func volumeObjects(name, node string) []client.Object {
	v := &lh.Volume{ObjectMeta: meta(name), Spec: lh.VolumeSpec{Size: 1 << 30}}
	v.Status = lh.VolumeStatus{OwnerID: node, CurrentNodeID: node, State: lh.VolumeStateAttached, ActualSize: 3 << 20,
		Robustness: lh.VolumeRobustnessHealthy, KubernetesStatus: lh.KubernetesStatus{PVCName: "claim-" + name,
			Namespace: "users"}}
	e := &lh.Engine{ObjectMeta: meta(name + "-e-0")}
	e.Spec.VolumeName, e.Spec.NodeID, e.Spec.Active, e.Spec.Image = name, node, true, "engine:1"
	e.Spec.Frontend = lh.VolumeFrontendBlockDev
	e.Status.OwnerID, e.Status.CurrentState, e.Status.IP, e.Status.Port = node, lh.InstanceStateRunning, "10.0.0.1", 10000
	e.Status.InstanceManagerName = "instance-manager-" + node
	e.Status.ReplicaModeMap = map[string]lh.ReplicaMode{name + "-r-1": lh.ReplicaModeRW}
	e.Status.Conditions = []lh.Condition{condition(engine.ConditionIOReady, false, "Suspended")}
	r := &lh.Replica{ObjectMeta: meta(name + "-r-1")}
	r.Spec.VolumeName, r.Spec.NodeID, r.Spec.DiskPath = name, node, "/data"
	r.Status.OwnerID, r.Status.CurrentState = node, lh.InstanceStateRunning
	s := &lh.Snapshot{ObjectMeta: meta(name + "-s"), Spec: lh.SnapshotSpec{Volume: name}}
	s.Status.Size, s.Status.UserCreated = 1<<20, true
	return []client.Object{v, e, r, s}
}

// backupObjects are a backup target with one backup volume of one backup, a backing image with a
// copy on a node's disk, and its backup.
func backupObjects(node string) []client.Object {
	t := &lh.BackupTarget{ObjectMeta: meta("default")}
	v := &lh.BackupVolume{ObjectMeta: meta("bv-1"), Spec: lh.BackupVolumeSpec{BackupTargetName: "default",
		VolumeName: "demo"}}
	v.Status.Verification = &lh.BackupVerification{EndedAt: metav1.Unix(1767323045, 0), FaultCount: 3}
	b := &lh.Backup{ObjectMeta: meta("backup-1")}
	b.Status = lh.BackupStatus{OwnerID: node, VolumeName: "demo", BackupTargetName: "default",
		State: lh.BackupStateCompleted, Size: "2097152",
		NewlyUploadDataSize: "1048576", Labels: map[string]string{naming.LabelRecurringJob: "nightly"}}
	i := &lh.BackingImage{ObjectMeta: meta("image")}
	i.Status.RealSize = 7 << 20
	i.Status.DiskFileStatusMap = map[string]lh.BackingImageDiskFileStatus{
		"uuid-" + node: {State: lh.BackingImageStateReady}}
	c := &lh.BackupBackingImage{ObjectMeta: meta("image-1"), Spec: lh.BackupBackingImageSpec{BackingImage: "image",
		BackupTargetName: "default"}}
	c.Status.Size, c.Status.State = 8<<20, lh.BackupStateError
	c.Status.Verification = &lh.BackupVerification{EndedAt: metav1.Unix(1767323046, 0), FaultCount: 2}
	return []client.Object{t, v, b, i, c}
}

// newScheme knows the kinds of a world.
func newScheme(t testing.TB) *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{lh.AddToScheme, corev1.AddToScheme} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func objects(t testing.TB, all ...client.Object) client.Client {
	return fake.NewClientBuilder().WithScheme(newScheme(t)).WithObjects(all...).Build()
}

// bed is the manager of a node that leads, its objects, and instance managers that all end at one
// server.
type bed struct {
	t      testing.TB
	client client.Client
	*Exporter
	board  *Board
	engine *engineServer
	clock  *clock
	states map[string]*engineclient.State
}

type clock struct {
	mu sync.Mutex
	at time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

// newBed makes the leader on node-1; change may change its configuration.
func newBed(t testing.TB, change func(*Config), all ...client.Object) *bed {
	t.Helper()
	b := &bed{t: t, client: objects(t, all...), clock: &clock{at: time.Unix(1e9, 0)},
		states: map[string]*engineclient.State{}}
	b.board = &Board{Namespace: lh.Namespace, Node: "node-1", Now: b.clock.now,
		Reader: func() client.Reader { return b.client },
		States: func(engine string) *engineclient.State { return b.states[engine] }}
	var dial func(string) (*grpc.ClientConn, error)
	b.engine, dial = newEngineServer(t)
	cfg := Config{NodeName: "node-1", Namespace: lh.Namespace, Version: "v1", Board: b.board,
		Dial: dial, Now: b.clock.now, Usage: usageOf(t)}
	if change != nil {
		change(&cfg)
	}
	b.Exporter = New(cfg)
	t.Cleanup(b.Close)
	return b
}

// text is one scrape, once everything held for a while has gone stale.
func (b *bed) text() string {
	b.t.Helper()
	b.clock.pass(figuresLife)
	w := httptest.NewRecorder()
	b.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if w.Code != http.StatusOK {
		b.t.Fatalf("%d %s", w.Code, w.Body)
	}
	return w.Body.String()
}

// samples are the families of a text.
func samples(t testing.TB, text string) map[string]*dto.MetricFamily {
	t.Helper()
	p := expfmt.NewTextParser(model.UTF8Validation)
	all, err := p.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// lines are those of a text that begin with a metric's name.
func lines(text, metric string) []string {
	return slices.DeleteFunc(strings.Split(text, "\n"), func(l string) bool {
		return !strings.HasPrefix(l, metric+"{") && !strings.HasPrefix(l, metric+" ")
	})
}

// expect fails for each line that a text has not.
func expect(t testing.TB, text string, want ...string) {
	t.Helper()
	for _, line := range want {
		if !strings.Contains(text, "\n"+line+"\n") {
			name, _, _ := strings.Cut(line, "{")
			t.Errorf("missing: %s\nthere is: %s", line, strings.Join(lines(text, name), "\n"))
		}
	}
}

// engineServer answers MetricsGet for engines.
type engineServer struct {
	imrpc.UnimplementedProxyEngineServiceServer

	mu     sync.Mutex
	silent map[string]bool // these never answer
	failed map[string]bool // these refuse
	asked  map[string]int
}

func newEngineServer(t testing.TB) (*engineServer, func(string) (*grpc.ClientConn, error)) {
	e := &engineServer{silent: map[string]bool{}, failed: map[string]bool{}, asked: map[string]int{}}
	l := bufconn.Listen(1 << 16)
	s := grpc.NewServer()
	imrpc.RegisterProxyEngineServiceServer(s, e)
	go func() { _ = s.Serve(l) }()
	t.Cleanup(s.Stop)
	return e, func(string) (*grpc.ClientConn, error) {
		return grpc.NewClient("passthrough:///engine", grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))
	}
}

// MetricsGet answers with figures that tell the fields apart.
func (e *engineServer) MetricsGet(ctx context.Context, q *imrpc.ProxyEngineRequest) (
	*imrpc.EngineMetricsGetProxyResponse, error) {
	e.mu.Lock()
	e.asked[q.GetEngineName()]++
	silent, failed := e.silent[q.GetEngineName()], e.failed[q.GetEngineName()]
	e.mu.Unlock()
	switch {
	case silent:
		<-ctx.Done()
		return nil, ctx.Err()
	case failed:
		return nil, status.Error(codes.Unavailable, "no engine there")
	case q.GetVolumeName() == "" || q.GetAddress() != "10.0.0.1:10000":
		return nil, status.Errorf(codes.InvalidArgument, "asked for %v", q)
	}
	return &imrpc.EngineMetricsGetProxyResponse{Metrics: &ptypes.Metrics{ReadThroughput: 1, WriteThroughput: 2,
		ReadLatency: 3, WriteLatency: 4, ReadIOPS: 5, WriteIOPS: 6}}, nil
}

// usageOf is a metrics API that knows node-1 and two Pods on it, and others that are not reported.
func usageOf(t testing.TB) func(context.Context, string) ([]byte, error) {
	return func(_ context.Context, path string) ([]byte, error) {
		switch strings.TrimPrefix(path, "/apis/metrics.k8s.io/v1beta1/") {
		case "nodes":
			return []byte(`{"items":[{"metadata":{"name":"node-1"},"usage":{"cpu":"1500000000n","memory":"2Gi"}},
				{"metadata":{"name":"of-others"},"usage":{"cpu":"1","memory":"1"}}]}`), nil
		case "namespaces/longhorn-system/pods":
			return []byte(`{"items":[{"metadata":{"name":"longhorn-manager-node-1"},
				"containers":[{"usage":{"cpu":"20m","memory":"30Mi"}},{"usage":{"cpu":"1m","memory":"2Mi"}}]},
				{"metadata":{"name":"instance-manager-node-1"},"containers":[{"usage":{"cpu":"250m","memory":"100Mi"}}]},
				{"metadata":{"name":"csi"},"containers":[{"usage":{"cpu":"1m","memory":"1"}}]}]}`), nil
		}
		t.Errorf("asked for %s", path)
		return nil, errors.New("not found")
	}
}

func scrapeOf(t testing.TB, h http.Handler) string {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	text, err := io.ReadAll(w.Result().Body)
	if err != nil || w.Code != http.StatusOK {
		t.Fatalf("%d %s %v", w.Code, text, err)
	}
	return string(text)
}
