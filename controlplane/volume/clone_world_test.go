package volume_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/clone"
	"ankole.storage/controlplane/engineclient"
	"ankole.storage/controlplane/naming"
)

// Clones in the world: volume v is filled from volume src. What an engine does for that is in
// docs/clone.md: it marks its replicas as holding a part, copies, and makes them whole in one step.

// volumeOf is the volume that a process is named after.
func volumeOf(process string) string {
	for _, mark := range []string{"-e-", "-r-"} {
		if i := strings.LastIndex(process, mark); i > 0 {
			return process[:i]
		}
	}
	return process
}

// findClone is what an engine knows of a clone when it starts. One that holds a part only must not
// be given to a user.
func (m *engineModel) findClone(fresh []string) {
	d := m.w.disks[fresh[0]]
	switch {
	case d.part != "":
		m.clone = engineclient.Clone{State: "error", Error: "interrupted", Snapshot: d.part, Interrupted: true}
	case d.whole != "":
		m.clone = engineclient.Clone{State: "complete", Percent: 100, Snapshot: d.whole}
	}
}

func (w *world) addSnapshot(volume string, s engineclient.Snapshot) {
	if w.snapshots[volume] == nil {
		w.snapshots[volume] = map[string]engineclient.Snapshot{}
	}
	if _, there := w.snapshots[volume][s.Name]; !there {
		w.chains[volume] = append(w.chains[volume], s.Name)
	}
	w.snapshots[volume][s.Name] = s
}

// SnapshotRemove implements engineclient.Client.
func (w *world) SnapshotRemove(_ context.Context, t engineclient.Target, name string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	m, err := w.at(t)
	if err != nil {
		return err
	}
	s, ok := w.snapshots[t.Volume][name]
	if !ok {
		return fmt.Errorf("%w: %s", engineclient.ErrNotFound, name)
	}
	if v := w.volume("v"); v != nil && clone.Holds(v, t.Volume, name) {
		w.t.Fatalf("snapshot %s of %s is removed while volume v is copied from it\n%s", name, t.Volume, w.dump())
	}
	s.Removed = true
	w.addSnapshot(t.Volume, s)
	if w.dies(m) {
		return fmt.Errorf("%w: killed", engineclient.ErrUnavailable)
	}
	m.publish()
	return nil
}

// SnapshotClone implements engineclient.Client.
func (w *world) SnapshotClone(_ context.Context, t, source engineclient.Target, snapshot string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	m, err := w.at(t)
	if err != nil {
		return err
	}
	if _, err := w.at(source); err != nil {
		return err
	}
	s, ok := w.snapshots[source.Volume][snapshot]
	switch {
	case !ok:
		return fmt.Errorf("%w: %s", engineclient.ErrNotFound, snapshot)
	case s.Removed:
		return fmt.Errorf("%w: %s is removed", engineclient.ErrPrecondition, snapshot)
	case m.replaced() || m.source() == "":
		return fmt.Errorf("%w: replaced, or without a replica", engineclient.ErrUnavailable)
	case slices.Contains(m.proc.args, "--frontend"):
		w.t.Fatalf("a volume with a frontend is to be filled\n%s", w.dump())
	}
	for _, dir := range m.record.members {
		d := w.disks[dir]
		if d.whole != "" || d.part != "" && d.part != snapshot {
			return fmt.Errorf("%w: it holds %s%s", engineclient.ErrPrecondition, d.whole, d.part)
		}
	}
	for _, dir := range m.record.members {
		w.disks[dir].part = snapshot
	}
	m.clone = engineclient.Clone{Running: true, State: "in_progress", Percent: 10, Snapshot: snapshot}
	m.publish()
	return nil
}

// copied ends every copy that is under way: well if a replica of the source can be read.
func (w *world) copied() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, address := range slices.Sorted(maps.Keys(w.engines)) {
		m := w.engines[address]
		if !m.clone.Running || m.replaced() {
			continue
		}
		if w.killable("src") == 0 {
			m.clone.Running, m.clone.State, m.clone.Error = false, "error", "no replica of volume src can be read"
			m.publish()
			continue
		}
		for _, dir := range m.record.members {
			w.disks[dir].part, w.disks[dir].whole = "", m.clone.Snapshot
		}
		m.clone.Running, m.clone.State, m.clone.Percent = false, "complete", 100
		m.publish()
	}
}

// killable counts the replica processes of a volume that run within reach.
func (w *world) killable(volume string) (n int) {
	for _, p := range w.procs {
		if isReplica(p) && volumeOf(p.name) == volume && p.state == v1beta2.InstanceStateRunning && !w.down[p.node] {
			n++
		}
	}
	return n
}

