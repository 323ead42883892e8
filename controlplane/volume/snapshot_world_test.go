package volume_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/engineclient"
)

// defaultOptions are those of an engine that was told none.
func defaultOptions() engineclient.Options {
	count, size, pace := 250, int64(0), 1
	return engineclient.Options{SnapshotMaxCount: &count, SnapshotMaxSizeBytes: &size, RebuildConcurrency: &pace,
		RebuildBandwidth: new(int64)}
}

// snapshotsNow are the snapshots of a volume: they are one line, from the oldest to the newest, and
// the head stands on the newest.
func (w *world) snapshotsNow(volume string) map[string]engineclient.Snapshot {
	out, parent := map[string]engineclient.Snapshot{}, ""
	for _, name := range append(slices.Clone(w.chains[volume]), v1beta2.VolumeHeadName) {
		p := w.snapshots[volume][name]
		p.Name, p.Parent, p.Created, p.SizeBytes = name, parent, "2026-01-02T03:04:05Z", 4096
		out[name] = p
		if below, ok := out[parent]; ok {
			below.Children = []string{name}
			out[parent] = below
		}
		parent = name
	}
	return out
}

func (m *engineModel) withPurges() []engineclient.Replica {
	out := slices.Clone(m.replicas)
	for i := range out {
		switch {
		case m.purging:
			out[i].Purge = &engineclient.Purge{Running: true, State: "in_progress"}
		case m.purged:
			out[i].Purge = &engineclient.Purge{Percent: 100, State: "complete"}
		}
	}
	return out
}

// order finds the engine of an order that changes snapshots. The caller holds the lock.
func (w *world) order(t engineclient.Target) (*engineModel, error) {
	m, err := w.at(t)
	if err == nil && m.replaced() {
		err = fmt.Errorf("%w: replaced", engineclient.ErrUnavailable)
	}
	return m, err
}

// dies lets an engine that is cruelly treated die after an order, before it answers.
func (w *world) dies(m *engineModel) bool {
	if !w.cruel || w.rng == nil || w.rng.IntN(4) != 0 {
		return false
	}
	w.end(m.proc.im+"/"+m.proc.name, "killed")
	return true
}

// SnapshotCreate implements engineclient.Client.
func (w *world) SnapshotCreate(_ context.Context, t engineclient.Target, r engineclient.SnapshotRequest) (string,
	error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	m, err := w.order(t)
	if err != nil {
		return "", err
	}
	if _, there := w.snapshots[t.Volume][r.Name]; there {
		return "", fmt.Errorf("%w: snapshot %s exists", engineclient.ErrPrecondition, r.Name)
	}
	if most := *m.options.SnapshotMaxCount; len(w.chains[t.Volume]) >= most {
		return "", fmt.Errorf("%w: %d snapshots are the limit", engineclient.ErrPrecondition, most)
	}
	w.addSnapshot(t.Volume, engineclient.Snapshot{Name: r.Name, Labels: r.Labels, UserCreated: r.UserCreated})
	if r.Freeze {
		w.frozenFor = append(w.frozenFor, r.Name)
	}
	if w.dies(m) {
		return "", fmt.Errorf("%w: killed", engineclient.ErrUnavailable)
	}
	m.publish()
	return r.Name, nil
}

// SnapshotPurge begins a purge, which purgeOn ends. It takes system snapshots too.
func (w *world) SnapshotPurge(_ context.Context, t engineclient.Target, _ bool) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	m, err := w.order(t)
	if err != nil {
		return err
	}
	for _, s := range w.snapshots[t.Volume] {
		s.Removed = s.Removed || !s.UserCreated
		w.addSnapshot(t.Volume, s)
	}
	m.purging = true
	m.publish()
	return nil
}

// SnapshotRevert is not asked for by controllers.
func (w *world) SnapshotRevert(context.Context, engineclient.Target, string) error {
	return engineclient.ErrInvalid
}

// FilesystemTrim is not asked for by controllers.
func (w *world) FilesystemTrim(context.Context, engineclient.Target) (int64, error) {
	return 0, engineclient.ErrInvalid
}

// OptionsSet implements engineclient.Client.
func (w *world) OptionsSet(_ context.Context, t engineclient.Target, o engineclient.Options) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	m, err := w.order(t)
	if err != nil {
		return err
	}
	if o.RebuildConcurrency != nil {
		m.options.RebuildConcurrency, m.options.RebuildBandwidth = o.RebuildConcurrency, o.RebuildBandwidth
	} else {
		m.options.SnapshotMaxCount, m.options.SnapshotMaxSizeBytes = o.SnapshotMaxCount, o.SnapshotMaxSizeBytes
	}
	m.publish()
	return nil
}

