package settingsync

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/loop"
)

// world is a reconciler on an API server that refuses to set auto-salvage to false.
type world struct {
	*testing.T
	r      *Reconciler
	cm     *corev1.ConfigMap
	events *record.FakeRecorder
	now    time.Time
	// tried is how often the API server has refused.
	tried int
}

func newWorld(t *testing.T) *world {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1beta2.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	w := &world{T: t, r: New(Config{Namespace: "ns"}), now: time.Unix(1000, 0), events: record.NewFakeRecorder(20),
		cm: &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "longhorn-default-setting"}}}
	refuse := interceptor.Funcs{Update: func(ctx context.Context, c client.WithWatch, o client.Object,
		opts ...client.UpdateOption) error {
		if s, ok := o.(*v1beta2.Setting); ok && s.Name == "auto-salvage" && s.Value == "false" {
			w.tried++
			return apierrors.NewInvalid(v1beta2.GroupVersion.WithKind("Setting").GroupKind(), s.Name, nil)
		}
		return c.Update(ctx, o, opts...)
	}}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(w.cm).WithInterceptorFuncs(refuse).Build()
	if err := EnsureExist(t.Context(), c, "ns", "pod", nil); err != nil {
		t.Fatal(err)
	}
	w.events.IncludeObject = true
	w.r.client, w.r.events, w.r.now = c, w.events, func() time.Time { return w.now }
	return w
}

// step is what the loop does about a setting once; its events contain these parts, one each.
func (w *world) step(name string, parts ...string) loop.Decision {
	w.Helper()
	s := read(w.T, w.r.client, name)
	in, err := w.r.gather(w.Context(), s)
	if err != nil {
		w.Fatal(err)
	}
	var told []string
	d := decide(w.now, s, in)
	if u, ok := d.Do.(loop.Update); ok {
		if err := w.r.client.Update(w.Context(), u.Object); err != nil {
			w.Fatal(err)
		}
		for _, e := range d.Events {
			told = append(told, e.Reason+" "+e.Message)
		}
	}
	for len(w.events.Events) > 0 {
		told = append(told, <-w.events.Events)
	}
	for _, part := range parts {
		if !slices.ContainsFunc(told, func(e string) bool { return strings.Contains(e, part) }) {
			w.Errorf("events %q lack %q", told, part)
		}
	}
	if len(told) != len(parts) {
		w.Errorf("%d events %q, want %d", len(told), told, len(parts))
	}
	return d
}

// content gives the ConfigMap other settings.
func (w *world) content(text string) {
	w.cm.Data, w.cm.ResourceVersion = map[string]string{"default-setting.yaml": text}, ""
	if err := w.r.client.Update(w.Context(), w.cm); err != nil {
		w.Fatal(err)
	}
}

// TestIgnoredDefaultsAreTold: what of the ConfigMap is ignored is told of by events, once for each
// content; what the API server refuses is tried for a while, and then left alone.
func TestIgnoredDefaultsAreTold(t *testing.T) {
	w := newWorld(t)
	w.content("no-such: 1\nstorage-minimal-available-percentage: 900\ncurrent-longhorn-version: v9\n")
	w.step("log-level", "no-such", "storage-minimal-available-percentage", "current-longhorn-version is read-only")
	w.step("log-level")
	w.content("- a\n- b")
	w.step("log-level", "kind=ConfigMap")

	w.content("auto-salvage: false\n")
	if d := w.step("auto-salvage"); d.Do != nil || d.After == 0 {
		t.Errorf("a value that is refused for now: %+v, want to try again", d)
	}
	w.now = w.now.Add(refusedLongest)
	w.step("auto-salvage", "DefaultIgnored ConfigMap longhorn-default-setting: value false is refused, and true stays: ")
	before := w.tried
	d := w.step("auto-salvage")
	if d.Do != nil || d.After != 0 || w.tried != before || read(t, w.r.client, "auto-salvage").Value != "true" {
		t.Errorf("a value that stays refused: %+v, %d tries more, want rest", d, w.tried-before)
	}
}
