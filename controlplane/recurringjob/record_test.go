package recurringjob

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ankole.storage/api/longhorn/v1beta2"
)

const (
	ofJob   = "recurring-job.longhorn.io/"
	ofGroup = "recurring-job-group.longhorn.io/"
)

func jobNamed(name, cron string, groups ...string) v1beta2.RecurringJob {
	return v1beta2.RecurringJob{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1beta2.RecurringJobSpec{Name: name,
		Task: v1beta2.RecurringJobTaskBackup, Cron: cron, Groups: groups, Retain: 90, Concurrency: 2,
		Labels: map[string]string{}, Parameters: map[string]string{}}}
}

// fewer are jobs as they are where at most 50 results may be retained.
func fewer(jobs []v1beta2.RecurringJob) (out []v1beta2.RecurringJob) {
	for _, j := range jobs {
		j.Spec.Retain = 50
		out = append(out, j)
	}
	return out
}

// TestRecordAndRestored: what a backup keeps of recurring jobs gives them back where they are
// missing, in no group, and leaves alone those that are there.
func TestRecordAndRestored(t *testing.T) {
	jobs := []v1beta2.RecurringJob{jobNamed("nightly", "@daily", "default"), jobNamed("own", "@hourly"),
		jobNamed("weekly", "@weekly", "rare", "other"), jobNamed("foreign", "@daily", "elsewhere")}
	mine := map[string]string{ofJob + "own": "enabled", ofGroup + "rare": "enabled"}
	for _, tt := range []struct {
		name         string
		labels       map[string]string
		have         []v1beta2.RecurringJob
		made, follow string
	}{
		{"none is there", mine, nil, "own@hourly[] weekly@weekly[]", ofJob + "own " + ofJob + "weekly"},
		{"all are there", mine, fewer(jobs), "", ofGroup + "rare " + ofJob + "own"},
		{"in group default", nil, nil, "nightly@daily[]", ofJob + "nightly"},
		{"in group default, and it is there", nil, fewer(jobs), "", ofGroup + "default"},
		{"there, and in no group", mine, fewer([]v1beta2.RecurringJob{jobNamed("weekly", "@weekly"), jobs[1]}), "",
			ofJob + "own " + ofJob + "weekly"},
		{"the name is taken", mine, fewer([]v1beta2.RecurringJob{jobNamed("own", "@yearly"), jobs[2]}),
			"restored-recurring-job-*@hourly[]", ofGroup + "rare " + ofJob + "restored-recurring-job-*"},
	} {
		v := &v1beta2.Volume{ObjectMeta: metav1.ObjectMeta{Labels: tt.labels}}
		missing, labels, err := Restored(Record(v, jobs), tt.have, 50)
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
		var made []string
		for _, j := range missing {
			made = append(made, fmt.Sprintf("%s%s%v", j.Name, j.Spec.Cron, j.Spec.Groups))
			if j.Spec.Retain != 50 || j.Spec.Name != j.Name || len(j.Name) > 40 {
				t.Errorf("%s: %+v", tt.name, j)
			}
		}
		follow := strings.Join(slices.Sorted(maps.Keys(labels)), " ")
		if !matches(strings.Join(made, " "), tt.made) || !matches(follow, tt.follow) {
			t.Errorf("%s: made %v, follows %s", tt.name, made, follow)
		}
		// The next look finds them, and makes nothing.
		for _, j := range missing {
			tt.have = append(tt.have, *j)
		}
		again, then, err := Restored(Record(v, jobs), tt.have, 50)
		if err != nil || len(again) > 0 || !maps.Equal(then, labels) {
			t.Errorf("%s: made again %v, labels %v, %v", tt.name, again, then, err)
		}
	}
	if r := Record(&v1beta2.Volume{ObjectMeta: metav1.ObjectMeta{Labels: mine}}, jobs[3:]); r != "" {
		t.Errorf("a job that it does not follow is kept: %s", r)
	}
	if _, _, err := Restored("{", nil, 0); err == nil {
		t.Error("nonsense is read")
	}
}

// matches compares with a text in which a star stands for what follows a dash.
func matches(got, want string) bool {
	before, after, any := strings.Cut(want, "*")
	return got == want || any && strings.HasPrefix(got, before) && strings.HasSuffix(got, after)
}
