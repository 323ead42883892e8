package rest

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/naming"
)

const testImage = "ankole/engine:dev"

// fixture is a server on a fake API server.
type fixture struct {
	t      *testing.T
	client client.WithWatch
	server *Server
	url    string
}

// object fills in what every stored object has.
func meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Namespace: lh.Namespace, CreationTimestamp: metav1.NewTime(time.Date(2026, 5, 3, 9, 57, 48, 0, time.UTC))}
}

func newFixture(t *testing.T, objects ...client.Object) *fixture {
	t.Helper()
	return newFixtureWith(t, interceptor.Funcs{}, func(*Config) {}, objects...)
}

func newFixtureWith(t *testing.T, funcs interceptor.Funcs, change func(*Config), objects ...client.Object) *fixture {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{lh.AddToScheme, corev1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).
		WithStatusSubresource(&lh.Volume{}, &lh.Node{}, &lh.VolumeAttachment{}, &lh.EngineImage{}).WithInterceptorFuncs(funcs).Build()
	cfg := Config{Client: c, EngineImage: testImage, Logger: slog.New(slog.DiscardHandler)}
	change(&cfg)
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(s)
	t.Cleanup(web.Close)
	return &fixture{t: t, client: c, server: s, url: web.URL}
}

// answer is a response, read.
type answer struct {
	status int
	header http.Header
	text   string
	json   map[string]any
}

func (a answer) message() string {
	m, _ := a.json["message"].(string)
	return m
}

func (f *fixture) do(method, path, body string, headers ...string) answer {
	f.t.Helper()
	req, err := http.NewRequest(method, f.url+path, strings.NewReader(body))
	if err != nil {
		f.t.Fatal(err)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		if headers[i] == "Host" {
			req.Host = headers[i+1]
		}
		req.Header.Set(headers[i], headers[i+1])
	}
	noFollow := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := noFollow.Do(req)
	if err != nil {
		f.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		f.t.Fatal(err)
	}
	a := answer{status: resp.StatusCode, header: resp.Header, text: string(text)}
	if json.Unmarshal(text, &a.json) != nil {
		a.json = nil
	}
	return a
}

func (f *fixture) get(path string) map[string]any {
	f.t.Helper()
	a := f.do(http.MethodGet, path, "")
	if a.status != http.StatusOK || a.json == nil {
		f.t.Fatalf("GET %s: %d %s", path, a.status, a.text)
	}
	return a.json
}

// refused checks for an error object with a text in its message.
func (f *fixture) refused(a answer, status int, text string) {
	f.t.Helper()
	if a.status != status || a.json["type"] != "error" {
		f.t.Fatalf("answer %d %s, want an error object with status %d", a.status, a.text, status)
	}
	if !strings.Contains(a.message(), text) {
		f.t.Errorf("message %q lacks %q", a.message(), text)
	}
	if a.json["status"] != float64(status) || a.json["code"] != http.StatusText(status) || a.json["detail"] != "" {
		f.t.Errorf("error object %v", a.json)
	}
	if !strings.HasPrefix(a.header.Get("Content-Type"), "text/plain") || a.header.Get(headerSchemas) != "" {
		f.t.Errorf("headers of an error: %v", a.header)
	}
}

func (f *fixture) read(name string, into client.Object) {
	f.t.Helper()
	if err := f.client.Get(context.Background(), client.ObjectKey{Namespace: lh.Namespace, Name: name}, into); err != nil {
		f.t.Fatal(err)
	}
}

func readyNode(name string) *lh.Node {
	return &lh.Node{ObjectMeta: meta(name),
		Spec: lh.NodeSpec{Name: name, AllowScheduling: true, Tags: []string{"fast"}, Disks: map[string]lh.DiskSpec{
			"disk-1": {Path: "/var/lib/longhorn", DiskType: lh.DiskTypeFilesystem, AllowScheduling: true, Tags: []string{"ssd"}}}},
		Status: lh.NodeStatus{Conditions: []lh.Condition{{Type: lh.NodeConditionReady, Status: lh.ConditionTrue}},
			DiskStatus: map[string]lh.DiskStatus{"disk-1": {DiskUUID: "uuid-" + name, StorageMaximum: 100 << 30, StorageAvailable: 50 << 30}}}}
}

func downNode(name string) *lh.Node {
	n := readyNode(name)
	n.Status.Conditions = []lh.Condition{{Type: lh.NodeConditionReady, Status: lh.ConditionFalse, Reason: lh.NodeReasonKubernetesNodeNotReady}}
	return n
}

func deployedImage(nodes ...string) *lh.EngineImage {
	e := &lh.EngineImage{ObjectMeta: meta(naming.EngineImageName(testImage)), Spec: lh.EngineImageSpec{Image: testImage},
		Status: lh.EngineImageStatus{State: lh.EngineImageStateDeployed, NodeDeploymentMap: map[string]bool{}}}
	for _, n := range nodes {
		e.Status.NodeDeploymentMap[n] = true
	}
	return e
}

// detachedVolume is a volume with one scheduled replica on node-1, and its attachment object.
func detachedVolume(name string) []client.Object {
	return []client.Object{
		&lh.Volume{ObjectMeta: meta(name), Spec: lh.VolumeSpec{Size: 1 << 30, NumberOfReplicas: 1, Image: testImage, Frontend: lh.VolumeFrontendBlockDev},
			Status: lh.VolumeStatus{State: lh.VolumeStateDetached, Robustness: lh.VolumeRobustnessUnknown,
				Conditions: []lh.Condition{{Type: lh.VolumeConditionScheduled, Status: lh.ConditionTrue}}}},
		&lh.Engine{ObjectMeta: meta(name + "-e-0"), Spec: lh.EngineSpec{Active: true, InstanceSpec: lh.InstanceSpec{VolumeName: name, Image: testImage}}},
		&lh.Replica{ObjectMeta: meta(name + "-r-11111111"), Spec: lh.ReplicaSpec{Active: true, DiskID: "uuid-node-1", DiskPath: "/var/lib/longhorn/",
			DataDirectoryName: name + "-22222222", InstanceSpec: lh.InstanceSpec{VolumeName: name, NodeID: "node-1", Image: testImage, DataEngine: lh.DataEngineTypeV1}}},
		&lh.VolumeAttachment{ObjectMeta: meta(name), Spec: lh.VolumeAttachmentSpec{Volume: name}},
	}
}

func cluster(more ...client.Object) []client.Object {
	return append([]client.Object{readyNode("node-1"), readyNode("node-2"), downNode("node-3"), deployedImage("node-1", "node-2")}, more...)
}
