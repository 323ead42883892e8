package settingsync

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
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
	"ankole.storage/controlplane/node/instancemanager"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/setting"
)

const (
	mark    = "longhorn.io/update-setting-from-longhorn"
	version = "longhorn.io/configmap-resource-version"
	taken   = "longhorn.io/configmap-value"
)

func object(name, value string, annotations map[string]string) *v1beta2.Setting {
	return &v1beta2.Setting{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations}, Value: value}
}

func TestDecide(t *testing.T) {
	for _, tt := range []struct {
		name    string
		object  *v1beta2.Setting
		in      seen
		value   string // of the update; "-" for none
		applied bool
	}{
		{"settled", object("auto-salvage", "true", nil), seen{}, "-", true},
		{"waiting", object("priority-class", "x", nil), seen{Waiting: true}, "-", false},
		{"fixed by a flag", object("default-engine-image", "old", nil), seen{HasFixed: true, Fixed: "new"}, "new", true},
		{"fixed already", object("default-engine-image", "new", nil), seen{HasFixed: true, Fixed: "new"}, "-", true},
		{"a newer version leads", object("current-longhorn-version", "v1.2.9", nil),
			seen{HasFixed: true, Fixed: "v1.2.10"}, "v1.2.10", true},
		{"an older one leads again", object("current-longhorn-version", "v1.2.10", nil),
			seen{HasFixed: true, Fixed: "v1.2.9"}, "-", true},
		{"a build by hand leads", object("current-longhorn-version", "v1.2.10", nil),
			seen{HasFixed: true, Fixed: "dev"}, "-", true},
		{"a release leads after it", object("current-longhorn-version", "dev", nil),
			seen{HasFixed: true, Fixed: "v1.2.10"}, "v1.2.10", true},
		{"another build by hand", object("current-longhorn-version", "dev", nil),
			seen{HasFixed: true, Fixed: "dev2"}, "dev2", true},
		{"marker left over", object("default-engine-image", "new", map[string]string{mark: ""}),
			seen{HasFixed: true, Fixed: "new"}, "new", true},
		{"the ConfigMap's value changed", object("auto-salvage", "true", map[string]string{version: "1", taken: "true"}),
			seen{HasOverride: true, Override: "false", OverrideVersion: "2"}, "false", true},
		{"its value changed, and the user has another one",
			object("log-level", "Debug", map[string]string{version: "1", taken: "Info"}),
			seen{HasOverride: true, Override: "Trace", OverrideVersion: "2"}, "Trace", true},
		{"it names the setting for the first time", object("auto-salvage", "true", nil),
			seen{HasOverride: true, Override: "false", OverrideVersion: "2"}, "false", true},
		{"taken over, then set otherwise", object("auto-salvage", "true", map[string]string{version: "2", taken: "false"}),
			seen{HasOverride: true, Override: "false", OverrideVersion: "2"}, "-", true},
		{"taken over, then set otherwise; something else in the ConfigMap changed",
			object("auto-salvage", "true", map[string]string{version: "2", taken: "false"}),
			seen{HasOverride: true, Override: "false", OverrideVersion: "3"}, "-", true},
		{"taken over when values were not recorded, then set otherwise",
			object("auto-salvage", "true", map[string]string{version: "2"}),
			seen{HasOverride: true, Override: "false", OverrideVersion: "2"}, "true", true},
		{"taken over when values were not recorded, and changed since",
			object("auto-salvage", "true", map[string]string{version: "1"}),
			seen{HasOverride: true, Override: "false", OverrideVersion: "2"}, "false", true},
		{"ConfigMap silent", object("auto-salvage", "true", nil), seen{OverrideVersion: "2"}, "-", true},
		{"unknown", object("other", "x", nil), seen{}, "-", false},
	} {
		d := decide(time.Time{}, tt.object, tt.in)
		got := "-"
		if d.Do != nil {
			got = d.Do.(loop.Update).Object.(*v1beta2.Setting).Value
		}
		if got != tt.value || tt.object.Status.Applied != tt.applied {
			t.Errorf("%s: updates to %q, applied %v", tt.name, got, tt.object.Status.Applied)
		}
	}
	d := decide(time.Time{}, object("backup-target", "x", nil), seen{})
	if d.Do == nil || !strings.HasPrefix(d.Do.String(), "delete") {
		t.Errorf("a replaced setting: does %v", d.Do)
	}
}

