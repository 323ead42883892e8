package simulated_test

import (
	"strings"
	"testing"
	"time"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/naming"
)

// resize changes the wanted size, where admission would let a user do that.
func (w *world) wantSize(size int64) {
	v := w.volume("v")
	if st := v.Status.State; (st == v1beta2.VolumeStateAttached || st == v1beta2.VolumeStateDetached) &&
		v.Status.Robustness != v1beta2.VolumeRobustnessFaulted {
		v.Spec.Size = size
		must(w, w.store.update(v, false))
	}
}

// cancelGrowth takes the wish for a larger size back, by what the objects say.
func (w *world) cancelGrowth(volume string) {
	v, e := w.volume(volume), get[*v1beta2.Engine](w, naming.EngineName(volume, 0))
	if v != nil && e != nil && v.Status.ExpansionRequired && e.SizeBytes() < v.Spec.Size {
		v.Spec.Size = e.SizeBytes()
		must(w, w.store.update(v, false))
	}
}

// expectSize checks that objects and directories of the volume have a size.
func (w *world) expectSize(want int64) {
	w.t.Helper()
	v, e := w.volume("v"), w.engine()
	if v.Spec.Size != want || v.Status.ExpansionRequired || e.Spec.VolumeSize != want || e.Status.CurrentSize != want {
		w.failf("volume %d (expansion required: %v), engine %d and %d bytes, want %d", v.Spec.Size,
			v.Status.ExpansionRequired, e.Spec.VolumeSize, e.Status.CurrentSize, want)
	}
	for _, r := range w.replicas() {
		c := w.copies[r.Spec.DataDirectoryName]
		if r.Spec.VolumeSize != want || r.Spec.HealthyAt != "" && r.Spec.FailedAt == "" && c.size != want {
			w.failf("replica %s: %d bytes, directory %+v, want %d", r.Name, r.Spec.VolumeSize, c, want)
		}
	}
}

// TestExpansion: a volume gets the size that is wanted of it, in use, at rest, never used before,
// with a replica on its way.
func TestExpansion(t *testing.T) {
	const larger = volumeSize + volumeSize/2
	expanded := func(t *testing.T, w *world, times int) {
		t.Helper()
		w.settle()
		w.expectSize(larger)
		if n := w.told("SucceededExpansion"); n != times {
			w.failf("told %d times", n)
		}
	}
	t.Run("in use", inScene(3, 3, func(t *testing.T, w *world) {
		w.wantSize(larger)
		expanded(t, w, 1)
		w.expect(`attached healthy at "n1"`)
	}))
	t.Run("at rest", inScene(3, 3, func(t *testing.T, w *world) {
		w.tickets("ui", "", "")
		w.settle()
		w.wantSize(larger)
		expanded(t, w, 1)
		w.expect(`detached unknown at ""`)
	}))
	t.Run("never used before", inScene(3, 0, func(t *testing.T, w *world) {
		w.makeVolume(2, nil)
		w.settle()
		w.wantSize(larger)
		w.settle() // its directories are made with the larger size
		w.expectSize(larger)
		w.expect(`detached unknown at ""`)
	}))
	t.Run("while a replica is rebuilt", inScene(3, 3, func(t *testing.T, w *world) {
		w.killFirst(replicaOn("n3"))
		w.settle()
		w.wantSize(larger)
		w.settle()
		if e := w.engine(); e.Status.CurrentSize != volumeSize || w.modes()[v1beta2.ReplicaModeWO] != 1 {
			w.failf("the engine was expanded while it rebuilds")
		}
		w.rebuilt()
		expanded(t, w, 1)
	}))
	t.Run("a workload comes meanwhile", inScene(3, 3, func(t *testing.T, w *world) {
		w.tickets("ui", "", "")
		w.settle()
		w.wantSize(larger)
		w.tickets("ui", "n2", v1beta2.AttacherTypeLonghornAPI)
		expanded(t, w, 1)
		w.expect(`attached healthy at "n2"`)
	}))
}

