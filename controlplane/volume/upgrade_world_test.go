package volume_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/volume"
)

// wantImage asks for an engine image.
func (w *world) wantImage(image string) {
	v := w.volume("v")
	v.Spec.Image = image
	must(w.t, w.c.Update(context.Background(), v))
}

// expectImage checks that volume, engine, replicas and processes have one image, that every
// directory has one object, and that no order to hand over is left.
func (w *world) expectImage(want string) {
	w.t.Helper()
	v, e := w.volume("v"), w.engine()
	attached := v.Status.State == v1beta2.VolumeStateAttached
	if v.Status.CurrentImage != want || e.Spec.Image != want || attached && e.Status.CurrentImage != want ||
		len(e.Spec.UpgradedReplicaAddressMap) > 0 {
		w.t.Fatalf("volume has image %s, engine %s and %s, want %s\n%s", v.Status.CurrentImage, e.Spec.Image,
			e.Status.CurrentImage, want, w.dump())
	}
	seen := map[string]bool{}
	for _, r := range w.replicas() {
		if r.Spec.Image != want || !r.Spec.Active || r.Spec.DataDirectoryName != "" && seen[r.Spec.DataDirectoryName] {
			w.t.Fatalf("replica %s: image %s, active %v\n%s", r.Name, r.Spec.Image, r.Spec.Active, w.dump())
		}
		seen[r.Spec.DataDirectoryName] = true
	}
}

func (w *world) upgradeCondition() v1beta2.Condition {
	return v1beta2.FindCondition(w.volume("v").Status.Conditions, volume.ConditionEngineUpgrade)
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
	t.Parallel()
	for _, row := range []struct {
		name     string
		outcomes []outcome
		// restarts: an engine died on the way, and the volume may have been handed over more than once.
		restarts bool
	}{
		{"at the first attempt", nil, false},
		{"refused once", []outcome{refuses}, false},
		{"the order is lost", []outcome{losesOrder, losesOrder}, false},
		{"the answer is lost", []outcome{losesAnswer}, false},
		{"the new engine dies", []outcome{newDies}, true},
		{"the old engine dies", []outcome{oldDies}, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			w := attached(t, t.TempDir(), 3, 3)
			before := w.replicaDirectories()
			w.outcomes = script(row.outcomes...)
			w.wantImage(nextImage)
			w.settle()
			for range 10 {
				w.now = w.now.Add(10 * time.Second)
				w.settle()
			}
			w.expect(`attached healthy at "n1"`)
			w.expectImage(nextImage)
			if after := w.replicaDirectories(); fmt.Sprint(after) != fmt.Sprint(before) {
				t.Errorf("directories were %v, are %v", before, after)
			}
			if w.handedOver != 1 {
				t.Errorf("the volume was handed over %d times", w.handedOver)
			}
			if c := w.upgradeCondition(); c.Status != v1beta2.ConditionFalse || c.Reason != "" {
				t.Errorf("condition %+v", c)
			}
		})
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
	t.Parallel()
	w := attached(t, t.TempDir(), 3, 3)
	w.ticket("ui", "", "")
	w.settle()
	w.wantImage(nextImage)
	w.rounds(3)
	if w.engine().Spec.Image != nextImage || w.volume("v").Status.CurrentImage != image {
		t.Fatalf("not half-way\n%s", w.dump())
	}
	w.wantImage(image)
	w.settle()
	w.expectImage(image)
	w.wantImage(nextImage)
	w.settle()
	w.expectImage(nextImage)
	w.ticket("ui", "n2", v1beta2.AttacherTypeLonghornAPI)
	w.settle()
	w.expect(`attached healthy at "n2"`)
	w.expectImage(nextImage)
	if w.handedOver != 0 {
		t.Errorf("the volume was handed over %d times", w.handedOver)
	}
}

// TestLiveUpgradeIsNotBegun: what is wanted waits until the volume can be upgraded.
func TestLiveUpgradeIsNotBegun(t *testing.T) {
	t.Parallel()
	w := attached(t, t.TempDir(), 3, 3)
	w.cut("n3")
	w.settle()
	w.expect(`attached degraded at "n1"`)
	w.wantImage(nextImage)
	w.settle()
	c := w.upgradeCondition()
	if c.Status != v1beta2.ConditionUnknown || c.Reason != volume.ReasonUpgradeWaits || w.handedOver != 0 ||
		len(w.replicas()) > 4 {
		t.Fatalf("condition %+v\n%s", c, w.dump())
	}
	w.mend("n3")
	w.heal(time.Hour)
	w.settle()
	w.expectImage(nextImage)
}

