package job

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/naming"
)

// backed is a complete backup of a snapshot that was taken some hours ago; marks: j made by job j,
// s found in the store and made by job j, f failed, d deleted.
func backed(name, snapshot string, hours int, marks string) v1beta2.Backup {
	at := testNow.Add(-time.Duration(hours) * time.Hour).Format(time.RFC3339)
	b := v1beta2.Backup{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name,
		Labels: map[string]string{naming.LabelBackupVolume: "a", naming.LabelBackupTarget: "default"}}}
	b.Status.State, b.Status.SnapshotName, b.Status.SnapshotCreatedAt = v1beta2.BackupStateCompleted, snapshot, at
	for _, mark := range marks {
		switch mark {
		case 'j':
			b.Spec.Labels = map[string]string{naming.LabelRecurringJob: "j"}
		case 's':
			b.Status.Labels = map[string]string{naming.LabelRecurringJob: "j"}
		case 'f':
			b.Status.State = v1beta2.BackupStateError
		case 'd':
			b.DeletionTimestamp, b.Finalizers = &metav1.Time{Time: testNow}, []string{"test"}
		}
	}
	return b
}

// TestOutlived: which backups a job of backups gives up when another one is complete.
func TestOutlived(t *testing.T) {
	five := []v1beta2.Backup{backed("b1", "", 1, "j"), backed("b4", "", 4, "s"), backed("user", "", 5, ""),
		backed("b3", "", 3, "j"), backed("failed", "", 6, "jf"), backed("b2", "", 2, "j"), backed("going", "", 7, "jd")}
	for _, tt := range []struct {
		name   string
		retain int
		age    string
		have   []v1beta2.Backup
		want   string
	}{
		{"none", 2, "", nil, ""},
		{"as many as are retained", 4, "", five, ""},
		{"the oldest go", 2, "", five, "b4 b3"},
		{"the newest always stays", 0, "", five, "b4 b3 b2"},
		{"by age", 0, "150m", five, "b4 b3"},
		{"by age, all too old", 0, "1m", five, "b4 b3 b2"},
		{"by age, without one", 0, "x", five, ""},
	} {
		j := &v1beta2.RecurringJob{ObjectMeta: metav1.ObjectMeta{Name: "j"}}
		j.Spec = v1beta2.RecurringJobSpec{Retain: tt.retain, RetentionPolicy: v1beta2.RetentionPolicyCountBased}
		if tt.age != "" {
			j.Spec.RetentionPolicy, j.Spec.RetainAge = v1beta2.RetentionPolicyAgeBased, tt.age
		}
		if got := strings.Join(outlived(testNow, j, tt.have), " "); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

// TestSpent: which of its snapshots a job of backups gives up.
func TestSpent(t *testing.T) {
	have := []v1beta2.Snapshot{snap("mine", 0, "j"), snap("j1", 1, "j"), snap("j2", 2, "j"), snap("user", 3, ""),
		snap("j4", 4, "j")}
	for _, tt := range []struct {
		cleanup bool
		base    string
		want    string
	}{
		{true, "j1", "j4 j2"},
		{true, "mine", "j4 j2 j1"},
		{true, "", "j4 j2 j1"},
		{false, "mine", "j4 j2"}, // retain 2: mine and j1
		{false, "j4", "j2"},
	} {
		j := &v1beta2.RecurringJob{ObjectMeta: metav1.ObjectMeta{Name: "j"}}
		j.Spec = v1beta2.RecurringJobSpec{Retain: 2, RetentionPolicy: v1beta2.RetentionPolicyCountBased}
		if got := strings.Join(spent(testNow, j, tt.cleanup, "mine", tt.base, have), " "); got != tt.want {
			t.Errorf("cleanup %v, base %q: %q, want %q", tt.cleanup, tt.base, got, tt.want)
		}
	}
}

// TestUnchanged: nothing is new where no layer above the one that is backed up has data.
func TestUnchanged(t *testing.T) {
	layer := func(name, parent string, hours int, size int64) v1beta2.Snapshot {
		s := snap(name, hours, "")
		s.Status.Parent, s.Status.Size = parent, size
		return s
	}
	chain := func(size int64) []v1beta2.Snapshot {
		return []v1beta2.Snapshot{layer("base", "", 3, 7), layer("mid", "base", 2, size), layer("top", "mid", 1, 0)}
	}
	of := func(snapshot string, hours int) *v1beta2.Backup {
		b := backed("b", snapshot, hours, "")
		return &b
	}
	cut := chain(0)
	cut[1].Status.Parent = "gone"
	loop := chain(0)
	loop[1].Status.Parent = "top"
	for _, tt := range []struct {
		name string
		b    *v1beta2.Backup
		have []v1beta2.Snapshot
		want bool
	}{
		{"no backup", nil, chain(0), false},
		{"nothing was written", of("base", 3), chain(0), true},
		{"the backup is of it", of("top", 1), chain(5), true},
		{"something was written", of("base", 3), chain(1), false},
		{"written before it", of("mid", 2), chain(1), true},
		{"another one has its name", of("base", 4), chain(0), false},
		{"its snapshot is gone", of("other", 3), chain(0), false},
		{"a layer is not known", of("base", 3), cut, false},
		{"layers that make no sense", of("base", 3), loop, false},
	} {
		if got := unchanged("top", tt.b, tt.have); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
}

// ready is the backup target of the volumes.
func ready(available bool) *v1beta2.BackupTarget {
	return &v1beta2.BackupTarget{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "default"},
		Spec: v1beta2.BackupTargetSpec{BackupTargetURL: "s3://b@r/"},
		Status: v1beta2.BackupTargetStatus{Available: available, Conditions: []v1beta2.Condition{
			{Type: v1beta2.BackupTargetConditionUnavailable, Message: "no answer"}}}}
}

func backupJob(task v1beta2.RecurringJobTask, edit func(*v1beta2.RecurringJobSpec)) v1beta2.RecurringJobSpec {
	j := v1beta2.RecurringJobSpec{Task: task, Retain: 1, Concurrency: 1, Labels: map[string]string{"by": "night"}}
	if edit != nil {
		edit(&j)
	}
	return j
}

func (w *world) backups() (out []v1beta2.Backup) {
	w.t.Helper()
	var all v1beta2.BackupList
	if err := w.List(context.Background(), &all); err != nil {
		w.t.Fatal(err)
	}
	return all.Items
}

// TestBackupRun: a volume gets a snapshot and a backup of it, once per Pod; the backups and
// snapshots of before go after that.
func TestBackupRun(t *testing.T) {
	old := backed("b-old", "a-old", 2, "j")
	w := newWorld(t, backupJob("backup", nil), slices.Concat(vol("a", v1beta2.VolumeStateAttached),
		[]client.Object{ready(true), onVolume("a", snap("a-old", 2, "j")), &old})...)
	w.written = 4096
	for range 2 { // a run that is repeated in its Pod makes no second backup
		if err := Run(context.Background(), w.cfg); err != nil {
			t.Fatal(err)
		}
	}
	made, taken := w.backups(), w.taken("a")
	if len(made) != 1 || len(taken) != 1 || made[0].Spec.SnapshotName != taken[0].Name || made[0].Name != taken[0].Name {
		t.Fatalf("backups %v, snapshots %v", made, taken)
	}
	if b := made[0]; b.Spec.Labels["by"] != "night" || b.Spec.Labels["RecurringJob"] != "j" ||
		b.Labels[naming.LabelBackupVolume] != "a" || b.Labels[naming.LabelBackupTarget] != "default" ||
		b.Spec.BackupMode != v1beta2.BackupModeIncremental {
		t.Errorf("%+v %+v", b.ObjectMeta, b.Spec)
	}
	want := "take a, back up a, delete b-old, delete a-old"
	if got := strings.Join(w.did, ", "); !strings.HasPrefix(got, want) {
		t.Errorf("orders %s, want %s", got, want)
	}
}

// TestBackupsThatAreNotMade: a backup is made of what is new, unless it is forced or full, and of
// nothing where the target is away.
func TestBackupsThatAreNotMade(t *testing.T) {
	every := func(n string) func(*v1beta2.RecurringJobSpec) {
		return func(j *v1beta2.RecurringJobSpec) { j.Parameters = map[string]string{"full-backup-interval": n} }
	}
	for _, tt := range []struct {
		name      string
		job       v1beta2.RecurringJobSpec
		available bool
		written   int64
		want, err string
		mode      v1beta2.BackupMode
	}{
		{name: "nothing new", job: backupJob("backup", nil), available: true, want: "take a, delete *"},
		{name: "something new", job: backupJob("backup", nil), available: true, written: 1,
			want: "take a, back up a, delete b-old, delete a-old", mode: v1beta2.BackupModeIncremental},
		{name: "forced", job: backupJob("backup-force-create", nil), available: true,
			want: "take a, back up a, delete b-old, delete a-old", mode: v1beta2.BackupModeIncremental},
		{name: "full", job: backupJob("backup", every("1")), available: true,
			want: "take a, back up a, delete b-old, delete a-old", mode: v1beta2.BackupModeFull},
		{name: "not full yet", job: backupJob("backup-force-create", every("2")), available: true,
			want: "take a, back up a, delete b-old, delete a-old", mode: v1beta2.BackupModeIncremental},
		{name: "no target", job: backupJob("backup", nil),
			err: "volume a: backup target default is not available: no answer"},
	} {
		old := backed("b-old", "a-old", 2, "j")
		w := newWorld(t, tt.job, slices.Concat(vol("a", v1beta2.VolumeStateAttached),
			[]client.Object{ready(tt.available), onVolume("a", snap("a-old", 2, "j")), &old})...)
		w.written, w.parent = tt.written, "a-old"
		err := Run(context.Background(), w.cfg)
		if tt.err == "" && err != nil || tt.err != "" && (err == nil || err.Error() != tt.err) {
			t.Errorf("%s: %v", tt.name, err)
		}
		got := strings.Join(w.did, ", ")
		if strings.HasSuffix(tt.want, "*") {
			got, tt.want = got[:min(len(got), len(tt.want)-1)], tt.want[:len(tt.want)-1]
		}
		if got != tt.want {
			t.Errorf("%s: orders %s, want %s", tt.name, strings.Join(w.did, ", "), tt.want)
		}
		for _, b := range w.backups() {
			if b.Name != "b-old" && b.Spec.BackupMode != tt.mode {
				t.Errorf("%s: mode %s", tt.name, b.Spec.BackupMode)
			}
		}
	}
}

// TestBackupThatFails: the error names volume, backup and reason; nothing of before is given up;
// the run that is repeated makes another one. An order that nobody begins is withdrawn.
func TestBackupThatFails(t *testing.T) {
	old := backed("b-old", "a-old", 2, "j")
	w := newWorld(t, backupJob("backup", nil), slices.Concat(vol("a", v1beta2.VolumeStateAttached),
		[]client.Object{ready(true), onVolume("a", snap("a-old", 2, "j")), &old})...)
	w.written, w.broken = 1, "no space"
	err := Run(context.Background(), w.cfg)
	if err == nil || !strings.HasPrefix(err.Error(), "volume a: backup j-c-") ||
		!strings.HasSuffix(err.Error(), "no space") {
		t.Errorf("%v", err)
	}
	if got := strings.Join(w.did, ", "); got != "take a, back up a" {
		t.Errorf("orders %s", got)
	}
	w.broken = ""
	if err := Run(context.Background(), w.cfg); err != nil {
		t.Fatal(err)
	}
	if made := w.backups(); len(made) != 2 { // one has failed
		t.Errorf("%d backups", len(made))
	}

	w = newWorld(t, backupJob("backup", nil), slices.Concat(vol("a", v1beta2.VolumeStateAttached),
		[]client.Object{ready(true)})...)
	w.waits, w.cfg.TakeLimit = "waiting for the engine", 5*time.Millisecond
	err = Run(context.Background(), w.cfg)
	if err == nil || !strings.HasSuffix(err.Error(), "not done after 5ms: waiting for the engine") ||
		len(w.backups()) != 0 {
		t.Errorf("%v, %v", err, w.backups())
	}
}
