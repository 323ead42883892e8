package controller

import (
	"strconv"
	"testing"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"

	"ankole.storage/csi/csitest"
	"ankole.storage/csi/request"
	"ankole.storage/host/luks"
)

// TestEncryptedOrders: the manager is told, a bad Secret is refused before anything is made, and a
// copy is as its source.
func TestEncryptedOrders(t *testing.T) {
	f := newFake()
	c := newController(f)
	r := createRequest("pvc-1", gib)
	r.Parameters = map[string]string{request.ParamEncrypted: "true"}
	r.Secrets = map[string]string{luks.SecretProvider: "vault", luks.SecretValue: "words"}
	_, err := c.CreateVolume(background, r)
	csitest.Wants(t, err, codes.InvalidArgument)
	r.Secrets = map[string]string{luks.SecretPBKDF: "pbkdf2"}
	_, err = c.CreateVolume(background, r)
	csitest.Wants(t, err, codes.InvalidArgument)
	csitest.Says(t, err, luks.SecretValue)
	if len(f.volumes) != 0 {
		t.Fatal("a volume was made")
	}
	r.Secrets = map[string]string{luks.SecretValue: "words"}
	if v := ordered(t, c, r); v.CapacityBytes != gib || !f.volumes["pvc-1"].Encrypted ||
		f.volumes["pvc-1"].Size != strconv.Itoa(gib) {
		t.Errorf("%+v, %+v", v, f.volumes["pvc-1"])
	}
	r.Secrets = nil // the class names none for the provisioner
	ordered(t, c, r)
	r.Parameters = nil
	_, err = c.CreateVolume(background, r)
	csitest.Wants(t, err, codes.AlreadyExists)
	csitest.Says(t, err, "encryption")

	small := createRequest("pvc-2", 16*mib)
	small.Parameters = map[string]string{request.ParamEncrypted: "true"}
	_, err = c.CreateVolume(background, small)
	csitest.Wants(t, err, codes.OutOfRange)
	csitest.Says(t, err, "16 MiB")

	twin := createRequest("pvc-3", gib)
	twin.VolumeContentSource = &spec.VolumeContentSource{Type: &spec.VolumeContentSource_Volume{
		Volume: &spec.VolumeContentSource_VolumeSource{VolumeId: "pvc-1"}}}
	_, err = c.CreateVolume(background, twin)
	csitest.Wants(t, err, codes.InvalidArgument)
	csitest.Says(t, err, "encrypted")

	block := csitest.Capability("", csitest.Once)
	for name, want := range map[string]bool{"pvc-1": true, "pvc-4": false} {
		if name == "pvc-4" {
			ordered(t, c, createRequest(name, gib))
		}
		e, err := c.ControllerExpandVolume(background, &spec.ControllerExpandVolumeRequest{VolumeId: name,
			CapacityRange: &spec.CapacityRange{RequiredBytes: gib}, VolumeCapability: block})
		if err != nil || e.NodeExpansionRequired != want {
			t.Errorf("%s: the node is to expand a block volume: %v, %v; want %v", name, e.GetNodeExpansionRequired(), err, want)
		}
	}
}
