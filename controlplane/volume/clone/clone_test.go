package clone

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ankole.storage/api/longhorn/v1beta2"
)

const (
	none      = v1beta2.VolumeCloneStateNone
	initiated = v1beta2.VolumeCloneStateInitiated
	copied    = v1beta2.VolumeCloneStateCopyCompletedUnhealthy
	completed = v1beta2.VolumeCloneStateCompleted
	failed    = v1beta2.VolumeCloneStateFailed
)

// TestStates is what each state of a clone means: whether anybody may use the volume, how many of
// its three replicas it is to have, whether it needs its source, and whether the source's snapshot
// is to stay.
func TestStates(t *testing.T) {
	for _, tt := range []struct {
		name                     string
		edit                     func(v *v1beta2.Volume)
		copying, givenUp         bool
		replicas                 int
		needs, holds, holdsOther bool
	}{
		{"no clone", func(v *v1beta2.Volume) { v.Spec.DataSource = "" }, false, false, 3, false, false, false},
		{"new", func(v *v1beta2.Volume) { v.Status.State = v1beta2.VolumeStateDetached }, true, false, 1, false, true, false},
		{"attached", func(*v1beta2.Volume) {}, true, false, 1, true, true, false},
		{"of a whole volume, before a snapshot is named", func(v *v1beta2.Volume) { v.Spec.DataSource = "vol://s" }, true,
			false, 1, true, false, false},
		{"of a whole volume, of which a snapshot was taken", func(v *v1beta2.Volume) {
			v.Spec.DataSource, v.Status.CloneStatus.Snapshot = "vol://s", "snap"
		}, true, false, 1, true, true, false},
		{"of another volume", func(v *v1beta2.Volume) { v.Spec.DataSource = "snap://o/snap" }, true, false, 1, false, false,
			false},
		{"initiated", func(v *v1beta2.Volume) {
			v.Status.State, v.Status.CloneStatus.State = v1beta2.VolumeStateDetached, initiated
		}, true, false, 1, true, true, false},
		{"faulted", func(v *v1beta2.Volume) {
			v.Status.Robustness, v.Status.CloneStatus.State = v1beta2.VolumeRobustnessFaulted, initiated
		}, true, false, 1, false, true, false},
		{"copied", func(v *v1beta2.Volume) { v.Status.CloneStatus.State = copied }, false, false, 3, false, false, false},
		{"completed", func(v *v1beta2.Volume) { v.Status.CloneStatus.State = completed }, false, false, 3, false, false,
			false},
		{"failed", func(v *v1beta2.Volume) {
			v.Status.CloneStatus.State, v.Status.CloneStatus.AttemptCount = failed, MostAttempts-1
		}, true, false, 1, false, true, false},
		{"given up", func(v *v1beta2.Volume) {
			v.Status.CloneStatus.State, v.Status.CloneStatus.AttemptCount = failed, MostAttempts
		}, true, true, 1, false, false, false},
		{"deleted", func(v *v1beta2.Volume) { v.DeletionTimestamp = &metav1.Time{} }, true, false, 1, false, false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			v := &v1beta2.Volume{}
			v.Spec.DataSource, v.Spec.NumberOfReplicas, v.Status.State = "snap://s/snap", 3, v1beta2.VolumeStateAttached
			v.Status.CloneStatus.State = none
			tt.edit(v)
			if Copying(v) != tt.copying || GivenUp(v) != tt.givenUp || Replicas(v) != tt.replicas {
				t.Errorf("copying %v, given up %v, replicas %d", Copying(v), GivenUp(v), Replicas(v))
			}
			if Needs(v, "s") != tt.needs || Holds(v, "s", "snap") != tt.holds || Holds(v, "s", "other") != tt.holdsOther {
				t.Errorf("needs %v, holds %v and %v", Needs(v, "s"), Holds(v, "s", "snap"), Holds(v, "s", "other"))
			}
		})
	}
}

// TestSnapshotName: a clone of a whole volume names the same snapshot at each attempt, and another
// one if either volume is another of its name.
func TestSnapshotName(t *testing.T) {
	source, v := &v1beta2.Volume{}, &v1beta2.Volume{}
	source.UID, v.UID, v.Spec.DataSource = "uid-s", "uid-v", "vol://s"
	name := Snapshot(v, source)
	if name != SnapshotName("uid-s", "uid-v") || len(name) != 36 || name[14] != '5' {
		t.Errorf("%q is no UUID of version 5", name)
	}
	if name == SnapshotName("uid-o", "uid-v") || name == SnapshotName("uid-s", "uid-o") || name == SnapshotName("uid-v",
		"uid-s") {
		t.Error("two pairs of volumes have one snapshot")
	}
	if v.Spec.DataSource = "snap://s/x"; Snapshot(v, source) != "x" {
		t.Errorf("%q instead of the one that is named", Snapshot(v, source))
	}
}

// TestPause: 30 s, doubled with each attempt.
func TestPause(t *testing.T) {
	for attempts, want := range map[int]time.Duration{0: 30 * time.Second, 1: time.Minute, 2: 2 * time.Minute,
		MostAttempts: 1024 * 30 * time.Second, MostAttempts + 5: 1024 * 30 * time.Second} {
		if got := Pause(attempts); got != want {
			t.Errorf("%d attempts: %v, want %v", attempts, got, want)
		}
	}
}
