package backuptarget

import (
	"errors"
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/backup/store"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/object/naming"
)

var (
	t0      = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	written = t0.Add(-time.Hour)
)

func target(edit func(*v1beta2.BackupTarget)) *v1beta2.BackupTarget {
	t := &v1beta2.BackupTarget{ObjectMeta: metav1.ObjectMeta{Name: "default", Namespace: "ns", UID: "u1",
		Finalizers: []string{v1beta2.Finalizer}},
		Spec: v1beta2.BackupTargetSpec{BackupTargetURL: "s3://b@r/", PollInterval: "300s"}}
	if edit != nil {
		edit(t)
	}
	return t
}

// looked is the end of a look at the store of target(nil), ago before t0.
func looked(ago time.Duration, err error, volumes ...string) store.Errand[listing] {
	l := listing{Volumes: map[string]time.Time{}}
	for _, v := range volumes {
		l.Volumes[v] = written
	}
	failures := 0
	if err != nil {
		failures = 6
	}
	return store.Errand[listing]{Order: (&pass{t: target(nil)}).order(), Over: true, Began: t0.Add(-ago),
		Ended: t0.Add(-ago), Result: l, Err: err, Failures: failures}
}

// volume is a backup volume that was read ago before t0.
func volume(name string, ago time.Duration, edit func(*v1beta2.BackupVolume)) v1beta2.BackupVolume {
	v := v1beta2.BackupVolume{ObjectMeta: metav1.ObjectMeta{Name: naming.BackupVolumeName(name, "default")},
		Spec: v1beta2.BackupVolumeSpec{VolumeName: name, BackupTargetName: "default"},
		Status: v1beta2.BackupVolumeStatus{LastSyncedAt: metav1.NewTime(t0.Add(-ago)),
			LastModificationTime: metav1.NewTime(written)}}
	if edit != nil {
		edit(&v)
	}
	return v
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

// TestDecide is the table of docs/design/backups.md.
func TestDecide(t *testing.T) {
	const list, m = "list the volumes of backup target default", time.Minute
	off := func(t *v1beta2.BackupTarget) { t.Spec.PollInterval = "0" }
	synced := func(ago time.Duration) func(*v1beta2.BackupTarget) {
		return func(t *v1beta2.BackupTarget) {
			t.Status.LastSyncedAt, t.Status.Available = metav1.NewTime(t0.Add(-ago)), true
		}
	}
	both := func(edits ...func(*v1beta2.BackupTarget)) func(*v1beta2.BackupTarget) {
		return func(t *v1beta2.BackupTarget) {
			for _, e := range edits {
				e(t)
			}
		}
	}
	role := func(arn string) func(*v1beta2.BackupTarget) {
		return func(t *v1beta2.BackupTarget) { t.Annotations = map[string]string{naming.AnnotationAWSRole: arn} }
	}
	named := func(l store.Errand[listing], arn string) store.Errand[listing] { l.Result.Role = &arn; return l }
	failed := func(times int) store.Errand[listing] {
		l := looked(0, errors.New("no"))
		l.Failures = times
		return l
	}
	asked := func(t *v1beta2.BackupTarget) { t.Spec.SyncRequestedAt = metav1.NewTime(t0) }
	labelled := func(v *v1beta2.BackupVolume) { v.Labels = map[string]string{naming.LabelDeleteObjectOnly: "true"} }
	going := func(t *v1beta2.BackupTarget) { t.DeletionTimestamp = &metav1.Time{Time: t0} }
	name := naming.BackupVolumeName("v", "default")
	for _, c := range []struct {
		name      string
		edit      func(*v1beta2.BackupTarget)
		look      store.Errand[listing]
		volumes   []v1beta2.BackupVolume
		want      string
		available bool
	}{
		{name: "no look yet", want: list},
		{name: "a look is under way", look: store.Errand[listing]{Order: "x"}},
		{name: "another URL", edit: synced(m), look: store.Errand[listing]{Order: "x", Over: true, Began: t0}, want: list,
			available: true},
		{name: "failed", look: looked(0, errors.New("no")), want: " after 1m0s"},
		{name: "failed for the first time", look: failed(1), want: " after 2s"},
		{name: "failed for the third time", look: failed(3), want: " after 8s"},
		{name: "failed long ago", look: looked(m, errors.New("no")), want: list},
		{name: "failed, without polls and wishes", edit: both(synced(m), off), look: looked(m, errors.New("no"))},
		{name: "the Secret names a role", look: named(looked(0, errors.New("no")), "arn:1"),
			want: "update *v1beta2.BackupTarget ns/default"},
		{name: "which is noted", edit: role("arn:1"), look: named(looked(0, errors.New("no")), "arn:1"), want: " after 1m0s"},
		{name: "the Secret names no role any more", edit: role("arn:1"), look: named(looked(0, nil), ""),
			want: "update *v1beta2.BackupTarget ns/default", available: true},
		{name: "the Secret cannot be read", edit: role("arn:1"), look: looked(0, errors.New("no")), want: " after 1m0s"},
		{name: "a volume that has no object", look: looked(0, nil, "v"),
			want: "create *v1beta2.BackupVolume ns/" + name, available: true},
		{name: "a volume that is gone", look: looked(0, nil), volumes: []v1beta2.BackupVolume{volume("v", m, nil)},
			want: "update *v1beta2.BackupVolume " + name, available: true},
		{name: "and its object is marked", look: looked(0, nil),
			volumes: []v1beta2.BackupVolume{volume("v", m, labelled)}, want: "delete *v1beta2.BackupVolume " + name,
			available: true},
		{name: "an object that is younger than the look", look: looked(m, nil),
			volumes: []v1beta2.BackupVolume{volume("v", m, func(v *v1beta2.BackupVolume) {
				v.CreationTimestamp = metav1.NewTime(t0)
			})}, want: " after 4m0s", available: true},
		{name: "a record that has changed", look: looked(0, nil, "v"),
			volumes: []v1beta2.BackupVolume{volume("v", 2*time.Hour, func(v *v1beta2.BackupVolume) {
				v.Status.LastModificationTime = metav1.NewTime(written.Add(-m))
			})}, want: "update *v1beta2.BackupVolume " + name, available: true},
		{name: "a record that was written as it was read", look: looked(0, nil, "v"),
			volumes: []v1beta2.BackupVolume{volume("v", time.Hour-time.Second, nil)},
			want:    "update *v1beta2.BackupVolume " + name, available: true},
		{name: "a wish that it was told already", look: looked(m, nil, "v"),
			volumes: []v1beta2.BackupVolume{volume("v", 2*time.Hour, func(v *v1beta2.BackupVolume) {
				v.Status.LastModificationTime, v.Spec.SyncRequestedAt = metav1.Time{}, metav1.NewTime(t0)
			})}, want: " after 4m0s", available: true},
		{name: "the interval is over", edit: synced(5 * m), look: looked(5*m, nil), want: list, available: true},
		{name: "no interval", edit: both(synced(24*time.Hour), off), look: looked(24*time.Hour, nil), available: true},
		{name: "no interval, another leader", edit: both(synced(24*time.Hour), off), available: true},
		{name: "no interval, asked", edit: both(synced(m), off, asked), look: looked(m, nil), want: list, available: true},
		{name: "asked in the second of the look", edit: both(synced(0), off, asked), look: looked(0, nil),
			want: " after 1s", available: true},
		{name: "no URL", edit: func(t *v1beta2.BackupTarget) { t.Spec.BackupTargetURL = "" },
			volumes: []v1beta2.BackupVolume{volume("v", m, labelled)}, want: "delete *v1beta2.BackupVolume " + name},
		{name: "deleted", edit: going, volumes: []v1beta2.BackupVolume{volume("v", m, nil)},
			want: "update *v1beta2.BackupVolume " + name},
		{name: "deleted, and nothing left", edit: going, want: "update *v1beta2.BackupTarget ns/default"},
	} {
		b := target(c.edit)
		d := decide(t0, b, seen{Look: c.look, Volumes: c.volumes})
		if got := show(d); got != c.want || b.Status.Available != c.available {
			t.Errorf("%s: %q, available %v; want %q, %v", c.name, got, b.Status.Available, c.want, c.available)
		}
		if u, ok := d.Do.(loop.Update); ok && c.name == "a volume that is gone" &&
			u.Object.GetLabels()[naming.LabelDeleteObjectOnly] == "" {
			t.Errorf("%s: the store would lose it", c.name)
		}
	}
}

// TestConditionTellsWhatTheStoreSaid, and lastSyncedAt is written when all of a look is done.
func TestConditionTellsWhatTheStoreSaid(t *testing.T) {
	b := target(nil)
	decide(t0, b, seen{Look: looked(0, fmt.Errorf("backups ls: %w", errors.New("no such bucket")))})
	c := v1beta2.FindCondition(b.Status.Conditions, v1beta2.BackupTargetConditionUnavailable)
	if c.Status != v1beta2.ConditionTrue || c.Message != "backups ls: no such bucket" || !b.Status.LastSyncedAt.IsZero() {
		t.Errorf("%+v", b.Status)
	}
	b = target(nil)
	decide(t0, b, seen{Look: looked(0, nil, "v")})
	if !b.Status.LastSyncedAt.IsZero() {
		t.Error("synced before the object of the volume was made")
	}
	decide(t0, b, seen{Look: looked(0, nil, "v"), Volumes: []v1beta2.BackupVolume{volume("v", time.Minute, nil)}})
	c = v1beta2.FindCondition(b.Status.Conditions, v1beta2.BackupTargetConditionUnavailable)
	if c.Status != v1beta2.ConditionFalse || !b.Status.LastSyncedAt.Time.Equal(t0) {
		t.Errorf("%+v", b.Status)
	}
}

// TestUnchangedPollIsQuiet: a poll that finds nothing new writes its time, and no object.
func TestUnchangedPollIsQuiet(t *testing.T) {
	b := target(func(t *v1beta2.BackupTarget) { t.Status.LastSyncedAt = metav1.NewTime(t0.Add(-5 * time.Minute)) })
	var all []v1beta2.BackupVolume
	var names []string
	for i := range 50 {
		names = append(names, fmt.Sprint("v", i))
		all = append(all, volume(names[i], 5*time.Minute, nil))
	}
	s := seen{Look: looked(0, nil, names...), Volumes: all}
	if d := decide(t0, b, s); d.Do != nil || d.After != 5*time.Minute || !b.Status.LastSyncedAt.Time.Equal(t0) {
		t.Errorf("%s, %+v", show(d), b.Status)
	}
	before := b.DeepCopy()
	if d := decide(t0.Add(time.Minute), b, s); d.Do != nil || !b.Status.LastSyncedAt.Equal(&before.Status.LastSyncedAt) {
		t.Errorf("a second look at the same answer: %s", show(d))
	}
}