// checkClone holds that nobody is given a volume that is not whole, that it is called whole only if
// it is, and that it has one replica until then.
func (w *world) checkClone() {
	w.t.Helper()
	v := w.volume("v")
	if v == nil || v.Spec.DataSource == "" || v.DeletionTimestamp != nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, m := range w.engines {
		if volumeOf(m.proc.name) != "v" {
			continue
		}
		for _, dir := range m.record.members {
			whole := w.disks[dir].whole != "" && w.disks[dir].whole == v.Status.CloneStatus.Snapshot
			if slices.Contains(m.proc.args, "--frontend") && !whole {
				w.t.Fatalf("a user was given %s, which is not whole\n%s", dir, w.dump())
			}
			if !clone.Copying(v) && !whole {
				w.t.Fatalf("the clone is %s, but %s is not whole\n%s", v.Status.CloneStatus.State, dir, w.dump())
			}
		}
	}
	replicas := slices.DeleteFunc(w.replicas(), func(r v1beta2.Replica) bool { return r.Spec.VolumeName != "v" })
	if clone.Copying(v) && len(replicas) > 1 {
		w.t.Fatalf("%d replicas before there is anything in the first one\n%s", len(replicas), w.dump())
	}
}

// newClone brings a world with volume src, which has snapshot s, and volume v, to be filled from
// it.
func newClone(t fataler, dir, source string, nodes int) *world {
	w := newWorld(t, dir, nodes)
	w.create(&v1beta2.Volume{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "src"}, Spec: v1beta2.VolumeSpec{
		Size: worldSize, NumberOfReplicas: 1, Frontend: v1beta2.VolumeFrontendBlockDev, Image: image}})
	w.addSnapshot("src", engineclient.Snapshot{Name: "s", UserCreated: true})
	w.settle()
	w.newVolume(2, func(s *v1beta2.VolumeSpec) {
		s.DataSource, s.CloneMode = source, v1beta2.CloneModeFullCopy
	})
	return w
}

// cloneIs waits for a state of the clone, letting copies end and time pass.
func (w *world) cloneIs(want v1beta2.VolumeCloneState, limit time.Duration) {
	w.t.Helper()
	for end := w.now.Add(limit); w.now.Before(end); w.now = w.now.Add(10 * time.Second) {
		w.settle()
		if w.volume("v").Status.CloneStatus.State == want {
			return
		}
		w.copied()
		w.rebuilt()
		w.settle()
		st := w.volume("v").Status.CloneStatus
		if st.State == want {
			return
		}
		if at, err := time.Parse(time.RFC3339, st.NextAllowedAttemptAt); err == nil && at.After(w.now) {
			w.now = at
		}
	}
	w.t.Fatalf("the clone is not %s: %+v\n%s", want, w.volume("v").Status.CloneStatus, w.dump())
}

// TestClone: a volume is filled from a snapshot, and from a volume, that rests or is used, without
// anybody's doing; at the end both rest as before, and the snapshot that was taken is marked.
func TestClone(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, source, used string
	}{
		{"of a snapshot of a volume at rest", naming.CloneFromSnapshot("src", "s"), ""},
		{"of a volume at rest", naming.CloneFromVolume("src"), ""},
		{"of a snapshot of a volume in use", naming.CloneFromSnapshot("src", "s"), "n3"},
		{"of a volume in use", naming.CloneFromVolume("src"), "n3"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			w := newClone(t, t.TempDir(), row.source, 3)
			if row.used != "" {
				w.settle()
				w.ticketOf("src", "ui", row.used, v1beta2.AttacherTypeLonghornAPI)
			}
			w.cloneIs(v1beta2.VolumeCloneStateInitiated, time.Minute)
			st := w.volume("v").Status.CloneStatus
			snapshot := "s"
			if row.source == naming.CloneFromVolume("src") {
				snapshot = clone.SnapshotName(string(w.volume("src").UID), string(w.volume("v").UID))
			}
			if st.SourceVolume != "src" || st.Snapshot != snapshot {
				t.Errorf("%+v, want snapshot %s", st, snapshot)
			}
			w.settle()
			w.expect(`attached degraded at "` + w.volume("v").Status.CurrentNodeID + `"`)
			if n := w.told("VolumeCloneInitiated"); n != 1 {
				t.Errorf("told %d times that it begins", n)
			}
			w.cloneIs(v1beta2.VolumeCloneStateCopyCompletedUnhealthy, time.Minute)
			w.cloneIs(v1beta2.VolumeCloneStateCompleted, time.Minute)
			w.settle()
			w.expect(`detached unknown at ""`)
			if s := w.volume("src"); s.Status.CurrentNodeID != row.used {
				t.Errorf("the source is at %q\n%s", s.Status.CurrentNodeID, w.dump())
			}
			if n := w.told("VolumeCloneCompleted"); n != 1 {
				t.Errorf("told %d times that it is complete", n)
			}
			taken, kept := w.snapshots["src"][snapshot], w.snapshots["src"]["s"]
			if kept.Removed || snapshot != "s" && (taken.Labels[naming.LabelForCloningVolume] != "v" || !taken.UserCreated) {
				t.Errorf("snapshot %+v, %+v", kept, taken)
			}
			if row.used != "" && snapshot != "s" && !taken.Removed {
				t.Errorf("the snapshot taken for the clone is left: %+v", taken)
			}
			w.ticket("ui", "n2", v1beta2.AttacherTypeLonghornAPI)
			w.settle()
			w.expect(`attached healthy at "n2"`)
		})
	}
}

