package restore

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/volume/dataloss"
)

const (
	monday, tuesday = "2026-11-23T02:00:00Z", "2026-11-24T02:00:00Z"
)

// TestSeen: a standby volume never goes back to an older backup that it learns of because the newer
// one was deleted, unless that one could not be restored.
func TestSeen(t *testing.T) {
	one, two := Newest{"b1", monday}, Newest{"b2", tuesday}
	for name, c := range map[string]struct {
		before, now Newest
		failed      bool
		held        string
		want        Newest
	}{
		"the first one":                            {Newest{}, one, false, "", one},
		"a newer one":                              {one, two, false, "b1", two},
		"the same":                                 {two, two, false, "b2", two},
		"the newer one is deleted":                 {two, one, false, "b2", two},
		"the newer one is gone and was lost":       {two, one, true, "b1", one},
		"all are deleted":                          {two, Newest{}, false, "b1", two},
		"all are deleted, and it failed":           {two, Newest{}, true, "b1", Newest{"b1", ""}},
		"all are deleted, and it failed again":     {two, Newest{}, true, "b2", two},
		"all are deleted, and it was never filled": {two, Newest{}, true, "", two},
		"there is one again":                       {Newest{"b1", ""}, two, false, "b1", two},
		"another one of the same time":             {one, Newest{"b3", monday}, false, "b1", Newest{"b3", monday}},
		"a time that cannot be read":               {two, Newest{"b3", ""}, false, "b2", Newest{"b3", ""}},
	} {
		if got := Seen(c.before, c.now, c.failed, c.held); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestNext: an ordinary volume holds the backup it is made from; a standby volume the newest one,
// one after the other, until it is activated.
func TestNext(t *testing.T) {
	for name, c := range map[string]struct {
		spec, status bool
		newest       string
		requested    string
		running      bool
		want         string
	}{
		"ordinary":                       {newest: "b2", want: "b1"},
		"ordinary, requested":            {newest: "b2", requested: "b1", want: "b1"},
		"standby":                        {spec: true, status: true, newest: "b2", want: "b2"},
		"standby, backups not known yet": {spec: true, status: true, want: "b1"},
		"standby, the next one":          {spec: true, status: true, newest: "b3", requested: "b2", want: "b3"},
		"standby, one is under way": {spec: true, status: true, newest: "b3", requested: "b2", running: true,
			want: "b2"},
		"being activated":                   {status: true, newest: "b3", requested: "b2", want: "b3"},
		"being activated, one is under way": {status: true, newest: "b3", requested: "b2", running: true, want: "b2"},
	} {
		v := &v1beta2.Volume{Spec: v1beta2.VolumeSpec{Standby: c.spec},
			Status: v1beta2.VolumeStatus{IsStandby: c.status, LastBackup: c.newest}}
		if got := Next(v, "b1", c.requested, c.running); got != c.want {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// TestFilling: a standby volume is nobody's before it is activated, and takes replicas between two
// backups.
func TestFilling(t *testing.T) {
	for name, c := range map[string]struct {
		standby         bool
		status          v1beta2.ConditionStatus
		reason          string
		needed, filling bool
	}{
		"new":                      {standby: true, needed: true, filling: true},
		"under way":                {standby: true, status: "True", needed: true, filling: true},
		"at rest":                  {standby: true, status: "False", needed: true},
		"failed":                   {standby: true, status: "False", reason: "RestoreFailure", needed: true, filling: true},
		"ordinary, before the end": {status: "False", needed: true, filling: true},
	} {
		v := &v1beta2.Volume{Spec: v1beta2.VolumeSpec{FromBackup: "x"}}
		v.Status.IsStandby, v.Status.RestoreInitiated, v.Status.RestoreRequired = c.standby, true, true
		if c.status != "" {
			v.Status.Conditions = []v1beta2.Condition{{Type: v1beta2.VolumeConditionRestore, Status: c.status, Reason: c.reason}}
		}
		if Needed(v) != c.needed || Filling(v) != c.filling {
			t.Errorf("%s: needed %v, filling %v", name, Needed(v), Filling(v))
		}
		v.Status.IsStandby, v.Status.RestoreRequired = false, false
		if Needed(v) || Filling(v) {
			t.Errorf("%s: it is whole", name)
		}
	}
}

// TestPauseOfAStandbyVolume: it does not grow with the age of the volume.
func TestPauseOfAStandbyVolume(t *testing.T) {
	v := &v1beta2.Volume{}
	v.Status.IsStandby = true
	v.CreationTimestamp = metav1.NewTime(time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC))
	v.Status.Conditions = []v1beta2.Condition{{Type: v1beta2.VolumeConditionRestore, Status: v1beta2.ConditionFalse,
		Reason: v1beta2.VolumeReasonRestoreFailure, LastTransitionTime: monday}}
	if failed, next := Failed(v); !failed || next.Format(time.RFC3339) != "2026-11-23T02:05:00Z" {
		t.Errorf("%v %s", failed, next)
	}
}

// TestPauseWhereDamageIsAccepted: who has decided does not wait for as long as the attempts without
// that have made it.
func TestPauseWhereDamageIsAccepted(t *testing.T) {
	v := &v1beta2.Volume{Spec: v1beta2.VolumeSpec{FromBackup: "x"}}
	v.CreationTimestamp = metav1.NewTime(time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC))
	v.Status.Conditions = []v1beta2.Condition{{Type: v1beta2.VolumeConditionRestore, Status: v1beta2.ConditionFalse,
		Reason: v1beta2.VolumeReasonRestoreFailure, LastTransitionTime: monday}}
	for value, want := range map[string]string{"": "2026-11-23T03:00:00Z",
		dataloss.DamageAccepted: "2026-11-23T02:00:30Z"} {
		v.Annotations = map[string]string{dataloss.DamageAnnotation: value}
		if failed, next := Failed(v); !failed || next.Format(time.RFC3339) != want {
			t.Errorf("%q: %v %s", value, failed, next)
		}
	}
}
