package backupvolume

import (
	"errors"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/backup/store"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/process/engineclient"
)

var t0 = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func volume(edit func(*v1beta2.BackupVolume)) *v1beta2.BackupVolume {
	v := &v1beta2.BackupVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "v-1", UID: "u", Finalizers: []string{v1beta2.Finalizer}},
		Spec:       v1beta2.BackupVolumeSpec{VolumeName: "v", BackupTargetName: "default"}}
	if edit != nil {
		edit(v)
	}
	return v
}

// done is an errand that ended ago before t0.
func done(order string, ago time.Duration, err error, backups ...string) store.Errand[content] {
	return store.Errand[content]{Order: named(volume(nil), order), Over: true, Began: t0.Add(-ago), Ended: t0.Add(-ago),
		Err: err, Result: content{Volume: &engineclient.BackupVolume{Size: "42", LastBackupName: "b1"}, Backups: backups,
			Modified: t0.Add(-time.Hour)}}
}

func backup(name string, edit func(*v1beta2.Backup)) v1beta2.Backup {
	b := v1beta2.Backup{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: v1beta2.BackupStatus{
		State: v1beta2.BackupStateCompleted}}
	if edit != nil {
		edit(&b)
	}
	return b
}

// TestDecide is the table of docs/design/backups.md.
func TestDecide(t *testing.T) {
	const look, remove = "read backup volume v-1", "remove the backups of volume v from backup target default"
	const m = time.Minute
	marked := func(b *v1beta2.Backup) { b.Labels = map[string]string{naming.LabelDeleteObjectOnly: "true"} }
	ours := func(b *v1beta2.Backup) { b.Spec.SnapshotName, b.Status.State = "s", v1beta2.BackupStateInProgress }
	going := func(v *v1beta2.BackupVolume) { v.DeletionTimestamp = &metav1.Time{Time: t0} }
	keeping := func(v *v1beta2.BackupVolume) {
		going(v)
		v.Labels = map[string]string{naming.LabelDeleteObjectOnly: "true"}
	}
	read := func(v *v1beta2.BackupVolume) { v.Status.LastSyncedAt = metav1.NewTime(t0) }
	for _, c := range []struct {
		name    string
		edit    func(*v1beta2.BackupVolume)
		errand  store.Errand[content]
		backups []v1beta2.Backup
		lost    bool // the target
		want    string
	}{
		{name: "never read", want: look},
		{name: "being read", errand: store.Errand[content]{Order: "x"}},
		{name: "no target", lost: true},
		{name: "read, and nobody asks", edit: read, errand: done(orderLook, 0, nil)},
		{name: "asked again", edit: func(v *v1beta2.BackupVolume) {
			v.Status.LastSyncedAt, v.Spec.SyncRequestedAt = metav1.NewTime(t0.Add(-m)), metav1.NewTime(t0)
		}, errand: done(orderLook, m, nil), want: look},
		{name: "failed", errand: done(orderLook, 0, errors.New("no")), want: " after 1m0s"},
		{name: "a backup without an object", errand: done(orderLook, 0, nil, "b1"), want: "create *v1beta2.Backup b1"},
		{name: "a backup that no object can be", errand: done(orderLook, 0, nil, "B1")},
		{name: "a backup that is gone", errand: done(orderLook, 0, nil), backups: []v1beta2.Backup{backup("b1", nil)},
			want: "update *v1beta2.Backup b1"},
		{name: "and is marked", errand: done(orderLook, 0, nil), backups: []v1beta2.Backup{backup("b1", marked)},
			want: "delete *v1beta2.Backup b1"},
		{name: "one that is being made here", errand: done(orderLook, 0, nil), backups: []v1beta2.Backup{backup("b1", ours)}},
		{name: "one that was made since", errand: done(orderLook, m, nil), backups: []v1beta2.Backup{backup("b1",
			func(b *v1beta2.Backup) { b.Status.LastSyncedAt = metav1.NewTime(t0) })}},
		{name: "one that was in progress elsewhere", errand: done(orderLook, 0, nil, "b1"),
			backups: []v1beta2.Backup{backup("b1", func(b *v1beta2.Backup) { b.Status.State = v1beta2.BackupStateInProgress })},
			want:    "update *v1beta2.Backup b1"},
		{name: "deleted", edit: going, want: remove},
		{name: "deleted, the store says no", edit: going, errand: done(orderRemove, 0, errors.New("no")),
			want: " after 1m0s"},
		{name: "deleted, once more", edit: going, errand: done(orderRemove, m, errors.New("no")), want: remove},
		{name: "removed, its backups", edit: going, errand: done(orderRemove, 0, nil),
			backups: []v1beta2.Backup{backup("b1", marked)}, want: "delete *v1beta2.Backup b1"},
		{name: "removed", edit: going, errand: done(orderRemove, 0, nil), want: "update *v1beta2.BackupVolume v-1"},
		{name: "the object only", edit: keeping, want: "update *v1beta2.BackupVolume v-1"},
		{name: "deleted without a target", edit: going, lost: true, want: "update *v1beta2.BackupVolume v-1"},
	} {
		s := seen{Errand: c.errand, Backups: c.backups,
			Target: &v1beta2.BackupTarget{Spec: v1beta2.BackupTargetSpec{BackupTargetURL: "s3://b@r/"}}}
		if c.lost {
			s.Target = nil
		}
		v := volume(c.edit)
		if got := show(decide(t0, v, s)); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// TestStatusOfALook: what was read, and lastSyncedAt when all of it is done.
func TestStatusOfALook(t *testing.T) {
	v := volume(nil)
	decide(t0, v, seen{Errand: done(orderLook, 0, nil, "b1")})
	if !v.Status.LastSyncedAt.IsZero() || v.Status.Size != "42" {
		t.Errorf("%+v", v.Status)
	}
	decide(t0, v, seen{Errand: done(orderLook, 0, nil, "b1"), Backups: []v1beta2.Backup{backup("b1", nil)}})
	if !v.Status.LastSyncedAt.Time.Equal(t0) || !v.Status.LastModificationTime.Time.Equal(t0.Add(-time.Hour)) ||
		v.Status.LastBackupName != "b1" {
		t.Errorf("%+v", v.Status)
	}
}

// TestNameOfAnotherTarget: a backup whose name one of another volume or target has is told of, and
// the other one stays as it is.
func TestNameOfAnotherTarget(t *testing.T) {
	v := volume(nil)
	s := seen{Errand: done(orderLook, 0, nil, "b1", "b2"), Taken: map[string]bool{"b1": true},
		Target: &v1beta2.BackupTarget{Spec: v1beta2.BackupTargetSpec{BackupTargetURL: "s3://b@r/"}}}
	if got := show(decide(t0, v, s)); got != "create *v1beta2.Backup b2" {
		t.Errorf("%q", got)
	}
	if told := v.Status.Messages[v1beta2.BackupMessageInfo]; !strings.Contains(told, "backup b1 is not shown") {
		t.Errorf("%v", v.Status.Messages)
	}
}

func show(d loop.Decision) string {
	what := ""
	if d.Do != nil {
		what = d.Do.String()
	}
	if d.After > 0 {
		what += " after " + d.After.String()
	}
	return what
}