func TestAFixedValueIsWrittenOnceWithTheMarkerAndOnceWithout(t *testing.T) {
	s := object("default-engine-image", "old", nil)
	in := seen{HasFixed: true, Fixed: "new"}
	for i, wantMarker := range []bool{true, false} {
		d := decide(time.Time{}, s, in)
		if d.Do == nil {
			t.Fatalf("step %d does nothing", i)
		}
		s = d.Do.(loop.Update).Object.(*v1beta2.Setting)
		if _, ok := s.Annotations[mark]; ok != wantMarker || s.Value != "new" {
			t.Fatalf("step %d: %+v", i, s)
		}
	}
	if d := decide(time.Time{}, s, in); d.Do != nil {
		t.Fatalf("does not settle: %v", d.Do)
	}
}

func TestEnsureExist(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1beta2.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	cm := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "longhorn-default-setting"},
		Data: map[string]string{"default-setting.yaml": "auto-salvage: false\ndefault-replica-count: 2\n" +
			"storage-minimal-available-percentage: 900\nno-such: 1\npriority-class:\ndisable-snapshot-purge: true\n"},
	}
	kept := &v1beta2.Setting{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "log-level"}, Value: "Debug"}
	refuse := interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, o client.Object,
		opts ...client.CreateOption) error {
		if s, ok := o.(*v1beta2.Setting); ok && s.Name == "disable-snapshot-purge" && s.Value == "true" {
			return apierrors.NewInvalid(v1beta2.GroupVersion.WithKind("Setting").GroupKind(), s.Name, nil)
		}
		return c.Create(ctx, o, opts...)
	}}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(cm, kept).WithInterceptorFuncs(refuse).Build()
	if err := EnsureExist(t.Context(), c, "ns", "pod", map[string]string{setting.DefaultEngineImage: "e"}); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"auto-salvage": "false", "default-replica-count": `{"v1":"2","v2":"2"}`,
		"storage-minimal-available-percentage": "25",
		"log-level":                            "Debug", "default-engine-image": "e",
		"priority-class": "", "disable-snapshot-purge": "false",
		"node-drain-policy": "block-if-contains-last-replica",
	} {
		var s v1beta2.Setting
		if err := c.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: name}, &s); err != nil || s.Value != want {
			t.Errorf("%s = %q, want %q (%v)", name, s.Value, want, err)
		}
	}
	if _, ignored := parseOverrides("- a\n- b"); ignored[""] == nil {
		t.Error("a list counts as a map of settings")
	}
}

// TestEnsureExistIsShared: what another manager has made meanwhile is not tried one by one.
func TestEnsureExistIsShared(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1beta2.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	var tried atomic.Int32
	var once sync.Once
	other := interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, o client.Object,
		opts ...client.CreateOption) error {
		tried.Add(1)
		once.Do(func() {
			for _, d := range setting.Definitions() {
				s := &v1beta2.Setting{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: d.Name}, Value: d.Default}
				if err := c.Create(ctx, s); err != nil {
					t.Error(err)
				}
			}
		})
		return c.Create(ctx, o, opts...)
	}}
	c := fake.NewClientBuilder().WithScheme(scheme).WithInterceptorFuncs(other).Build()
	if err := EnsureExist(t.Context(), c, "ns", "pod", nil); err != nil {
		t.Fatal(err)
	}
	if n := tried.Load(); n > madeAtOnce {
		t.Errorf("%d settings were tried though another manager had made them", n)
	}
	all := setting.Definitions()
	a, b := from("pod-a", all), from("pod-b", all)
	if len(a) != len(all) || len(b) != len(all) || a[0].Name == b[0].Name {
		t.Errorf("managers begin at %s and %s, with %d and %d of %d", a[0].Name, b[0].Name, len(a), len(b), len(all))
	}
}

