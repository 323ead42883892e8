package volume_test

import (
	"testing"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/rest/apitest"
	"ankole.storage/rest/resttest"
)

// TestCloneOfASnapshot: one that the source does not have, or that is marked as removed, is
// refused at once.
func TestCloneOfASnapshot(t *testing.T) {
	objects := resttest.Volume("demo")
	objects[1].(*lh.Engine).Status.Snapshots = map[string]lh.SnapshotInfo{"s": {Name: "s"},
		"old": {Name: "old", Removed: true}}
	f := newFixture(t, resttest.Cluster(objects...)...)
	create := func(source string) apitest.Answer {
		return f.Do("POST", "/v1/volumes", `{"name":"copy","size":"20Gi","numberOfReplicas":2,"dataSource":"`+source+`"}`)
	}
	f.Refused(create("snap://demo/none"), 500, "failed to verify data source: volume demo has no snapshot none")
	f.Refused(create("snap://demo/old"), 500, "is marked as removed")
	if a := create("snap://demo/s"); a.Status != 200 || a.JSON["dataSource"] != "snap://demo/s" {
		t.Errorf("%d %s", a.Status, a.Text)
	}
}

// TestCloneOfASnapshotJustTaken: what no object shows yet, a running engine is asked for.
func TestCloneOfASnapshotJustTaken(t *testing.T) {
	f, _ := snapshotFixture(t, unchanged)
	create := func(source string) apitest.Answer {
		return f.Do("POST", "/v1/volumes", `{"name":"copy","size":"20Gi","numberOfReplicas":2,"dataSource":"`+source+`"}`)
	}
	f.Refused(create("snap://demo/none"), 500, "failed to verify data source: volume demo has no snapshot none")
	if a := create("snap://demo/s1"); a.Status != 200 || a.JSON["dataSource"] != "snap://demo/s1" {
		t.Errorf("%d %s", a.Status, a.Text)
	}
	f = newFixture(t, resttest.Cluster(resttest.Attached()...)...)
	f.Refused(create("snap://demo/s1"), 500,
		"failed to verify data source: asking volume demo for snapshot s1: no manager leads")
}

// TestCloneProgress is that of the engine while it copies, and the whole afterwards.
func TestCloneProgress(t *testing.T) {
	objects := resttest.Volume("demo")
	v := objects[0].(*lh.Volume)
	v.Spec.DataSource, v.Status.CloneStatus.State = "vol://other", lh.VolumeCloneStateInitiated
	objects[1].(*lh.Engine).Status.CloneStatus = map[string]lh.SnapshotCloneStatus{"tcp://a": {Progress: 42}}
	for state, want := range map[lh.VolumeCloneState]float64{lh.VolumeCloneStateInitiated: 42,
		lh.VolumeCloneStateCopyCompletedUnhealthy: 100, lh.VolumeCloneStateCompleted: 100} {
		v.Status.CloneStatus.State = state
		f := newFixture(t, resttest.Cluster(objects...)...)
		if got := f.Get("/v1/volumes/demo")["cloneStatus"].(map[string]any)["progress"]; got != want {
			t.Errorf("%s: %v, want %v", state, got, want)
		}
	}
}
