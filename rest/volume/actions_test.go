package volume_test

import (
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/rest/apitest"
	"ankole.storage/rest/resource"
	"ankole.storage/rest/resttest"
)

// Every action that is built is in the table of types, and so has its states.
func TestBuiltActionsAreDeclared(t *testing.T) {
	declared := map[string]bool{}
	volume, _ := resource.Lookup(resource.TypeVolume)
	for _, a := range volume.Actions {
		declared[a.Name] = true
	}
	for name := range apitest.Routes(apitest.Tables())["/v1/volumes/{name}"].Actions {
		if !declared[name] {
			t.Errorf("%s is served but not declared", name)
		}
	}
}

// second adds another replica, on node-2, to the objects of a volume.
func second(objects []client.Object) []client.Object {
	r := objects[2].DeepCopyObject().(*lh.Replica)
	r.Name, r.Spec.NodeID, r.Spec.DiskID = "demo-r-33333333", "node-2", "uuid-node-2"
	return append(objects, r)
}

func TestReplicaRemove(t *testing.T) {
	f := newFixture(t, resttest.Cluster(second(resttest.Attached())...)...)
	post := func(volume, replica string) apitest.Answer {
		return f.Do("POST", "/v1/volumes/"+volume+"?action=replicaRemove", `{"name":"`+replica+`"}`)
	}
	if a := post("demo", "demo-r-33333333"); a.Status != 200 || len(a.JSON["replicas"].([]any)) != 1 {
		t.Fatalf("%d %s", a.Status, a.Text)
	}
	f.Refused(post("demo", "demo-r-11111111"), 500, "no other healthy replica available")
	f.Refused(post("demo", "demo-r-33333333"), 404, "failed to remove replica demo-r-33333333")
	f.Refused(post("nope", "demo-r-11111111"), 404, "not found")
	far := second(resttest.Attached())
	far[len(far)-1].(*lh.Replica).Spec.NodeID = "node-3" // which is down
	lost := newFixture(t, resttest.Cluster(far...)...)
	lost.Refused(lost.Do("POST", "/v1/volumes/demo?action=replicaRemove", `{"name":"demo-r-11111111"}`), 500,
		"no other healthy replica available")
	other := newFixture(t, resttest.Cluster(append(resttest.Volume("demo"), resttest.Volume("other")...)...)...)
	other.Refused(other.Do("POST", "/v1/volumes/demo?action=replicaRemove", `{"name":"other-r-11111111"}`), 500,
		"belongs to volume other")
}

func TestSalvage(t *testing.T) {
	faulted := func(edit func(v *lh.Volume, first, second *lh.Replica)) *fixture {
		objects := second(resttest.Volume("demo"))
		v, one, two := objects[0].(*lh.Volume), objects[2].(*lh.Replica), objects[4].(*lh.Replica)
		v.Status.Robustness = lh.VolumeRobustnessFaulted
		one.Spec.FailedAt, two.Spec.FailedAt = "2026-05-03T10:00:00Z", "2026-05-03T10:00:00Z"
		edit(v, one, two)
		return newFixture(t, resttest.Cluster(objects...)...)
	}
	const both = `{"names":["demo-r-11111111","demo-r-33333333"]}`
	f := faulted(func(*lh.Volume, *lh.Replica, *lh.Replica) {})
	if actions := f.Get("/v1/volumes/demo")["actions"].(map[string]any); len(actions) != 3 || actions["salvage"] == nil {
		t.Errorf("a faulted volume offers %v", actions)
	}
	if a := f.Do("POST", "/v1/volumes/demo?action=salvage", `{"names":["demo-r-11111111"]}`); a.Status != 200 {
		t.Fatal(a.Text)
	}
	var one, two lh.Replica
	f.Read("demo-r-11111111", &one)
	f.Read("demo-r-33333333", &two)
	if one.Spec.FailedAt != "" || two.Spec.FailedAt == "" {
		t.Errorf("marks: %q, %q", one.Spec.FailedAt, two.Spec.FailedAt)
	}
	for text, edit := range map[string]func(v *lh.Volume, first, second *lh.Replica){
		"unable to salvage volume demo: invalid volume state to salvage": func(v *lh.Volume, _, _ *lh.Replica) {
			v.Status.State = lh.VolumeStateDetaching
		},
		"unable to salvage volume demo: invalid robustness state to salvage": func(v *lh.Volume, _, _ *lh.Replica) {
			v.Status.Robustness = lh.VolumeRobustnessUnknown
		},
		"its node node-3 is down":         func(_ *lh.Volume, _, two *lh.Replica) { two.Spec.NodeID = "node-3" },
		"does not exist":                  func(_ *lh.Volume, _, two *lh.Replica) { two.Spec.NodeID = "node-9" },
		"is not on node node-2":           func(_ *lh.Volume, _, two *lh.Replica) { two.Spec.DiskID = "uuid-node-1" },
		"is not a replica of volume demo": func(_ *lh.Volume, _, two *lh.Replica) { two.Spec.VolumeName = "other" },
	} {
		g := faulted(edit)
		g.Refused(g.Do("POST", "/v1/volumes/demo?action=salvage", both), 500, text)
		g.Read("demo-r-11111111", &one)
		if one.Spec.FailedAt == "" {
			t.Errorf("%s: one of the marks was lifted", text)
		}
	}
	f.Refused(faulted(func(*lh.Volume, *lh.Replica, *lh.Replica) {}).Do("POST", "/v1/volumes/demo?action=salvage",
		`{}`), 500, "no replica named")
}
