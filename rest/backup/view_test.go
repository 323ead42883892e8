package backup

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/rest/resttest"
)

func TestIntervalOfATarget(t *testing.T) {
	q := resttest.Request(t)
	for interval, want := range map[string]string{"": "0s", "0": "0s", "90s": "1m30s", "soon": "soon"} {
		target := &lh.BackupTarget{Spec: lh.BackupTargetSpec{PollInterval: interval}}
		if have := backupTargetView(q, target).PollInterval; have != want {
			t.Errorf("interval %q is shown as %q, want %q", interval, have, want)
		}
	}
}

// TestRequestsHaveWholeSeconds: objects keep no more, and each order is later than the one before.
func TestRequestsHaveWholeSeconds(t *testing.T) {
	now := time.Date(2026, 5, 3, 10, 0, 0, 5e8, time.UTC)
	for before, want := range map[metav1.Time]string{{}: "10:00:00", metav1.NewTime(now.Add(-time.Minute)): "10:00:00",
		metav1.NewTime(now.Truncate(time.Second)):                "10:00:01",
		metav1.NewTime(now.Truncate(time.Second).Add(time.Hour)): "11:00:01"} {
		if got := after(before, now).Format("15:04:05"); got != want {
			t.Errorf("after %s: %s, want %s", before, got, want)
		}
	}
}

// TestDamagedBackupsSaySo: what a verification has found is among the messages of a backup.
func TestDamagedBackupsSaySo(t *testing.T) {
	s := &lh.BackupStatus{Messages: map[string]string{"info": "i"}}
	if got := backupMessages(s); len(got) != 1 {
		t.Errorf("%v", got)
	}
	s.Conditions = []lh.Condition{{Type: lh.BackupConditionVerified, Status: lh.ConditionTrue, Message: "sound"}}
	if got := backupMessages(s); len(got) != 1 {
		t.Errorf("%v", got)
	}
	s.Conditions[0] = lh.Condition{Type: lh.BackupConditionVerified, Status: lh.ConditionFalse, Message: "3 blocks"}
	if got := backupMessages(s); got["error"] != "3 blocks" || got["info"] != "i" || len(s.Messages) != 1 {
		t.Errorf("%v", got)
	}
	s.Messages["error"] = "worse"
	if got := backupMessages(s); got["error"] != "worse" {
		t.Errorf("%v", got)
	}
}
