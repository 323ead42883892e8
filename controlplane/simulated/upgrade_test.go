package simulated_test

import (
	"fmt"
	"testing"
	"time"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/setting"
	"ankole.storage/controlplane/volume"
)

// wantImage asks for an engine image.
func (w *world) wantImage(image string) {
	w.changeVolume(func(s *v1beta2.VolumeSpec) { s.Image = image })
}

// expectImage checks that volume, engine, replicas and processes have one image, that every
// directory has one object, and that no order to hand over is left.
func (w *world) expectImage(want string) {
	w.t.Helper()
	v, e := w.volume("v"), w.engine()
	attached := v.Status.State == v1beta2.VolumeStateAttached
	if v.Status.CurrentImage != want || e.Spec.Image != want || attached && e.Status.CurrentImage != want ||
		len(e.Spec.UpgradedReplicaAddressMap) > 0 {
		w.failf("volume has image %s, engine %s and %s, want %s", v.Status.CurrentImage, e.Spec.Image,
			e.Status.CurrentImage, want)
	}
	seen := map[string]bool{}
	for _, r := range w.replicas() {
		if r.Spec.Image != want || !r.Spec.Active || r.Spec.DataDirectoryName != "" && seen[r.Spec.DataDirectoryName] {
			w.failf("replica %s: image %s, active %v", r.Name, r.Spec.Image, r.Spec.Active)
		}
		seen[r.Spec.DataDirectoryName] = true
	}
}

// script makes outcomes one after the other; all that follow hand over.
func script(outcomes ...outcome) func() outcome {
	return func() outcome {
		if len(outcomes) == 0 {
			return handsOver
		}
		next := outcomes[0]
		outcomes = outcomes[1:]
		return next
	}
}

// TestLiveUpgrade: an attached volume gets another engine image by a hand-over, whatever becomes of
// the first attempts; its user sees one device all the time.
func TestLiveUpgrade(t *testing.T) {
	for _, row := range []struct {
		name     string
		outcomes []outcome
		// givenUp: an engine died on the way, and the volume stays as it is until it is asked again.
		givenUp bool
	}{
		{"at the first attempt", nil, false},
		{"refused once", []outcome{refuses}, false},
		{"the order is lost", []outcome{losesOrder, losesOrder}, false},
		{"the answer is lost", []outcome{losesAnswer}, false},
		{"the new engine dies", []outcome{newDies}, true},
		{"the old engine dies", []outcome{oldDies}, true},
	} {
		t.Run(row.name, inScene(3, 3, func(t *testing.T, w *world) {
			before := w.replicaDirectories()
			w.outcomes = script(row.outcomes...)
			w.wantImage(nextImage)
			w.run(3 * time.Minute)
			w.expect(`attached healthy at "n1"`)
			if row.givenUp {
				w.expectImage(engineImage)
				if c := w.condition(volume.ConditionEngineUpgrade); c.Reason != volume.ReasonUpgradeRolledBack {
					t.Errorf("condition %+v", c)
				}
				w.wantImage(nextImage)
				w.settle()
			}
			w.expectImage(nextImage)
			if after := w.replicaDirectories(); fmt.Sprint(after) != fmt.Sprint(before) {
				t.Errorf("directories were %v, are %v", before, after)
			}
			if w.handedOver != 1 {
				t.Errorf("the volume was handed over %d times", w.handedOver)
			}
			if c := w.condition(volume.ConditionEngineUpgrade); c.Status != v1beta2.ConditionFalse || c.Reason != "" {
				t.Errorf("condition %+v", c)
			}
		}))
	}
}

func (w *world) replicaDirectories() map[string]string {
	out := map[string]string{}
	for _, r := range w.replicas() {
		out[r.Spec.DataDirectoryName] = r.Spec.NodeID
	}
	return out
}

// TestUpgradeAtRest: a detached volume gets the image that is wanted at once, and the former one
// again if the wish changes half-way.
func TestUpgradeAtRest(t *testing.T) {
	scene(t, 3, func(t *testing.T, w *world) {
		w.attached(3)
		w.tickets("ui", "", "")
		w.settle()
		w.wantImage(nextImage)
		for w.engine().Spec.Image != nextImage {
			w.run(time.Millisecond)
		}
		if w.volume("v").Status.CurrentImage != engineImage {
			w.failf("not half-way")
		}
		w.wantImage(engineImage)
		w.settle()
		w.expectImage(engineImage)
		w.wantImage(nextImage)
		w.settle()
		w.expectImage(nextImage)
		w.tickets("ui", "n2", v1beta2.AttacherTypeLonghornAPI)
		w.settle()
		w.expect(`attached healthy at "n2"`)
		w.expectImage(nextImage)
		if w.handedOver != 0 {
			t.Errorf("the volume was handed over %d times", w.handedOver)
		}
	})
}

