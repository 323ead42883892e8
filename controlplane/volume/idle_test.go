package volume

import (
	"fmt"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/allocator"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/setting"
	"ankole.storage/controlplane/volume/runs"
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

// TestOfflineRebuildIsTriedAgain: a detached volume whose replica may be rebuilt again after a
// pause, and which has no place for another one, looks again when the pause is over.
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

// TestOfflineRebuildOutlastsAnEndingProcess: whether a volume that is attached for a rebuild can be
// rebuilt is not known while the process of the replica that has failed is being ended. It stays
// attached meanwhile, or it would be detached and attached without end, but not for ever; a
// detached one is not attached before.
func TestOfflineRebuildOutlastsAnEndingProcess(t *testing.T) {
	id := naming.AttachmentTicketID(string(v1beta2.AttacherTypeVolumeRebuilding), "v")
	hasTicket := func(d loop.Decision) bool {
		u, _ := update(d)
		a, ok := u.Object.(*v1beta2.VolumeAttachment)
		return ok && a.Spec.AttachmentTickets[id].NodeID != ""
	}
	ending := func(s *seen, ends time.Duration) {
		s.Settings[setting.OfflineReplicaRebuilding] = "true"
		fail(s, 1, ends)
		s.Replicas[1].Spec.HealthyAt, s.Replicas[1].Spec.RebuildRetryCount = "", 1
		s.Replicas[1].Status.CurrentState = v1beta2.InstanceStateStopping
		s.ReplicaRuns = map[string]runs.Run{"b": {Ending: now.Add(-ends)}}
		fillDisks(s)
	}
	attached := func(ends time.Duration) (*v1beta2.Volume, *seen) {
		v, s := fixture()
		degrade(v, ends)
		s.Attachment.Spec.AttachmentTickets = map[string]v1beta2.AttachmentTicket{
			id: {ID: id, NodeID: "n1", Type: v1beta2.AttacherTypeVolumeRebuilding}}
		ending(s, ends)
		return v, s
	}

	const ends = 20 * time.Second // longer than the pause after a failed rebuild
	v, s := attached(ends)
	if d := settle(v, s); d.Do != nil || d.After <= 0 || d.After > comeUpWait-ends {
		t.Errorf("attached: %s, and again after %s", describe(d), d.After)
	}
	s.Replicas[1].Status.CurrentState, s.ReplicaRuns = stopped, nil
	if d := settle(v, s); describe(d) != "replica b stopped" {
		t.Errorf("its process has ended: %s", describe(d))
	}
	v, s = attached(comeUpWait)
	if d := settle(v, s); d.Do == nil || hasTicket(d) {
		t.Errorf("it does not end: %s", describe(d))
	}
	v, s = resting()
	ending(s, ends)
	if d := settle(v, s); d.Do != nil {
		t.Errorf("detached: %s", describe(d))
	}
	s.Replicas[1].Status.CurrentState, s.ReplicaRuns = stopped, nil
	if d := settle(v, s); !hasTicket(d) {
		t.Errorf("detached, and its process has ended: %s", describe(d))
	}
}

// TestOfflineRebuildDoesNotUndoItself: a volume is detached again with replicas missing only where
// it would not be attached for them once its processes have ended.
func TestOfflineRebuildDoesNotUndoItself(t *testing.T) {
	n := map[bool]int{}
	for i := range 3 * 2 * 3 * 6 * 2 * 2 * 2 {
		// draw takes one of several values; together the draws go through all combinations.
		draw := func(of int) int {
			one := i % of
			i /= of
			return one
		}
		v, s := fixture()
		degrade(v, time.Minute)
		v.Spec.OfflineRebuilding = v1beta2.OverrideEnabled
		r := &s.Replicas[1]
		r.Spec.FailedAt = []string{"", ago(time.Second), ago(time.Hour)}[draw(3)]
		r.Spec.HealthyAt = []string{"", ago(time.Hour)}[draw(2)]
		r.Spec.RebuildRetryCount = []int{0, 1, v1beta2.MaxRebuildRetryCount}[draw(3)]
		r.Status.CurrentState = []v1beta2.InstanceState{running, stopped, failed, v1beta2.InstanceStateStarting,
			v1beta2.InstanceStateStopping, v1beta2.InstanceStateUnknown}[draw(6)]
		r.Spec.EvictionRequested = draw(2) > 0
		if draw(2) > 0 {
			fillDisks(s)
		}
		if draw(2) > 0 {
			s.Nodes[2].Spec.AllowScheduling = false
		}
		s.ReplicaRuns = runs.New().Replicas(now, v.Name, s.Engine, s.Engines, s.Replicas)
		told := fmt.Sprintf("%+v\n%s", r.Spec, r.Status.CurrentState)

		stays := maintaining{newPass(now, v, *s)}.offlineRebuilding()
		off(s)
		v.Spec.NodeID, v.Status.CurrentNodeID, v.Status.State = "", "", v1beta2.VolumeStateDetached
		v.Status.Robustness, v.Status.LastDegradedAt = v1beta2.VolumeRobustnessUnknown, ""
		for i := range s.Replicas {
			s.Replicas[i].Spec.DesireState, s.Replicas[i].Status.CurrentState = stopped, stopped
		}
		s.ReplicaRuns = nil
		if comesBack := (maintaining{newPass(now, v, *s)}).offlineRebuilding(); comesBack && !stays {
			t.Errorf("detached and attached again: %s", told)
		}
		n[stays]++
	}
	if n[false] == 0 || n[true] == 0 {
		t.Errorf("%v", n)
	}
}

// TestRestingVolumesAreWokenForTheirWork: a detached volume that waits for a node to evict a
// replica from, or to rebuild one on, looks again when nodes change, or when there is room, and
// does not wait until something else touches it; one without such work costs nothing.
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
				r.note(v, decide(now, v.DeepCopy(), *s).Note)
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

// TestSettingsThatConcernEveryVolume: they are heard of by volumes that are at rest and by healthy
// ones too, of which other settings wake none.
func TestSettingsThatConcernEveryVolume(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1beta2.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	inUse, _ := fixture()
	inUse.Name = "in-use"
	atRest, _ := resting()
	r := New(Config{Namespace: "ns", Allocator: allocator.New("ns", nil)}).
		WithClient(fake.NewClientBuilder().WithScheme(scheme).WithObjects(inUse, atRest).Build())
	for name, want := range map[string]int{
		"offline-replica-rebuilding": 2, "replica-auto-balance": 2, "snapshot-count-warning-threshold": 2,
		"replica-rebuild-concurrent-sync-limit": 2, "concurrent-replica-rebuild-per-node-limit": 0, "auto-salvage": 0,
	} {
		if got := r.onSetting(&v1beta2.Setting{ObjectMeta: metav1.ObjectMeta{Name: name}}); len(got) != want {
			t.Errorf("%s wakes %v, want %d", name, got, want)
		}
	}
}
