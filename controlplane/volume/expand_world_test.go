package volume_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/engineclient"
)

// agreeOnSize is what an engine does about sizes when it starts: it ends if all replicas have less
// than the volume is known to have had, and finishes an expansion that some of them have.
func (m *engineModel) agreeOnSize(members []string) bool {
	known, err := strconv.ParseInt(arg(m.proc.args, "--current-size"), 10, 64)
	must(m.w.t, err)
	for _, dir := range members {
		m.size = max(m.size, m.w.disks[dir].size)
	}
	if m.size < known {
		m.w.t.Fatalf("engine %s is told that the volume has %d bytes, its replicas have %d\n%s", m.proc.uuid, known, m.size,
			m.w.dump())
	}
	for _, dir := range members {
		m.w.disks[dir].size = m.size
	}
	return true
}

// Expand implements engineclient.Client.
func (w *world) Expand(_ context.Context, t engineclient.Target, sizeBytes int64) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	m, err := w.at(t)
	switch {
	case err != nil:
		return err
	case m.replaced():
		return fmt.Errorf("%w: replaced", engineclient.ErrUnavailable)
	case sizeBytes < m.size:
		w.t.Fatalf("engine %s of %d bytes is to shrink to %d\n%s", m.proc.uuid, m.size, sizeBytes, w.dump())
	case slices.ContainsFunc(m.replicas, func(r engineclient.Replica) bool { return r.Mode == engineclient.ModeWO }):
		return fmt.Errorf("%w: a replica is rebuilt", engineclient.ErrPrecondition)
	}
	for _, dir := range m.record.members {
		if m.memberAt(dir) == nil {
			return fmt.Errorf("%w: a member is lost", engineclient.ErrPrecondition)
		}
	}
	m.size = sizeBytes
	for _, dir := range m.record.members {
		w.disks[dir].size = sizeBytes
	}
	m.publish()
	return nil
}

// resize changes the wanted size, where admission would let a user do that.
func (w *world) resize(size int64) {
	v := w.volume("v")
	if st := v.Status.State; (st == v1beta2.VolumeStateAttached || st == v1beta2.VolumeStateDetached) &&
		v.Status.Robustness != v1beta2.VolumeRobustnessFaulted {
		v.Spec.Size = size
		must(w.t, w.c.Update(context.Background(), v))
	}
}

// cancelExpansion takes the wish for a larger size back, by what the objects say.
func (w *world) cancelExpansion() {
	if v, e := w.volume("v"), w.engine(); v.Status.ExpansionRequired && e.SizeBytes() < v.Spec.Size {
		v.Spec.Size = e.SizeBytes()
		must(w.t, w.c.Update(context.Background(), v))
	}
}

// expectSize checks that objects and directories of the volume have a size.
func (w *world) expectSize(want int64) {
	w.t.Helper()
	v, e := w.volume("v"), w.engine()
	if v.Spec.Size != want || v.Status.ExpansionRequired || e.Spec.VolumeSize != want || e.Status.CurrentSize != want {
		w.t.Fatalf("volume %d (expansion required: %v), engine %d and %d bytes, want %d\n%s", v.Spec.Size,
			v.Status.ExpansionRequired, e.Spec.VolumeSize, e.Status.CurrentSize, want, w.dump())
	}
	for _, r := range w.replicas() {
		c := w.disks[r.Spec.DataDirectoryName]
		if r.Spec.VolumeSize != want || r.Spec.HealthyAt != "" && r.Spec.FailedAt == "" && c.size != want {
			w.t.Fatalf("replica %s: %d bytes, directory %+v, want %d\n%s", r.Name, r.Spec.VolumeSize, c, want, w.dump())
		}
	}
}

// told counts the events with a reason since the last call.
func (w *world) told(reason string) (n int) {
	for {
		select {
		case e := <-w.events.Events:
			if strings.Contains(e, " "+reason+" ") {
				n++
			}
		default:
			return n
		}
	}
}

