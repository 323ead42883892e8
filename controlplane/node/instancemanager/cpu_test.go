package instancemanager

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/index"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/setting"
)

const aio = v1beta2.InstanceManagerTypeAllInOne

// TestCPURequestOfANode: the node's field wins over the setting (B1, B2, B3).
func TestCPURequestOfANode(t *testing.T) {
	for _, tt := range []struct {
		name  string
		cpus  string
		value string // of the setting, the default if empty
		field int    // of the node
		want  int64
	}{
		{"default, 2 CPUs", "2", "", 0, 240}, {"default, 4 CPUs", "4", "", 0, 480}, {"default, 8 CPUs", "8", "", 0, 960},
		{"setting", "8", `{"v1":"12.5"}`, 0, 1000}, {"field", "8", `{"v1":"12.5"}`, 700, 700},
		{"setting 0", "8", `{"v1":"0"}`, 0, 0}, {"setting 0, field", "8", `{"v1":"0"}`, 1, 1},
		{"rounded", "1001m", `{"v1":"12.5"}`, 0, 125},
	} {
		s, values := world(), setting.Values{}
		if tt.value != "" {
			values[setting.GuaranteedInstanceManagerCPU] = tt.value
		}
		s.KubeNode.Status.Allocatable[corev1.ResourceCPU] = resource.MustParse(tt.cpus)
		s.Settings, s.Node.Spec.InstanceManagerCPURequest = SettingsFrom(values, ""), tt.field
		if got := s.cpu(aio).millis; got != tt.want {
			t.Errorf("%s: %dm are requested, want %dm", tt.name, got, tt.want)
		}
	}
}

// TestCPUChangeWaitsForTheLastInstance: nothing is killed, the condition says what waits, and the
// Pod goes when its last instance has stopped (B4, B5, B6).
func TestCPUChangeWaitsForTheLastInstance(t *testing.T) {
	for _, tt := range []cpuChange{
		{"setting", aio, func(s *seen) { s.Settings.CPUPercent = 20 },
			"guaranteed-instance-manager-cpu (CPU request 960m, will be 1600m)"},
		{"setting 0", aio, func(s *seen) { s.Settings.CPUPercent = 0 }, "(CPU request 960m, will be 0m)"},
		{"field", aio, func(s *seen) { s.Node.Spec.InstanceManagerCPURequest = 500 },
			"guaranteed-instance-manager-cpu (CPU request 960m, will be 500m)"},
		{"field that says the same", aio, func(s *seen) { s.Node.Spec.InstanceManagerCPURequest = 960 }, ""},
		{"setting under a field", aio, func(s *seen) {
			s.Node.Spec.InstanceManagerCPURequest, s.Settings.CPUPercent = 960, 20
		}, ""},
	} {
		tt.check(t)
	}
}

// cpuChange is a change of what an instance manager of a type should request.
type cpuChange struct {
	name    string
	kind    v1beta2.InstanceManagerType
	edit    func(*seen)
	message string // "" if nothing waits
}

func (tt cpuChange) check(t *testing.T) {
	t.Helper()
	im, s := manager(v1beta2.InstanceManagerStateRunning), world()
	im.Spec.Type = tt.kind
	tt.edit(&s)
	s.Processes.Replicas = running("v-r-1")
	if d := decide(now, im, s); d.Do != nil {
		t.Errorf("%s: does %v while an instance runs", tt.name, d.Do)
	}
	c := v1beta2.FindCondition(im.Status.Conditions, v1beta2.InstanceManagerConditionSettingSynced)
	if (c.Status == v1beta2.ConditionFalse) != (tt.message != "") || !strings.Contains(c.Message, tt.message) {
		t.Errorf("%s: condition %+v, want one with %q", tt.name, c, tt.message)
	}
	s.Processes.Replicas = nil
	if d := decide(now, im, s); tt.kind == aio && (d.Do != nil) != (tt.message != "") {
		t.Errorf("%s: does %v when the last instance has stopped", tt.name, d.Do)
	}
}

// refusedPod is a Pod that the node had no room for.
func refusedPod(s *seen) {
	s.Pod.Status = corev1.PodStatus{Phase: corev1.PodFailed, Reason: "OutOfcpu",
		Message: "Node didn't have enough resource: cpu, requested: 960, used: 7500, capacity: 8000"}
	s.Processes = nil
}

