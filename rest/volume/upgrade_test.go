package volume_test

import (
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/rest/resttest"
)

// upgradable is a cluster with an attached volume, and two more images on the nodes that run.
func upgradable() []client.Object {
	objects := resttest.Cluster(resttest.Attached()...)
	objects[3].(*lh.EngineImage).Status.Version = "v1"
	for _, image := range []string{"ankole/engine:next", "ankole/engine:third"} {
		ei := resttest.DeployedImage("node-1", "node-2")
		ei.Name, ei.Spec.Image, ei.Status.Version = naming.EngineImageName(image), image, image
		objects = append(objects, ei)
	}
	return objects
}

// TestE3EngineUpgrade: the action changes the image that is wanted, and back; what
// engineupgrade.Manual refuses is refused in the words that clients look for.
func TestE3EngineUpgrade(t *testing.T) {
	const url = "/v1/volumes/demo?action=engineUpgrade"
	const own = resttest.Image
	f := newFixture(t, upgradable()...)
	if a := f.Do("POST", url, `{"image":"ankole/engine:next"}`); a.Status != 200 ||
		a.JSON["image"] != "ankole/engine:next" || a.JSON["currentImage"] != own {
		t.Fatalf("%d %s", a.Status, a.Text)
	}
	const prefix = "cannot upgrade engine for volume demo using image "
	f.Refused(f.Do("POST", url, `{"image":"ankole/engine:next"}`), 500, prefix+"ankole/engine:next: the volume has")
	f.Refused(f.Do("POST", url, `{"image":"ankole/engine:third"}`), 500, "is being upgraded to ankole/engine:next")
	if a := f.Do("POST", url, `{"image":"`+own+`"}`); a.Status != 200 || a.JSON["image"] != own {
		t.Fatalf("roll-back: %d %s", a.Status, a.Text)
	}
	f.Refused(f.Do("POST", url, `{}`), 500, "no engine image named")
	f.Refused(f.Do("POST", url, `{"image":"none"}`), 500, "does not exist")
	f.Refused(f.Do("POST", "/v1/volumes/nope?action=engineUpgrade", `{"image":"x"}`), 404, "not found")
	f.Do("PUT", "/v1/settings/concurrent-automatic-engine-upgrade-per-node-limit", `{"value":"3"}`)
	f.Refused(f.Do("POST", url, `{"image":"ankole/engine:next"}`), 500, "the default engine image")
}
