package source

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/backingimage"
	"ankole.storage/controlplane/backup/store"
	"ankole.storage/controlplane/loop"
)

// newClone is a data source of image golden, whose Pod waits for the file.
func newClone(edits ...func(*scene)) *scene {
	c := newScene(says(file{State: "pending", Message: "waits"}))
	c.d.Spec.SourceType = v1beta2.BackingImageSourceTypeClone
	c.d.Spec.Parameters = map[string]string{"backing-image": "golden", "encryption": "ignore"}
	c.s.Clone = cloned{Image: &v1beta2.BackingImage{ObjectMeta: metav1.ObjectMeta{Name: "golden"},
		Status: v1beta2.BackingImageStatus{UUID: "aaaaaaaa"}}, From: "10.0.0.2:8000"}
	for _, e := range edits {
		e(c)
	}
	return c
}

// TestDecideClone is the third table "source" of docs/design/backing-images.md.
func TestDecideClone(t *testing.T) {
	gone := func(c *scene) { c.s.Clone = cloned{} }
	nowhere := func(c *scene) { c.s.Clone.From = "" }
	for _, tt := range []struct {
		name    string
		edits   []func(*scene)
		want    string
		state   v1beta2.BackingImageState
		message string
	}{
		{"waits for the sender", nil, "send backing image golden", "pending", "waits"},
		{"no Pod", []func(*scene){noPod}, "create the Pod", "pending", notStarted},
		{"no Pod, no image", []func(*scene){noPod, gone}, "wait", "failed", "backing image golden does not exist any more"},
		{"no Pod, no copy", []func(*scene){noPod, nowhere}, "wait", "pending", "no disk has backing image golden ready"},
		{"waits, no image", []func(*scene){gone}, "wait after 2s", "failed", "backing image golden does not exist any more"},
		{"waits, no copy", []func(*scene){nowhere}, "wait after 2s", "pending", "no disk has backing image golden ready"},
		{"ordered a moment ago", []func(*scene){tried(time.Second, nil)}, "wait after 2s", "pending", "waits"},
		{"receives", []func(*scene){says(file{State: "in-progress"})}, "wait after 2s", "in-progress", ""},
		{"complete", []func(*scene){says(file{State: "ready-for-transfer"})}, "wait after 2s", "ready-for-transfer", ""},
		{"deleted", []func(*scene){deleted, noPod}, "no finalizer", "", ""},
	} {
		c := newClone(tt.edits...)
		got := outcome(decide(t0, c.d, c.s))
		if st := c.d.Status; got != tt.want || st.CurrentState != tt.state || st.Message != tt.message {
			t.Errorf("%s: %s, %q, %q; want %s, %q, %q", tt.name, got, st.CurrentState, st.Message, tt.want, tt.state, tt.message)
		}
	}
	c := newClone(noPod)
	pod := decide(t0, c.d, c.s).Do.(loop.Create).Object.(*corev1.Pod)
	const want = "--source-type clone --parameters backing-image=golden --parameters backing-image-uuid=aaaaaaaa " +
		"--parameters encryption=ignore"
	if got := strings.Join(pod.Spec.Containers[0].Args, " "); !strings.HasSuffix(got, want) ||
		len(pod.Spec.Containers[0].Ports) != 3 {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestImageKey: the order has the keys of the Secret that are about encryption, and the Pod is told
// of none; a Secret that cannot be read is told of, and asked for again.
func TestImageKey(t *testing.T) {
	secret := func(name string) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Data: map[string][]byte{
			"CRYPTO_KEY_VALUE": []byte("many words"), "CRYPTO_KEY_SIZE": []byte("512"), "OTHER": []byte("of others")}}
	}
	live := interceptor.NewClient(fake.NewClientBuilder().WithObjects(secret("key"), secret("theirs")).Build(),
		interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object,
			opts ...client.GetOption) error {
			if key.Name == "theirs" {
				return apierrors.NewForbidden(corev1.Resource("secrets"), key.Name, errors.New("no right"))
			}
			return c.Get(ctx, key, o, opts...)
		}})
	got := ""
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		body, _ := io.ReadAll(q.Body) // what is missing is seen
		got = q.URL.String() + " " + string(body)
		http.Error(w, "the Secret has no value", http.StatusBadRequest)
	}))
	defer server.Close()
	r := New(Config{Access: &store.Access{Live: live}, Dial: func(ctx context.Context, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", server.Listener.Addr().String())
	}})
	for _, tt := range []struct{ encryption, name, namespace, asks, says string }{
		{"encrypt", "key", "ns", `/v1/file?action=receive {"credentials":{"CRYPTO_KEY_SIZE":"512","CRYPTO_KEY_VALUE":"many ` +
			`words"}}`, "the Secret has no value"},
		{"decrypt", "lost", "ns", "", "secret lost, which has the key, does not exist"},
		{"decrypt", "theirs", "ns", "", "may not read secret theirs, which has the key: name it in value backingImageSecrets"},
		{"encrypt", "key", "default", "", "secret key is to be in namespace ns, and not in default"},
		{"ignore", "key", "ns", "/v1/file?action=receive ", "the Secret has no value"},
	} {
		c := newClone(func(c *scene) {
			c.d.Spec.Parameters = map[string]string{"backing-image": "golden", "encryption": tt.encryption, "secret": tt.name,
				"secret-namespace": tt.namespace}
		})
		got, c.s.Pod.UID = "", types.UID(tt.encryption+tt.name+tt.namespace)
		r.gatherOrder(c.d, &c.s)
		if err := r.carry(t.Context(), c.d, c.s, decide(t0, c.d, c.s).Do.(loop.Call).Order); err != nil {
			t.Error(err)
		}
		r.gatherOrder(c.d, &c.s)
		if got != tt.asks || c.s.Tried.ForGood || !strings.Contains(c.s.Tried.Refusal, tt.says) ||
			strings.Contains(c.s.Tried.Refusal, "words") {
			t.Errorf("%s with %s: asks %q, %+v; want %q, %q", tt.encryption, tt.name, got, c.s.Tried, tt.asks, tt.says)
		}
		// What is told of it, before it is asked for again.
		outcome(decide(c.s.Tried.At.Add(time.Second), c.d, c.s))
		if st := c.d.Status; st.CurrentState != "pending" || st.Message != c.s.Tried.Refusal {
			t.Errorf("%s with %s: %+v", tt.encryption, tt.name, st)
		}
		noPod(c)
		pod := decide(t0, c.d, c.s).Do.(loop.Create).Object.(*corev1.Pod)
		if args := strings.Join(pod.Spec.Containers[0].Args, " "); strings.Contains(args, "secret") ||
			!strings.Contains(args, "encryption="+tt.encryption) {
			t.Errorf("%s with %s: %s", tt.encryption, tt.name, args)
		}
	}
}

