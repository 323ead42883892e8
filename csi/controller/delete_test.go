package controller

import (
	"testing"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"

	"ankole.storage/csi/csitest"
	"ankole.storage/rest/resource"
)

// TestDeleteWithSnapshots: a volume stays while there is a snapshot of it that CreateSnapshot has
// ordered, taken or not, and goes when the snapshot is marked as removed. Snapshots that others
// have made go with it, and all of them if its class says so.
func TestDeleteWithSnapshots(t *testing.T) {
	for name, tc := range map[string]struct {
		class map[string]string
		// there is a snapshot of the volume, of nobody in particular if there is no call.
		there   *resource.SnapshotCR
		call    bool
		refused bool
	}{
		"ordered by a call": {call: true, refused: true},
		"not yet taken": {there: &resource.SnapshotCR{Name: "s",
			Labels: map[string]string{"longhorn.io/ordered-by": "csi"}}, refused: true},
		"taken over": {there: &resource.SnapshotCR{
			Name: "snapshot-0b8a1d3c-5a2f-4c60-9d3e-2f7a9b1c4d5e"}, refused: true},
		"a person's":        {there: &resource.SnapshotCR{Name: "before-the-upgrade", UserCreated: true}},
		"the class says so": {class: map[string]string{"deleteSnapshotsWithVolume": "true"}, call: true},
		"the class says no": {class: map[string]string{"deletesnapshotswithvolume": "false"}, call: true, refused: true},
		"there is none":     {},
	} {
		f := newFake()
		c := newController(f)
		r := createRequest("vol-1", gib)
		r.Parameters = tc.class
		ordered(t, c, r)
		if tc.there != nil {
			tc.there.Volume = "vol-1"
			f.snapshots[tc.there.Name] = tc.there
		}
		id := ""
		if tc.call {
			s, err := c.CreateSnapshot(background, &spec.CreateSnapshotRequest{SourceVolumeId: "vol-1", Name: "mine",
				Parameters: map[string]string{"type": "snap"}})
			if err != nil {
				t.Fatal(err)
			}
			id = s.Snapshot.SnapshotId
		} else if tc.there != nil {
			id = handle{volume: "vol-1", snapshot: tc.there.Name}.String()
		}
		remove := func() error {
			_, err := c.DeleteVolume(background, &spec.DeleteVolumeRequest{VolumeId: "vol-1"})
			return err
		}
		err := remove()
		if !tc.refused {
			if err != nil || f.volumes["vol-1"] != nil {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		csitest.Wants(t, err, codes.FailedPrecondition)
		csitest.Says(t, err, "vol-1", id, "ankole snapshot delete vol-1 ")
		if f.volumes["vol-1"] == nil || f.volumes["vol-1"].State == stateDeleting {
			t.Errorf("%s: the volume goes", name)
		}
		if _, err := c.DeleteSnapshot(background, &spec.DeleteSnapshotRequest{SnapshotId: id}); err != nil {
			t.Fatal(err)
		}
		if err := remove(); err != nil || f.volumes["vol-1"] != nil {
			t.Errorf("%s: after its snapshot: %v", name, err)
		}
	}
}
