package instancemanager

import (
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/api/rpc/imrpc"
	"ankole.storage/controlplane/object/naming"
)

func process(name, state string) *imrpc.ProcessResponse {
	return &imrpc.ProcessResponse{
		Spec:   &imrpc.ProcessSpec{Name: name},
		Status: &imrpc.ProcessStatus{State: state, PortStart: 10000, PortEnd: 10009, Uuid: "u"},
	}
}

func TestProcessesAreSortedByKindAndNeverChangedInPlace(t *testing.T) {
	ordered := process("demo-e-0", "running")
	ordered.Spec.Order = "uid/1"
	list := listed(map[string]*imrpc.ProcessResponse{
		"demo-e-0": ordered, "demo-e-x-r-12345678": process("demo-e-x-r-12345678", "running"),
	}, &imrpc.VersionResponse{InstanceManagerAPIVersion: 4, InstanceManagerAPIMinVersion: 1})
	if e, ok := list.Engines["demo-e-0"]; !ok || len(list.Engines) != 1 || e.Spec.Order != "uid/1" {
		t.Errorf("engines %v", list.Engines)
	}
	r, ok := list.Replicas["demo-e-x-r-12345678"]
	if !ok || r.Status.Type != v1beta2.InstanceTypeReplica || r.Status.PortStart != 10000 || r.Status.PortEnd != 10009 {
		t.Errorf("replicas %v", list.Replicas)
	}
	stopped := changed(list, process("demo-e-0", "stopped"))
	dead := process("demo-e-0", "error")
	dead.Status.ErrorMsg = "no disk"
	if st := changed(list, dead).Engines["demo-e-0"].Status; st.ErrorMsg != "no disk" || st.State != "error" {
		t.Errorf("an engine that has failed: %+v", st)
	}
	gone := process("demo-e-0", "stopped")
	gone.Deleted = true
	after := changed(stopped, gone)
	if list.Engines["demo-e-0"].Status.State != v1beta2.InstanceStateRunning ||
		stopped.Engines["demo-e-0"].Status.State != v1beta2.InstanceStateStopped {
		t.Error("a change went into an older value, which readers may hold")
	}
	if len(after.Engines) != 0 || after.APIVersion != 4 {
		t.Errorf("after the deletion: %+v", after)
	}
}

func TestIsEngineName(t *testing.T) {
	for name, want := range map[string]bool{
		"demo-e-0": true, "demo-e-06d4c77d": true, "a-r-b-e-1": true,
		"demo-r-ca78cab4": false, "demo-e-x-r-12345678": false, "-e-0": false, "demo": false, "demo-e-": false,
	} {
		if got := isEngineName(name); got != want {
			t.Errorf("isEngineName(%q) = %v", name, got)
		}
	}
}

func TestBackOff(t *testing.T) {
	clock := time.Unix(0, 0)
	s := newStarts(func() time.Time { return clock })
	key := client.ObjectKey{Name: "im"}
	pod := func(uid string, ready bool) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid)}}
		p.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "1.2.3.4",
			ContainerStatuses: []corev1.ContainerStatus{{Ready: ready}}}
		return p
	}
	if got := s.observe(key, nil); !got.IsZero() {
		t.Fatalf("the first Pod waits until %v", got)
	}
	for i, want := range []time.Duration{1, 2, 4, 8, 16, 32, 64, 120, 120} {
		s.observe(key, pod(string(rune('a'+i)), false))
		if got := s.observe(key, nil).Sub(clock); got != want*time.Second {
			t.Fatalf("after %d Pods that ended the next waits %v, want %v", i+1, got, want*time.Second)
		}
	}
	s.observe(key, pod("good", true))
	clock = clock.Add(settledAfter + time.Second)
	s.observe(key, pod("good", true))
	if got := s.observe(key, nil); !got.IsZero() {
		t.Fatalf("a Pod that ran long did not end the back-off: %v", got)
	}
}

