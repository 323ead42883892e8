package volume

import (
	"context"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/allocator"
	"ankole.storage/controlplane/keys/volumekey"
	"ankole.storage/controlplane/object/index"
)

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
			if _, ok := l.(*v1beta2.EngineImageList); ok { // the nodes were read before
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
		r.note(v, decide(now, v.DeepCopy(), *s).Note)
	}
	if r.idle.Has(v.Name) || len(r.unplaced.Names()) > 0 {
		t.Error("a volume that waits for nothing is still noted after the look")
	}
}

// TestRoomWakesThoseThatLackIt: a volume of which a replica has no place hears of every change of a
// node's room, and others do not.
func TestRoomWakesThoseThatLackIt(t *testing.T) {
	r := New(Config{Allocator: allocator.New("", nil)})
	n, fuller := &v1beta2.Node{}, &v1beta2.Node{}
	r.unplaced.Note("full", true)
	if got := r.onNodeUpdate(n, fuller); !slices.Equal(got, []string{"full"}) {
		t.Errorf("woken: %v, want the volume without a place", got)
	}
	r.Controller().Gone(t.Context(), client.ObjectKey{Name: "full"})
	if got := r.onNodeUpdate(n, fuller); len(got) != 0 {
		t.Errorf("woken: %v", got)
	}
}
