package volume_test

import (
	"testing"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/volume/dataloss"
	"ankole.storage/rest/resttest"
)

// TestDecisionsAboutDamagedBackups is the table of who may decide what, and what is shown.
func TestDecisionsAboutDamagedBackups(t *testing.T) {
	filling := func(v *lh.Volume) {
		v.Spec.FromBackup = "s3://b@r/?backup=b1&volume=w"
		v.Status.RestoreInitiated, v.Status.RestoreRequired = true, true
	}
	failed := func(v *lh.Volume) {
		filling(v)
		v.Status.Conditions = []lh.Condition{{Type: "Restore", Status: lh.ConditionFalse, Reason: "RestoreFailure",
			Message: "2 blocks are damaged"}}
	}
	zeroed := func(v *lh.Volume) {
		filling(v)
		v.Status.RestoreRequired = false
		v.Status.Conditions = []lh.Condition{{Type: "BackupDamage", Status: lh.ConditionTrue, Message: "zero: [0, 5)"}}
	}
	for name, c := range map[string]struct {
		edit     func(*lh.Volume)
		decision string
		want     string // the annotation
		refused  string
		shown    map[string]any
		held     string
	}{
		"accept, at once": {filling, "accept", dataloss.DamageAccepted, "",
			map[string]any{"restoring": true, "accepted": true, "problem": "", "damage": ""}, ""},
		"accept, after an attempt": {failed, "accept", dataloss.DamageAccepted, "",
			map[string]any{"accepted": true, "problem": "2 blocks are damaged"}, ""},
		"accept, too late": {zeroed, "accept", "", "acknowledge what is zero", nil, ""},
		"acknowledge": {zeroed, "acknowledge", dataloss.DamageAcknowledged, "",
			map[string]any{"damage": "", "restoring": false}, ""},
		"acknowledge, too early": {filling, "acknowledge", "", "nothing to acknowledge", nil, ""},
		"nothing to decide":      {func(*lh.Volume) {}, "accept", "", "not made of a backup", nil, ""},
		"whole": {func(v *lh.Volume) {
			zeroed(v)
			v.Status.Conditions = nil
		}, "acknowledge", "", "holds all of its backup", nil, ""},
		"a standby volume": {func(v *lh.Volume) {
			filling(v)
			v.Spec.Standby, v.Status.IsStandby = true, true
		}, "accept", "", "later ones would not bring what is zero", nil, ""},
		"one that is being activated": {func(v *lh.Volume) {
			failed(v)
			v.Status.IsStandby = true
		}, "accept", dataloss.DamageAccepted, "", map[string]any{"accepted": true, "activating": true, "held": "b0"}, "b0"},
		"one that never held anything": {func(v *lh.Volume) {
			failed(v)
			v.Status.IsStandby = true
		}, "accept", "", "never held a backup", nil, ""},
		"one whose activation goes on": {func(v *lh.Volume) {
			filling(v)
			v.Status.IsStandby = true
		}, "accept", "", "nothing has failed", nil, "b0"},
		"something else": {filling, "yes", "", `"yes" is none of accept, acknowledge`, nil, ""},
	} {
		objects := resttest.Volume("demo")
		c.edit(objects[0].(*lh.Volume))
		objects[1].(*lh.Engine).Status.LastRestoredBackup = c.held
		f := newFixture(t, resttest.Cluster(objects...)...)
		a := f.Do("POST", "/v1/backupdamage/demo", `{"decision":"`+c.decision+`"}`)
		if c.refused != "" {
			f.Refused(a, 500, c.refused)
		} else if a.Status != 200 {
			t.Errorf("%s: %d %s", name, a.Status, a.Text)
		}
		for key, value := range c.shown {
			if got := f.Get("/v1/backupdamage/demo")[key]; got != value {
				t.Errorf("%s: %s is %v, want %v", name, key, got, value)
			}
		}
		var v lh.Volume
		if f.Read("demo", &v); v.Annotations[dataloss.DamageAnnotation] != c.want {
			t.Errorf("%s: annotation %q", name, v.Annotations[dataloss.DamageAnnotation])
		}
	}
	f := newFixture(t)
	f.Refused(f.Do("GET", "/v1/backupdamage/nope", ""), 404, "not found")
}
