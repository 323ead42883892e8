package claim

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/object/index"
	"ankole.storage/controlplane/setting"
)

var testNow = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func testPV(name, volume string, phase corev1.PersistentVolumePhase, claim string) *corev1.PersistentVolume {
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}}
	pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: "driver.longhorn.io", VolumeHandle: volume}
	pv.Status.Phase = phase
	if claim != "" {
		pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "app", Name: claim}
	}
	return pv
}

// testPod is a Pod with a claim; owner is kind/name of its controller, hash that of its template.
func testPod(name, claim, owner, hash string, phase corev1.PodPhase) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "app", Name: name}, Status: corev1.PodStatus{Phase: phase}}
	if hash != "" {
		p.Labels = map[string]string{"pod-template-hash": hash}
	}
	if kind, of, ok := strings.Cut(owner, "/"); ok {
		yes := true
		p.OwnerReferences = []metav1.OwnerReference{{Kind: kind, Name: of, Controller: &yes}}
	}
	p.Spec.Volumes = []corev1.Volume{{Name: "tmp"}, {Name: "data", VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}}}
	return p
}

func text(k v1beta2.KubernetesStatus) string {
	out := fmt.Sprintf("pv %s %s, claim %s/%s %s, pods", k.PVName, k.PVStatus, k.Namespace, k.PVCName, k.LastPVCRefAt)
	for _, w := range k.WorkloadsStatus {
		out += fmt.Sprintf(" %s:%s:%s/%s", w.PodName, w.PodStatus, w.WorkloadType, w.WorkloadName)
	}
	return strings.TrimSpace(out + " " + k.LastPodRefAt)
}

// TestDecide: what is there replaces what was; what is gone stays as history with its time.
func TestDecide(t *testing.T) {
	used := v1beta2.KubernetesStatus{PVName: "pv", PVStatus: "Bound", Namespace: "app", PVCName: "data",
		WorkloadsStatus: []v1beta2.WorkloadStatus{{PodName: "web-0", PodStatus: "Running"}}}
	gone := used
	gone.PVName, gone.PVStatus, gone.LastPVCRefAt, gone.LastPodRefAt = "", "", "before", "before"
	for _, tt := range []struct {
		name string
		was  v1beta2.KubernetesStatus
		g    seen
		want string
	}{
		{name: "nothing", want: "pv  , claim / , pods"},
		{name: "restored", g: seen{Backed: &used}, want: "pv  , claim app/data " + testNow.Format(time.RFC3339) +
			", pods web-0:Running:/ " + testNow.Format(time.RFC3339)},
		{name: "restored, of one whose claim was gone", g: seen{Backed: &gone},
			want: "pv  , claim app/data before, pods web-0:Running:/ before"},
		{name: "restored, and used since", g: seen{Backed: &used, PV: testPV("pv", "v", corev1.VolumeBound, "other")},
			want: "pv pv Bound, claim app/other , pods"},
		{name: "available", g: seen{PV: testPV("pv", "v", corev1.VolumeAvailable, "")},
			want: "pv pv Available, claim / , pods"},
		{name: "bound", g: seen{PV: testPV("pv", "v", corev1.VolumeBound, "data")},
			want: "pv pv Bound, claim app/data , pods"},
		{name: "used", g: seen{PV: testPV("pv", "v", corev1.VolumeBound, "data"), Pods: []*corev1.Pod{
			testPod("z", "data", "", "", corev1.PodPending),
			testPod("done", "data", "Job/j", "", corev1.PodSucceeded),
			testPod("set-0", "data", "StatefulSet/set", "", corev1.PodRunning),
			testPod("dep-5f-x", "data", "ReplicaSet/dep-5f", "5f", corev1.PodRunning),
			testPod("rs-x", "data", "ReplicaSet/rs", "", corev1.PodRunning)}},
			want: "pv pv Bound, claim app/data , pods dep-5f-x:Running:Deployment/dep rs-x:Running:ReplicaSet/rs " +
				"set-0:Running:StatefulSet/set z:Pending:/"},
		{name: "Pods are gone", was: used, g: seen{PV: testPV("pv", "v", corev1.VolumeBound, "data")},
			want: "pv pv Bound, claim app/data , pods web-0:Running:/ 2026-01-02T03:04:05Z"},
		{name: "the claim is gone", was: used, g: seen{PV: testPV("pv", "v", corev1.VolumeReleased, "data")},
			want: "pv pv Released, claim app/data 2026-01-02T03:04:05Z, pods web-0:Running:/ 2026-01-02T03:04:05Z"},
		{name: "everything is gone", was: used,
			want: "pv  , claim app/data 2026-01-02T03:04:05Z, pods web-0:Running:/ 2026-01-02T03:04:05Z"},
		{name: "history stays", was: gone, want: "pv  , claim app/data before, pods web-0:Running:/ before"},
		{name: "another claim", was: gone, g: seen{PV: testPV("pv", "v", corev1.VolumeBound, "next")},
			want: "pv pv Bound, claim app/next , pods"},
	} {
		v := &v1beta2.Volume{}
		v.Status.KubernetesStatus = tt.was
		for range 2 { // it settles
			if d := decide(testNow, v, tt.g); d.Do != nil {
				t.Errorf("%s: %s", tt.name, d.Do)
			}
			if got := text(v.Status.KubernetesStatus); got != tt.want {
				t.Errorf("%s:\n got %s\nwant %s", tt.name, got, tt.want)
			}
		}
	}
}

