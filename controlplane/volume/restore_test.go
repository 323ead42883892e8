package volume

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/recurringjob"
	"ankole.storage/controlplane/volume/dataloss"
	"ankole.storage/controlplane/volume/restore"
)

// restoring is an attached volume that is being filled from a backup, and what its engine says.
func restoringVolume(state, why, restored string) (*v1beta2.Volume, *seen) {
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
	v, s := restoringVolume("", "", "")
	p, _ := judge(now, v, *s)
	c := v1beta2.FindCondition(v.Status.Conditions, v1beta2.VolumeConditionRestore)
	if !v.Status.RestoreRequired || !v.Status.RestoreInitiated || c.Reason != v1beta2.VolumeReasonRestoreInProgress ||
		!(restoring{p}).wantsRestore() {
		t.Errorf("%+v", v.Status)
	}
	change := restoring{p}.restore()
	if change == nil || change.String() != "update *v1beta2.Engine "+s.Engine.Name {
		t.Errorf("%v", change)
	}
	v, s = restoringVolume(v1beta2.ProcessStateComplete, "", "b1")
	if d := decides(v, *s); v.Status.RestoreRequired || !v.Status.RestoreInitiated || restore.Needed(v) ||
		len(told(d, naming.EventRestored)) != 1 {
		t.Errorf("%+v %+v", v.Status, d)
	}
	v, s = restoringVolume(v1beta2.ProcessStateComplete, "", "other")
	if decide(now, v, *s); !v.Status.RestoreRequired {
		t.Error("another backup was taken for the one that is wanted")
	}
}

