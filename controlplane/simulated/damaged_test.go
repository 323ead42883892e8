package simulated_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/volume"
	"ankole.storage/controlplane/volume/dataloss"
)

const spoilt = "exit status 65: open replica directory /r: corrupt replica directory: volume-snap-a.img.meta is " +
	"not valid JSON: EOF"

// TestDamagedCopyOfThreeIsReplacedAtOnce: the volume goes on with the others, which are not kept
// waiting, and has a new copy soon.
func TestDamagedCopyOfThreeIsReplacedAtOnce(t *testing.T) {
	scene(t, 3, func(t *testing.T, w *world) {
		w.makeVolume(3, nil)
		w.settle()
		w.tickets("ui", "n1", v1beta2.AttacherTypeLonghornAPI)
		w.settle()
		w.expect(`attached healthy at "n1"`)
		w.tickets("ui", "", "")
		w.settle()
		for _, d := range w.copies {
			if d.node == "n2" {
				d.damaged = spoilt
			}
		}
		w.tickets("ui", "n1", v1beta2.AttacherTypeLonghornAPI)
		w.run(20 * time.Second)
		w.heals(20 * time.Second)
		w.expect(`attached healthy at "n1"`)
	})
}

// TestOnlyCopyDamaged: the reason that the process gives is on the Volume and in an event, and
// nothing is tried before somebody has looked: not with time, nor by another leader, nor when
// machines come back. A person's order is followed at once, whether the copy is mended or not.
func TestOnlyCopyDamaged(t *testing.T) {
	scene(t, 1, func(t *testing.T, w *world) {
		w.makeVolume(1, nil)
		w.settle()
		w.use("n1")
		w.unused()
		w.damage(spoilt)
		tries := func(what string, do func()) {
			t.Helper()
			before := w.starts
			do()
			w.run(10 * time.Minute)
			if n := w.starts - before; n != 1 && what != "" || n != 0 && what == "" {
				w.failf("%q: %d processes were started", what, n)
			}
		}
		tries("attached", func() { w.use("n1") })
		c := w.condition(volume.ConditionStart)
		if c.Status != v1beta2.ConditionFalse || !strings.Contains(c.Message, "volume-snap-a.img.meta is not valid JSON") {
			t.Errorf("condition %+v\n%s", c, w.dump())
		}
		if w.eventsOf("Faulted", "is not valid JSON") == 0 {
			t.Error("no event tells the reason")
		}
		tries("", func() { w.quiet(time.Hour) })
		tries("", w.newLeader)
		tries("", func() { w.cut("n1"); w.settle(); w.mend("n1") })
		tries("an order, not mended", w.salvage)
		w.damage("")
		tries("", func() {})
		w.salvage()
		w.run(15 * time.Second)
		w.expect(`attached healthy at "n1"`)
		if c = w.condition(volume.ConditionStart); c.Status != v1beta2.ConditionTrue {
			t.Errorf("condition %+v of a volume that serves", c)
		}
	})
}

// TestOrderBeforeTheNextTry: a person who says that a volume is to be tried again is not kept
// waiting for the next try of the system's own.
func TestOrderBeforeTheNextTry(t *testing.T) {
	scene(t, 1, func(_ *testing.T, w *world) {
		w.usedOnce(1, nil)
		w.unused()
		w.endGranted = 1000 // engines end as soon as they start
		w.use("n1")
		w.run(15 * time.Minute)
		for w.volume("v").Status.Robustness != v1beta2.VolumeRobustnessFaulted {
			w.run(time.Second)
		}
		w.run(2 * time.Second)
		w.endGranted = 0
		w.salvage()
		w.run(15 * time.Second)
		w.expect(`attached healthy at "n1"`)
	})
}

// damage has every copy be found damaged, or not any more.
func (w *world) damage(how string) {
	for _, d := range w.copies {
		d.damaged = how
	}
}

// salvage is a person's order to try a faulted volume again, as REST carries it out.
func (w *world) salvage() {
	w.note("user: salvage")
	for _, r := range w.replicas() {
		edit(w, r.Name, func(r *v1beta2.Replica) { r.Spec.FailedAt = "" })
	}
}