// TestContentIsNoted: a volume with which a Pod has run has content, for good.
func TestContentIsNoted(t *testing.T) {
	v := &v1beta2.Volume{}
	for i, step := range []struct {
		phase corev1.PodPhase
		want  bool
	}{{corev1.PodPending, false}, {corev1.PodRunning, true}, {corev1.PodPending, true}, {"", true}} {
		g := seen{PV: testPV("pv", "v", corev1.VolumeBound, "data")}
		if step.phase != "" {
			g.Pods = []*corev1.Pod{testPod(fmt.Sprint("p-", i), "data", "", "", step.phase)}
		}
		decide(testNow, v, g)
		c := v1beta2.FindCondition(v.Status.Conditions, v1beta2.VolumeConditionHasContent)
		if got := c.Status == v1beta2.ConditionTrue; got != step.want || got && c.Message != "Pod app/p-1 has run with it" {
			t.Errorf("step %d: %+v", i, c)
		}
	}
}

// TestSchedulingErrorOnThePV: the PersistentVolume tells why the volume has no place for a replica;
// once it has one, that the annotation is empty. One that never told anything is left alone.
func TestSchedulingErrorOnThePV(t *testing.T) {
	const key = "longhorn.io/volume-scheduling-error"
	v, pv := &v1beta2.Volume{}, testPV("pv", "v", corev1.VolumeBound, "data")
	step := func(status v1beta2.ConditionStatus, message string) {
		v.Status.Conditions = []v1beta2.Condition{{Type: v1beta2.VolumeConditionScheduled, Status: status, Message: message}}
		d := decide(testNow, v, seen{PV: pv})
		if u, ok := d.Do.(loop.Update); ok {
			pv = u.Object.(*corev1.PersistentVolume)
		} else if d.Do != nil {
			t.Fatalf("%v", d.Do)
		}
	}
	step(v1beta2.ConditionTrue, "")
	if _, there := pv.Annotations[key]; there {
		t.Error("a PersistentVolume is annotated without a reason")
	}
	step(v1beta2.ConditionFalse, "disk is full")
	if got := pv.Annotations[key]; got != "disk is full" {
		t.Errorf("%q", got)
	}
	step(v1beta2.ConditionTrue, "")
	if got, there := pv.Annotations[key]; got != "" || !there {
		t.Errorf("%q, %v", got, there)
	}
	pv.DeletionTimestamp = &metav1.Time{Time: testNow}
	if v.Status.Conditions[0].Status = v1beta2.ConditionFalse; decide(testNow, v, seen{PV: pv}).Do != nil {
		t.Error("a PersistentVolume that is deleted is changed")
	}
}

