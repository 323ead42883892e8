package simulated_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/process/engineclient"
	"ankole.storage/controlplane/setting"
)

// orderSnapshot makes an object as REST does.
func (w *world) orderSnapshot(name string) {
	w.create(&v1beta2.Snapshot{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Finalizers: []string{v1beta2.Finalizer}},
		Spec:       v1beta2.SnapshotSpec{Volume: "v", CreateSnapshot: true, Labels: map[string]string{"of": name}}})
}

func (w *world) deleteSnapshot(name string) {
	if s := w.snapshotObject(name); s != nil {
		must(w, w.store.delete(s, client.DeleteOptions{}))
	}
}

func (w *world) snapshotObject(name string) *v1beta2.Snapshot { return get[*v1beta2.Snapshot](w, name) }

// taken fails unless an ordered snapshot is there, in the engine and as an object.
func (w *world) taken(name string) {
	w.t.Helper()
	s := w.snapshotObject(name)
	if p := w.lineOf("v").of[name]; p.Labels["of"] != name || !p.UserCreated || p.Removed {
		w.failf("snapshot %s is not in the engine as ordered: %+v, object %+v", name, p, s)
	}
	if s == nil || !s.Status.ReadyToUse || s.Status.Error != "" || s.Status.CreationTime == "" || !s.Status.UserCreated ||
		s.Status.RestoreSize != w.engine().Status.CurrentSize || s.Status.Labels["of"] != name {
		w.failf("object of snapshot %s: %+v", name, s)
	}
}

// gone fails unless a snapshot is neither in the engine nor an object.
func (w *world) gone(name string) {
	w.t.Helper()
	if s, has := w.snapshotObject(name), w.lineOf("v").of; s != nil || has[name].Name != "" {
		w.failf("snapshot %s: object %+v, engine %+v", name, s, has)
	}
}

// untouched fails if a ticket for snapshots is left.
func (w *world) untouched() {
	for id, t := range get[*v1beta2.VolumeAttachment](w, "v").Spec.AttachmentTickets {
		if t.Type == v1beta2.AttacherTypeSnapshot {
			w.failf("ticket %s is left", id)
		}
	}
}

// TestSnapshotOfAVolumeInUse: a snapshot is taken when it is ordered; what is deleted goes, but for
// what the head stands on, which goes when that is another one.
func TestSnapshotOfAVolumeInUse(t *testing.T) {
	scene(t, 3, func(t *testing.T, w *world) {
		w.attached(3)
		w.orderSnapshot("s1")
		w.settle()
		w.taken("s1")
		if n := w.told("s1"); n != 1 {
			t.Errorf("told %d times", n)
		}
		w.deleteSnapshot("s1")
		w.settle()
		s := w.snapshotObject("s1")
		if s == nil || !s.Status.MarkRemoved || s.Status.ReadyToUse ||
			!strings.Contains(s.Status.Error, "head stands on it") {
			w.failf("%+v", s)
		}
		w.untouched()
		w.orderSnapshot("s2")
		w.settle()
		w.taken("s2")
		w.gone("s1")
		w.untouched()
		w.expect(`attached healthy at "n1"`)
	})
}

// TestSnapshotOfAVolumeAtRest: it is attached for the snapshot, and detached again; the same for
// its deletion.
func TestSnapshotOfAVolumeAtRest(t *testing.T) {
	scene(t, 3, func(t *testing.T, w *world) {
		w.attached(2)
		w.tickets("ui", "", "")
		w.settle()
		w.orderSnapshot("s1")
		w.orderSnapshot("s2")
		w.settle()
		w.taken("s1")
		w.taken("s2")
		w.expect(`detached unknown at ""`)
		first := w.lineOf("v").names[0]
		w.deleteSnapshot(first)
		w.settle()
		w.gone(first)
		w.expect(`detached unknown at ""`)
		w.untouched()
	})
}

// TestSnapshotsOfTheEngineGetObjects: one that nobody ordered gets an object, which goes with it;
// one that was ordered and is gone keeps its own, which says so.
func TestSnapshotsOfTheEngineGetObjects(t *testing.T) {
	scene(t, 3, func(t *testing.T, w *world) {
		w.attached(2)
		w.orderSnapshot("mine")
		w.settle()
		change := func(edit func()) {
			edit()
			w.served().publish()
			w.settle()
		}
		change(func() {
			w.lineOf("v").add(engineclient.Snapshot{Name: "system"})
			w.lineOf("v").add(engineclient.Snapshot{Name: "Not_A_Name"})
		})
		if s := w.snapshotObject("system"); s == nil || s.Spec.CreateSnapshot || s.Status.UserCreated ||
			!s.Status.ReadyToUse || s.Spec.Volume != "v" || s.Status.Parent != "mine" {
			t.Fatalf("%+v", s)
		}
		if s := w.snapshotObject(v1beta2.VolumeHeadName); s != nil {
			t.Fatalf("the head has an object: %+v", s)
		}
		w.told("Delete")
		change(func() {
			l := w.lineOf("v")
			l.names = l.names[2:]
			delete(w.lineOf("v").of, "mine")
			delete(w.lineOf("v").of, "system")
		})
		w.gone("system")
		s := w.snapshotObject("mine")
		if s == nil || s.Status.ReadyToUse || !strings.HasPrefix(s.Status.Error, "lost track of the corresponding snapshot info inside volume engine") || w.told("Delete") != 2 {
			w.failf("%+v", s)
		}
		w.deleteSnapshot("mine")
		w.settle()
		w.gone("mine")
	})
}

