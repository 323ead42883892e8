package volume

import (
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/volume/dataloss"
)

// standby is an attached standby volume of which every replica holds backup b1, the newest one.
func standby() (*v1beta2.Volume, *seen) {
	v, s := restoringVolume(v1beta2.ProcessStateComplete, "", "b1")
	v.Spec.Standby, v.Spec.Frontend = true, v1beta2.VolumeFrontendNone
	v.Status.IsStandby, v.Status.RestoreInitiated, v.Status.RestoreRequired = true, true, true
	v.Status.Conditions = append(v.Status.Conditions,
		v1beta2.Condition{Type: v1beta2.VolumeConditionRestore, Status: v1beta2.ConditionFalse})
	s.BackupVolume = backedUp("b1", "2026-11-23T02:00:00Z", v.Spec.Size)
	return v, s
}

func backedUp(newest, at string, size int64) *v1beta2.BackupVolume {
	return &v1beta2.BackupVolume{ObjectMeta: metav1.ObjectMeta{Name: "other"},
		Spec: v1beta2.BackupVolumeSpec{VolumeName: "other"},
		Status: v1beta2.BackupVolumeStatus{LastBackupName: newest, LastBackupAt: at,
			Size: strconv.FormatInt(size, 10)}}
}

// asked is the backup that a decision has the engine asked for.
func asked(change loop.Change) string {
	if u, ok := change.(loop.Update); ok {
		if e, ok := u.Object.(*v1beta2.Engine); ok {
			return e.Spec.RequestedBackupRestore
		}
	}
	return ""
}

func restoreCondition(v *v1beta2.Volume) v1beta2.Condition {
	return v1beta2.FindCondition(v.Status.Conditions, v1beta2.VolumeConditionRestore)
}

// TestStandbyFollows: a standby volume stays attached for nobody, and takes the newest backup, one
// after the other.
func TestStandbyFollows(t *testing.T) {
	v, s := standby()
	p, d := judge(now, v, *s)
	if asked(d.Do) != "" || !(restoring{p}).wantsRestore() || !v.Status.IsStandby || !v.Status.RestoreRequired ||
		v.Status.LastBackup != "b1" || restoreCondition(v).Status != v1beta2.ConditionFalse ||
		len(told(d, naming.EventRestored)) > 0 {
		t.Errorf("at rest: %+v %+v", d, v.Status)
	}
	s.BackupVolume = backedUp("b2", "2026-11-24T02:00:00Z", v.Spec.Size)
	if d := decides(v, *s); asked(d.Do) != "b2" || restoreCondition(v).Status != v1beta2.ConditionTrue {
		t.Fatalf("%+v %+v", d, v.Status)
	}
	s.Engine.Spec.RequestedBackupRestore = "b2"
	s.Engine.Status.RestoreStatus = map[string]v1beta2.RestoreStatus{
		"tcp://1": {State: v1beta2.ProcessStateInProgress, IsRestoring: true, LastRestored: "b1"}}
	s.BackupVolume = backedUp("b3", "2026-11-25T02:00:00Z", v.Spec.Size)
	if d := decides(v, *s); asked(d.Do) != "" || v.Status.LastBackup != "b3" {
		t.Errorf("two at a time: %+v", d)
	}
	s.Engine.Status.RestoreStatus = map[string]v1beta2.RestoreStatus{
		"tcp://1": {State: v1beta2.ProcessStateComplete, LastRestored: "b2"}}
	if d := decides(v, *s); asked(d.Do) != "b3" {
		t.Errorf("the next one: %+v", d)
	}
}

