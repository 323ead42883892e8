package heard

import (
	"fmt"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/index"
)

// TestNear: of many instance managers those are read that may matter to a process: of its node, by
// name, and those that list it, as long as they do.
func TestNear(t *testing.T) {
	kinds := runtime.NewScheme()
	if err := v1beta2.AddToScheme(kinds); err != nil {
		t.Fatal(err)
	}
	b := fake.NewClientBuilder().WithScheme(kinds)
	for i := range 9 {
		b = b.WithObjects(&v1beta2.InstanceManager{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: fmt.Sprintf("im%d", i)},
			Spec:       v1beta2.InstanceManagerSpec{NodeID: fmt.Sprintf("n%d", i)}})
	}
	for _, i := range index.All() {
		if _, ok := i.Object.(*v1beta2.InstanceManager); ok {
			b = b.WithIndex(i.Object, i.Field, i.Of)
		}
	}
	c, l := b.Build(), New("ns")
	expect := func(what string, want ...string) {
		t.Helper()
		managers, silent, err := l.Near(t.Context(), c, "ns", replica, "n1", "im2", "", "gone")
		var names []string
		for i := range managers {
			names = append(names, managers[i].Name)
			if heard := managers[i].Status.InstanceReplicas != nil; heard == silent[managers[i].Name] {
				t.Errorf("%s: of %s is heard %v, it is silent %v", what, managers[i].Name, heard, !heard)
			}
		}
		if slices.Sort(names); err != nil || !slices.Equal(names, want) {
			t.Errorf("%s: reads %v, %v, want %v", what, names, err, want)
		}
	}
	tell := func(manager string, replicas ...string) {
		list := &Processes{Engines: map[string]v1beta2.InstanceProcess{}, Replicas: map[string]v1beta2.InstanceProcess{}}
		for _, name := range replicas {
			list.Put(process(name, "u", v1beta2.InstanceStateRunning))
		}
		l.Tell(t.Context(), manager, "pod", list)
	}
	expect("nothing is heard", "im1", "im2")
	for _, manager := range []string{"im5", "im7", "im8"} {
		l.Begin(manager, "pod")
		tell(manager, replica, "other")
	}
	expect("three list it", "im1", "im2", "im5", "im7", "im8")
	tell("im5", "other")
	expect("one does no more", "im1", "im2", "im7", "im8")
	l.Begin("im7", "next")
	expect("one has another Pod", "im1", "im2", "im8")
	l.Drop("im8")
	expect("one is gone", "im1", "im2")
}