// TestSnapshotOfACloneIsDeleted: it stays until the copy is over, and goes then.
func TestSnapshotOfACloneIsDeleted(t *testing.T) {
	t.Parallel()
	w := newClone(t, t.TempDir(), naming.CloneFromSnapshot("src", "s"), 3)
	w.addSnapshot("src", engineclient.Snapshot{Name: "newer", UserCreated: true})
	w.cloneIs(v1beta2.VolumeCloneStateInitiated, time.Minute)
	w.settle()
	w.deleteSnapshot("s")
	w.settle()
	s := w.snapshotObject("s")
	if s == nil || s.Status.Error != "volume v is being filled with it" || w.snapshots["src"]["s"].Removed {
		t.Fatalf("%+v, %+v\n%s", s, w.snapshots["src"], w.dump())
	}
	w.cloneIs(v1beta2.VolumeCloneStateCompleted, time.Minute)
	for range 3 {
		w.purgeOn()
		w.settle()
	}
	if s := w.snapshotObject("s"); s != nil {
		t.Errorf("%+v\n%s", s.Status, w.dump())
	}
}

// TestCloneIsUsedEarly: a user who comes before the content is whole waits; one who comes while the
// other replicas are made does not.
func TestCloneIsUsedEarly(t *testing.T) {
	t.Parallel()
	w := newClone(t, t.TempDir(), naming.CloneFromSnapshot("src", "s"), 3)
	w.settle()
	w.cloneIs(v1beta2.VolumeCloneStateInitiated, time.Minute)
	at := w.volume("v").Spec.NodeID
	user := "n1"
	if at == user {
		user = "n2"
	}
	w.ticket("ui", user, v1beta2.AttacherTypeLonghornAPI)
	w.settle()
	w.expect(fmt.Sprintf("attached degraded at %q", at))
	w.killProcess(func(p *proc) bool { return p.name == "v-e-0" })
	w.settle()
	w.expect(fmt.Sprintf("attached degraded at %q", at))
	w.copied()
	w.settle()
	w.expect(fmt.Sprintf("attached degraded at %q", user))
	if st := w.volume("v").Status.CloneStatus; st.State != v1beta2.VolumeCloneStateCopyCompletedUnhealthy {
		t.Fatalf("%+v\n%s", st, w.dump())
	}
	w.cloneIs(v1beta2.VolumeCloneStateCompleted, time.Minute)
	w.expect(fmt.Sprintf("attached healthy at %q", user))
}

// TestCloneIsTriedAgain: an attempt that fails is followed by the next after a pause that doubles,
// ten in all, and then by none.
func TestCloneIsTriedAgain(t *testing.T) {
	t.Parallel()
	w := newClone(t, t.TempDir(), naming.CloneFromSnapshot("src", "none"), 3)
	told := 0
	for _, attempt := range []int{1, 2, clone.MostAttempts - 1} {
		w.cloneIs(v1beta2.VolumeCloneStateFailed, time.Minute)
		w.settle()
		v := w.volume("v")
		at, err := time.Parse(time.RFC3339, v.Status.CloneStatus.NextAllowedAttemptAt)
		if pause := at.Sub(w.now); err != nil || v.Status.CloneStatus.AttemptCount != attempt ||
			pause > clone.Pause(attempt) || pause < clone.Pause(attempt)-time.Minute {
			t.Fatalf("attempt %d: %+v, in %v %v\n%s", attempt, v.Status.CloneStatus, pause, err, w.dump())
		}
		w.expect(`detached unknown at ""`)
		w.now = at.Add(-time.Second)
		w.settle()
		w.expect(`detached unknown at ""`)
		if attempt == 2 { // the ones between are like these
			v = w.volume("v")
			v.Status.CloneStatus.AttemptCount = clone.MostAttempts - 2
			must(t, w.c.Status().Update(context.Background(), v))
		}
		w.now = at
		told++
		w.settle()
	}
	w.cloneIs(v1beta2.VolumeCloneStateFailed, time.Minute)
	w.advance(48*time.Hour, 24*time.Hour)
	st := w.volume("v").Status.CloneStatus
	if st.AttemptCount != clone.MostAttempts || st.NextAllowedAttemptAt != "" || w.told("VolumeCloneFailed") !=
		told+1 {
		t.Errorf("%+v", st)
	}
	if s := w.volume("src"); s.Spec.NodeID != "" {
		t.Errorf("the source stays attached\n%s", w.dump())
	}
	must(t, w.c.Delete(context.Background(), w.volume("v")))
	w.settle()
	w.expect("gone")
}