// TestStandbyRests: what is deleted in the store, and an engine that has just begun, change
// nothing; no backup is begun while a replica is rebuilt.
func TestStandbyRests(t *testing.T) {
	v, s := standby()
	decides(v, *s)
	s.BackupVolume = backedUp("b0", "2026-11-22T02:00:00Z", v.Spec.Size)
	if d := decides(v, *s); asked(d.Do) != "" || v.Status.LastBackup != "b1" {
		t.Errorf("the newest one is deleted: %+v", d)
	}
	s.BackupVolume = nil
	s.Engine.Status.RestoreStatus = nil
	if d := decides(v, *s); asked(d.Do) != "" || v.Status.LastBackup != "b1" ||
		restoreCondition(v).Status != v1beta2.ConditionFalse {
		t.Errorf("the store is away, and the engine has just begun: %+v %+v", d, v.Status)
	}
	v, s = standby()
	s.BackupVolume = backedUp("b2", "2026-11-24T02:00:00Z", v.Spec.Size)
	s.Engine.Status.ReplicaModeMap[s.Replicas[0].Name] = v1beta2.ReplicaModeWO
	if d := decides(v, *s); asked(d.Do) != "" || restoreCondition(v).Status != v1beta2.ConditionFalse {
		t.Errorf("while a replica is rebuilt: %+v", d)
	}
}

// TestStandbyGrows: with the volume that it follows, before it takes a backup of the larger one.
func TestStandbyGrows(t *testing.T) {
	v, s := standby()
	s.BackupVolume = backedUp("b2", "2026-11-24T02:00:00Z", 2*v.Spec.Size)
	d := decides(v, *s)
	u, ok := d.Do.(loop.Update)
	if !ok || u.Object.(*v1beta2.Volume).Spec.Size != 2*v.Spec.Size {
		t.Fatalf("%+v", d)
	}
	v.Spec.Size *= 2
	if d := decides(v, *s); asked(d.Do) != "" {
		t.Errorf("before it has grown: %+v", d)
	}
}

// TestEncryptedStandbyKeepsItsSize: a backup is of the device, which has a LUKS2 header before what
// the user has.
func TestEncryptedStandbyKeepsItsSize(t *testing.T) {
	v, s := standby()
	v.Spec.Encrypted = true
	s.Engine.Spec.VolumeSize, s.Engine.Status.CurrentSize = v.DeviceBytes(), v.DeviceBytes()
	for i := range s.Replicas {
		s.Replicas[i].Spec.VolumeSize = v.DeviceBytes()
	}
	s.BackupVolume = backedUp("b1", "2026-11-23T02:00:00Z", v.DeviceBytes())
	if d := decides(v, *s); asked(d.Do) != "" {
		t.Errorf("of a backup as large as its device: %+v", d.Do)
	}
	s.BackupVolume = backedUp("b2", "2026-11-24T02:00:00Z", v.DeviceBytes()+(1<<30))
	u, ok := decides(v, *s).Do.(loop.Update)
	if grown, _ := u.Object.(*v1beta2.Volume); !ok || grown == nil || grown.Spec.Size != v.Spec.Size+(1<<30) {
		t.Errorf("of a larger one: %+v", u.Object)
	}
}

// TestActivation: the newest backup that was seen comes first, a restore that is under way ends
// before that, and one that has failed is tried again.
func TestActivation(t *testing.T) {
	v, s := standby()
	v.Spec.Standby, v.Spec.Frontend = false, v1beta2.VolumeFrontendBlockDev
	if d := decides(v, *s); v.Status.IsStandby || v.Status.RestoreRequired {
		t.Errorf("it holds the newest one: %+v %+v", d, v.Status)
	}
	p := newPass(now, v, *s)
	if (restoring{p}).wantsRestore() {
		t.Error("it stays attached")
	}
	for name, c := range map[string]struct {
		state, restored, reason string
		newest, want            string
	}{
		"a newer one is there": {state: v1beta2.ProcessStateComplete, restored: "b1", newest: "b2", want: "b2"},
		"one is under way":     {state: v1beta2.ProcessStateInProgress, newest: "b2"},
		"one has failed":       {state: v1beta2.ProcessStateError, newest: "b1", reason: v1beta2.VolumeReasonRestoreFailure},
	} {
		v, s := standby()
		v.Spec.Standby = false
		s.BackupVolume = backedUp(c.newest, "2026-11-24T02:00:00Z", v.Spec.Size)
		s.Engine.Status.RestoreStatus = map[string]v1beta2.RestoreStatus{"tcp://1": {State: c.state, LastRestored: c.restored,
			IsRestoring: c.state == v1beta2.ProcessStateInProgress}}
		d := decides(v, *s)
		if asked(d.Do) != c.want || !v.Status.IsStandby || !v.Status.RestoreRequired ||
			c.reason != "" && restoreCondition(v).Reason != c.reason {
			t.Errorf("%s: %+v %+v", name, d, v.Status)
		}
	}
}