// TestExpansion: a volume gets the size that is wanted of it, in use, at rest, never used before,
// with a replica on its way.
func TestExpansion(t *testing.T) {
	t.Parallel()
	const larger = worldSize + worldSize/2
	expanded := func(t *testing.T, w *world, times int) {
		t.Helper()
		w.settle()
		w.expectSize(larger)
		if n := w.told("SucceededExpansion"); n != times {
			t.Errorf("told %d times", n)
		}
	}
	t.Run("in use", func(t *testing.T) {
		t.Parallel()
		w := attached(t, t.TempDir(), 3, 3)
		w.resize(larger)
		expanded(t, w, 1)
		w.expect(`attached healthy at "n1"`)
	})
	t.Run("at rest", func(t *testing.T) {
		t.Parallel()
		w := attached(t, t.TempDir(), 3, 3)
		w.ticket("ui", "", "")
		w.settle()
		w.resize(larger)
		expanded(t, w, 1)
		w.expect(`detached unknown at ""`)
	})
	t.Run("never used before", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, t.TempDir(), 3)
		w.newVolume(2, nil)
		w.settle()
		w.resize(larger)
		expanded(t, w, 0) // its directories are made with the larger size
		w.expect(`detached unknown at ""`)
	})
	t.Run("while a replica is rebuilt", func(t *testing.T) {
		t.Parallel()
		w := attached(t, t.TempDir(), 3, 3)
		w.killProcess(func(p *proc) bool { return isReplica(p) && p.node == "n3" })
		w.settle()
		w.resize(larger)
		w.settle()
		if e := w.engine(); e.Status.CurrentSize != worldSize || w.modes()[v1beta2.ReplicaModeWO] != 1 {
			t.Fatalf("the engine was expanded while it rebuilds\n%s", w.dump())
		}
		w.rebuilt()
		expanded(t, w, 1)
	})
	t.Run("a workload comes meanwhile", func(t *testing.T) {
		t.Parallel()
		w := attached(t, t.TempDir(), 3, 3)
		w.ticket("ui", "", "")
		w.settle()
		w.resize(larger)
		w.ticket("ui", "n2", v1beta2.AttacherTypeLonghornAPI)
		expanded(t, w, 1)
		w.expect(`attached healthy at "n2"`)
	})
}

// TestExpansionWaitsForRoom: nothing grows while a disk lacks the room, and the volume tells which
// one; what was taken back leaves no trace.
func TestExpansionWaitsForRoom(t *testing.T) {
	t.Parallel()
	w := attached(t, t.TempDir(), 3, 3)
	const larger = 1000 * worldSize
	w.resize(larger)
	w.settle()
	v := w.volume("v")
	c := v1beta2.FindCondition(v.Status.Conditions, v1beta2.VolumeConditionWaitForExpansion)
	if !v.Status.ExpansionRequired || c.Status != v1beta2.ConditionTrue || !strings.Contains(c.Message, "has no room") ||
		w.told("FailedExpansion") != 1 {
		t.Fatalf("%+v\n%s", v.Status, w.dump())
	}
	if r := w.replicas()[0]; r.Spec.VolumeSize != worldSize || w.engine().Spec.VolumeSize != worldSize {
		t.Fatalf("%+v", r.Spec)
	}
	w.advance(time.Minute, time.Minute)
	if n := w.told("FailedExpansion"); n != 0 {
		t.Errorf("told %d times more", n)
	}
	w.cancelExpansion()
	w.settle()
	w.expectSize(worldSize)
	if c := v1beta2.FindCondition(w.volume("v").Status.Conditions, v1beta2.VolumeConditionWaitForExpansion); c.Status ==
		v1beta2.ConditionTrue {
		t.Errorf("%+v", c)
	}
}

// TestCancelledTooLate: a size below what the volume has become is raised to that.
func TestCancelledTooLate(t *testing.T) {
	t.Parallel()
	w := attached(t, t.TempDir(), 3, 2)
	w.resize(2 * worldSize)
	w.settle()
	w.expectSize(2 * worldSize)
	w.resize(worldSize)
	w.settle()
	w.expectSize(2 * worldSize)
	if n := w.told("CanceledExpansion"); n != 1 {
		t.Errorf("told %d times", n)
	}
}