// TestLiveUpgradeIsNotBegun: what is wanted waits until the volume can be upgraded.
func TestLiveUpgradeIsNotBegun(t *testing.T) {
	scene(t, 3, func(t *testing.T, w *world) {
		w.attached(3)
		w.cut("n3")
		w.settle()
		w.expect(`attached degraded at "n1"`)
		w.wantImage(nextImage)
		w.settle()
		c := w.condition(volume.ConditionEngineUpgrade)
		if c.Status != v1beta2.ConditionUnknown || c.Reason != volume.ReasonUpgradeWaits || w.handedOver != 0 ||
			len(w.replicas()) > 4 {
			w.failf("condition %+v", c)
		}
		w.mend("n3")
		w.heals(time.Hour)
		w.settle()
		w.expectImage(nextImage)
	})
}

// TestLiveUpgradeIsGivenUp: an engine that refuses all the time keeps the volume, and the wish is
// taken back.
func TestLiveUpgradeIsGivenUp(t *testing.T) {
	for _, how := range []outcome{refuses, takesBack} {
		givenUp(t, how)
	}
}

func givenUp(t *testing.T, how outcome) {
	scene(t, 3, func(t *testing.T, w *world) {
		w.attached(3)
		w.outcomes = func() outcome { return how }
		w.wantImage(nextImage)
		w.run(10 * time.Minute)
		w.expect(`attached healthy at "n1"`)
		w.expectImage(engineImage)
		if got := w.volume("v").Spec.Image; got != engineImage {
			t.Errorf("the volume still wants %s", got)
		}
		if c := w.condition(volume.ConditionEngineUpgrade); c.Status != v1beta2.ConditionFalse ||
			c.Reason != volume.ReasonUpgradeRolledBack {
			t.Errorf("condition %+v", c)
		}
		w.outcomes = nil
		w.wantImage(nextImage)
		w.settle()
		w.expectImage(nextImage)
		if c := w.condition(volume.ConditionEngineUpgrade); c.Status != v1beta2.ConditionFalse || c.Reason != "" {
			t.Errorf("condition after another attempt %+v", c)
		}
	})
}

// TestAnyUpgradeEndsOnOneImage: whatever dies while a volume is upgraded, while minds change and
// orders get lost, it ends on the image that is wanted, with all copies, and no acknowledged write
// is lost on the way.
func TestAnyUpgradeEndsOnOneImage(t *testing.T) {
	over := 0
	drawn(t, 12, 4, func(w *world) {
		w.upgradedAmongFaults()
		w.outcomes = nil
		w.endFaults()
		w.tickets("ui", "n1", v1beta2.AttacherTypeLonghornAPI)
		w.heals(3 * time.Hour)
		w.run(time.Minute)
		w.heals(time.Hour)
		w.expectImage(w.volume("v").Spec.Image)
		if got, want := len(w.good("v")), w.volume("v").Spec.NumberOfReplicas; got < want {
			w.failf("%d of %d copies hold the newest data", got, want)
		}
		over += w.handedOver
	})
	if over == 0 {
		t.Error("no volume was ever handed over")
	}
}

// upgradedAmongFaults draws what becomes of a volume whose image is changed.
func (w *world) upgradedAmongFaults() {
	w.attached(1 + w.rng.IntN(3))
	w.outcomes = func() outcome { return outcome(w.rng.IntN(int(takesBack) + 1)) }
	for range 2 + w.rng.IntN(10) {
		switch w.rng.IntN(6) {
		case 0, 1:
			w.wantImage(nextImage)
		case 2:
			w.wantImage(engineImage)
		case 3:
			w.tickets("ui", "", "")
		default:
			w.fault(pick(w, w.nodes), "v")
		}
		w.pause()
	}
}