// TestActivationWithoutBackups: a standby volume could not take the newest backup, and then the
// store has lost all of them. It is activated with what it was filled from last.
func TestActivationWithoutBackups(t *testing.T) {
	v, s := standby()
	v.Spec.Standby, v.Spec.Frontend = false, v1beta2.VolumeFrontendBlockDev
	v.Status.LastBackup, v.Status.LastBackupAt = "b2", "2026-11-24T02:00:00Z"
	v.Status.Conditions = []v1beta2.Condition{{Type: v1beta2.VolumeConditionRestore, Status: v1beta2.ConditionFalse,
		Reason: v1beta2.VolumeReasonRestoreFailure, LastTransitionTime: now.Add(-time.Hour).Format(time.RFC3339)}}
	s.BackupVolume = nil
	s.Engine.Status.LastRestoredBackup = "b1"
	d := decides(v, *s)
	if v.Status.LastBackup != "b1" || len(told(d, naming.EventFailedRestore)) != 1 {
		t.Errorf("%+v %+v", d, v.Status)
	}
	// The next engine says what it has found.
	v.Status.Conditions = []v1beta2.Condition{{Type: v1beta2.VolumeConditionRestore, Status: v1beta2.ConditionTrue,
		Reason: v1beta2.VolumeReasonRestoreInProgress}}
	s.Engine.Spec.RequestedBackupRestore = "b1"
	if d := decides(v, *s); v.Status.IsStandby || v.Status.RestoreRequired || len(told(d, naming.EventRestored)) != 1 {
		t.Errorf("%+v %+v", d, v.Status)
	}
}

// TestActivationWithoutTheNewestBackup: the store cannot be reached, or has lost a block, and a
// person has the volume activated with what it holds.
func TestActivationWithoutTheNewestBackup(t *testing.T) {
	v, s := standby()
	v.Spec.Standby, v.Spec.Frontend = false, v1beta2.VolumeFrontendBlockDev
	v.Status.LastBackup, v.Status.LastBackupAt = "b2", "2026-11-24T02:00:00Z"
	s.BackupVolume = backedUp("b2", "2026-11-24T02:00:00Z", v.Spec.Size)
	s.Engine.Spec.RequestedBackupRestore, s.Engine.Status.LastRestoredBackup = "b2", "b1"
	s.Engine.Status.RestoreStatus = map[string]v1beta2.RestoreStatus{"tcp://1": {State: v1beta2.ProcessStateError,
		Error: "the store is gone"}}
	if d := decides(v, *s); v.Status.LastBackup != "b2" ||
		restoreCondition(v).Reason != v1beta2.VolumeReasonRestoreFailure {
		t.Fatalf("%+v %+v", d, v.Status)
	}
	v.Annotations = map[string]string{dataloss.DamageAnnotation: dataloss.DamageAccepted}
	d := decides(v, *s)
	if events := told(d, naming.EventFailedRestore); v.Status.LastBackup != "b1" || len(events) != 1 ||
		!strings.Contains(events[0].Message, "activated without backup b2") {
		t.Errorf("%+v %+v", d, v.Status)
	}
	// The next engine holds it, and says so; meanwhile the store is there again.
	v.Status.Conditions = []v1beta2.Condition{{Type: v1beta2.VolumeConditionRestore, Status: v1beta2.ConditionTrue,
		Reason: v1beta2.VolumeReasonRestoreInProgress}}
	s.Engine.Status.RestoreStatus = nil
	if d := decides(v, *s); asked(d.Do) != "b1" {
		t.Errorf("%+v %+v", d, v.Status)
	}
	s.Engine.Spec.RequestedBackupRestore = "b1"
	s.Engine.Status.RestoreStatus = map[string]v1beta2.RestoreStatus{"tcp://1": {State: v1beta2.ProcessStateComplete,
		LastRestored: "b1"}}
	if d := decides(v, *s); v.Status.IsStandby || v.Status.RestoreRequired || len(told(d, naming.EventRestored)) != 1 {
		t.Errorf("%+v %+v", d, v.Status)
	}
}