// purgeOn ends the purges under way: what is marked goes, but for what the head stands on.
func (w *world) purgeOn() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, m := range w.engines {
		if !m.purging || m.replaced() || w.rng != nil && w.rng.IntN(3) == 0 {
			continue
		}
		m.purging, m.purged = false, true
		volume, kept := volumeOf(m.proc.name), []string(nil)
		for i, name := range w.chains[volume] {
			if !w.snapshots[volume][name].Removed || i == len(w.chains[volume])-1 {
				kept = append(kept, name)
				continue
			}
			delete(w.snapshots[volume], name)
		}
		w.chains[volume] = kept
		m.publish()
	}
}

// orderSnapshot makes an object as REST does.
func (w *world) orderSnapshot(name string) {
	w.create(&v1beta2.Snapshot{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, Finalizers: []string{v1beta2.Finalizer}},
		Spec:       v1beta2.SnapshotSpec{Volume: "v", CreateSnapshot: true, Labels: map[string]string{"of": name}}})
}

func (w *world) deleteSnapshot(name string) {
	w.t.Helper()
	s := &v1beta2.Snapshot{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}
	must(w.t, client.IgnoreNotFound(w.c.Delete(context.Background(), s)))
}

func (w *world) snapshotObject(name string) *v1beta2.Snapshot {
	var s v1beta2.Snapshot
	if err := w.c.Get(context.Background(), client.ObjectKey{Namespace: ns, Name: name}, &s); err != nil {
		return nil
	}
	return &s
}

// taken fails unless an ordered snapshot is there, in the engine and as an object.
func (w *world) taken(name string) {
	w.t.Helper()
	s := w.snapshotObject(name)
	if p := w.snapshots["v"][name]; p.Labels["of"] != name || !p.UserCreated || p.Removed {
		w.t.Fatalf("snapshot %s is not in the engine as ordered: %+v, object %+v\n%s", name, p, s, w.dump())
	}
	if s == nil || !s.Status.ReadyToUse || s.Status.Error != "" || s.Status.CreationTime == "" || !s.Status.UserCreated ||
		s.Status.RestoreSize != w.engine().Status.CurrentSize || s.Status.Labels["of"] != name {
		w.t.Fatalf("object of snapshot %s: %+v\n%s", name, s, w.dump())
	}
}

// gone fails unless a snapshot is neither in the engine nor an object.
func (w *world) gone(name string) {
	w.t.Helper()
	if s, has := w.snapshotObject(name), w.snapshots["v"]; s != nil || has[name].Name != "" {
		w.t.Fatalf("snapshot %s: object %+v, engine %+v\n%s", name, s, has, w.dump())
	}
}

// untouched fails if a ticket for snapshots is left.
func (w *world) untouched() {
	w.t.Helper()
	var a v1beta2.VolumeAttachment
	must(w.t, w.c.Get(context.Background(), client.ObjectKey{Namespace: ns, Name: "v"}, &a))
	for id, t := range a.Spec.AttachmentTickets {
		if t.Type == v1beta2.AttacherTypeSnapshot {
			w.t.Fatalf("ticket %s is left\n%s", id, w.dump())
		}
	}
}

// TestSnapshotOfAVolumeInUse: a snapshot is taken when it is ordered; what is deleted goes, but for
// what the head stands on, which goes when that is another one.
func TestSnapshotOfAVolumeInUse(t *testing.T) {
	t.Parallel()
	w := attached(t, t.TempDir(), 3, 3)
	w.orderSnapshot("s1")
	w.settle()
	w.taken("s1")
	if n := w.told("s1"); n != 1 {
		t.Errorf("told %d times", n)
	}
	w.deleteSnapshot("s1")
	w.settle()
	s := w.snapshotObject("s1")
	if s == nil || !s.Status.MarkRemoved || s.Status.ReadyToUse || !strings.Contains(s.Status.Error, "head stands on it") {
		t.Fatalf("%+v\n%s", s, w.dump())
	}
	w.untouched()
	w.orderSnapshot("s2")
	w.settle()
	w.taken("s2")
	w.gone("s1")
	w.untouched()
	w.expect(`attached healthy at "n1"`)
}

