package controller

import (
	"strings"
	"testing"
	"testing/synctest"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"

	"ankole.storage/csi/csitest"
	"ankole.storage/rest/resource"
)

const exportedID = "bi://backing?backingImage=snapshot-1&backingImageDataSourceType=export-from-volume&export-type=qcow2" +
	"&volume-name=vol-1"

// imageSnapshot asks for a snapshot of a volume in an image.
func imageSnapshot(c *Server, volume string) (*spec.Snapshot, error) {
	resp, err := c.CreateSnapshot(background, &spec.CreateSnapshotRequest{SourceVolumeId: volume, Name: "snapshot-1",
		Parameters: map[string]string{"type": "bi", "exportType": "qcow2", "diskSelector": "fast, large"}})
	return resp.GetSnapshot(), err
}

// withImages is a controller with two volumes, whose manager makes images.
func withImages(t *testing.T) (*imaging, *Server) {
	t.Helper()
	m := newImaging()
	c := newController(newFake())
	c.manager = m
	ordered(t, c, createRequest("vol-1", gib))
	ordered(t, c, createRequest("vol-2", gib))
	return m, c
}

// TestSnapshotInAnImage: a snapshot in an image is ordered once, told to be ready when the image
// is, made into a volume that lies on it, and deleted with it.
func TestSnapshotInAnImage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, c := withImages(t)
		m.left = 4
		s, err := imageSnapshot(c, "vol-1")
		csitest.Wants(t, err, codes.OK)
		if s.ReadyToUse || s.SnapshotId != exportedID || s.SourceVolumeId != "vol-1" || s.SizeBytes != gib ||
			s.CreationTime == nil {
			t.Errorf("%+v", s)
		}
		if o := m.ordered; len(o) != 1 || strings.Join(o[0].DiskSelector, "+") != "fast+large" {
			t.Errorf("%+v", o)
		}
		m.left = 0
		if s, err = imageSnapshot(c, "vol-1"); err != nil || !s.ReadyToUse || len(m.ordered) != 1 {
			t.Errorf("%+v, %v, ordered %d", s, err, len(m.ordered))
		}
		if s, err = listed(c, exportedID); err != nil || !s.GetReadyToUse() {
			t.Errorf("%+v, %v", s, err)
		}
		_, err = imageSnapshot(c, "vol-2")
		csitest.Wants(t, err, codes.AlreadyExists)
		m.images["snapshot-1"].DeletionTimestamp = "2026-01-02T03:04:05Z"
		_, err = imageSnapshot(c, "vol-1")
		csitest.Wants(t, err, codes.Aborted)
		m.images["snapshot-1"].DeletionTimestamp = ""

		r := createRequest("pvc-1", gib)
		r.VolumeContentSource = &spec.VolumeContentSource{Type: &spec.VolumeContentSource_Snapshot{
			Snapshot: &spec.VolumeContentSource_SnapshotSource{SnapshotId: exportedID}}}
		for range 2 { // the same again is the same
			got, err := c.CreateVolume(background, r)
			csitest.Wants(t, err, codes.OK)
			if v := m.volumes["pvc-1"]; v.BackingImage != "snapshot-1" || v.DataSource != "" ||
				got.Volume.GetContentSource().GetSnapshot().GetSnapshotId() != exportedID {
				t.Errorf("%+v, %+v", v, got)
			}
		}
		other := createRequest("pvc-2", gib)
		other.VolumeContentSource, other.Parameters = r.VolumeContentSource, map[string]string{"backingImage": "golden"}
		_, err = c.CreateVolume(background, other)
		csitest.Wants(t, err, codes.InvalidArgument)
		csitest.Says(t, err, "snapshot-1", "golden")

		for range 2 {
			_, err = c.DeleteSnapshot(background, &spec.DeleteSnapshotRequest{SnapshotId: exportedID})
			csitest.Wants(t, err, codes.OK)
		}
		if s, err := listed(c, exportedID); len(m.images) > 0 || s != nil || err != nil {
			t.Errorf("%v, %+v, %v", m.images, s, err)
		}
	})
}

// TestSnapshotInAnImageThatFails: it is given up, and ordered again by the next call.
func TestSnapshotInAnImageThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, c := withImages(t)
		m.left, m.state, m.message = 1<<30, "failed", "the disk is full"
		_, err := imageSnapshot(c, "vol-1")
		csitest.Wants(t, err, codes.FailedPrecondition)
		csitest.Says(t, err, "the disk is full")
		m.state = "in-progress"
		_, err = imageSnapshot(c, "vol-1")
		csitest.Wants(t, err, codes.OK)
		if len(m.ordered) != 2 {
			t.Errorf("ordered %d times", len(m.ordered))
		}
		m.state = "failed"
		_, err = c.ListSnapshots(background, &spec.ListSnapshotsRequest{SnapshotId: exportedID})
		csitest.Wants(t, err, codes.Internal)
	})
}

// TestSnapshotInAnImageIsRefused: by its class, its volume or the manager.
func TestSnapshotInAnImageIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, c := withImages(t)
		_, err := imageSnapshot(c, "nobody")
		csitest.Wants(t, err, codes.NotFound)
		_, err = c.CreateSnapshot(background, &spec.CreateSnapshotRequest{SourceVolumeId: "vol-1", Name: "snapshot-1",
			Parameters: map[string]string{"type": "bi", "exportType": "vmdk"}})
		csitest.Wants(t, err, codes.InvalidArgument)
		csitest.Says(t, err, "raw", "qcow2")
		m.volumes["vol-1"].Encrypted = true
		_, err = imageSnapshot(c, "vol-1")
		csitest.Wants(t, err, codes.InvalidArgument)
		m.images["used"] = &resource.BackingImage{Name: "used", SourceType: "upload"}
		m.refuses = refusal("volume pvc-1 lies on it")
		_, err = c.DeleteSnapshot(background, &spec.DeleteSnapshotRequest{
			SnapshotId: "bi://backing?backingImage=used&backingImageDataSourceType=upload"})
		csitest.Wants(t, err, codes.FailedPrecondition)
		csitest.Says(t, err, "pvc-1 lies on it")
		if len(m.ordered) > 0 {
			t.Errorf("%+v", m.ordered)
		}
		for _, id := range []string{"bi://other?backingImage=a&backingImageDataSourceType=upload",
			"bi://backing?backingImage=a", "bi://backing?backingImage=a&backingImageDataSourceType=magic",
			"bi://backing?backingImage=A%2FB&backingImageDataSourceType=upload", "bi://%zz"} {
			if s, err := listed(c, id); s != nil || err != nil {
				t.Errorf("%s: %+v, %v", id, s, err)
			}
		}
	})
}
