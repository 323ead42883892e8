package simulated_test

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/process/engineclient"
	"ankole.storage/controlplane/volume/clone"
)

// withClone makes volume src, which has snapshot s, and volume v, to be filled from it.
func (w *world) withClone(source string) {
	w.volumes["src"] = &wanted{name: "src"}
	w.create(&v1beta2.Volume{ObjectMeta: metav1.ObjectMeta{Name: "src", Labels: naming.VolumeLabels("src"),
		Finalizers: []string{v1beta2.Finalizer}}, Spec: v1beta2.VolumeSpec{Size: volumeSize, NumberOfReplicas: 1,
		Frontend: v1beta2.VolumeFrontendBlockDev, Image: engineImage}})
	w.lineOf("src").add(engineclient.Snapshot{Name: "s", UserCreated: true})
	w.settle()
	w.makeVolume(2, func(s *v1beta2.VolumeSpec) { s.DataSource, s.CloneMode = source, v1beta2.CloneModeFullCopy })
}

// copied ends every copy.
func (w *world) copied() {
	for _, s := range w.servings() {
		s.copied()
	}
}

// cloneIs waits for a state of the clone, letting copies end and time pass.
func (w *world) cloneIs(want v1beta2.VolumeCloneState, limit time.Duration) {
	w.t.Helper()
	is := func() bool { return w.volume("v").Status.CloneStatus.State == want }
	for end := time.Now().Add(limit + time.Minute); time.Now().Before(end); {
		for range 60 { // between two looks nothing that is asked for may pass
			if is() {
				return
			}
			w.run(time.Second)
		}
		w.copied()
		w.rebuilt()
	}
	w.failf("the clone is not %s: %+v", want, w.volume("v").Status.CloneStatus)
}