func TestMayDrain(t *testing.T) {
	replica := func(volume, node string, healthy bool) v1beta2.Replica {
		r := v1beta2.Replica{}
		r.Spec.VolumeName, r.Spec.NodeID, r.Spec.DiskID, r.Spec.Active = volume, node, "disk-"+node, true
		if healthy {
			r.Spec.HealthyAt = "t"
		}
		return r
	}
	engineOn := func(node string) []v1beta2.Engine {
		e := v1beta2.Engine{}
		e.Spec.NodeID, e.Spec.VolumeName = node, "v"
		return []v1beta2.Engine{e}
	}
	node := func(name, reason, disk string) v1beta2.Node {
		n := v1beta2.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		n.Status.Conditions = []v1beta2.Condition{{Type: "Ready", Status: "True"}}
		if reason != "" {
			n.Status.Conditions[0] = v1beta2.Condition{Type: "Ready", Status: "False", Reason: reason}
		}
		n.Status.DiskStatus = map[string]v1beta2.DiskStatus{"d": {DiskUUID: "disk-" + name, Conditions: []v1beta2.Condition{
			{Type: "Ready", Status: v1beta2.ConditionStatus(disk), Reason: v1beta2.DiskReasonNoDiskInfo}}}}
		return n
	}
	budgets := []string{"n1", "n2"}
	beside := func(n v1beta2.Node) Shelter { return NewShelter(budgets, []v1beta2.Node{node("n1", "", "True"), n}) }
	both := beside(node("n2", "", "True"))
	one := []v1beta2.Replica{replica("v", "n1", true)}
	two := []v1beta2.Replica{replica("v", "n1", true), replica("v", "n2", true)}
	two[0].Spec.DataDirectoryName, two[1].Spec.DataDirectoryName = "r1", "r2"
	leaving := two[1]
	leaving.DeletionTimestamp = &metav1.Time{}
	inactive, failed := two[1], two[1]
	inactive.Spec.Active, failed.Spec.FailedAt = false, "t"
	record := func(members ...string) []v1beta2.Engine {
		e := v1beta2.Engine{}
		e.Spec.VolumeName, e.Status.Membership = "v", &v1beta2.Membership{Epoch: 1, Members: members}
		return []v1beta2.Engine{e}
	}
	later := func(e []v1beta2.Engine) []v1beta2.Engine {
		e[0].Status.Membership.Epoch = 2
		return e
	}
	stopped := []v1beta2.Replica{replica("v", "n1", true)}
	stopped[0].Status.CurrentState = v1beta2.InstanceStateStopped
	const (
		lastBlocks = "block-if-contains-last-replica"
		engine     = v1beta2.InstanceManagerReasonEngineOnNode
		moved      = v1beta2.InstanceManagerReasonReplicaOnNode
		last       = v1beta2.InstanceManagerReasonLastReplica
	)
	for _, tt := range []struct {
		name, policy string
		engines      []v1beta2.Engine
		replicas     []v1beta2.Replica
		shelter      Shelter
		// want is the reason for which the budget is kept, "" for none.
		want string
	}{
		{"empty node", lastBlocks, nil, nil, both, ""},
		{"engine on the node", drainAlways, engineOn("n1"), nil, both, engine},
		{"engine elsewhere", lastBlocks, engineOn("n2"), nil, both, ""},
		{"last replica", lastBlocks, nil, one, both, last},
		{"last replica, always", drainAlways, nil, one, both, ""},
		{"copy on a protected node", lastBlocks, nil, two, both, ""},
		{"copy on a node that may be drained too", lastBlocks, nil, two,
			NewShelter(budgets[:1], []v1beta2.Node{node("n1", "", "True"), node("n2", "", "True")}), last},
		{"copy elsewhere is on a machine that is gone", lastBlocks, record("r1", "r2"), two,
			beside(node("n2", v1beta2.NodeReasonKubernetesNodeGone, "True")), last},
		{"copy elsewhere is on a node that does not answer", lastBlocks, nil, two,
			beside(node("n2", v1beta2.NodeReasonKubernetesNodeNotReady, "True")), last},
		{"copy elsewhere is on a node without an object", lastBlocks, nil, two, NewShelter(budgets, nil), last},
		{"copy elsewhere is on a disk that is gone", lastBlocks, nil, two, beside(node("n2", "", "False")), last},
		{"the manager there is being replaced", lastBlocks, nil, two,
			beside(node("n2", v1beta2.NodeReasonManagerPodMissing, "True")), ""},
		{"eviction wanted, copy elsewhere", DrainEviction, nil, two, both, moved},
		{"stopped last replica may go", drainIfStopped, nil, stopped, both, ""},
		{"copy elsewhere is being deleted", lastBlocks, nil, []v1beta2.Replica{two[0], leaving}, both, last},
		{"copy elsewhere is no recorded member", lastBlocks, record("r1"), two, both, last},
		{"copy elsewhere is a recorded member", lastBlocks, record("r1", "r2"), two, both, ""},
		{"the newest record counts", lastBlocks, append(record("r1", "r2"), later(record("r1"))...), two, both, last},
		{"running last replica may not", drainIfStopped, nil, one, both, last},
		{"all are examined", "block-for-eviction-if-contains-last-replica", nil, one, both, last},
		{"copy elsewhere protects from eviction of the last", "block-for-eviction-if-contains-last-replica", nil, two, both,
			""},
		{"inactive copy elsewhere", lastBlocks, nil, []v1beta2.Replica{two[0], inactive}, both, last},
		{"failed copy elsewhere", lastBlocks, nil, []v1beta2.Replica{two[0], failed}, both, last},
		{"never started replica holds nothing", lastBlocks, nil, []v1beta2.Replica{replica("v", "n1", false)}, both, ""},
	} {
		got := mayDrain("n1", tt.policy, tt.engines, tt.replicas, tt.shelter)
		if got.reason != tt.want || (got.volume == "v") != (tt.want != "") || (got.message == "") != (tt.want == "") {
			t.Errorf("%s: %+v, want reason %q", tt.name, got, tt.want)
		}
	}
}

// TestShelterOfLongNames: a budget protects the copies of its node, however long its name is.
func TestShelterOfLongNames(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := errors.Join(v1beta2.AddToScheme(scheme), policyv1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("n", 70)
	n := &v1beta2.Node{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: long}}
	n.Status.DiskStatus = map[string]v1beta2.DiskStatus{"d": {DiskUUID: "disk", Conditions: []v1beta2.Condition{
		{Type: "Ready", Status: "True"}}}}
	n.Status.Conditions = []v1beta2.Condition{{Type: "Ready", Status: "True"}}
	budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "im",
		Labels: naming.InstanceManagerLabels(long, "image", "aio")}}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(n, budget).Build()
	shelter, err := ReadShelter(t.Context(), c, "ns")
	if err != nil {
		t.Fatal(err)
	}
	r := &v1beta2.Replica{}
	r.Spec.NodeID, r.Spec.DiskID = long, "disk"
	if !shelter.keeps(r) {
		t.Errorf("the copy on %s is not protected", long)
	}
}
