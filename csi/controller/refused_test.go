package controller

import (
	"testing"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"

	"ankole.storage/csi/csitest"
	"ankole.storage/csi/request"
)

// TestNothingOfTheNodeIsAskedFor: a class and a claim bring no file of a node into a volume: such
// arguments of mkfs and such mount options are refused before anything is made.
func TestNothingOfTheNodeIsAskedFor(t *testing.T) {
	f := newFake()
	c := newController(f)
	r := createRequest("vol-1", gib)
	r.Parameters = map[string]string{request.ParamMkfs: "-d /etc"}
	_, err := c.CreateVolume(background, r)
	csitest.Wants(t, err, codes.InvalidArgument)
	csitest.Says(t, err, request.ParamMkfs)
	r.Parameters = nil
	r.VolumeCapabilities = []*spec.VolumeCapability{csitest.Capability("ext4", csitest.Once, "journal_path=/dev/sda")}
	_, err = c.CreateVolume(background, r)
	csitest.Wants(t, err, codes.InvalidArgument)
	csitest.Says(t, err, "journal_path")
	if f.orders != 0 {
		t.Errorf("%d volumes were ordered", f.orders)
	}
}