// TestLiveUpgradeIsGivenUp: an engine that refuses all the time keeps the volume, and the wish is
// taken back.
func TestLiveUpgradeIsGivenUp(t *testing.T) {
	t.Parallel()
	w := attached(t, t.TempDir(), 3, 3)
	w.outcomes = func() outcome { return refuses }
	w.wantImage(nextImage)
	w.advance(10*time.Minute, 15*time.Second)
	w.expect(`attached healthy at "n1"`)
	w.expectImage(image)
	if got := w.volume("v").Spec.Image; got != image {
		t.Errorf("the volume still wants %s", got)
	}
	if c := w.upgradeCondition(); c.Status != v1beta2.ConditionFalse || c.Reason != volume.ReasonUpgradeRolledBack {
		t.Errorf("condition %+v", c)
	}
	w.outcomes = nil
	w.wantImage(nextImage)
	w.settle()
	w.expectImage(nextImage)
	if c := w.upgradeCondition(); c.Status != v1beta2.ConditionFalse || c.Reason != "" {
		t.Errorf("condition after another attempt %+v", c)
	}
}

// TestAnyUpgradeEndsOnOneImage: whatever dies while a volume is upgraded, while minds change and
// orders get lost, it ends on the image that is wanted, with all copies, and no acknowledged write
// is lost on the way.
func TestAnyUpgradeEndsOnOneImage(t *testing.T) {
	dir := t.TempDir()
	run, over := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		run++
		w := attached(t, fmt.Sprintf("%s/%d", dir, run), 4, rapid.IntRange(1, 3).Draw(t, "replicas"))
		w.rng = rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "order"), 1))
		w.outcomes = func() outcome { return outcome(w.rng.IntN(int(oldDies) + 1)) }
		nodes := []string{"n1", "n2", "n3", "n4"}
		for range rapid.IntRange(2, 12).Draw(t, "steps") {
			node := rapid.SampledFrom(nodes).Draw(t, "node")
			switch rapid.SampledFrom([]string{"next", "next", "back", "replica", "engine", "manager", "cut", "mend", "move",
				"detach", "wait", "rebuilt", "few rounds", "few rounds"}).Draw(t, "what") {
			case "next":
				w.wantImage(nextImage)
			case "back":
				w.wantImage(image)
			case "replica":
				w.killProcess(func(p *proc) bool { return isReplica(p) && p.node == node })
			case "engine":
				w.killProcess(isEngine)
			case "manager":
				if !w.down[node] {
					w.killManager(node)
					w.settle()
					w.setManager(node, v1beta2.InstanceManagerStateRunning)
				}
			case "cut":
				if !w.down[node] {
					w.cut(node)
				}
			case "mend":
				if w.down[node] {
					w.mend(node)
				}
			case "move":
				w.ticket("ui", node, v1beta2.AttacherTypeLonghornAPI)
			case "detach":
				w.ticket("ui", "", "")
			case "wait":
				w.advance(time.Duration(rapid.IntRange(1, 8).Draw(t, "minutes"))*time.Minute, time.Minute)
			case "rebuilt":
				w.rebuilt()
			case "few rounds":
				w.rounds(rapid.IntRange(1, 12).Draw(t, "rounds"))
			}
			if rapid.Bool().Draw(t, "settle") {
				w.settle()
			}
		}
		w.outcomes = nil
		w.endFaults(nodes)
		w.ticket("ui", "n1", v1beta2.AttacherTypeLonghornAPI)
		w.heal(3 * time.Hour)
		w.advance(time.Minute, 10*time.Second)
		w.heal(time.Hour)
		w.expectImage(w.volume("v").Spec.Image)
		if got, want := w.copies(), w.volume("v").Spec.NumberOfReplicas; got < want {
			t.Fatalf("%d of %d copies hold the newest data\n%s", got, want, w.dump())
		}
		over += w.handedOver
	})
	if over == 0 {
		t.Error("no volume was ever handed over")
	}
}

// rounds runs every reconciler so many times, so that the next fault comes in the middle.
func (w *world) rounds(n int) {
	w.t.Helper()
	for range n {
		w.round(false)
	}
}
