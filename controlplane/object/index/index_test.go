package index

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"ankole.storage/api/longhorn/v1beta2"
)

// TestFinds: each way finds what it says, and not what has no value there.
func TestFinds(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1beta2.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	replica := func(name, volume, node, disk string) *v1beta2.Replica {
		r := &v1beta2.Replica{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
		r.Spec.VolumeName, r.Spec.NodeID, r.Spec.DiskID = volume, node, disk
		return r
	}
	engine := func(name, wanted, at string) *v1beta2.Engine {
		e := &v1beta2.Engine{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
		e.Spec.VolumeName, e.Spec.NodeID, e.Status.OwnerID = "v", wanted, at
		return e
	}
	a := &v1beta2.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a"}}
	a.Spec.AttachmentTickets = map[string]v1beta2.AttachmentTicket{"x": {NodeID: "n1"}, "y": {NodeID: "n2"}}
	n := &v1beta2.Node{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "n1"}}
	n.Status.DiskStatus = map[string]v1beta2.DiskStatus{"a": {DiskUUID: "d1"}, "b": {}}
	im := &v1beta2.InstanceManager{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "im"}}
	im.Spec.NodeID = "n1"
	e1, e2, e3 := engine("e1", "n1", "n1"), engine("e2", "n2", "n1"), engine("e3", "", "")
	e1.Status.InstanceManagerName, e1.Status.DeviceIn = "im", "im"
	e2.Status.InstanceManagerName = "im"
	e3.Status.DeviceIn = "im"
	b := fake.NewClientBuilder().WithScheme(scheme).WithObjects(replica("r1", "v", "n1", "d1"), replica("r2", "v", "", ""),
		replica("r3", "w", "n1", "d2"), e1, e2, e3, a, n, im)
	for _, i := range All() {
		b = b.WithIndex(i.Object, i.Field, i.Of)
	}
	c := b.Build()
	for _, q := range []struct {
		list client.ObjectList
		by   client.ListOption
		want []string
	}{
		{&v1beta2.ReplicaList{}, OfVolume("v"), []string{"r1", "r2"}},
		{&v1beta2.ReplicaList{}, OnNode("n1"), []string{"r1", "r3"}},
		{&v1beta2.ReplicaList{}, OnDisk("d2"), []string{"r3"}},
		{&v1beta2.ReplicaList{}, OnNode("n9"), nil},
		{&v1beta2.EngineList{}, OfVolume("v"), []string{"e1", "e2", "e3"}},
		{&v1beta2.EngineList{}, OnNode("n1"), []string{"e1", "e2"}},
		{&v1beta2.EngineList{}, OnNode("n2"), []string{"e2"}},
		{&v1beta2.EngineList{}, Within("im"), []string{"e1", "e2", "e3"}},
		{&v1beta2.InstanceManagerList{}, OnNode("n1"), []string{"im"}},
		{&v1beta2.VolumeAttachmentList{}, OnNode("n2"), []string{"a"}},
		{&v1beta2.VolumeAttachmentList{}, OnNode("n3"), nil},
		{&v1beta2.NodeList{}, OnDisk("d1"), []string{"n1"}},
	} {
		if err := c.List(t.Context(), q.list, client.InNamespace("ns"), q.by); err != nil {
			t.Fatal(err)
		}
		items, err := metaNames(q.list)
		if err != nil || !slices.Equal(items, q.want) {
			t.Errorf("%T by %v: %v %v, want %v", q.list, q.by, items, err, q.want)
		}
	}
}

func metaNames(list client.ObjectList) (names []string, err error) {
	err = meta.EachListItem(list, func(o runtime.Object) error {
		names = append(names, o.(client.Object).GetName())
		return nil
	})
	slices.Sort(names)
	return names, err
}
