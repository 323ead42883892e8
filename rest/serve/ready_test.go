package serve_test

import (
	"strings"
	"testing"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/rest/resttest"
)

// TestReady is the table of when a workload may use a detached volume, by the places of its
// replicas.
func TestReady(t *testing.T) {
	unplaced := func(_ *lh.Volume, r *lh.Replica) { r.Spec.NodeID = "" }
	for _, c := range []struct {
		name     string
		locality lh.DataLocality
		status   lh.ConditionStatus // of Scheduled
		edit     func(*lh.Volume, *lh.Replica)
		want     string // part of the reason why not, empty for ready
	}{
		{"placed", lh.DataLocalityDisabled, lh.ConditionTrue, nil, ""},
		{"not placed", lh.DataLocalityDisabled, lh.ConditionFalse, unplaced, "replicas are not scheduled: no room"},
		{"not placed yet", lh.DataLocalityDisabled, "", unplaced, "replicas are not scheduled"},
		{"best-effort, placed when it is attached", lh.DataLocalityBestEffort, "", unplaced, ""},
		{"strict-local, placed when it is attached", lh.DataLocalityStrictLocal, "", unplaced, ""},
		{"best-effort, was refused", lh.DataLocalityBestEffort, lh.ConditionFalse, unplaced, "no room"},
		{"one is enough", lh.DataLocalityDisabled, lh.ConditionTrue, unplaced, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			objects := resttest.Volume("demo")
			v, r := objects[0].(*lh.Volume), objects[2].(*lh.Replica)
			v.Spec.DataLocality, v.Status.Conditions = c.locality, nil
			if c.status != "" {
				v.Status.Conditions = []lh.Condition{{Type: lh.VolumeConditionScheduled, Status: c.status, Message: "no room"}}
			}
			if c.edit != nil {
				c.edit(v, r)
			}
			f := newFixture(t, resttest.Cluster(objects...)...)
			got := f.Get("/v1/volumes/demo")
			why, _ := got["notReadyMessage"].(string)
			if got["ready"] != (c.want == "") || !strings.Contains(why, c.want) || c.want == "" && why != "" {
				t.Errorf("ready %v, %q, want %q", got["ready"], why, c.want)
			}
		})
	}
}
