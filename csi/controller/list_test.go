package controller

import (
	"fmt"
	"slices"
	"testing"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"

	"ankole.storage/csi/csitest"
)

// TestSnapshotClasses: only snapshots in the replicas can be made; what others need is said.
func TestSnapshotClasses(t *testing.T) {
	f := newFake()
	c := newController(f)
	ordered(t, c, createRequest("vol-1", gib))
	ordered(t, c, createRequest("vol-2", gib))
	create := func(volume, name, kind string) error {
		_, err := c.CreateSnapshot(background, &spec.CreateSnapshotRequest{SourceVolumeId: volume, Name: name,
			Parameters: map[string]string{"type": kind}})
		return err
	}
	err := create("vol-1", "snapshot-1", "x")
	csitest.Wants(t, err, codes.InvalidArgument)
	csitest.Says(t, err, "snap")
	csitest.Wants(t, create("vol-1", "snapshot-1", "snap"), codes.OK)
	csitest.Wants(t, create("vol-1", "snapshot-1", "snap"), codes.OK)
	csitest.Wants(t, create("vol-2", "snapshot-1", "snap"), codes.AlreadyExists)
	csitest.Wants(t, create("nobody", "snapshot-2", "snap"), codes.NotFound)
	if f.orders != 3 {
		t.Errorf("%d orders", f.orders)
	}
	for id, code := range map[string]codes.Code{"": codes.InvalidArgument, "nonsense": codes.OK,
		"snap://vol-1/other":      codes.OK,
		"snap://vol-2/snapshot-1": codes.OK, // one of vol-1, and no snapshot of vol-2
		"bi://backing?x=y":        codes.OK, // it names no image
		"bak://vol-1/backup-1":    codes.OK,
		"bak://vol-1":             codes.OK} {
		_, err := c.DeleteSnapshot(background, &spec.DeleteSnapshotRequest{SnapshotId: id})
		csitest.Wants(t, err, code)
	}
}

// TestPages: lists in parts have each entry once, whatever comes and goes meanwhile.
func TestPages(t *testing.T) {
	f := newFake()
	c := newController(f)
	for i := range 7 {
		ordered(t, c, createRequest(fmt.Sprintf("vol-%d", i), gib))
		snapshotted(t, c, fmt.Sprintf("vol-%d", i), fmt.Sprintf("snapshot-%d", i))
	}
	var names []string
	token := ""
	for range 4 {
		resp, err := c.ListVolumes(background, &spec.ListVolumesRequest{MaxEntries: 2, StartingToken: token})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range resp.Entries {
			names = append(names, e.Volume.VolumeId)
		}
		token = resp.NextToken
		delete(f.volumes, "vol-1") // the last one of the first page, and the place to go on from
	}
	if want := []string{"vol-0", "vol-1", "vol-2", "vol-3", "vol-4", "vol-5", "vol-6"}; !slices.Equal(names, want) ||
		token != "" {
		t.Errorf("%v, %q", names, token)
	}
	for _, token := range []string{"invalid-token", "5"} {
		_, err := c.ListVolumes(background, &spec.ListVolumesRequest{StartingToken: token})
		csitest.Wants(t, err, codes.Aborted)
	}
	_, err := c.ListVolumes(background, &spec.ListVolumesRequest{MaxEntries: -1})
	csitest.Wants(t, err, codes.InvalidArgument)
	for want, r := range map[int]*spec.ListSnapshotsRequest{
		6: {}, 1: {SnapshotId: "snap://vol-2/snapshot-2"}, 0: {SnapshotId: "snap://vol-2/snapshot-3"}} {
		if resp, err := c.ListSnapshots(background, r); err != nil || len(resp.Entries) != want {
			t.Errorf("%v: %v, %v", r, resp, err)
		}
	}
}