// TestLostPodsWakeTheirSettings: a Pod that kept a setting from being applied is gone, or its node
// is, and the instance manager says nothing new of its settings.
func TestLostPodsWakeTheirSettings(t *testing.T) {
	im := func(pod, node, synced v1beta2.ConditionStatus) *v1beta2.InstanceManager {
		return &v1beta2.InstanceManager{Status: v1beta2.InstanceManagerStatus{Conditions: []v1beta2.Condition{
			{Type: v1beta2.InstanceManagerConditionPodReady, Status: pod},
			{Type: v1beta2.InstanceManagerConditionNodeReady, Status: node},
			{Type: v1beta2.InstanceManagerConditionSettingSynced, Status: synced},
		}}}
	}
	const yes, no = v1beta2.ConditionTrue, v1beta2.ConditionFalse
	waits := im(yes, yes, no)
	for name, after := range map[string]*v1beta2.InstanceManager{
		"Pod": im(no, yes, no), "node": im(yes, no, no), "setting": im(yes, yes, yes),
	} {
		if viewOf(waits) == viewOf(after) {
			t.Errorf("a change of its %s wakes no setting", name)
		}
	}
	other := im(yes, yes, no)
	other.Status.InstanceEngines = map[string]v1beta2.InstanceProcess{"v-e-0": {}}
	if viewOf(waits) != viewOf(other) {
		t.Error("a process wakes settings")
	}
	pod := func(component string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{naming.LabelComponent: component}}}
	}
	if !slices.Equal(settingsOf(pod(naming.ComponentInstanceManager)), instancemanager.PodSettingNames()) {
		t.Error("the end of an instance manager's Pod, whose object is gone, wakes no setting")
	}
	if settingsOf(pod("other")) != nil {
		t.Error("the end of another Pod wakes settings")
	}
}

// follow has one setting follow the ConfigMap until nothing is to be done.
func follow(t *testing.T, r *Reconciler, name string) {
	t.Helper()
	for range 3 {
		s := read(t, r.client, name)
		in, err := r.gather(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		d := decide(time.Time{}, s, in)
		if d.Do == nil {
			return
		}
		if err := r.client.Update(t.Context(), d.Do.(loop.Update).Object); err != nil {
			t.Fatal(err)
		}
	}
	t.Fatalf("%s is written again and again", name)
}

func read(t *testing.T, c client.Client, name string) *v1beta2.Setting {
	t.Helper()
	s := &v1beta2.Setting{}
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: name}, s); err != nil {
		t.Fatal(err)
	}
	return s
}

// TestConfigMapLeavesWhatUsersSet: a setting that a user has changed stands through every change of
// the ConfigMap but that of its own value; those of other settings are taken over meanwhile.
func TestConfigMapLeavesWhatUsersSet(t *testing.T) {
	const both = "auto-salvage: false\ndefault-replica-count: 2\n"
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1beta2.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "longhorn-default-setting"},
		Data: map[string]string{"default-setting.yaml": both}}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(cm).Build()
	if err := EnsureExist(t.Context(), c, "ns", "pod", nil); err != nil {
		t.Fatal(err)
	}
	mine := read(t, c, "auto-salvage")
	mine.Value = "true"
	if err := c.Update(t.Context(), mine); err != nil {
		t.Fatal(err)
	}
	r := New(Config{Namespace: "ns"})
	r.client, r.events = c, record.NewFakeRecorder(10)
	for _, step := range []struct{ change, text, salvage, count string }{
		{"an annotation", both, "true", `{"v1":"2","v2":"2"}`},
		{"another setting", "auto-salvage: false\ndefault-replica-count: 1\n", "true", `{"v1":"1","v2":"1"}`},
		{"the setting is named no more", "default-replica-count: 1\n", "true", `{"v1":"1","v2":"1"}`},
		{"and named as before", both, "true", `{"v1":"2","v2":"2"}`},
		{"its value", "auto-salvage: true\ndefault-replica-count: 2\n", "true", `{"v1":"2","v2":"2"}`},
		{"and back", both, "false", `{"v1":"2","v2":"2"}`},
	} {
		cm.Data = map[string]string{"default-setting.yaml": step.text}
		cm.Annotations = map[string]string{"change": step.change}
		cm.ResourceVersion = ""
		if err := c.Update(t.Context(), cm); err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]string{"auto-salvage": step.salvage, "default-replica-count": step.count} {
			follow(t, r, name)
			if got := read(t, c, name).Value; got != want {
				t.Errorf("%s: %s is %s, want %s", step.change, name, got, want)
			}
		}
	}
}
