package controller

import (
	"context"
	"strings"
	"testing"

	spec "github.com/container-storage-interface/spec/lib/go/csi"

	"ankole.storage/csi/csitest"
	"ankole.storage/csi/request"
	"ankole.storage/rest/resource"
)

// TestContentIsTold: the node is told of a volume that has content.
func TestContentIsTold(t *testing.T) {
	for name, change := range map[string]func(v *resource.Volume){
		"":             func(*resource.Volume) {},
		"vol://source": func(v *resource.Volume) { v.DataSource = "vol://source"; v.CloneStatus.State = "completed" },
		"s3://backup":  func(v *resource.Volume) { v.FromBackup = "s3://backup" },
		"image":        func(v *resource.Volume) { v.BackingImage = "image" },
		"Pod a/b has run": func(v *resource.Volume) {
			v.Conditions = map[string]resource.Condition{"HasContent": {Status: "True", Message: "Pod a/b has run"}}
		},
	} {
		f := newFake()
		c := newController(f)
		ordered(t, c, createRequest("pvc-1", gib))
		change(f.volumes["pvc-1"])
		r, err := c.ControllerPublishVolume(context.Background(), &spec.ControllerPublishVolumeRequest{VolumeId: "pvc-1",
			NodeId: "node-1", VolumeCapability: csitest.Capability("ext4", csitest.Once)})
		if err != nil {
			t.Fatal(err)
		}
		got, told := r.PublishContext[request.ContextContent]
		if told != (name != "") || !strings.Contains(got, name) {
			t.Errorf("%s: the node is told %q", name, got)
		}
		if r.PublishContext[request.ContextDevice] != "/dev/longhorn/pvc-1" {
			t.Errorf("%v", r.PublishContext)
		}
	}
}

// TestEncryptionIsTold: the node is told of a volume that is encrypted, and of no other.
func TestEncryptionIsTold(t *testing.T) {
	for _, is := range []bool{false, true} {
		f := newFake()
		c := newController(f)
		ordered(t, c, createRequest("pvc-1", gib))
		f.volumes["pvc-1"].Encrypted = is
		r, err := c.ControllerPublishVolume(background, &spec.ControllerPublishVolumeRequest{VolumeId: "pvc-1",
			NodeId: "node-1", VolumeCapability: csitest.Capability("ext4", csitest.Once)})
		if err != nil {
			t.Fatal(err)
		}
		if said, told := r.PublishContext[request.ContextEncrypted]; told != is || (said == "true") != is {
			t.Errorf("encrypted: %v; the node is told %v", is, r.PublishContext)
		}
	}
}