// TestClone: a volume is filled from a snapshot, and from a volume, that rests or is used, without
// anybody's doing; at the end both rest as before, and the snapshot that was taken is marked.
func TestClone(t *testing.T) {
	for _, row := range []struct {
		name, source, used string
	}{
		{"of a snapshot of a volume at rest", naming.CloneFromSnapshot("src", "s"), ""},
		{"of a volume at rest", "vol://src", ""},
		{"of a snapshot of a volume in use", naming.CloneFromSnapshot("src", "s"), "n3"},
		{"of a volume in use", "vol://src", "n3"},
	} {
		t.Run(row.name, inScene(3, 0, func(t *testing.T, w *world) {
			w.withClone(row.source)
			if row.used != "" {
				w.settle()
				w.ticketOf("src", "ui", row.used, v1beta2.AttacherTypeLonghornAPI)
			}
			w.cloneIs(v1beta2.VolumeCloneStateInitiated, time.Minute)
			st := w.volume("v").Status.CloneStatus
			snapshot := "s"
			if row.source == "vol://src" {
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
			if n := w.told("VolumeCloneCopyCompleteAwaitingHealthy"); n != 1 {
				t.Errorf("told %d times that the copy is complete", n)
			}
			w.cloneIs(v1beta2.VolumeCloneStateCompleted, 5*time.Minute)
			w.settle()
			w.expect(`detached unknown at ""`)
			if s := w.volume("src"); s.Status.CurrentNodeID != row.used {
				t.Errorf("the source is at %q\n%s", s.Status.CurrentNodeID, w.dump())
			}
			if n := w.told("VolumeCloneCompleted"); n != 1 {
				t.Errorf("told %d times that it is complete", n)
			}
			taken, kept := w.lineOf("src").of[snapshot], w.lineOf("src").of["s"]
			if kept.Removed || snapshot != "s" && (taken.Labels[naming.LabelForCloningVolume] != "v" || !taken.UserCreated) {
				t.Errorf("snapshot %+v, %+v", kept, taken)
			}
			if row.used != "" && snapshot != "s" && !taken.Removed {
				t.Errorf("the snapshot taken for the clone is left: %+v", taken)
			}
			w.tickets("ui", "n2", v1beta2.AttacherTypeLonghornAPI)
			w.settle()
			w.expect(`attached healthy at "n2"`)
		}))
	}
}

// TestManyClones: whatever was cloned from a volume, what is left of it in its source is the last
// snapshot, as long as the head stands on it; and the source rests as before. Snapshots that were
// left by clones of an earlier version go too.
func TestManyClones(t *testing.T) {
	for _, used := range []string{"", "n3"} {
		scene(t, 3, func(t *testing.T, w *world) {
			w.withClone("vol://src")
			w.lineOf("src").add(engineclient.Snapshot{Name: "old", UserCreated: true, Removed: true,
				Labels: map[string]string{naming.LabelForCloningVolume: "gone"}})
			if used != "" {
				w.settle()
				w.ticketOf("src", "ui", used, v1beta2.AttacherTypeLonghornAPI)
			}
			for n := range 4 {
				if n > 0 {
					w.makeVolume(1, func(s *v1beta2.VolumeSpec) {
						s.DataSource, s.CloneMode = "vol://src", v1beta2.CloneModeFullCopy
					})
				}
				w.cloneIs(v1beta2.VolumeCloneStateCompleted, 5*time.Minute)
				w.deleteVolume(w.volumes["v"])
				w.settle()
				w.expect("gone")
			}
			w.run(5 * time.Minute)
			w.settle()
			left := 0
			for name, s := range w.lineOf("src").of {
				if name != "s" {
					left++
				}
				if s.Removed != (name != "s") {
					t.Errorf("%s: %+v", name, s)
				}
			}
			if v := w.volume("src"); left > 1 || v.Status.CurrentNodeID != used {
				t.Errorf("%d snapshots of clones are left, the source is at %q, was at %q\n%s", left, v.Status.CurrentNodeID,
					used, w.dump())
			}
		})
	}
}

// TestSnapshotOfACloneIsDeleted: it stays until the copy is over, and goes then.
func TestSnapshotOfACloneIsDeleted(t *testing.T) {
	scene(t, 3, func(t *testing.T, w *world) {
		w.withClone(naming.CloneFromSnapshot("src", "s"))
		w.lineOf("src").add(engineclient.Snapshot{Name: "newer", UserCreated: true})
		w.cloneIs(v1beta2.VolumeCloneStateInitiated, time.Minute)
		w.settle()
		w.deleteSnapshot("s")
		w.settle()
		s := w.snapshotObject("s")
		if s == nil || s.Status.Error != "volume v is being filled with it" || w.lineOf("src").of["s"].Removed {
			w.failf("%+v, %+v", s, w.lineOf("src").of)
		}
		w.cloneIs(v1beta2.VolumeCloneStateCompleted, 5*time.Minute)
		w.run(10 * time.Minute)
		if s := w.snapshotObject("s"); s != nil {
			t.Errorf("%+v\n%s", s.Status, w.dump())
		}
	})
}

// TestCloneIsUsedEarly: a user who comes before the content is whole waits; one who comes while the
// other replicas are made does not.
func TestCloneIsUsedEarly(t *testing.T) {
	scene(t, 3, func(t *testing.T, w *world) {
		w.withClone(naming.CloneFromSnapshot("src", "s"))
		w.settle()
		w.cloneIs(v1beta2.VolumeCloneStateInitiated, time.Minute)
		at := w.volume("v").Spec.NodeID
		user := "n1"
		if at == user {
			user = "n2"
		}
		w.tickets("ui", user, v1beta2.AttacherTypeLonghornAPI)
		w.settle()
		w.expect(fmt.Sprintf("attached degraded at %q", at))
		w.killFirst(func(p *proc) bool { return p.name == "v-e-0" })
		w.settle()
		w.expect(fmt.Sprintf("attached degraded at %q", at))
		w.copied()
		w.settle()
		w.expect(fmt.Sprintf("attached degraded at %q", user))
		if st := w.volume("v").Status.CloneStatus; st.State != v1beta2.VolumeCloneStateCopyCompletedUnhealthy {
			w.failf("%+v", st)
		}
		w.cloneIs(v1beta2.VolumeCloneStateCompleted, 5*time.Minute)
		w.expect(fmt.Sprintf("attached healthy at %q", user))
	})
}

// TestCloneIsTriedAgain: an attempt that fails is followed by the next after a pause that doubles,
// ten in all, and then by none.
func TestCloneIsTriedAgain(t *testing.T) {
	scene(t, 3, func(t *testing.T, w *world) {
		w.withClone(naming.CloneFromSnapshot("src", "none"))
		for _, attempt := range []int{1, 2, clone.MostAttempts - 1} {
			w.cloneIs(v1beta2.VolumeCloneStateFailed, time.Minute)
			v := w.volume("v")
			at, err := time.Parse(time.RFC3339, v.Status.CloneStatus.NextAllowedAttemptAt)
			if pause := time.Until(at); err != nil || v.Status.CloneStatus.AttemptCount != attempt ||
				pause > clone.Pause(attempt) || pause < clone.Pause(attempt)-3*time.Second {
				w.failf("attempt %d: %+v, in %v %v", attempt, v.Status.CloneStatus, pause, err)
			}
			w.run(time.Until(at) - 2*time.Second)
			w.expect(`detached unknown at ""`)
			if attempt == 2 { // the ones between are like these
				v = w.volume("v")
				v.Status.CloneStatus.AttemptCount = clone.MostAttempts - 2
				w.write(v)
			}
			w.run(5 * time.Second)
			if st := w.volume("v").Status.CloneStatus; st.State == v1beta2.VolumeCloneStateFailed && st.AttemptCount == attempt {
				w.failf("no attempt is made at %s: %+v", at, st)
			}
		}
		w.cloneIs(v1beta2.VolumeCloneStateFailed, 5*time.Minute)
		w.run(48 * time.Hour)
		st := w.volume("v").Status.CloneStatus
		if st.AttemptCount != clone.MostAttempts || st.NextAllowedAttemptAt != "" || w.told("VolumeCloneFailed") != 4 {
			t.Errorf("%+v", st)
		}
		if s := w.volume("src"); s.Spec.NodeID != "" {
			t.Errorf("the source stays attached\n%s", w.dump())
		}
		w.deleteVolume(w.volumes["v"])
		w.settle()
		w.expect("gone")
	})
}

// TestCloneSourceIsDeleted: midway, and before anything was read.
func TestCloneSourceIsDeleted(t *testing.T) {
	for _, early := range []bool{true, false} {
		scene(t, 3, func(t *testing.T, w *world) {
			w.withClone("vol://src")
			if !early {
				w.cloneIs(v1beta2.VolumeCloneStateInitiated, time.Minute)
				w.settle()
			}
			w.deleteVolume(w.volumes["src"])
			w.run(20 * time.Second)
			w.copied()
			w.cloneIs(v1beta2.VolumeCloneStateFailed, time.Minute)
			if w.volume("src") != nil {
				w.failf("the source is kept")
			}
			if st := w.volume("v").Status.CloneStatus; st.AttemptCount != 1 {
				w.failf("%+v", st)
			}
			w.run(5 * time.Second)
			w.expect(`detached unknown at ""`)
		})
	}
}

// TestCloneIsDeleted: midway. The source rests again, and the snapshot that was taken is marked as
// soon as the source has an engine.
func TestCloneIsDeleted(t *testing.T) {
	scene(t, 3, func(t *testing.T, w *world) {
		w.withClone("vol://src")
		w.cloneIs(v1beta2.VolumeCloneStateInitiated, time.Minute)
		w.settle()
		w.deleteVolume(w.volumes["v"])
		w.settle()
		w.expect("gone")
		if s := w.volume("src"); s.Status.State != v1beta2.VolumeStateDetached {
			w.failf("the source is %s", s.Status.State)
		}
		w.ticketOf("src", "ui", "n1", v1beta2.AttacherTypeLonghornAPI)
		w.settle()
		for name, s := range w.lineOf("src").of {
			if s.Removed != (name != "s") {
				t.Errorf("snapshot %+v", s)
			}
		}
	})
}

// TestAnyFaultsOfAClone draws faults of both volumes, moves of the source and pauses. Whatever
// happens, the checks hold, and once the faults are over the clone is completed.
func TestAnyFaultsOfAClone(t *testing.T) {
	drawn(t, 10, 3, func(w *world) {
		w.withClone(pick(w, []string{"vol://src", naming.CloneFromSnapshot("src", "s")}))
		w.pause()
		for range 1 + w.rng.IntN(6) {
			w.fault(pick(w, w.nodes), pick(w, []string{"v", "src"}))
			w.pause()
		}
		w.endFaults()
		w.cloneIs(v1beta2.VolumeCloneStateCompleted, 24*time.Hour)
		w.tickets("ui", "n1", v1beta2.AttacherTypeLonghornAPI)
		w.heals(time.Hour)
	})
}