// accept writes a decision on the volume, for the record that its engine has.
func (w *world) accept(member string, generationsOff int64) {
	v, m := w.volume("v"), w.engine().Status.Membership
	v.Annotations = map[string]string{dataloss.Annotation: dataloss.Decision{Members: []string{member},
		RecordEpoch: m.RecordEpoch, Generation: m.Generation + generationsOff}.Text()}
	must(w, w.store.update(v, false))
}

// TestAcceptedDataLoss: a volume whose only current copy is gone starts from the old one after a
// person has said so for its record, once; a decision for another record starts nothing.
func TestAcceptedDataLoss(t *testing.T) {
	scene(t, 2, func(t *testing.T, w *world) {
		w.makeVolume(2, nil)
		w.settle()
		w.tickets("ui", "n1", v1beta2.AttacherTypeLonghornAPI)
		w.settle()
		staleCopyAlone(w)
		if n := len(w.servings()); n != 0 {
			w.failf("%d engines run on the stale copy", n)
		}
		c := w.condition(volume.ConditionStart)
		if c.Status != v1beta2.ConditionFalse || !strings.Contains(c.Message, "needs more of its members") {
			t.Errorf("the engine's reason is not told: %+v\n%s", c, w.dump())
		}
		stale := ""
		for dir, c := range w.copies {
			if c.node == "n2" {
				stale = dir
			}
		}
		decided := func() bool { _, there := w.volume("v").Annotations[dataloss.Annotation]; return there }
		w.accept(stale, 1)
		w.run(3 * time.Minute)
		if len(w.servings()) != 0 || decided() || w.told("DataLossDecisionOver") != 1 {
			w.failf("a decision for another record: %d engines, %v", len(w.servings()), w.volume("v").Annotations)
		}
		w.accept(stale, 0)
		w.run(3 * time.Minute)
		w.expect(`attached degraded at "n2"`)
		if m := w.engine().Status.Membership; !slices.Equal(m.Members, []string{stale}) || decided() ||
			w.told("DataLossDecisionOver") != 1 {
			t.Fatalf("record %+v, annotations %v", m, w.volume("v").Annotations)
		}
		// The copy that was given up comes back: it is rebuilt from what the volume is now.
		w.mend("n1")
		w.heals(10 * time.Minute)
		w.expect(`attached healthy at "n2"`)
		w.killFirst(isEngine)
		w.settle()
		if p := w.processOf("v-e-0"); p == nil || slices.Contains(p.args, "--accept-data-loss") {
			w.failf("the decision is used again")
		}
	})
}

// staleCopyAlone: a volume of two loses one replica, goes on, and is detached. Then only the node
// of the lost one is up.
func staleCopyAlone(w *world) {
	w.cut("n2")
	w.settle()
	w.tickets("ui", "", "")
	w.settle()
	w.mend("n2")
	w.cut("n1")
	w.tickets("ui", "n2", v1beta2.AttacherTypeLonghornAPI)
	w.settle()
	w.run(3 * time.Minute)
}

// TestWorldNoticesAStartWithStaleCopies shows that the checks of the world are able to fail: an
// engine that takes whatever copies it hears starts without the latest content. (P2: a replica that
// missed an acknowledged write serves nobody.)
func TestWorldNoticesAStartWithStaleCopies(t *testing.T) {
	for bug, want := range map[bug]string{noBug: "", startsWithAnyCopy: "P2: engine v-e-0"} {
		scene(t, 2, func(t *testing.T, w *world) {
			w.bug = bug
			w.makeVolume(2, nil)
			w.settle()
			w.tickets("ui", "n1", v1beta2.AttacherTypeLonghornAPI)
			w.settle()
			said := w.judged(func() { staleCopyAlone(w) })
			if (said == "") != (want == "") || !strings.HasPrefix(said, want) || bug == noBug && len(w.servings()) > 0 {
				w.failf("bug %d: the checks say %q, want %q", bug, said, want)
			}
		})
	}
}

// judged returns what the checks say of a history, "" if nothing was wrong.
func (w *world) judged(history func()) (said string) {
	w.verdicts = true
	defer func() {
		w.verdicts, w.reading = false, false
		if v := recover(); v != nil {
			said = string(v.(verdict))
		}
	}()
	history()
	return ""
}