// TestSnapshotOfAVolumeAtRest: it is attached for the snapshot, and detached again; the same for
// its deletion.
func TestSnapshotOfAVolumeAtRest(t *testing.T) {
	t.Parallel()
	w := attached(t, t.TempDir(), 3, 2)
	w.ticket("ui", "", "")
	w.settle()
	w.orderSnapshot("s1")
	w.orderSnapshot("s2")
	w.settle()
	w.taken("s1")
	w.taken("s2")
	w.expect(`detached unknown at ""`)
	first := w.chains["v"][0]
	w.deleteSnapshot(first)
	w.settle()
	w.gone(first)
	w.expect(`detached unknown at ""`)
	w.untouched()
}

// TestSnapshotsOfTheEngineGetObjects: one that nobody ordered gets an object, which goes with it;
// one that was ordered and is gone keeps its own, which says so.
func TestSnapshotsOfTheEngineGetObjects(t *testing.T) {
	t.Parallel()
	w := attached(t, t.TempDir(), 3, 2)
	w.orderSnapshot("mine")
	w.settle()
	change := func(edit func()) {
		w.mu.Lock()
		edit()
		for _, m := range w.engines {
			m.publish()
		}
		w.mu.Unlock()
		w.settle()
	}
	change(func() {
		w.addSnapshot("v", engineclient.Snapshot{Name: "system"})
		w.addSnapshot("v", engineclient.Snapshot{Name: "Not_A_Name"})
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
		w.chains["v"] = w.chains["v"][2:]
		delete(w.snapshots["v"], "mine")
		delete(w.snapshots["v"], "system")
	})
	w.gone("system")
	s := w.snapshotObject("mine")
	if s == nil || s.Status.ReadyToUse || !strings.HasPrefix(s.Status.Error, "lost track of") || w.told("Delete") != 2 {
		t.Fatalf("%+v\n%s", s, w.dump())
	}
	w.deleteSnapshot("mine")
	w.settle()
	w.gone("mine")
}

// TestPurgeDisabled: a deleted snapshot waits while purges are switched off, and does not hold the
// volume attached.
func TestPurgeDisabled(t *testing.T) {
	t.Parallel()
	w := attached(t, t.TempDir(), 3, 2)
	for _, name := range []string{"s1", "s2"} {
		w.orderSnapshot(name)
		w.settle()
	}
	off := &v1beta2.Setting{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "disable-snapshot-purge"}, Value: "true"}
	w.create(off)
	w.ticket("ui", "", "")
	w.deleteSnapshot("s1")
	w.settle()
	if s := w.snapshotObject("s1"); s == nil || s.Status.Error != "setting disable-snapshot-purge is on" ||
		w.snapshots["v"]["s1"].Removed {
		t.Fatalf("%+v\n%s", s, w.dump())
	}
	w.expect(`detached unknown at ""`)
	off.Value = "false"
	must(t, w.c.Update(context.Background(), off))
	w.settle()
	w.gone("s1")
	w.taken("s2")
}

// TestFrozenForASnapshot: a mounted file system is frozen for a snapshot where the volume says so,
// or leaves it to the setting and that does.
func TestFrozenForASnapshot(t *testing.T) {
	t.Parallel()
	w := attached(t, t.TempDir(), 3, 2)
	setting := &v1beta2.Setting{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "freeze-filesystem-for-snapshot"},
		Value: `{"v1":"false"}`}
	w.create(setting)
	for i, row := range []struct {
		volume  v1beta2.Override
		setting string
		frozen  bool
	}{
		{v1beta2.OverrideIgnored, "false", false}, {v1beta2.OverrideEnabled, "false", true},
		{v1beta2.OverrideIgnored, "true", true}, {v1beta2.OverrideDisabled, "true", false},
	} {
		setting.Value = fmt.Sprintf(`{"v1":%q}`, row.setting)
		must(t, w.c.Update(context.Background(), setting))
		v := w.volume("v")
		v.Spec.FreezeFilesystemForSnapshot = row.volume
		must(t, w.c.Update(context.Background(), v))
		name := fmt.Sprintf("s%d", i)
		w.orderSnapshot(name)
		w.settle()
		w.taken(name)
		if got := slices.Contains(w.frozenFor, name); got != row.frozen {
			t.Errorf("volume %s, setting %s: frozen %v", row.volume, row.setting, got)
		}
	}
}

