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

// TestIgnoredDefaultsAreTold: what of the ConfigMap is ignored is told of by events, once for each
// content; what the API server refuses is tried for a while, and then left alone.
func TestIgnoredDefaultsAreTold(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1beta2.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	tried := 0
	refuse := interceptor.Funcs{Update: func(ctx context.Context, c client.WithWatch, o client.Object,
		opts ...client.UpdateOption) error {
		if s, ok := o.(*v1beta2.Setting); ok && s.Name == "auto-salvage" && s.Value == "false" {
			tried++
			return apierrors.NewInvalid(v1beta2.GroupVersion.WithKind("Setting").GroupKind(), s.Name, nil)
		}
		return c.Update(ctx, o, opts...)
	}}
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "longhorn-default-setting"},
		Data: map[string]string{}}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(cm).WithInterceptorFuncs(refuse).Build()
	if err := EnsureExist(t.Context(), c, "ns", "pod", nil); err != nil {
		t.Fatal(err)
	}
	now := time.Unix(1000, 0)
	events := record.NewFakeRecorder(20)
	events.IncludeObject = true
	r := New(Config{Namespace: "ns"})
	r.client, r.events, r.now = c, events, func() time.Time { return now }
	// step is what the loop does about a setting once, and the events of that.
	step := func(name string) (d loop.Decision, told []string) {
		s := read(t, c, name)
		in, err := r.gather(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		d = decide(now, s, in)
		if u, ok := d.Do.(loop.Update); ok {
			if err := c.Update(t.Context(), u.Object); err != nil {
				t.Fatal(err)
			}
			for _, e := range d.Events {
				told = append(told, e.Reason+" "+e.Message)
			}
		}
		for len(events.Events) > 0 {
			told = append(told, <-events.Events)
		}
		return d, told
	}
	content := func(text string) {
		cm.Data, cm.ResourceVersion = map[string]string{"default-setting.yaml": text}, ""
		if err := c.Update(t.Context(), cm); err != nil {
			t.Fatal(err)
		}
	}
	wants := func(got []string, parts ...string) {
		t.Helper()
		for _, part := range parts {
			if !slices.ContainsFunc(got, func(e string) bool { return strings.Contains(e, part) }) {
				t.Errorf("events %q lack %q", got, part)
			}
		}
		if len(got) != len(parts) {
			t.Errorf("%d events %q, want %d", len(got), got, len(parts))
		}
	}

	content("no-such: 1\nstorage-minimal-available-percentage: 900\ncurrent-longhorn-version: v9\n")
	_, told := step("log-level")
	wants(told, "no-such", "storage-minimal-available-percentage", "current-longhorn-version is read-only")
	_, told = step("log-level")
	wants(told)
	content("- a\n- b")
	_, told = step("log-level")
	wants(told, "kind=ConfigMap")

	content("auto-salvage: false\n")
	d, told := step("auto-salvage")
	wants(told)
	if d.Do != nil || d.After == 0 {
		t.Errorf("a value that is refused for now: %+v, want to try again", d)
	}
	now = now.Add(refusedLongest)
	_, told = step("auto-salvage")
	wants(told, "DefaultIgnored ConfigMap longhorn-default-setting: value false is refused, and true stays: ")
	before := tried
	d, told = step("auto-salvage")
	wants(told)
	if d.Do != nil || d.After != 0 || tried != before || read(t, c, "auto-salvage").Value != "true" {
		t.Errorf("a value that stays refused: %+v, %d tries more, want rest", d, tried-before)
	}
}