// TestSender: of the managers that have an image ready the one that sends least.
func TestSender(t *testing.T) {
	b := newClone().s.Clone.Image
	manager := func(ip, uuid string, state v1beta2.BackingImageState, sends int) v1beta2.BackingImageManager {
		return v1beta2.BackingImageManager{Status: v1beta2.BackingImageManagerStatus{IP: ip,
			CurrentState: v1beta2.BackingImageManagerStateRunning,
			BackingImageFileMap: map[string]v1beta2.BackingImageFileInfo{"golden": {UUID: uuid, State: state,
				SendingReference: sends}}}}
	}
	away := manager("10.0.0.4", "aaaaaaaa", "ready", 0)
	away.Status.CurrentState = v1beta2.BackingImageManagerStateUnknown
	all := []v1beta2.BackingImageManager{manager("10.0.0.1", "aaaaaaaa", "ready", 2),
		manager("10.0.0.2", "aaaaaaaa", "ready", 1), manager("10.0.0.3", "bbbbbbbb", "ready", 0), away,
		manager("10.0.0.5", "aaaaaaaa", "in-progress", 0)}
	if got, _ := backingimage.Sender(all, b); got != "10.0.0.2:8000" {
		t.Errorf("%q", got)
	}
	if got, _ := backingimage.Sender(all[2:], b); got != "" {
		t.Errorf("%q of those that have none", got)
	}
}