// TestLimitsReachTheEngine: the limits of snapshots follow the volume while it is in use; a refused
// snapshot says why, and is taken when there is room.
func TestLimitsReachTheEngine(t *testing.T) {
	t.Parallel()
	w := attached(t, t.TempDir(), 3, 2)
	v := w.volume("v")
	v.Spec.SnapshotMaxCount, v.Spec.SnapshotMaxSize = 2, 4*worldSize
	must(t, w.c.Update(context.Background(), v))
	w.settle()
	if e := w.engine(); e.Status.SnapshotMaxCount != 2 || e.Status.SnapshotMaxSize != 4*worldSize {
		t.Fatalf("%+v", e.Status)
	}
	for _, r := range w.replicas() {
		if r.Spec.SnapshotMaxCount != 2 || r.Spec.SnapshotMaxSize != 4*worldSize {
			t.Errorf("%+v", r.Spec)
		}
	}
	for _, name := range []string{"s1", "s2", "s3"} {
		w.orderSnapshot(name)
		w.settle()
	}
	tooMany := v1beta2.FindCondition(w.volume("v").Status.Conditions, v1beta2.VolumeConditionTooManySnapshots)
	if s := w.snapshotObject("s3"); !strings.Contains(s.Status.Error, "2 snapshots are the limit") ||
		tooMany.Status != v1beta2.ConditionTrue || w.told("TooManySnapshots") != 1 {
		t.Fatalf("%+v, %+v", s.Status, tooMany)
	}
	w.deleteSnapshot("s1")
	w.settle()
	w.gone("s1")
	w.taken("s3")
}

// TestDeletedVolumeWithSnapshots: its snapshots go before its engine.
func TestDeletedVolumeWithSnapshots(t *testing.T) {
	t.Parallel()
	w := attached(t, t.TempDir(), 3, 2)
	w.orderSnapshot("s1")
	w.settle()
	w.orderSnapshot("s2")
	must(t, w.c.Delete(context.Background(), w.volume("v")))
	for range 200 {
		for _, rec := range w.recs {
			w.run(rec)
		}
		var engines v1beta2.EngineList
		must(t, w.c.List(context.Background(), &engines))
		for _, e := range engines.Items {
			if e.DeletionTimestamp != nil && (w.snapshotObject("s1") != nil || w.snapshotObject("s2") != nil) {
				t.Fatalf("the engine is deleted before the snapshots\n%s", w.dump())
			}
		}
	}
	w.settle()
	if v := w.volume("v"); v != nil {
		t.Fatalf("the volume is still there\n%s", w.dump())
	}
}

// TestAnySnapshotsSurviveFaults draws orders for snapshots and their deletion between faults. In
// the end what was ordered and not deleted is there, and what was deleted is gone.
func TestAnySnapshotsSurviveFaults(t *testing.T) {
	dir := t.TempDir()
	run := 0
	rapid.Check(t, func(t *rapid.T) {
		run++
		w := attached(t, fmt.Sprintf("%s/%d", dir, run), 3, rapid.IntRange(1, 3).Draw(t, "replicas"))
		w.cruel = true
		w.rng = rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "order"), 1))
		nodes := []string{"n1", "n2", "n3"}
		var ordered, deleted []string
		for i := range rapid.IntRange(3, 12).Draw(t, "steps") {
			node := rapid.SampledFrom(nodes).Draw(t, "node")
			switch rapid.SampledFrom([]string{"take", "take", "take", "delete", "delete", "engine", "replica", "move",
				"detach", "wait"}).Draw(t, "what") {
			case "take":
				ordered = append(ordered, fmt.Sprintf("s%d", i))
				w.orderSnapshot(ordered[len(ordered)-1])
			case "delete":
				if len(ordered) > 0 {
					name := rapid.SampledFrom(ordered).Draw(t, "snapshot")
					deleted = append(deleted, name)
					w.deleteSnapshot(name)
				}
			case "engine":
				w.killProcess(isEngine)
			case "replica":
				w.killProcess(func(p *proc) bool { return isReplica(p) && p.node == node })
			case "move":
				w.ticket("ui", node, v1beta2.AttacherTypeLonghornAPI)
			case "detach":
				w.ticket("ui", "", "")
			case "wait":
				w.advance(10*time.Minute, 5*time.Minute)
			}
			if rapid.Bool().Draw(t, "settle") {
				w.settle()
			}
		}
		w.endFaults(nodes)
		w.rng = nil
		w.ticket("ui", "n1", v1beta2.AttacherTypeLonghornAPI)
		w.heal(3 * time.Hour)
		w.orderSnapshot("last") // so that the head stands on none of the others
		w.settle()
		w.advance(5*time.Minute, time.Minute)
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