// TestJobsOfAClaim: a claim that is the source of them decides which recurring jobs and groups the
// volume follows; other labels, and those of volumes whose claim is none, stay.
func TestJobsOfAClaim(t *testing.T) {
	const jobs, groups = "recurring-job.longhorn.io/", "recurring-job-group.longhorn.io/"
	type set = map[string]string
	for name, tt := range map[string]struct {
		source, has, want set
		leave             bool
	}{
		"taken over": {source: set{jobs + "source": "enabled", jobs + "a": "enabled", groups + "g": "enabled",
			jobs + "off": "disabled", "app": "web"}, has: set{"mine": "x", jobs + "b": "enabled", groups + "default": "enabled"},
			want: set{"mine": "x", jobs + "a": "enabled", groups + "g": "enabled"}, leave: true},
		"none": {source: set{jobs + "source": "enabled"}, has: set{jobs + "b": "enabled"},
			want: set{groups + "default": "enabled"}},
		"no source": {has: set{jobs + "b": "enabled"}, want: set{jobs + "b": "enabled"}},
		"no labels so far": {source: set{jobs + "source": "enabled", jobs + "a": "enabled"}, want: set{jobs + "a": "enabled"},
			leave: true},
		"default stays": {source: set{jobs + "source": "enabled", jobs + "a": "enabled", groups + "default": "disabled"},
			has:  set{groups + "default": "enabled", jobs + "b": "enabled"},
			want: set{groups + "default": "enabled", jobs + "a": "enabled"}},
		"default without a label stays": {source: set{jobs + "source": "enabled", jobs + "a": "enabled"},
			want: set{groups + "default": "enabled", jobs + "a": "enabled"}},
		"not in default": {source: set{jobs + "source": "enabled", jobs + "a": "enabled"}, has: set{groups + "g": "enabled"},
			want: set{jobs + "a": "enabled"}},
	} {
		t.Run(name, func(t *testing.T) {
			v := &v1beta2.Volume{ObjectMeta: metav1.ObjectMeta{Name: "v", Labels: tt.has}}
			g := seen{PV: testPV("pv", "v", corev1.VolumeBound, "data"), MayLeave: tt.leave}
			if tt.source != nil {
				g.Source = &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Labels: tt.source}}
			}
			for range 3 {
				if u, ok := decide(testNow, v, g).Do.(loop.Update); ok {
					v = u.Object.(*v1beta2.Volume)
				}
			}
			if decide(testNow, v, g).Do != nil {
				t.Error("it does not settle")
			}
			if !maps.Equal(v.Labels, tt.want) {
				t.Errorf("labels %v, want %v", v.Labels, tt.want)
			}
		})
	}
}

// TestSources: the claim that is bound to the PersistentVolume, and says that it is a source.
func TestSources(t *testing.T) {
	pv := testPV("pv", "v", corev1.VolumeBound, "data")
	pv.Spec.ClaimRef.UID = "1"
	for name, tt := range map[string]struct {
		change func(*corev1.PersistentVolumeClaim)
		want   bool
	}{
		"a source":     {func(*corev1.PersistentVolumeClaim) {}, true},
		"says nothing": {func(c *corev1.PersistentVolumeClaim) { c.Labels = nil }, false},
		"says no": {func(c *corev1.PersistentVolumeClaim) {
			c.Labels["recurring-job.longhorn.io/source"] = "no"
		}, false},
		"made anew":        {func(c *corev1.PersistentVolumeClaim) { c.UID = "2" }, false},
		"bound to another": {func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = "other" }, false},
	} {
		c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{UID: "1",
			Labels: map[string]string{"recurring-job.longhorn.io/source": "enabled"}}}
		c.Spec.VolumeName = "pv"
		if tt.change(c); IsSource(c, pv) != tt.want {
			t.Errorf("%s: %t", name, !tt.want)
		}
	}
}

