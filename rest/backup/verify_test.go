package backup_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/rest/resttest"
)

// backedUp is a target, what it has of volume demo, and a backup of that.
func backedUp(target func(*lh.BackupTarget), ver *lh.BackupVerification) []client.Object {
	t := &lh.BackupTarget{ObjectMeta: resttest.Meta("default"), Spec: lh.BackupTargetSpec{BackupTargetURL: "s3://b@r/"},
		Status: lh.BackupTargetStatus{Available: true}}
	if target != nil {
		target(t)
	}
	return []client.Object{t, &lh.BackupVolume{ObjectMeta: resttest.Meta("demo-1a2b3c4d"),
		Spec:   lh.BackupVolumeSpec{VolumeName: "demo", BackupTargetName: "default"},
		Status: lh.BackupVolumeStatus{Verification: ver}}}
}

// status writes an object with its status.
func (f *fixture) status(o client.Object) {
	f.T.Helper()
	if err := f.Client.Update(context.Background(), o); err != nil {
		f.T.Fatal(err)
	}
}

const verifications = "/v1/backupverifications/demo-1a2b3c4d"

// TestVerificationIsOrdered: once, and then it is followed; the next order is another one.
func TestVerificationIsOrdered(t *testing.T) {
	f := newFixture(t, backedUp(nil, nil)...)
	if got := f.Get(verifications); got["state"] != "none" || got["volume"] != "demo" || got["requestedAt"] != "" {
		t.Fatalf("%v", got)
	}
	order := func(body, state string) string {
		t.Helper()
		a := f.Do("POST", verifications, body)
		if a.Status != 200 || a.JSON["state"] != state {
			t.Fatalf("%d %s", a.Status, a.Text)
		}
		return fmt.Sprint(a.JSON["requestedAt"])
	}
	var v lh.BackupVolume
	first := order(`{"bandwidthLimit":7}`, "waiting")
	if f.Read("demo-1a2b3c4d", &v); v.Spec.VerifyBandwidthLimit != 7 || first == "" {
		t.Errorf("%q, %+v", first, v.Spec)
	}
	if again := order(`{}`, "waiting"); again != first {
		t.Errorf("asked for twice: %s and %s", first, again)
	}
	f.Read("demo-1a2b3c4d", &v)
	v.Status.Verification = &lh.BackupVerification{RequestedAt: v.Spec.VerifyRequestedAt, StartedAt: metav1.Now(),
		Progress: 40, Faults: []lh.BackupFault{{Kind: "missing", Object: "o", Backups: []string{"b"}, BackupCount: 1}},
		FaultCount: 1, Backups: []lh.VerifiedBackup{{Name: "b", Faults: 1}}}
	f.status(&v)
	if again := order(`{"bandwidthLimit":9}`, "inProgress"); again != first {
		t.Errorf("one that is under way begins again: %s after %s", again, first)
	}
	got := f.Get(verifications)
	fault := got["faults"].([]any)[0].(map[string]any)
	if got["progress"] != 40.0 || fault["kind"] != "missing" || fault["backups"].([]any)[0] != "b" {
		t.Errorf("%v", got)
	}
	f.Read("demo-1a2b3c4d", &v)
	if v.Spec.VerifyBandwidthLimit != 9 {
		t.Errorf("its bandwidth stays %d", v.Spec.VerifyBandwidthLimit)
	}
	v.Status.Verification.EndedAt = metav1.Now()
	f.status(&v)
	if got := f.Get(verifications); got["state"] != "done" || got["endedAt"] == "" {
		t.Errorf("%v", got)
	}
	if again := order(`{}`, "waiting"); again <= first {
		t.Errorf("asked for anew: %s after %s", again, first)
	}
}

func TestVerificationIsRefused(t *testing.T) {
	for want, edit := range map[string]func(*lh.BackupTarget){
		"has no URL":               func(t *lh.BackupTarget) { t.Spec.BackupTargetURL = "" },
		"is not available: it hid": unavailable,
		"does not exist":           func(t *lh.BackupTarget) { t.Name = "other" },
	} {
		f := newFixture(t, backedUp(edit, nil)...)
		f.Refused(f.Do("POST", verifications, `{}`), 500, want)
	}
	f := newFixture(t, backedUp(nil, nil)...)
	f.Refused(f.Do("POST", verifications, `{"bandwidthLimit":-1}`), 500, "is not between 0 and 1048576")
	f.Refused(f.Do("GET", verifications+"x", ""), 404, "not found")
	var v lh.BackupVolume
	if f.Read("demo-1a2b3c4d", &v); !v.Spec.VerifyRequestedAt.IsZero() {
		t.Errorf("a refused order is written down: %+v", v.Spec)
	}
}

func unavailable(t *lh.BackupTarget) {
	t.Status.Available = false
	t.Status.Conditions = []lh.Condition{{Type: "Unavailable", Status: lh.ConditionTrue, Message: "it hid"}}
}

// TestImageVerification: the backup of an image is verified as those of a volume are, once it is
// complete; what was found is among its messages until it was written again.
func TestImageVerification(t *testing.T) {
	const of = "/v1/backupimageverifications/golden-1a2b3c4d"
	target := backedUp(nil, nil)[0]
	f := newFixture(t, target, imageBackup(lh.BackupStateInProgress))
	f.Refused(f.Do("POST", of, `{}`), 500, "the backup is not complete")
	whole := imageBackup(lh.BackupStateCompleted)
	whole.Status.BackupCreatedAt = "2026-01-02T03:04:05Z"
	f = newFixture(t, target, whole)
	f.Refused(f.Do("POST", of, `{"bandwidthLimit":-1}`), 500, "is not between 0 and 1048576")
	f.Refused(f.Do("GET", of+"x", ""), 404, "not found")
	if got := f.Get(of); got["state"] != "none" || got["backingImage"] != "golden" || got["volume"] != "" ||
		got["backupBackingImage"] != "golden-1a2b3c4d" || got["target"] != "default" {
		t.Errorf("%v", got)
	}
	if a := f.Do("POST", of, `{"bandwidthLimit":7}`); a.Status != 200 || a.JSON["state"] != "waiting" {
		t.Fatalf("%d %s", a.Status, a.Text)
	}
	var b lh.BackupBackingImage
	if f.Read("golden-1a2b3c4d", &b); b.Spec.VerifyBandwidthLimit != 7 || b.Spec.VerifyRequestedAt.IsZero() {
		t.Errorf("%+v", b.Spec)
	}
	b.Status.Verification = &lh.BackupVerification{RequestedAt: b.Spec.VerifyRequestedAt, StartedAt: metav1.Now(),
		EndedAt: metav1.Now(), FaultCount: 2,
		Backups: []lh.VerifiedBackup{{Name: "golden", Faults: 2}, {Name: "x", Faults: 1}}}
	f.status(&b)
	if got := f.Get(of); got["state"] != "done" || got["faultCount"] != 2.0 {
		t.Errorf("%v", got)
	}
	const hurt = "2 of its blocks or records were damaged"
	if got := fmt.Sprint(f.Get(imageBackups)["messages"]); !strings.Contains(got, hurt) {
		t.Errorf("its messages are %s", got)
	}
	b.Status.LastSyncedAt = metav1.NewTime(b.Status.Verification.EndedAt.Add(time.Hour))
	f.status(&b)
	if got := fmt.Sprint(f.Get(imageBackups)["messages"]); strings.Contains(got, "damaged") {
		t.Errorf("it was written again, and its messages are %s", got)
	}
}
