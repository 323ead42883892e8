package volume_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/dataloss"
	"ankole.storage/controlplane/volume"
)

// trusted is what an engine that cannot start otherwise goes on with: the copies that a person has
// named, if they answer. What only others have was acknowledged to nobody from then on.
func (w *world) trusted(p *proc, heard map[string]string) (fresh []string, ok bool) {
	dir := arg(p.args, "--accept-data-loss")
	if dir == "" || heard[dir] == "" || w.disks[dir].has.Sign() == 0 {
		return nil, false
	}
	w.acknowledged.Set(&w.disks[dir].has)
	return []string{dir}, true
}

// accept writes a decision on the volume, for the record that its engine has.
func (w *world) accept(member string, generationsOff int64) {
	v, m := w.volume("v"), w.engine().Status.Membership
	v.Annotations = map[string]string{dataloss.Annotation: dataloss.Decision{Members: []string{member},
		RecordEpoch: m.RecordEpoch, Generation: m.Generation + generationsOff}.Text()}
	must(w.t, w.c.Update(context.Background(), v))
}

// TestAcceptedDataLoss: a volume whose only current copy is gone starts from the old one after a
// person has said so for its record, once; a decision for another record starts nothing.
func TestAcceptedDataLoss(t *testing.T) {
	t.Parallel()
	w := newWorld(t, t.TempDir(), 2)
	w.newVolume(2, nil)
	w.settle()
	w.ticket("ui", "n1", v1beta2.AttacherTypeLonghornAPI)
	w.settle()
	staleCopyAlone(w)
	if n := len(w.engines); n != 0 {
		t.Fatalf("%d engines run on the stale copy\n%s", n, w.dump())
	}
	c := v1beta2.FindCondition(w.volume("v").Status.Conditions, volume.ConditionStart)
	if c.Status != v1beta2.ConditionFalse || !strings.Contains(c.Message, "needs more of its members") {
		t.Errorf("the engine's reason is not told: %+v\n%s", c, w.dump())
	}
	stale := ""
	for dir, c := range w.disks {
		if c.node == "n2" {
			stale = dir
		}
	}
	decided := func() bool { _, there := w.volume("v").Annotations[dataloss.Annotation]; return there }
	w.accept(stale, 1)
	w.advance(openMost, stepOfTime)
	if len(w.engines) != 0 || decided() || w.told("DataLossDecisionOver") != 1 {
		t.Fatalf("a decision for another record: %d engines, %v\n%s", len(w.engines), w.volume("v").Annotations, w.dump())
	}
	w.accept(stale, 0)
	w.advance(openMost, stepOfTime)
	w.expect(`attached degraded at "n2"`)
	if m := w.engine().Status.Membership; !slices.Equal(m.Members, []string{stale}) || decided() ||
		w.told("DataLossDecisionOver") != 1 {
		t.Fatalf("record %+v, annotations %v", m, w.volume("v").Annotations)
	}
	// The copy that was given up comes back: it is rebuilt from what the volume is now.
	w.mend("n1")
	w.heal(openMost)
	w.expect(`attached healthy at "n2"`)
	w.killProcess(isEngine)
	w.settle()
	if p := w.procs["im-n2/v-e-0"]; p == nil || slices.Contains(p.args, "--accept-data-loss") {
		t.Fatalf("the decision is used again\n%s", w.dump())
	}
}
