package volume

import (
	"fmt"
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/allocator"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/object/index"
)

// near is what gatherNear reads of a cluster, where decide is given all of it.
func near(v *v1beta2.Volume, s seen) seen {
	nodes, managers := map[string]bool{}, map[string]bool{}
	for i := range s.Replicas {
		nodes[s.Replicas[i].Spec.NodeID], managers[s.Replicas[i].Status.InstanceManagerName] = true, true
	}
	out := s
	out.Partial, out.Nodes, out.Managers = true, nil, nil
	for _, im := range s.Managers {
		if nodes[im.Spec.NodeID] || managers[im.Name] {
			out.Managers = append(out.Managers, im)
		}
	}
	for i := range s.Engines {
		nodes[s.Engines[i].Spec.NodeID] = true
	}
	nodes[v.Spec.NodeID], nodes[v.Status.CurrentNodeID], nodes[v.Status.OwnerID] = true, true, true
	for _, n := range s.Nodes {
		if nodes[n.Name] {
			out.Nodes = append(out.Nodes, n)
			delete(nodes, n.Name)
		}
	}
	for name := range nodes {
		out.Absent = append(out.Absent, name)
	}
	return out
}

// decides is decide, which must come to the same by what is near, or say that this does not do.
func decides(v *v1beta2.Volume, s seen) loop.Decision {
	by := v.DeepCopy()
	few := decide(now, by, near(v, s))
	all := decide(now, v, s)
	if !few.Lacks && (!reflect.DeepEqual(few, all) || !reflect.DeepEqual(by, v)) {
		panic(fmt.Sprintf("by what is near %+v\n%+v\nby all %+v\n%+v", few, by.Status, all, v.Status))
	}
	return all
}

// TestNearSuffices: a volume that rests reads what is near only, and one that lacks a place reads
// all nodes.
func TestNearSuffices(t *testing.T) {
	v, s := fixture()
	if d := decide(now, v, near(v, *s)); d.Lacks {
		t.Error("a healthy volume asks for all nodes")
	}
	s.Replicas[1].Spec.NodeID = ""
	if d := decide(now, v, near(v, *s)); !d.Lacks {
		t.Errorf("a replica finds a place without a look at all nodes: %+v", d)
	}
	if d := decides(v, *s); d.Lacks {
		t.Error("all nodes do not suffice")
	}
}

// TestGatherNear: what is read first is the nodes of the volume and its objects, and the instance
// managers of its replicas, however many others there are.
func TestGatherNear(t *testing.T) {
	v, s := fixture()
	kinds := runtime.NewScheme()
	if err := v1beta2.AddToScheme(kinds); err != nil {
		t.Fatal(err)
	}
	if err := corev1.AddToScheme(kinds); err != nil {
		t.Fatal(err)
	}
	b := fake.NewClientBuilder().WithScheme(kinds)
	for _, i := range index.All() {
		b = b.WithIndex(i.Object, i.Field, i.Of)
	}
	for i := range s.Nodes {
		s.Nodes[i].Namespace, s.Managers[i].Namespace = v.Namespace, v.Namespace
		b = b.WithObjects(&s.Nodes[i], &s.Managers[i])
	}
	b = b.WithObjects(&v1beta2.InstanceManager{ObjectMeta: metav1.ObjectMeta{Namespace: v.Namespace, Name: "former"},
		Spec: v1beta2.InstanceManagerSpec{NodeID: "n3"}})
	r := New(Config{Namespace: v.Namespace, Allocator: allocator.New(v.Namespace, nil)}).WithClient(b.Build())
	s.Replicas[0].Status.InstanceManagerName, v.Status.OwnerID = "former", "n9"
	var got seen
	got.Engines, got.Replicas = s.Engines, s.Replicas
	if err := r.gatherNear(t.Context(), v, &got); err != nil {
		t.Fatal(err)
	}
	names := func(s seen) (out []string) {
		for _, n := range s.Nodes {
			out = append(out, n.Name)
		}
		for _, im := range s.Managers {
			out = append(out, im.Name)
		}
		return append(out, s.Absent...)
	}
	want := []string{"n1", "n2", "im-n1", "im-n2", "former", "n9"}
	if !reflect.DeepEqual(names(got), want) || !got.Partial {
		t.Errorf("reads %v, want %v", names(got), want)
	}
	all, err := r.gatherAll(t.Context(), v, got)
	if err != nil || len(all.Nodes) != 3 || len(all.Managers) != 4 || all.Partial || len(all.ScheduledBytes) != 3 {
		t.Errorf("reads of all %v, %v, room of %d disks", names(all), err, len(all.ScheduledBytes))
	}
}
