package volume

import (
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/allocator"
	"ankole.storage/controlplane/setting"
)

// resting is the volume of fixture detached, with all its replicas in sync.
func resting() (*v1beta2.Volume, *seen) {
	v, s := fixture()
	v.Spec.NodeID, v.Status.CurrentNodeID, v.Status.State = "", "", v1beta2.VolumeStateDetached
	v.Status.Conditions, _ = v1beta2.SetCondition(v.Status.Conditions,
		v1beta2.Condition{Type: v1beta2.VolumeConditionScheduled, Status: v1beta2.ConditionTrue}, now)
	s.Attachment.Spec.AttachmentTickets = nil
	off(s)
	s.Engine.Spec.NodeID, s.Engine.Spec.ReplicaAddressMap = "", map[string]string{}
	for i := range s.Replicas {
		s.Replicas[i].Spec.DesireState, s.Replicas[i].Status.CurrentState = stopped, stopped
	}
	return v, s
}

// fillDisks leaves no room for another replica.
func fillDisks(s *seen) {
	for _, n := range s.Nodes {
		d := n.Status.DiskStatus["d"]
		d.StorageAvailable = 0
		n.Status.DiskStatus["d"] = d
	}
}

// TestOfflineRebuildIsTriedAgain holds K75: a detached volume whose replica may be rebuilt again
// after a pause, and which has no place for another one, looks again when the pause is over.
func TestOfflineRebuildIsTriedAgain(t *testing.T) {
	v, s := resting()
	s.Settings[setting.OfflineReplicaRebuilding] = "true"
	fail(s, 1, 4*time.Second)
	s.Replicas[1].Spec.HealthyAt, s.Replicas[1].Spec.RebuildRetryCount = "", 1
	fillDisks(s)
	if d := settle(v, s); d.Do != nil || d.After != rebuildPauseFirst-4*time.Second {
		t.Fatalf("%s, and again after %s", describe(d), d.After)
	}
	if d := decide(now.Add(rebuildPauseFirst), v, *s); d.Do == nil {
		t.Fatal("no ticket when the pause is over")
	}
}

// TestRestingVolumesAreWokenForTheirWork holds K5 and K74 of docs/defects.md: a detached volume
// that waits for a node to evict a replica from, or to rebuild one on, looks again when nodes
// change, or when there is room; one without such work costs nothing.
func TestRestingVolumesAreWokenForTheirWork(t *testing.T) {
	attached := func(edit func(*seen)) func(v *v1beta2.Volume, s *seen) {
		return func(v *v1beta2.Volume, s *seen) {
			a, b := fixture()
			*v, *s = *a, *b
			edit(s)
		}
	}
	for name, c := range map[string]struct {
		edit func(*v1beta2.Volume, *seen)
		want bool
		room bool // woken by room too
	}{
		"attached, nothing to do": {attached(func(*seen) {}), false, false},
		"attached and healthy, eviction": {attached(func(s *seen) {
			s.Replicas[1].Spec.EvictionRequested = true
		}), true, false},

		"nothing to do": {func(*v1beta2.Volume, *seen) {}, false, false},
		"eviction":      {func(_ *v1beta2.Volume, s *seen) { s.Replicas[0].Spec.EvictionRequested = true }, true, false},
		"offline rebuild": {func(_ *v1beta2.Volume, s *seen) {
			s.Settings[setting.OfflineReplicaRebuilding] = "true"
			fail(s, 1, time.Minute)
		}, true, false},
		"offline rebuild, disks are full": {func(_ *v1beta2.Volume, s *seen) {
			s.Settings[setting.OfflineReplicaRebuilding] = "true"
			s.Replicas = s.Replicas[:1]
			fillDisks(s)
		}, true, true},
		"degraded, and no offline rebuild is wanted": {func(_ *v1beta2.Volume, s *seen) { fail(s, 1, time.Minute) }, false,
			false},
	} {
		t.Run(name, func(t *testing.T) {
			v, s := resting()
			c.edit(v, s)
			scheme := runtime.NewScheme()
			if err := v1beta2.AddToScheme(scheme); err != nil {
				t.Fatal(err)
			}
			r := New(
				Config{Namespace: v.Namespace, Allocator: allocator.New(v.Namespace, nil)},
			).WithClient(fake.NewClientBuilder().WithScheme(scheme).WithObjects(v).Build())
			for range 3 {
				r.decide(now, v.DeepCopy(), *s)
			}
			if got := slices.Contains(r.unsettled(), v.Name); got != c.want {
				t.Errorf("woken by nodes: %v, want %v", got, c.want)
			}
			if got := slices.Contains(r.onNodeUpdate(&v1beta2.Node{}, &v1beta2.Node{}), v.Name); got != c.room {
				t.Errorf("woken by room on a disk: %v, want %v", got, c.room)
			}
			if !slices.Contains(r.onSetting(&v1beta2.Setting{ObjectMeta: metav1.ObjectMeta{
				Name: setting.OfflineReplicaRebuilding}}), v.Name) {
				t.Error("switching offline rebuilds on does not wake it")
			}
			r.Controller().Gone(t.Context(), client.ObjectKeyFromObject(v))
			if slices.Contains(r.unsettled(), v.Name) {
				t.Error("remembered after its end")
			}
		})
	}
}