// TestAutomaticUpgrade has the cases of the proposal's test plan, for one volume, and what follows
// from an upgrade that was given up.
func TestAutomaticUpgrade(t *testing.T) {
	const limit = setting.ConcurrentAutomaticEngineUpgradePerNodeLimit
	begin := func(w *world, edit func()) {
		edit()
		w.settle()
		w.setting(setting.DefaultEngineImage, nextImage)
		w.setting(limit, "3")
		w.settle()
	}
	unchanged := func(w *world) {
		w.run(2 * time.Minute)
		if v := w.volume("v"); v.Spec.Image != engineImage || v.Status.CurrentImage != engineImage || w.handedOver != 0 {
			w.failf("image %s, %s", v.Spec.Image, v.Status.CurrentImage)
		}
	}
	t.Run("E1 attached and healthy", inScene(4, 3, func(t *testing.T, w *world) {
		begin(w, func() {})
		w.expect(`attached healthy at "n1"`)
		w.expectImage(nextImage)
	}))
	t.Run("E1 detached", inScene(4, 3, func(t *testing.T, w *world) {
		begin(w, func() { w.tickets("ui", "", "") })
		w.expectImage(nextImage)
	}))
	t.Run("E2 limit 0", inScene(4, 3, func(t *testing.T, w *world) {
		w.setting(setting.DefaultEngineImage, nextImage)
		w.setting(limit, "0")
		w.settle()
		unchanged(w)
		w.wantImage(nextImage)
		w.settle()
		w.expectImage(nextImage)
	}))
	for _, state := range []string{"attached", "detached"} {
		t.Run("E7 image not ready, "+state, inScene(4, 3, func(t *testing.T, w *world) {
			begin(w, func() {
				w.readiness(nextImage, v1beta2.ConditionFalse)
				if state == "detached" {
					w.tickets("ui", "", "")
				}
			})
			unchanged(w)
			w.readiness(nextImage, v1beta2.ConditionTrue)
			w.settle()
			w.expectImage(nextImage)
		}))
	}
	t.Run("E4 standby", inScene(4, 3, func(t *testing.T, w *world) {
		begin(w, func() { w.changeVolume(func(s *v1beta2.VolumeSpec) { s.Standby = true }) })
		unchanged(w)
		w.setting(limit, "0")
		w.wantImage(nextImage) // by hand
		w.settle()
		w.expectImage(nextImage)
	}))
	t.Run("E5 expanding", inScene(4, 3, func(t *testing.T, w *world) {
		begin(w, func() {
			w.room("n2", 1)
			w.wantSize(2 * volumeSize) // waits for room
		})
		unchanged(w)
		w.room("n2", 100)
		w.run(time.Minute)
		w.settle()
		w.expectSize(2 * volumeSize)
		w.expectImage(nextImage)
	}))
	t.Run("E6 degraded", inScene(4, 3, func(t *testing.T, w *world) {
		more := func(w *world, n int) {
			w.changeVolume(func(s *v1beta2.VolumeSpec) { s.NumberOfReplicas = n })
		}
		begin(w, func() { more(w, 5) })
		w.expect(`attached degraded at "n1"`)
		unchanged(w)
		more(w, 3)
		w.heals(time.Hour)
		w.settle()
		w.expectImage(nextImage)
	}))
	t.Run("E8 given up, and again after a pause", inScene(4, 3, func(t *testing.T, w *world) {
		begin(w, func() { w.outcomes = func() outcome { return refuses } })
		w.run(10 * time.Minute)
		w.expectImage(engineImage)
		if c := w.condition(volume.ConditionEngineUpgrade); c.Reason != volume.ReasonUpgradeRolledBack ||
			w.volume("v").Spec.Image != engineImage {
			w.failf("condition %+v", c)
		}
		w.outcomes = nil
		w.settle()
		w.expectImage(engineImage)
		w.run(20 * time.Minute)
		w.expectImage(nextImage)
	}))
	t.Run("E11 incompatible", inScene(4, 3, func(t *testing.T, w *world) {
		begin(w, func() {
			ei := get[*v1beta2.EngineImage](w, naming.EngineImageName(nextImage))
			ei.Status.ControllerAPIVersion, ei.Status.ControllerAPIMinVersion = 9, 9
			w.write(ei)
		})
		unchanged(w)
		w.tickets("ui", "", "") // its workload is scaled down and up
		w.settle()
		w.tickets("ui", "n2", v1beta2.AttacherTypeLonghornAPI)
		w.settle()
		w.expect(`attached healthy at "n2"`)
		w.expectImage(nextImage)
	}))
	t.Run("E11 comes back at once", inScene(4, 3, func(t *testing.T, w *world) {
		begin(w, func() {
			ei := get[*v1beta2.EngineImage](w, naming.EngineImageName(nextImage))
			ei.Status.ControllerAPIVersion, ei.Status.ControllerAPIMinVersion = 9, 9
			w.write(ei)
		})
		unchanged(w)
		w.tickets("ui", "", "") // its workload moves: nobody waits for the detachment
		w.tickets("ui", "n2", v1beta2.AttacherTypeLonghornAPI)
		w.settle()
		w.expect(`attached healthy at "n2"`)
		w.expectImage(nextImage)
	}))
}

// readiness makes an engine image ready, or not.
func (w *world) readiness(image string, status v1beta2.ConditionStatus) {
	ei := get[*v1beta2.EngineImage](w, naming.EngineImageName(image))
	ei.Status.Conditions, _ = v1beta2.SetCondition(ei.Status.Conditions, v1beta2.Condition{
		Type: v1beta2.EngineImageConditionReady, Status: status}, time.Now())
	w.write(ei)
}

// room says how many GiB a node's disk has.
func (w *world) room(node string, gibs int64) {
	h := w.host(node)
	w.setCapacity(h, gibs)
	w.lookAtDisk(h)
}