// TestGather: the PersistentVolume that is bound goes before others; Pods of the claim are found by
// it, and wake the volume.
func TestGather(t *testing.T) {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1beta2.AddToScheme} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	other := testPV("other", "v", corev1.VolumeBound, "foreign")
	other.Spec.CSI.Driver = "ebs"
	pod := testPod("p", "data", "", "", corev1.PodRunning)
	source := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "app", Name: "data",
		Labels: map[string]string{"recurring-job.longhorn.io/source": "enabled"}}}
	source.Spec.VolumeName = "b"
	b := fake.NewClientBuilder().WithScheme(s).WithObjects(testPV("a", "v", corev1.VolumeAvailable, ""),
		testPV("b", "v", corev1.VolumeBound, "data"), testPV("w", "w", corev1.VolumeBound, "second"), other, pod,
		testPod("q", "second", "", "", corev1.PodRunning), source)
	for _, i := range index.OfKubernetes() {
		b = b.WithIndex(i.Object, i.Field, i.Of)
	}
	r := New("ns").WithClient(b.Build())
	g, err := r.gather(context.Background(), &v1beta2.Volume{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "v"}})
	if err != nil || g.PV == nil || g.PV.Name != "b" || len(g.Pods) != 1 || g.Pods[0].Name != "p" ||
		g.Source == nil || g.MayLeave {
		t.Errorf("%+v, %v", g, err)
	}
	allow := &v1beta2.Setting{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: setting.ClaimsLeaveDefaultJobs},
		Value: "true"}
	if err := r.client.Create(context.Background(), allow); err != nil {
		t.Fatal(err)
	}
	if g, err = r.gather(context.Background(), &v1beta2.Volume{ObjectMeta: metav1.ObjectMeta{Namespace: "ns",
		Name: "v"}}); err != nil || !g.MayLeave {
		t.Errorf("%+v, %v", g, err)
	}
	if got := r.volumesOf(pod); len(got) != 1 || got[0] != "v" {
		t.Errorf("the Pod wakes %v", got)
	}
	for name, want := range map[string]int{setting.ClaimsLeaveDefaultJobs: 1, setting.SnapshotMaxCount: 0} {
		if got := r.onSetting(&v1beta2.Setting{ObjectMeta: metav1.ObjectMeta{Name: name}}); len(got) != want {
			t.Errorf("setting %s wakes %v", name, got)
		}
	}
	if got := r.volumesOfClaim(source); len(got) != 1 || got[0] != "v" {
		t.Errorf("the claim wakes %v", got)
	}
	if got := index.VolumeOf(other); got != nil {
		t.Errorf("a PersistentVolume of another driver wakes %v", got)
	}
}

// TestOutline: Pods of other namespaces keep what is looked at.
func TestOutline(t *testing.T) {
	p := testPod("dep-5f-x", "data", "ReplicaSet/dep-5f", "5f", corev1.PodRunning)
	p.Spec.Containers = []corev1.Container{{Name: "large"}}
	kept, err := Outline("ns")(p)
	if err != nil {
		t.Fatal(err)
	}
	o := kept.(*corev1.Pod)
	if len(o.Spec.Containers) != 0 || len(o.Spec.Volumes) != 1 || len(index.ClaimsOf(o)) != 1 {
		t.Errorf("%+v", o.Spec)
	}
	if got, want := workloads([]*corev1.Pod{o}), workloads([]*corev1.Pod{p}); len(got) != 1 || got[0] != want[0] {
		t.Errorf("%+v, %+v", got, want)
	}
	if own, err := Outline("app")(p); err != nil || own != any(p) {
		t.Errorf("a Pod of the own namespace becomes %v, %v", own, err)
	}
}

// TestRecord: what a backup keeps of whose its volume is is read for a volume that is made of it,
// until something is known of that one.
func TestRecord(t *testing.T) {
	of := &v1beta2.Volume{}
	if r := Record(of); r != "" {
		t.Errorf("nobody is known, and %s is kept", r)
	}
	of.Status.KubernetesStatus = v1beta2.KubernetesStatus{PVName: "pv", Namespace: "app", PVCName: "data"}
	s := runtime.NewScheme()
	if err := v1beta2.AddToScheme(s); err != nil {
		t.Fatal(err)
	}
	b := &v1beta2.Backup{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "b1"}}
	b.Status.Labels = map[string]string{"KubernetesStatus": Record(of)}
	r := New("ns").WithClient(fake.NewClientBuilder().WithScheme(s).WithObjects(b).Build())
	v := &v1beta2.Volume{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "v"}}
	for _, tt := range []struct {
		from string
		k    v1beta2.KubernetesStatus
		want bool
	}{
		{from: "s3://b@r/?backup=b1&volume=xx", want: true},
		{from: "s3://b@r/?backup=b2&volume=xx"},
		{from: ""},
		{from: "s3://b@r/?backup=b1&volume=xx", k: v1beta2.KubernetesStatus{PVCName: "mine"}},
	} {
		v.Spec.FromBackup, v.Status.KubernetesStatus = tt.from, tt.k
		got, err := r.gatherBackup(context.Background(), v)
		if err != nil || (got != nil) != tt.want || got != nil && got.PVCName != "data" {
			t.Errorf("%+v: %+v, %v", tt, got, err)
		}
	}
}