// TestCloneSourceIsDeleted: midway, and before anything was read.
func TestCloneSourceIsDeleted(t *testing.T) {
	t.Parallel()
	for _, early := range []bool{true, false} {
		w := newClone(t, t.TempDir(), naming.CloneFromVolume("src"), 3)
		if !early {
			w.cloneIs(v1beta2.VolumeCloneStateInitiated, time.Minute)
			w.settle()
		}
		must(t, w.c.Delete(context.Background(), w.volume("src")))
		w.settle()
		w.copied()
		w.settle()
		if w.volume("src") != nil {
			t.Errorf("the source is kept\n%s", w.dump())
		}
		if st := w.volume("v").Status.CloneStatus; st.State != v1beta2.VolumeCloneStateFailed || st.AttemptCount != 1 {
			t.Errorf("%+v\n%s", st, w.dump())
		}
		w.expect(`detached unknown at ""`)
	}
}

// TestCloneIsDeleted: midway. The source rests again, and the snapshot that was taken is marked as
// soon as the source has an engine.
func TestCloneIsDeleted(t *testing.T) {
	t.Parallel()
	w := newClone(t, t.TempDir(), naming.CloneFromVolume("src"), 3)
	w.cloneIs(v1beta2.VolumeCloneStateInitiated, time.Minute)
	w.settle()
	must(t, w.c.Delete(context.Background(), w.volume("v")))
	w.settle()
	w.expect("gone")
	if s := w.volume("src"); s.Status.State != v1beta2.VolumeStateDetached {
		t.Fatalf("the source is %s\n%s", s.Status.State, w.dump())
	}
	w.ticketOf("src", "ui", "n1", v1beta2.AttacherTypeLonghornAPI)
	w.settle()
	for name, s := range w.snapshots["src"] {
		if s.Removed != (name != "s") {
			t.Errorf("snapshot %+v", s)
		}
	}
}

// TestAnyFaultsOfAClone draws faults of both volumes, moves of the source and pauses. Whatever
// happens, checkClone holds, and once the faults are over the clone is completed.
func TestAnyFaultsOfAClone(t *testing.T) {
	dir := t.TempDir()
	run := 0
	rapid.Check(t, func(t *rapid.T) {
		run++
		source := rapid.SampledFrom([]string{naming.CloneFromVolume("src"), naming.CloneFromSnapshot("src", "s")})
		w := newClone(t, fmt.Sprintf("%s/%d", dir, run), source.Draw(t, "source"), 3)
		w.unevenly(t)
		nodes := []string{"n1", "n2", "n3"}
		for range rapid.IntRange(1, 5).Draw(t, "faults") {
			node := rapid.SampledFrom(nodes).Draw(t, "node")
			volume := rapid.SampledFrom([]string{"v", "src"}).Draw(t, "volume")
			switch rapid.SampledFrom([]string{"replica", "engine", "manager", "cut", "mend", "move", "wait", "copied",
				"rebuilt", "settle"}).Draw(t, "what") {
			case "replica":
				w.killProcess(func(p *proc) bool { return isReplica(p) && p.node == node && volumeOf(p.name) == volume })
			case "engine":
				w.killProcess(func(p *proc) bool { return isEngine(p) && volumeOf(p.name) == volume })
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
				w.ticketOf("src", "ui", node, v1beta2.AttacherTypeLonghornAPI)
			case "wait":
				w.advance(time.Duration(rapid.IntRange(1, 10).Draw(t, "minutes"))*time.Minute, 5*time.Minute)
			case "copied":
				w.copied()
			case "rebuilt":
				w.rebuilt()
			case "settle":
				w.settle()
			}
		}
		w.endFaults(nodes)
		w.cloneIs(v1beta2.VolumeCloneStateCompleted, 24*time.Hour)
		w.ticket("ui", "n1", v1beta2.AttacherTypeLonghornAPI)
		w.heal(time.Hour)
	})
}