// TestNoRoomForThePod: a Pod that its node refused stays until the next try, so that everybody can
// read why; then a new one is made (B9).
func TestNoRoomForThePod(t *testing.T) {
	im, s := manager(v1beta2.InstanceManagerStateStarting), world()
	refusedPod(&s)
	s.StartNotBefore = now.Add(time.Minute)
	d := decide(now, im, s)
	ready := v1beta2.FindCondition(im.Status.Conditions, v1beta2.InstanceManagerConditionPodReady)
	if d.Do != nil || d.After != time.Minute || im.Status.CurrentState != v1beta2.InstanceManagerStateError ||
		ready.Status != v1beta2.ConditionFalse || !strings.Contains(ready.Message, "enough resource: cpu") {
		t.Fatalf("during the pause: %+v, state %s, condition %+v", d, im.Status.CurrentState, ready)
	}
	if d := decide(s.StartNotBefore, im, s); d.Do == nil || !strings.HasPrefix(d.Do.String(), "delete *v1.Pod") {
		t.Errorf("after the pause: %+v", d)
	}
	s.Pod.Status.Reason = "Evicted"
	if d := decide(now, im, s); d.Do == nil {
		t.Error("a Pod that failed for another reason stays")
	}
	s.Pod = nil
	if d := decide(s.StartNotBefore, im, s); d.Do == nil || !strings.HasPrefix(d.Do.String(), "create *v1.Pod") {
		t.Errorf("without a Pod: %+v", d)
	}
}

// TestRoomEndsThePause: the pause before the next try grows while the node is full, and ends when a
// Pod of another instance manager of the node has gone (B9).
func TestRoomEndsThePause(t *testing.T) {
	clock := now
	im, s := manager(""), world()
	other := func(name, node string, phase corev1.PodPhase) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: im.Namespace, Name: name,
			Labels: naming.InstanceManagerLabels(node, "old", "engine")}, Status: corev1.PodStatus{Phase: phase}}
	}
	old := other("old", im.Spec.NodeID, corev1.PodRunning)
	c := fake.NewClientBuilder().WithObjects(old, other("ended", im.Spec.NodeID, corev1.PodFailed),
		other("elsewhere", "n2", corev1.PodRunning)).Build()
	r := &Reconciler{client: c, starts: newStarts(func() time.Time { return clock })}
	until := func() time.Time {
		t.Helper()
		got, err := r.startNotBefore(t.Context(), im, s.Pod)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	refusedPod(&s)
	for _, uid := range []types.UID{"one", "two", "three", "four"} {
		s.Pod.UID = uid
		until()
	}
	if got := until(); got != clock.Add(8*time.Second) {
		t.Fatalf("after four refusals the pause ends at %v, now is %v", got, clock)
	}
	for _, name := range []string{"elsewhere", "ended"} {
		if err := c.Delete(t.Context(), other(name, "", "")); err != nil {
			t.Fatal(err)
		}
		if got := until(); got != clock.Add(8*time.Second) {
			t.Errorf("Pod %s has gone, which used no CPU of the node, and ends the pause: %v", name, got)
		}
	}
	if err := c.Delete(t.Context(), old); err != nil {
		t.Fatal(err)
	}
	if got := until(); got.After(clock) {
		t.Errorf("there is room, and the pause still ends at %v", got)
	}
	s.Pod.UID = "five"
	if got := until(); got != clock.Add(time.Second) {
		t.Errorf("refused once more, the pause ends at %v, now is %v", got, clock)
	}
}

// TestARemovedPodIsNoFailure: changes of settings one after the other, each of which makes the Pod
// anew, are no row of failures that would keep the next Pod waiting.
func TestARemovedPodIsNoFailure(t *testing.T) {
	im, s := manager(v1beta2.InstanceManagerStateRunning), world()
	r := &Reconciler{starts: newStarts(func() time.Time { return now })}
	until := func(pod *corev1.Pod) time.Time {
		t.Helper()
		got, err := r.startNotBefore(t.Context(), im, pod)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	for _, uid := range []types.UID{"one", "two", "three"} {
		s.Pod.UID = uid
		until(s.Pod)
		im.Status.ClosedPod = string(uid)
		until(s.Pod)
		im.Status.ClosedPod = ""
		if got := until(nil); got.After(now) {
			t.Fatalf("after Pod %s was removed on purpose the next one waits until %v, now is %v", uid, got, now)
		}
	}
	s.Pod.UID = "four"
	until(s.Pod)
	if got := until(nil); got != now.Add(time.Second) {
		t.Errorf("after a Pod that ended by itself the next one waits until %v, now is %v", got, now)
	}
}

// TestGonePodsWakeTheirNode: a Pod of an instance manager that goes wakes the others of its node;
// other Pods wake none (B9).
func TestGonePodsWakeTheirNode(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1beta2.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	here, there := manager(""), manager("")
	there.Name, there.Spec.NodeID = "there", "n2"
	b := fake.NewClientBuilder().WithScheme(scheme).WithObjects(here, there)
	for _, i := range index.All() {
		b.WithIndex(i.Object, i.Field, i.Of)
	}
	r := &Reconciler{cfg: Config{Namespace: here.Namespace}, client: b.Build()}
	gone := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: naming.InstanceManagerLabels("n1", "old", "aio")},
		Spec: corev1.PodSpec{NodeName: "n1"}}
	if got := r.onPodGone(gone); !slices.Equal(got, []string{here.Name}) {
		t.Errorf("wakes %v", got)
	}
	gone.Labels[naming.LabelComponent] = "other"
	if got := r.onPodGone(gone); len(got) != 0 {
		t.Errorf("a Pod of something else wakes %v", got)
	}
}
