package volume

import (
	"context"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/allocator"
	"ankole.storage/controlplane/keys/volumekey"
	"ankole.storage/controlplane/object/index"
)

// TestWhatConcernsVolumes: what happens to a node, an instance manager, an image or an attachment a
// hundred times while volumes are attached wakes no other volume. What a change costs must not grow
// with the number of volumes.
func TestWhatConcernsVolumes(t *testing.T) {
	node := func() *v1beta2.Node {
		n := &v1beta2.Node{}
		n.Spec.AllowScheduling = true
		n.Spec.Disks = map[string]v1beta2.DiskSpec{"d": {Path: "/d"}}
		n.Status.Conditions = []v1beta2.Condition{{Type: v1beta2.NodeConditionReady, Status: v1beta2.ConditionTrue}}
		n.Status.DiskStatus = map[string]v1beta2.DiskStatus{"d": {DiskUUID: "u"}}
		return n
	}
	disk := func(edit func(*v1beta2.DiskStatus)) func(*v1beta2.Node) {
		return func(n *v1beta2.Node) {
			d := n.Status.DiskStatus["d"]
			edit(&d)
			n.Status.DiskStatus["d"] = d
		}
	}
	for name, c := range map[string]struct {
		edit func(*v1beta2.Node)
		want bool
	}{
		"room":      {disk(func(d *v1beta2.DiskStatus) { d.StorageScheduled, d.StorageAvailable = 1, 2 }), false},
		"a replica": {disk(func(d *v1beta2.DiskStatus) { d.ScheduledReplica = map[string]int64{"r": 1} }), false},
		"disk ready": {disk(func(d *v1beta2.DiskStatus) {
			d.Conditions = []v1beta2.Condition{{Type: v1beta2.DiskConditionReady, Status: v1beta2.ConditionTrue}}
		}), true},
		"disk pressure": {disk(func(d *v1beta2.DiskStatus) {
			d.Conditions = []v1beta2.Condition{{Type: v1beta2.DiskConditionSchedulable, Status: v1beta2.ConditionFalse,
				Reason: v1beta2.DiskReasonDiskPressure}}
		}), true},
		"not ready": {func(n *v1beta2.Node) { n.Status.Conditions[0].Status = v1beta2.ConditionFalse }, true},
		"tags":      {func(n *v1beta2.Node) { n.Spec.Tags = []string{"a"} }, true},
		"zone":      {func(n *v1beta2.Node) { n.Status.Zone = "a" }, true},
		"deleted":   {func(n *v1beta2.Node) { n.DeletionTimestamp = &metav1.Time{Time: now} }, true},
	} {
		after := node()
		c.edit(after)
		if got := nodeChanged(node(), after); got != c.want {
			t.Errorf("node, %s: %v", name, got)
		}
	}
	a := &v1beta2.VolumeAttachment{}
	told, wanted := a.DeepCopy(), a.DeepCopy()
	told.Status.AttachmentTicketStatuses = map[string]v1beta2.AttachmentTicketStatus{"t": {Satisfied: true}}
	wanted.Spec.AttachmentTickets = map[string]v1beta2.AttachmentTicket{"t": {}}
	if ticketsChanged(a, told) || !ticketsChanged(a, wanted) {
		t.Error("an attachment's status wakes its volume, or a ticket does not")
	}
	ei := &v1beta2.EngineImage{}
	counted, deployed := ei.DeepCopy(), ei.DeepCopy()
	counted.Status.RefCount = 7
	deployed.Status.NodeDeploymentMap = map[string]bool{"n1": true}
	if deploymentChanged(ei, counted) || !deploymentChanged(ei, deployed) {
		t.Error("the count of an image's users wakes volumes, or its deployment does not")
	}
}

// TestVolumeHearsOfWhatChangesMeanwhile: a node that changes after a volume was looked at, and
// before it is noted that the volume waits for nodes or for room, wakes it.
func TestVolumeHearsOfWhatChangesMeanwhile(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1beta2.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	v, s := fixture()
	v.Spec.NodeID, v.Status.CurrentNodeID, v.Status.State = "", "", v1beta2.VolumeStateDetached
	r := New(Config{Namespace: v.Namespace, Allocator: allocator.New(v.Namespace, nil), Keys: &volumekey.Keys{}})
	r.cfg.Allocator.MarkSynced()
	looks := 0
	builder := fake.NewClientBuilder().WithScheme(scheme).WithObjects(v)
	for _, i := range index.All() {
		builder = builder.WithIndex(i.Object, i.Field, i.Of)
	}
	r.WithClient(builder.WithInterceptorFuncs(interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
			err := c.List(ctx, l, opts...)
			if _, ok := l.(*v1beta2.NodeList); ok {
				looks++
				n, ready := &v1beta2.Node{}, &v1beta2.Node{}
				ready.Status.Conditions = []v1beta2.Condition{{Type: v1beta2.NodeConditionReady, Status: v1beta2.ConditionTrue}}
				if !slices.Contains(r.onNodeUpdate(n, ready), v.Name) {
					t.Error("a node that is ready again does not wake it")
				}
				if !slices.Contains(r.onNodeUpdate(n, n), v.Name) {
					t.Error("room on a disk does not wake it")
				}
			}
			return err
		}}).Build())
	if _, err := r.gather(t.Context(), v); err != nil || looks != 1 {
		t.Fatalf("%d looks, %v", looks, err)
	}
	for range 3 {
		r.decide(now, v.DeepCopy(), *s)
	}
	if r.idle.has(v.Name) || len(r.unplaced.names()) > 0 {
		t.Error("a volume that waits for nothing is still noted after the look")
	}
}

// TestRoomWakesThoseThatLackIt: a volume of which a replica has no place hears of every change of a
// node's room, and others do not.
func TestRoomWakesThoseThatLackIt(t *testing.T) {
	r := New(Config{Allocator: allocator.New("", nil)})
	n, fuller := &v1beta2.Node{}, &v1beta2.Node{}
	r.unplaced.note("full", true)
	if got := r.onNodeUpdate(n, fuller); !slices.Equal(got, []string{"full"}) {
		t.Errorf("woken: %v, want the volume without a place", got)
	}
	r.Controller().Gone(t.Context(), client.ObjectKey{Name: "full"})
	if got := r.onNodeUpdate(n, fuller); len(got) != 0 {
		t.Errorf("woken: %v", got)
	}
}