// TestExpansionWaitsForRoom: nothing grows while a disk lacks the room, and the volume tells which
// one; what was taken back leaves no trace.
func TestExpansionWaitsForRoom(t *testing.T) {
	scene(t, 3, func(t *testing.T, w *world) {
		w.attached(3)
		const larger = 1000 * volumeSize
		w.wantSize(larger)
		w.settle()
		v := w.volume("v")
		c := v1beta2.FindCondition(v.Status.Conditions, v1beta2.VolumeConditionWaitForExpansion)
		if !v.Status.ExpansionRequired || c.Status != v1beta2.ConditionTrue || !strings.Contains(c.Message, "has no room") ||
			w.told("FailedExpansion") != 1 {
			w.failf("%+v", v.Status)
		}
		if r := w.replicas()[0]; r.Spec.VolumeSize != volumeSize || w.engine().Spec.VolumeSize != volumeSize {
			t.Fatalf("%+v", r.Spec)
		}
		w.run(time.Minute)
		if n := w.told("FailedExpansion"); n != 0 {
			t.Errorf("told %d times more", n)
		}
		w.cancelGrowth("v")
		w.settle()
		w.expectSize(volumeSize)
		if n := w.told("CanceledExpansion"); n != 1 {
			t.Errorf("told %d times that it was cancelled", n)
		}
		if c := w.condition(v1beta2.VolumeConditionWaitForExpansion); c.Status ==
			v1beta2.ConditionTrue {
			t.Errorf("%+v", c)
		}
	})
}

// TestCancelledTooLate: a size below what the volume has become is raised to that.
func TestCancelledTooLate(t *testing.T) {
	scene(t, 3, func(t *testing.T, w *world) {
		w.attached(2)
		w.wantSize(2 * volumeSize)
		w.settle()
		w.expectSize(2 * volumeSize)
		w.wantSize(volumeSize)
		w.settle()
		w.expectSize(2 * volumeSize)
		if n := w.eventsOf("CanceledExpansion", "Normal "); n != 1 {
			t.Errorf("told %d times, as no warning", n)
		}
	})
}

// TestConcurrencyOfRebuildsReachesTheEngine: that of the volume, else that of the setting, while
// the volume is in use and from the start.
func TestConcurrencyOfRebuildsReachesTheEngine(t *testing.T) {
	scene(t, 3, func(t *testing.T, w *world) {
		w.attached(2)
		expect := func(want int) {
			t.Helper()
			w.settle()
			if e := w.engine(); e.Spec.RebuildConcurrentSyncLimit != want || e.Status.RebuildConcurrentSyncLimit != want {
				w.failf("wanted %d, in effect %d, want %d", e.Spec.RebuildConcurrentSyncLimit,
					e.Status.RebuildConcurrentSyncLimit, want)
			}
		}
		expect(1)
		w.setting("replica-rebuild-concurrent-sync-limit", `{"v1":"3"}`)
		expect(3)
		w.changeVolume(func(s *v1beta2.VolumeSpec) { s.RebuildConcurrentSyncLimit = 5 })
		expect(5)
		w.setting("replica-rebuilding-bandwidth-limit", "7")
		w.settle()
		w.killFirst(isEngine) // the next one begins with 1, and no bound
		expect(5)
		for _, s := range w.servings() {
			if b := s.options.RebuildBandwidth; b == nil || *b != 7<<20 {
				t.Errorf("the engine may send %v bytes per second", b)
			}
		}
		w.changeVolume(func(s *v1beta2.VolumeSpec) { s.ReplicaRebuildingBandwidthLimit = 3 })
		expect(5)
		for _, s := range w.servings() {
			if b := s.options.RebuildBandwidth; b == nil || *b != 3<<20 {
				t.Errorf("the engine may send %v bytes per second, its volume says 3 MiB", b)
			}
		}
		w.changeVolume(func(s *v1beta2.VolumeSpec) { s.RebuildConcurrentSyncLimit = 0 })
		expect(3)
	})
}
