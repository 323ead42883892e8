package job

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/naming"
)

var testNow = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// snap is a snapshot taken some hours ago; marks: j made by job j, s by the system, m marked as
// removed, d deleted, o only ordered, c for a copy, h the head stands on it, b two stand on it.
func snap(name string, hours int, marks string) v1beta2.Snapshot {
	at := testNow.Add(-time.Duration(hours) * time.Hour)
	s := v1beta2.Snapshot{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name,
		CreationTimestamp: metav1.Time{Time: at}, Labels: naming.VolumeLabels("v")}}
	s.Spec.Volume, s.Status.UserCreated, s.Status.CreationTime = "v", true, at.Format(time.RFC3339)
	s.Status.Labels, s.Status.Children = map[string]string{}, map[string]bool{}
	for _, mark := range marks {
		switch mark {
		case 'j':
			s.Status.Labels[naming.LabelRecurringJob] = "j"
		case 's':
			s.Status.UserCreated = false
		case 'm':
			s.Status.MarkRemoved = true
		case 'd':
			s.DeletionTimestamp = &metav1.Time{Time: testNow}
			s.Finalizers = []string{"test"}
		case 'o':
			s.Status = v1beta2.SnapshotStatus{}
			s.Spec.Labels = map[string]string{naming.LabelRecurringJob: "j"}
		case 'c':
			s.Status.Labels[naming.LabelForCloningVolume] = "w"
		case 'h':
			s.Status.Children[v1beta2.VolumeHeadName] = true
		case 'b':
			s.Status.Children["x"], s.Status.Children["y"] = true, true
		}
	}
	return s
}

// TestPlan is the table of docs/guide/recurring-jobs.md.
func TestPlan(t *testing.T) {
	four := []v1beta2.Snapshot{snap("j2", 2, "j"), snap("j4", 4, "j"), snap("user", 5, ""), snap("j3", 3, "j"),
		snap("j1", 1, "j")}
	mixed := []v1beta2.Snapshot{snap("new", 1, ""), snap("sys", 2, "s"), snap("marked", 3, "m"), snap("mid", 4, "j"),
		snap("copy", 5, "c"), snap("old", 6, "")}
	for _, tt := range []struct {
		name   string
		task   v1beta2.RecurringJobTask
		retain int
		age    string
		have   []v1beta2.Snapshot
		want   string
	}{
		{name: "first", task: "snapshot", retain: 3, want: "- create mine"},
		{name: "room for one more", task: "snapshot", retain: 5, have: four, want: "- create mine"},
		{name: "oldest goes", task: "snapshot", retain: 4, have: four, want: "j4 - create mine"},
		{name: "others stay", task: "snapshot", retain: 1, have: four, want: "j4 j3 j2 j1 - create mine"},
		{name: "forced", task: "snapshot-force-create", retain: 2, have: four, want: "j4 j3 j2 - create mine"},
		{name: "repeated", task: "snapshot", retain: 2, have: []v1beta2.Snapshot{snap("mine", 0, "j"), snap("j1", 1, "j")},
			want: "- create mine"},
		{name: "one is still ordered", task: "snapshot", retain: 2,
			have: []v1beta2.Snapshot{snap("ordered", 1, "o"), snap("j2", 2, "j")}, want: "j2 - create mine"},
		{name: "deletions are seen through", task: "snapshot", retain: 2,
			have: []v1beta2.Snapshot{snap("going", 3, "jd"), snap("marked", 2, "jm"), snap("j1", 1, "j")},
			want: "going marked - create mine"},
		{name: "by age", task: "snapshot", retain: 1, age: "150m", have: four, want: "j4 j3 - create mine"},
		{name: "clean up", task: "snapshot-cleanup", have: mixed, want: "marked sys -"},
		{name: "nothing to clean", task: "snapshot-cleanup", have: four, want: "-"},
		{name: "delete", task: "snapshot-delete", retain: 1, have: mixed, want: "marked sys old mid -"},
		{name: "delete all", task: "snapshot-delete", retain: 0, have: mixed, want: "marked sys old mid new -"},
		{name: "trim", task: "filesystem-trim", have: mixed, want: "-"},
	} {
		j := &v1beta2.RecurringJob{ObjectMeta: metav1.ObjectMeta{Name: "j"}}
		j.Spec = v1beta2.RecurringJobSpec{Task: tt.task, Retain: tt.retain,
			RetentionPolicy: v1beta2.RetentionPolicyCountBased}
		if tt.age != "" {
			j.Spec.RetentionPolicy, j.Spec.RetainAge = v1beta2.RetentionPolicyAgeBased, tt.age
		}
		p := planFor(testNow, j, "mine", tt.have)
		got := strings.TrimSpace(strings.Join(append(p.remove, "-"), " "))
		if p.create != "" {
			got += " create " + p.create
		}
		if got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
		if p.empty() != (tt.want == "-") {
			t.Errorf("%s: empty %v", tt.name, p.empty())
		}
	}
}

// TestUnfit: which volumes are left alone.
func TestUnfit(t *testing.T) {
	attached := func(v *v1beta2.Volume) { v.Status.State = v1beta2.VolumeStateAttached }
	for _, tt := range []struct {
		name     string
		edit     func(*v1beta2.Volume)
		task     v1beta2.RecurringJobTask
		detached bool
		want     string
	}{
		{"attached", attached, "snapshot", false, ""},
		{"being attached", func(v *v1beta2.Volume) { v.Status.State = v1beta2.VolumeStateAttaching }, "snapshot", false, ""},
		{"detached", nil, "snapshot", false, "allow-recurring-job-while-volume-detached"},
		{"detached, allowed", nil, "snapshot", true, ""},
		{"detached, trim", nil, "filesystem-trim", true, "no file system is mounted"},
		{"trim", attached, "filesystem-trim", false, ""},
		{"faulted", func(v *v1beta2.Volume) { v.Status.Robustness = v1beta2.VolumeRobustnessFaulted }, "snapshot", true,
			"faulted"},
		{"standby", func(v *v1beta2.Volume) { attached(v); v.Status.IsStandby = true }, "snapshot", true, "standby"},
		{"restoring", func(v *v1beta2.Volume) { attached(v); v.Status.RestoreRequired = true }, "snapshot", true, "restored"},
		{"deleted", func(v *v1beta2.Volume) {
			attached(v)
			v.DeletionTimestamp = &metav1.Time{Time: testNow}
		}, "snapshot", true, "deleted"},
		{"being cloned", func(v *v1beta2.Volume) {
			attached(v)
			v.Spec.DataSource, v.Status.CloneStatus.State = "vol://w", v1beta2.VolumeCloneStateInitiated
		}, "snapshot", true, "filled"},
	} {
		v := &v1beta2.Volume{}
		v.Status.State = v1beta2.VolumeStateDetached
		if tt.edit != nil {
			tt.edit(v)
		}
		got := unfit(v, tt.task, tt.detached)
		if tt.want == "" && got != "" || !strings.Contains(got, tt.want) {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}
