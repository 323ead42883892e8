package node

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/index"
)

// pens draws a node, what the leader sees of it and what its agent sees.
func pens(t *rapid.T) (*v1beta2.Node, seen, agentSeen) {
	flip := func(name string) bool { return rapid.IntRange(0, 3).Draw(t, name) == 0 }
	n, s := storageNode(), healthy()
	s.DefaultManager.Name = "im"
	if flip("manager down") {
		s.ManagerPod = managerPod(corev1.ConditionFalse)
	}
	if flip("kube gone") {
		s.KubeNode = nil
	}
	if flip("new disk") {
		n.Spec.Disks["e"] = v1beta2.DiskSpec{Path: "/e"}
	}
	if flip("disk removed") {
		delete(n.Spec.Disks, "d")
	}
	if flip("replicas") {
		s.Replicas = []v1beta2.Replica{replica("r", "n1", "uuid-d", rapid.Int64Range(0, 200*gib).Draw(t, "size"))}
	}
	a := agentSeen{Facts: map[string]DiskFacts{}}
	for name := range n.Spec.Disks {
		f := facts(rapid.SampledFrom([]string{"", "uuid-d", "other"}).Draw(t, "uuid of "+name), name)
		if flip("trouble with " + name) {
			f = DiskFacts{Problem: "gone"}
		}
		a.Facts[name] = f
	}
	n.Spec.Tags = []string{"t"}
	return n, s, a
}

// Leader and agent write one status in turns. However they begin, they come to rest: nobody undoes
// what the other wrote.
func TestTwoWritersComeToRest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n, s, a := pens(t)
		leaderFirst := rapid.Bool().Draw(t, "leader first")
		turn := func(now time.Time) {
			if leaderFirst {
				decide(now, n, s)
			}
			decideAgent(now, n, a)
			decide(now, n, s)
		}
		for i := range 3 { // two disks with one UUID count as copies after a minute
			turn(now.Add(time.Duration(i) * time.Hour))
		}
		rest := n.DeepCopy()
		for range 3 {
			decideAgent(now.Add(3*time.Hour), n, a)
			if !equality.Semantic.DeepEqual(rest, n) {
				t.Fatalf("the agent goes on\n%+v\n%+v", rest.Status, n.Status)
			}
			decide(now.Add(3*time.Hour), n, s)
			if !equality.Semantic.DeepEqual(rest, n) {
				t.Fatalf("the leader goes on\n%+v\n%+v", rest.Status, n.Status)
			}
		}
	})
}

// TestBudgetsWakeCordonedNodes: under the drain policy that evicts the last replica, whether a
// replica has to leave depends on the budgets of other nodes.
func TestBudgetsWakeCordonedNodes(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, v1beta2.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	objects := []client.Object{&v1beta2.Node{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "gone"}}}
	for name, cordoned := range map[string]bool{"n1": false, "n2": true} {
		kube := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		kube.Spec.Unschedulable = cordoned
		objects = append(objects, kube, &v1beta2.Node{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}})
	}
	r := New("ns")
	builder := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...)
	for _, i := range index.OfKubernetes() {
		builder = builder.WithIndex(i.Object, i.Field, i.Of)
	}
	r.client = builder.Build()
	if got := r.cordoned(); !slices.Equal(got, []string{"n2"}) {
		t.Errorf("a budget wakes %v, want n2", got)
	}
}

// TestSiblingsWakeCordonedNodes: whether a replica is the last one, and so has to leave a cordoned
// node, changes with the other replicas of its volume. A drain would wait for ever for one that has
// become the last.
func TestSiblingsWakeCordonedNodes(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, v1beta2.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	builder := fake.NewClientBuilder().WithScheme(scheme)
	for _, i := range index.All() {
		builder = builder.WithIndex(i.Object, i.Field, i.Of)
	}
	for _, name := range []string{"n1", "n2", "n3"} {
		kube := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		kube.Spec.Unschedulable = name == "n1"
		builder = builder.WithObjects(kube)
	}
	of := func(volume, node string) *v1beta2.Replica {
		r := &v1beta2.Replica{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: volume + "-" + node}}
		r.Spec.VolumeName, r.Spec.NodeID = volume, node
		return r
	}
	r := New("ns")
	r.client = builder.WithObjects(of("v", "n1"), of("v", "n2"), of("v", "n3"), of("w", "n3")).Build()
	for volume, want := range map[string][]string{"v": {"n1", "n3"}, "w": {"n3"}} {
		got := r.onReplica(of(volume, "n3"))
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("the replica of volume %s on n3 wakes %v, want %v", volume, got, want)
		}
	}
}