// TestFailedRestoreIsTriedAgain: with another process of the engine, after as long as the volume
// was there when it failed.
func TestFailedRestoreIsTriedAgain(t *testing.T) {
	v, s := restoringVolume(v1beta2.ProcessStateError, "a block is damaged", "")
	d := decides(v, *s)
	c := v1beta2.FindCondition(v.Status.Conditions, v1beta2.VolumeConditionRestore)
	if !v.Status.RestoreRequired || c.Status != v1beta2.ConditionFalse || c.Reason != v1beta2.VolumeReasonRestoreFailure ||
		c.Message != "a block is damaged" || len(told(d, naming.EventFailedRestore)) != 1 {
		t.Errorf("%+v %+v", v.Status, d)
	}
	wants := func(at time.Time) bool {
		p := newPass(at, v, *s)
		restoring{p}.restore()
		return restoring{p}.wantsRestore()
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

// TestRestoredJobs: before the content is restored the volume gets the recurring jobs that its
// backup has, the objects first; once, and not again afterwards.
func TestRestoredJobs(t *testing.T) {
	v, s := restoringVolume("", "", "")
	job := v1beta2.RecurringJob{ObjectMeta: metav1.ObjectMeta{Name: "nightly"},
		Spec: v1beta2.RecurringJobSpec{Name: "nightly", Task: v1beta2.RecurringJobTaskSnapshot, Cron: "@daily"}}
	const label = naming.LabelRecurringJobPrefix + "nightly"
	source := &v1beta2.Volume{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{label: naming.Enabled}}}
	s.BackedJobs = recurringjob.Record(source, []v1beta2.RecurringJob{job})
	for _, want := range []string{"create *v1beta2.RecurringJob ns/nightly", "update *v1beta2.Volume ns/v",
		"update *v1beta2.Engine " + s.Engine.Name} {
		p, _ := judge(now, v, *s)
		p.v.Status.RestoreInitiated = v.Labels[label] != "" // as the former step has left it
		change := restoring{p}.restore()
		if change == nil || change.String() != want {
			t.Fatalf("%v, want %s", change, want)
		}
		switch c := change.(type) {
		case loop.Create:
			s.Jobs = []v1beta2.RecurringJob{*c.Object.(*v1beta2.RecurringJob)}
		case loop.Update:
			if o, ok := c.Object.(*v1beta2.Volume); ok {
				v.Labels = o.Labels
			}
		}
	}
	if v.Labels[label] != naming.Enabled {
		t.Errorf("labels %v", v.Labels)
	}
	v, s = restoringVolume("", "", "")
	s.BackedJobs = "{"
	if d := decides(v, *s); len(told(d, naming.EventFailedRestore)) != 1 || !v.Status.RestoreInitiated {
		t.Errorf("what cannot be read holds the restore up: %+v", d)
	}
	for _, tt := range []struct {
		all  bool
		own  v1beta2.Override
		want bool
	}{{true, "", true}, {false, "", false}, {true, v1beta2.OverrideDisabled, false},
		{false, v1beta2.OverrideEnabled, true}} {
		v, _ := restoringVolume("", "", "")
		v.Spec.RestoreVolumeRecurringJob = tt.own
		if restore.TakesJobs(v, tt.all) != tt.want {
			t.Errorf("%+v", tt)
		}
	}
}

// TestRestoreWithDamageAccepted: a volume that was restored so says what is zero, and not that it
// holds its backup.
func TestRestoreWithDamageAccepted(t *testing.T) {
	v, s := restoringVolume(v1beta2.ProcessStateComplete, "", "b1")
	for replica, st := range s.Engine.Status.RestoreStatus {
		st.Damage = "5 bytes: [0, 5)"
		s.Engine.Status.RestoreStatus[replica] = st
	}
	v.Annotations = map[string]string{dataloss.DamageAnnotation: dataloss.DamageAccepted}
	d := decides(v, *s)
	c := v1beta2.FindCondition(v.Status.Conditions, v1beta2.VolumeConditionBackupDamage)
	if c.Status != v1beta2.ConditionTrue || !strings.Contains(c.Message, "backup b1 held") ||
		!strings.HasSuffix(c.Message, "5 bytes: [0, 5)") || len(told(d, naming.EventDamaged)) != 1 ||
		len(told(d, naming.EventRestored)) != 0 || restore.Needed(v) {
		t.Errorf("%+v %+v", c, d)
	}
}

// TestDecisionAboutDamageEnds is the table of what becomes of the annotation, and of the condition
// of a volume that was restored with damage accepted.
func TestDecisionAboutDamageEnds(t *testing.T) {
	for name, c := range map[string]struct {
		annotation         string
		restored, standby  bool
		activating         bool
		ends, damage, told bool
	}{
		"nothing decided":          {damage: true},
		"accepted, being restored": {annotation: dataloss.DamageAccepted, damage: true},
		"accepted, restored":       {annotation: dataloss.DamageAccepted, restored: true, ends: true, damage: true},
		"acknowledged":             {annotation: dataloss.DamageAcknowledged, restored: true, ends: true},
		"accepted, of a standby volume": {annotation: dataloss.DamageAccepted, standby: true, ends: true, damage: true,
			told: true},
		"accepted, of a standby volume that is being activated": {annotation: dataloss.DamageAccepted, activating: true,
			damage: true},
		"something that nobody may have said": {annotation: "yes", ends: true, damage: true, told: true},
	} {
		v, s := restoringVolume("", "", "")
		v.Status.RestoreInitiated, v.Status.RestoreRequired, v.Spec.Standby = true, !c.restored, c.standby
		v.Status.IsStandby = c.standby || c.activating
		v.Status.Conditions = []v1beta2.Condition{{Type: v1beta2.VolumeConditionBackupDamage,
			Status: v1beta2.ConditionTrue}}
		if c.annotation != "" {
			v.Annotations = map[string]string{dataloss.DamageAnnotation: c.annotation, "x": "y"}
		}
		p := newPass(now, v, *s)
		change := restoring{p}.endDamage()
		if (change != nil) != c.ends || (len(p.changeEvents) > 0) != c.told ||
			v1beta2.IsConditionTrue(v.Status.Conditions, v1beta2.VolumeConditionBackupDamage) != c.damage {
			t.Errorf("%s: %v, %v, %+v", name, change, p.changeEvents, v.Status.Conditions)
		}
		if u, ok := change.(loop.Update); ok && len(u.Object.GetAnnotations()) != 1 {
			t.Errorf("%s: annotations %v", name, u.Object.GetAnnotations())
		}
	}
}
