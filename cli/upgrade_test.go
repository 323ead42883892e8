package cli

import (
	"encoding/json"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/rest/resttest"
)

// otherImage is an engine image beside the default one.
const otherImage = "ankole/engine:next"

// upgradeBed is a cluster with two engine images, and volumes that have one of them or are on the
// way from one to the other.
func upgradeBed(t *testing.T) *bed {
	t.Helper()
	other := resttest.DeployedImage("node-1", "node-2")
	other.ObjectMeta = resttest.Meta(naming.EngineImageName(otherImage))
	other.Spec.Image = otherImage
	objects := []client.Object{other}
	for name, image := range map[string][2]string{ // by volume: wanted and current
		"still": {resttest.Image, resttest.Image}, "done": {otherImage, otherImage}, "comes": {otherImage, resttest.Image},
		"returns": {resttest.Image, otherImage},
	} {
		attached := resttest.Volume(name)
		resttest.Attach(attached, "node-1", "/dev/longhorn/"+name)
		v := attached[0].(*lh.Volume)
		v.Spec.Image, v.Status.CurrentImage = image[0], image[1]
		objects = append(objects, attached...)
	}
	b := newBed(t, resttest.Cluster(append(objects, resttest.Volume("new")...)...)...)
	for _, image := range []string{resttest.Image, otherImage} {
		var e lh.EngineImage
		key := client.ObjectKey{Namespace: "longhorn-system", Name: naming.EngineImageName(image)}
		if err := b.client.Get(t.Context(), key, &e); err != nil {
			t.Fatal(err)
		}
		e.Status.Version, e.Status.GitCommit, e.Status.RefCount = "dev", "commit of "+image, 7
		e.Status.ControllerAPIMinVersion, e.Status.ControllerAPIVersion = 3, 8
		e.Status.NodeDeploymentMap["node-3"] = image == resttest.Image
		if err := b.client.Status().Update(t.Context(), &e); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

// TestEngineImageList: a user sees which images there are and how far upgrades are.
func TestEngineImageList(t *testing.T) {
	b := upgradeBed(t)
	for name, args := range map[string][]string{
		"engine-image-list":      {"engine-image", "list"},
		"engine-image-list-wide": {"engine-image", "ls", "-o", "wide"},
	} {
		r := b.run(args...)
		if r.status != exitOK || r.err != "" {
			t.Fatalf("status %d, %s", r.status, r.err)
		}
		golden(t, name, r.out)
	}
	var rows []engineImageRow
	if err := json.Unmarshal([]byte(b.run("engine-image", "list", "-o", "json").out), &rows); err != nil {
		t.Fatal(err)
	}
	sum := 0
	for _, row := range rows {
		sum += row.Volumes
		if row.Total != 5 || row.Coming != 1 || row.Leaving != 1 {
			t.Errorf("%s: %d of %d volumes, %d come, %d leave", row.Image, row.Volumes, row.Total, row.Coming, row.Leaving)
		}
	}
	if sum != 5 {
		t.Errorf("each volume has one image, but %d of 5 are counted", sum)
	}
}

// TestVolumeUpgrade: the command names what is under way, ends when the volume has the image, and
// tells why it does not get it.
func TestVolumeUpgrade(t *testing.T) {
	for _, tt := range []struct {
		name, args string
		status     int
		out, err   string
	}{
		{"not waiting", "still --image " + otherImage + " --wait=false", exitOK,
			"volume still is being upgraded from " + resttest.Image + " to " + otherImage + "\n", ""},
		{"to the default", "done --wait=false", exitOK,
			"volume done is being upgraded from " + otherImage + " to " + resttest.Image + "\n", ""},
		{"taken back", "comes --image " + resttest.Image, exitOK, "volume comes: engine image " + resttest.Image + "\n", ""},
		{"nobody upgrades here", "still --image " + otherImage + " --timeout 300ms", exitError, "",
			"volume still is not upgraded to " + otherImage + " after 300ms"},
		{"it has it", "still", exitError, "", "has, or is getting, this engine image already"},
		{"an unknown image", "still --image nope", exitError, "", "engine image nope does not exist"},
		{"an unknown volume", "nope", exitError, "", "volume nope not found; list volumes with: ankole volume list"},
	} {
		r := upgradeBed(t).run(append([]string{"volume", "upgrade"}, strings.Fields(tt.args)...)...)
		if r.status != tt.status || r.out != tt.out || !strings.Contains(r.err, tt.err) || tt.err == "" && r.err != "" {
			t.Errorf("%s: %+v", tt.name, r)
		}
	}
}