// TestPurgeDisabled: a deleted snapshot waits while purges are switched off, and does not hold the
// volume attached.
func TestPurgeDisabled(t *testing.T) {
	scene(t, 3, func(t *testing.T, w *world) {
		w.attached(2)
		for _, name := range []string{"s1", "s2"} {
			w.orderSnapshot(name)
			w.settle()
		}
		w.setting(setting.DisableSnapshotPurge, "true")
		w.tickets("ui", "", "")
		w.deleteSnapshot("s1")
		w.settle()
		if s := w.snapshotObject("s1"); s == nil || s.Status.Error != "setting disable-snapshot-purge is on" ||
			w.lineOf("v").of["s1"].Removed {
			w.failf("%+v", s)
		}
		w.expect(`detached unknown at ""`)
		w.setting(setting.DisableSnapshotPurge, "false")
		w.settle()
		w.gone("s1")
		w.taken("s2")
	})
}

// TestFrozenForASnapshot: a mounted file system is frozen for a snapshot where the volume says so,
// or leaves it to the setting and that does.
func TestFrozenForASnapshot(t *testing.T) {
	scene(t, 3, func(t *testing.T, w *world) {
		w.attached(2)
		for i, row := range []struct {
			volume  v1beta2.Override
			setting string
			frozen  bool
		}{
			{v1beta2.OverrideIgnored, "false", false}, {v1beta2.OverrideEnabled, "false", true},
			{v1beta2.OverrideIgnored, "true", true}, {v1beta2.OverrideDisabled, "true", false},
		} {
			w.setting(setting.FreezeFilesystemForSnapshot, fmt.Sprintf(`{"v1":%q}`, row.setting))
			w.changeVolume(func(s *v1beta2.VolumeSpec) { s.FreezeFilesystemForSnapshot = row.volume })
			name := fmt.Sprintf("s%d", i)
			w.orderSnapshot(name)
			w.settle()
			w.taken(name)
			if got := slices.Contains(w.lineOf("v").frozen, name); got != row.frozen {
				t.Errorf("volume %s, setting %s: frozen %v", row.volume, row.setting, got)
			}
		}
	})
}

// TestLimitsReachTheEngine: the limits of snapshots follow the volume while it is in use; a refused
// snapshot says why, and is taken when there is room.
func TestLimitsReachTheEngine(t *testing.T) {
	scene(t, 3, func(t *testing.T, w *world) {
		w.attached(2)
		w.changeVolume(func(s *v1beta2.VolumeSpec) { s.SnapshotMaxCount, s.SnapshotMaxSize = 2, 4*volumeSize })
		w.settle()
		if e := w.engine(); e.Status.SnapshotMaxCount != 2 || e.Status.SnapshotMaxSize != 4*volumeSize {
			t.Fatalf("%+v", e.Status)
		}
		for _, r := range w.replicas() {
			if r.Spec.SnapshotMaxCount != 2 || r.Spec.SnapshotMaxSize != 4*volumeSize {
				t.Errorf("%+v", r.Spec)
			}
		}
		for _, name := range []string{"s1", "s2", "s3"} {
			w.orderSnapshot(name)
			w.settle()
		}
		tooMany := w.condition(v1beta2.VolumeConditionTooManySnapshots)
		if s := w.snapshotObject("s3"); !strings.Contains(s.Status.Error, "has 2 snapshots, and may have 2") ||
			tooMany.Status != v1beta2.ConditionTrue || w.told("TooManySnapshots") != 1 {
			t.Fatalf("%+v, %+v", s.Status, tooMany)
		}
		w.deleteSnapshot("s1")
		w.settle()
		w.gone("s1")
		w.taken("s3")
	})
}

// TestDeletedVolumeWithSnapshots: its snapshots go before its engine.
func TestDeletedVolumeWithSnapshots(t *testing.T) {
	scene(t, 3, func(t *testing.T, w *world) {
		w.attached(2)
		w.orderSnapshot("s1")
		w.settle()
		w.orderSnapshot("s2")
		w.deleteVolume(w.volumes["v"])
		for range 2000 {
			w.run(20 * time.Millisecond)
			e := get[*v1beta2.Engine](w, "v-e-0")
			if (e == nil || e.DeletionTimestamp != nil) && (w.snapshotObject("s1") != nil || w.snapshotObject("s2") != nil) {
				w.failf("the engine is deleted before the snapshots")
			}
		}
		w.settle()
		if v := w.volume("v"); v != nil {
			w.failf("the volume is still there")
		}
	})
}

// TestAnySnapshotsSurviveFaults draws orders for snapshots and their deletion between faults. In
// the end what was ordered and not deleted is there, and what was deleted is gone.
func TestAnySnapshotsSurviveFaults(t *testing.T) {
	drawn(t, 10, 3, func(w *world) {
		w.attached(1 + w.rng.IntN(3))
		w.cruel = true
		var ordered, deleted []string
		for i := range 3 + w.rng.IntN(10) {
			switch w.rng.IntN(10) {
			case 0, 1, 2:
				ordered = append(ordered, fmt.Sprintf("s%d", i))
				w.orderSnapshot(ordered[len(ordered)-1])
			case 3, 4:
				if len(ordered) > 0 {
					deleted = append(deleted, pick(w, ordered))
					w.deleteSnapshot(deleted[len(deleted)-1])
				}
			case 5:
				w.tickets("ui", "", "")
			default:
				w.fault(pick(w, w.nodes), "v")
			}
			w.pause()
		}
		w.endFaults()
		w.cruel = false
		w.tickets("ui", "n1", v1beta2.AttacherTypeLonghornAPI)
		w.heals(3 * time.Hour)
		w.orderSnapshot("last") // so that the head stands on none of the others
		w.run(10 * time.Minute)
		for _, name := range ordered {
			if slices.Contains(deleted, name) {
				w.gone(name)
			} else {
				w.taken(name)
			}
		}
		w.untouched()
	})
}
