package volume_test

import (
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/volume/dataloss"
	"ankole.storage/rest/apitest"
	"ankole.storage/rest/resttest"
)

// lost is a volume at rest whose record names a copy that is on no disk any more: a and b are left.
func lost() []client.Object {
	objects := second(resttest.Volume("demo"))
	v, e := objects[0].(*lh.Volume), objects[1].(*lh.Engine)
	v.UID, e.Spec.Active = "uid", true
	e.Status.Membership = &lh.Membership{VolumeUUID: "uid", Epoch: 9, RecordEpoch: 3, Generation: 7,
		Members: []string{"demo-gone"}}
	for i, o := range []client.Object{objects[2], objects[len(objects)-1]} {
		r := o.(*lh.Replica)
		r.Spec.Active, r.Spec.DataDirectoryName = true, []string{"demo-a", "demo-b"}[i]
		r.Spec.LastHealthyAt = "2026-05-03T10:00:00Z"
	}
	return objects
}

// TestDataLoss: the copies are shown, and a decision about them is written down if it is about what
// was shown.
func TestDataLoss(t *testing.T) {
	objects := lost()
	objects[2].(*lh.Replica).Spec.LastHealthyAt = ""
	f := newFixture(t, resttest.Cluster(objects...)...)
	shown := f.Get("/v1/dataloss/demo")
	if shown["recordEpoch"] != 3.0 || shown["generation"] != 7.0 || shown["refused"] != "" ||
		len(shown["copies"].([]any)) != 2 || shown["members"].([]any)[0] != "demo-gone" {
		t.Fatalf("%v", shown)
	}
	post := func(body string) apitest.Answer { return f.Do("POST", "/v1/dataloss/demo", body) }
	for body, want := range map[string]string{
		`{"members":["demo-b"],"recordEpoch":3,"generation":8}`:    "look again",
		`{"members":["demo-b"],"recordEpoch":4,"generation":7}`:    "look again",
		`{"members":[],"recordEpoch":3,"generation":7}`:            "no copy named",
		`{"members":["demo-x"],"recordEpoch":3,"generation":7}`:    "is no copy of the volume",
		`{"members":["demo-a"],"recordEpoch":3,"generation":7}`:    "never in sync",
		`{"members":["demo-gone"],"recordEpoch":3,"generation":7}`: "is no copy of the volume",
	} {
		f.Refused(post(body), 500, want)
	}
	var v lh.Volume
	if f.Read("demo", &v); v.Annotations[dataloss.Annotation] != "" {
		t.Fatalf("a refused decision is written down: %v", v.Annotations)
	}
	a := post(`{"members":["demo-b"],"recordEpoch":3,"generation":7}`)
	if a.Status != 200 || a.JSON["decided"].([]any)[0] != "demo-b" {
		t.Fatalf("%d %s", a.Status, a.Text)
	}
	f.Read("demo", &v)
	if d, err := dataloss.Of(&v); err != nil || d.RecordEpoch != 3 || d.Generation != 7 || d.Members[0] != "demo-b" {
		t.Errorf("%+v, %v", d, err)
	}
	f.Refused(f.Do("GET", "/v1/dataloss/nope", ""), 404, "not found")
}

// TestDataLossIsRefused where nothing has to be given up, or the copy cannot be reached.
func TestDataLossIsRefused(t *testing.T) {
	for want, edit := range map[string]func(objects []client.Object){
		"serves the volume": func(o []client.Object) {
			e := o[1].(*lh.Engine)
			e.Status.CurrentState = lh.InstanceStateRunning
			e.Status.ReplicaModeMap = map[string]lh.ReplicaMode{"x": lh.ReplicaModeRW}
		},
		"nothing would be given up": func(o []client.Object) {
			o[1].(*lh.Engine).Status.Membership.Members = []string{"demo-b"}
		},
		"which is not ready": func(o []client.Object) { o[len(o)-1].(*lh.Replica).Spec.NodeID = "away" },
	} {
		objects := lost()
		edit(objects)
		f := newFixture(t, resttest.Cluster(objects...)...)
		f.Refused(f.Do("POST", "/v1/dataloss/demo", `{"members":["demo-b"],"recordEpoch":3,"generation":7}`), 500, want)
	}
}
