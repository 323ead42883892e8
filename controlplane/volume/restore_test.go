package volume

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/volume/restore"
)

// restoring is an attached volume that is being filled from a backup, and what its engine says.
func restoring(state, why, restored string) (*v1beta2.Volume, *seen) {
	v, s := fixture()
	v.Spec.FromBackup = "s3://bucket@r/?backup=b1&volume=other"
	v.CreationTimestamp = metav1.NewTime(now.Add(-10 * time.Minute))
	if state != "" {
		s.Engine.Spec.BackupVolume, s.Engine.Spec.RequestedBackupRestore = "other", "b1"
		s.Engine.Status.RestoreStatus = map[string]v1beta2.RestoreStatus{
			"tcp://1": {State: state, Error: why, LastRestored: restored}, "tcp://2": {State: state, Error: why,
				LastRestored: restored}}
	}
	return v, s
}

// TestRestoreIsFollowed: the engine is told the backup; what it says of all replicas ends the
// restore or the attempt.
func TestRestoreIsFollowed(t *testing.T) {
	v, s := restoring("", "", "")
	p, _ := judge(now, v, *s)
	c := v1beta2.FindCondition(v.Status.Conditions, v1beta2.VolumeConditionRestore)
	if !v.Status.RestoreRequired || !v.Status.RestoreInitiated || c.Reason != v1beta2.VolumeReasonRestoreInProgress ||
		!p.wantsRestore() {
		t.Errorf("%+v", v.Status)
	}
	change := p.restore()
	if change == nil || change.String() != "update *v1beta2.Engine "+s.Engine.Name {
		t.Errorf("%v", change)
	}
	v, s = restoring(v1beta2.ProcessStateComplete, "", "b1")
	if d := decide(now, v, *s); v.Status.RestoreRequired || !v.Status.RestoreInitiated || restore.Needed(v) ||
		len(told(d, naming.EventRestored)) != 1 {
		t.Errorf("%+v %+v", v.Status, d)
	}
	v, s = restoring(v1beta2.ProcessStateComplete, "", "other")
	if decide(now, v, *s); !v.Status.RestoreRequired {
		t.Error("another backup was taken for the one that is wanted")
	}
}

// TestFailedRestoreIsTriedAgain: with another process of the engine, after as long as the volume
// was there when it failed.
func TestFailedRestoreIsTriedAgain(t *testing.T) {
	v, s := restoring(v1beta2.ProcessStateError, "a block is damaged", "")
	d := decide(now, v, *s)
	c := v1beta2.FindCondition(v.Status.Conditions, v1beta2.VolumeConditionRestore)
	if !v.Status.RestoreRequired || c.Status != v1beta2.ConditionFalse || c.Reason != v1beta2.VolumeReasonRestoreFailure ||
		c.Message != "a block is damaged" || len(told(d, naming.EventFailedRestore)) != 1 {
		t.Errorf("%+v %+v", v.Status, d)
	}
	wants := func(at time.Time) bool {
		p := newPass(at, v, *s)
		p.restore()
		return p.wantsRestore()
	}
	if wants(now.Add(time.Hour)) {
		t.Error("it is tried again by the process that has failed")
	}
	v.Status.State = v1beta2.VolumeStateDetached
	s.Engine.Status.CurrentState, s.Engine.Status.RestoreStatus = v1beta2.InstanceStateStopped, nil
	if wants(now.Add(9 * time.Minute)) {
		t.Error("it is tried again too early")
	}
	if !wants(now.Add(10 * time.Minute)) {
		t.Error("it is not tried again")
	}
}
