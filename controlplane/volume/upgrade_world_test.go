package volume_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/naming"
	"ankole.storage/controlplane/volume"
	"ankole.storage/test/seeded"
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
			if row.givenUp {
				w.expectImage(image)
				if c := w.upgradeCondition(); c.Reason != volume.ReasonUpgradeRolledBack {
					t.Errorf("condition %+v", c)
				}
				w.now = w.now.Add(time.Second) // the annotation has whole seconds
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
	t.Parallel()
	src := seeded.New(t, "an upgrade ends on the image that is wanted, and no acknowledged write is lost")
	over := 0
	for range src.Seeds(12) {
		over += upgradeAmongFaults(t, src.Rand(0))
	}
	if over == 0 {
		t.Error("no volume was ever handed over")
	}
}

// upgradeAmongFaults draws one history and returns how often the volume was handed over.
func upgradeAmongFaults(t *testing.T, rng *rand.Rand) int {
	w := attached(t, t.TempDir(), 4, 1+rng.IntN(3))
	w.rng = rng
	w.outcomes = func() outcome { return outcome(rng.IntN(int(oldDies) + 1)) }
	nodes := []string{"n1", "n2", "n3", "n4"}
	for range 2 + rng.IntN(10) {
		w.upgradeFault(nodes[rng.IntN(len(nodes))])
		if rng.IntN(2) == 0 {
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
	return w.handedOver
}

// upgradeFault does one thing to the world, if it can be done, on that node.
func (w *world) upgradeFault(node string) {
	switch w.rng.IntN(14) {
	case 0, 1:
		w.wantImage(nextImage)
	case 2:
		w.wantImage(image)
	case 3:
		w.killProcess(func(p *proc) bool { return isReplica(p) && p.node == node })
	case 4:
		w.killProcess(isEngine)
	case 5:
		if !w.down[node] {
			w.killManager(node)
			w.settle()
			w.setManager(node, v1beta2.InstanceManagerStateRunning)
		}
	case 6:
		if !w.down[node] {
			w.cut(node)
		}
	case 7:
		if w.down[node] {
			w.mend(node)
		}
	case 8:
		w.ticket("ui", node, v1beta2.AttacherTypeLonghornAPI)
	case 9:
		w.ticket("ui", "", "")
	case 10:
		w.advance(time.Duration(1+w.rng.IntN(8))*time.Minute, time.Minute)
	case 11:
		w.rebuilt()
	default:
		w.rounds(1 + w.rng.IntN(12))
	}
}

// rounds runs every reconciler so many times, so that the next fault comes in the middle.
func (w *world) rounds(n int) {
	w.t.Helper()
	for range n {
		w.round(false)
	}
}

// set gives a setting a value.
func (w *world) set(name, value string) {
	s := &v1beta2.Setting{}
	key := client.ObjectKey{Namespace: ns, Name: name}
	if err := w.c.Get(context.Background(), key, s); err != nil {
		w.create(&v1beta2.Setting{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Value: value})
		return
	}
	s.Value = value
	must(w.t, w.c.Update(context.Background(), s))
}

// TestAutomaticUpgrade has the cases of the proposal's test plan, for one volume, and what follows
// from an upgrade that was given up.
func TestAutomaticUpgrade(t *testing.T) {
	t.Parallel()
	const limit = "concurrent-automatic-engine-upgrade-per-node-limit"
	begin := func(t *testing.T, edit func(w *world)) *world {
		w := attached(t, t.TempDir(), 4, 3)
		edit(w)
		w.settle()
		w.set("default-engine-image", nextImage)
		w.set(limit, "3")
		w.settle()
		return w
	}
	unchanged := func(t *testing.T, w *world) {
		t.Helper()
		w.advance(2*time.Minute, 10*time.Second)
		if v := w.volume("v"); v.Spec.Image != image || v.Status.CurrentImage != image || w.handedOver != 0 {
			t.Fatalf("image %s, %s\n%s", v.Spec.Image, v.Status.CurrentImage, w.dump())
		}
	}
	t.Run("E1 attached and healthy", func(t *testing.T) {
		t.Parallel()
		w := begin(t, func(*world) {})
		w.expect(`attached healthy at "n1"`)
		w.expectImage(nextImage)
	})
	t.Run("E1 detached", func(t *testing.T) {
		t.Parallel()
		w := begin(t, func(w *world) { w.ticket("ui", "", "") })
		w.expectImage(nextImage)
	})
	t.Run("E2 limit 0", func(t *testing.T) {
		t.Parallel()
		w := attached(t, t.TempDir(), 4, 3)
		w.set("default-engine-image", nextImage)
		w.set(limit, "0")
		w.settle()
		unchanged(t, w)
		w.wantImage(nextImage)
		w.settle()
		w.expectImage(nextImage)
	})
	for _, state := range []string{"attached", "detached"} {
		t.Run("E7 image not ready, "+state, func(t *testing.T) {
			t.Parallel()
			w := begin(t, func(w *world) {
				w.readiness(nextImage, v1beta2.ConditionFalse)
				if state == "detached" {
					w.ticket("ui", "", "")
				}
			})
			unchanged(t, w)
			w.readiness(nextImage, v1beta2.ConditionTrue)
			w.settle()
			w.expectImage(nextImage)
		})
	}
	t.Run("E4 standby", func(t *testing.T) {
		t.Parallel()
		w := begin(t, func(w *world) {
			v := w.volume("v")
			v.Spec.Standby = true
			must(t, w.c.Update(context.Background(), v))
		})
		unchanged(t, w)
		w.set(limit, "0")
		w.wantImage(nextImage) // by hand
		w.settle()
		w.expectImage(nextImage)
	})
	t.Run("E5 expanding", func(t *testing.T) {
		t.Parallel()
		w := begin(t, func(w *world) {
			w.full("n2", true)
			w.resize(2 * worldSize) // waits for room
		})
		unchanged(t, w)
		w.full("n2", false)
		w.advance(time.Minute, 10*time.Second)
		w.settle()
		w.expectSize(2 * worldSize)
		w.expectImage(nextImage)
	})
	t.Run("E6 degraded", func(t *testing.T) {
		t.Parallel()
		more := func(w *world, n int) {
			v := w.volume("v")
			v.Spec.NumberOfReplicas = n
			must(t, w.c.Update(context.Background(), v))
		}
		w := begin(t, func(w *world) { more(w, 5) })
		w.expect(`attached degraded at "n1"`)
		unchanged(t, w)
		more(w, 3)
		w.heal(time.Hour)
		w.settle()
		w.expectImage(nextImage)
	})
	t.Run("E8 given up, and again after a pause", func(t *testing.T) {
		t.Parallel()
		w := begin(t, func(w *world) { w.outcomes = func() outcome { return refuses } })
		w.advance(10*time.Minute, 15*time.Second)
		w.expectImage(image)
		if c := w.upgradeCondition(); c.Reason != volume.ReasonUpgradeRolledBack || w.volume("v").Spec.Image != image {
			t.Fatalf("condition %+v\n%s", c, w.dump())
		}
		w.outcomes = nil
		w.settle()
		w.expectImage(image)
		w.advance(20*time.Minute, time.Minute)
		w.expectImage(nextImage)
	})
	t.Run("E11 incompatible", func(t *testing.T) {
		t.Parallel()
		w := begin(t, func(w *world) {
			var ei v1beta2.EngineImage
			must(t, w.c.Get(context.Background(), client.ObjectKey{Namespace: ns, Name: naming.EngineImageName(nextImage)}, &ei))
			ei.Status.ControllerAPIVersion, ei.Status.ControllerAPIMinVersion = 9, 9
			must(t, w.c.Status().Update(context.Background(), &ei))
		})
		unchanged(t, w)
		w.ticket("ui", "", "") // its workload is scaled down and up
		w.settle()
		w.ticket("ui", "n2", v1beta2.AttacherTypeLonghornAPI)
		w.settle()
		w.expect(`attached healthy at "n2"`)
		w.expectImage(nextImage)
	})
}

// readiness makes an engine image ready, or not.
func (w *world) readiness(image string, status v1beta2.ConditionStatus) {
	var ei v1beta2.EngineImage
	must(w.t, w.c.Get(context.Background(), client.ObjectKey{Namespace: ns, Name: naming.EngineImageName(image)}, &ei))
	ei.Status.Conditions, _ = v1beta2.SetCondition(ei.Status.Conditions, v1beta2.Condition{
		Type: v1beta2.EngineImageConditionReady, Status: status}, w.now)
	must(w.t, w.c.Status().Update(context.Background(), &ei))
}

// full takes the room on a node's disk away, or gives it back.
func (w *world) full(node string, full bool) {
	var n v1beta2.Node
	must(w.t, w.c.Get(context.Background(), client.ObjectKey{Namespace: ns, Name: node}, &n))
	d := n.Status.DiskStatus["d"]
	if d.StorageAvailable = 90 << 30; full {
		d.StorageAvailable = 0
	}
	n.Status.DiskStatus["d"] = d
	must(w.t, w.c.Status().Update(context.Background(), &n))
}
