package controller

import (
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"ankole.storage/controlplane/object/naming"
	"ankole.storage/csi/csitest"
	"ankole.storage/csi/request"
	"ankole.storage/rest/resource"
)

// backingUp asks for a snapshot of vol-1 in a backup.
func backingUp(c *Server, mode string) (*spec.Snapshot, error) {
	parameters := map[string]string{"type": "bak"}
	if mode != "" {
		parameters["backupMode"] = mode
	}
	resp, err := c.CreateSnapshot(background, &spec.CreateSnapshotRequest{SourceVolumeId: "vol-1", Name: "snapshot-1",
		Parameters: parameters})
	return resp.GetSnapshot(), err
}

// listed is what a list by an id has.
func listed(c *Server, id string) (*spec.Snapshot, error) {
	resp, err := c.ListSnapshots(background, &spec.ListSnapshotsRequest{SnapshotId: id})
	if err != nil || len(resp.Entries) == 0 {
		return nil, err
	}
	return resp.Entries[0].Snapshot, nil
}

// TestListBackups: lists have the backups of volumes that were, too.
func TestListBackups(t *testing.T) {
	f := newFake()
	c := newController(f)
	ordered(t, c, createRequest("vol-1", gib))
	snapshotted(t, c, "vol-1", "snapshot-1")
	f.backups["backup-1"] = &resource.Backup{Name: "backup-1", VolumeName: "vol-1", State: "Completed"}
	f.backups["backup-2"] = &resource.Backup{Name: "backup-2", VolumeName: "gone", State: "Completed"}
	f.backups["backup-3"] = &resource.Backup{Name: "backup-3", VolumeName: "gone", State: "Error"}
	for volume, want := range map[string]string{"": "bak://gone/backup-2 bak://vol-1/backup-1 snap://vol-1/snapshot-1",
		"vol-1": "bak://vol-1/backup-1 snap://vol-1/snapshot-1", "gone": "bak://gone/backup-2", "nope": ""} {
		resp, err := c.ListSnapshots(background, &spec.ListSnapshotsRequest{SourceVolumeId: volume})
		var got []string
		for _, e := range resp.GetEntries() {
			got = append(got, e.Snapshot.SnapshotId)
		}
		if err != nil || strings.Join(got, " ") != want {
			t.Errorf("of volume %q: %v, %v", volume, got, err)
		}
	}
}

// TestBackupSnapshot: a snapshot in a backup is answered at once, is ready when the backup is
// complete, is restored into a volume of any size that is large enough, and is deleted.
func TestBackupSnapshot(t *testing.T) {
	f := newFake()
	f.looks = 3
	c := newController(f)
	ordered(t, c, createRequest("vol-1", gib))
	s, err := backingUp(c, "full")
	if err != nil {
		t.Fatal(err)
	}
	b := f.backups["backup-3"]
	if s.SnapshotId != "bak://vol-1/backup-3" || s.ReadyToUse || s.SourceVolumeId != "vol-1" ||
		s.CreationTime.GetSeconds() == 0 || s.SizeBytes != gib || b.SnapshotName != "snapshot-1" || b.BackupMode != "full" {
		t.Errorf("%v of %+v", s, b)
	}
	if again, err := backingUp(c, "full"); err != nil || again.SnapshotId != s.SnapshotId || f.orders != 3 {
		t.Errorf("asked again: %v, %v, %d orders", again, err, f.orders)
	}
	r := createRequest("early", gib)
	r.VolumeContentSource = snapshotSource(s.SnapshotId)
	_, err = c.CreateVolume(background, r)
	csitest.Wants(t, err, codes.FailedPrecondition)
	csitest.Says(t, err, "InProgress")
	for range f.looks {
		if s, err = listed(c, s.SnapshotId); err != nil || s.CreationTime.GetSeconds() == 0 {
			t.Fatalf("%v, %v", s, err)
		}
	}
	if !s.ReadyToUse || s.SizeBytes != gib {
		t.Errorf("complete: %v", s)
	}
	all, err := c.ListSnapshots(background, &spec.ListSnapshotsRequest{SourceVolumeId: "vol-1"})
	if err != nil || len(all.Entries) != 2 || all.Entries[0].Snapshot.SnapshotId != s.SnapshotId {
		t.Errorf("%v, %v", all, err) // and the snapshot that was backed up
	}
	for name, size := range map[string]int64{"restored": gib, "larger": 2 * gib} {
		r := createRequest(name, size)
		r.VolumeContentSource = snapshotSource(strings.Replace(s.SnapshotId, "bak", "bs", 1))
		for range 2 {
			if resp, err := c.CreateVolume(background, r); err != nil || resp.Volume.CapacityBytes != size ||
				f.volumes[name].FromBackup != b.URL || f.volumes[name].DataSource != "" {
				t.Errorf("%s: %v, %v, %+v", name, resp, err, f.volumes[name])
			}
		}
	}
	_, err = c.CreateVolume(background, createRequest("restored", gib))
	csitest.Wants(t, err, codes.AlreadyExists)
	r = createRequest("smaller", gib/2)
	r.VolumeContentSource, r.CapacityRange.LimitBytes = snapshotSource(s.SnapshotId), gib/2
	_, err = c.CreateVolume(background, r)
	csitest.Wants(t, err, codes.OutOfRange)

	// The source may go: the content is in the backup.
	if _, err := c.DeleteVolume(background, &spec.DeleteVolumeRequest{VolumeId: "vol-1"}); err != nil {
		t.Error(err)
	}
	for range 2 {
		_, err := c.DeleteSnapshot(background, &spec.DeleteSnapshotRequest{SnapshotId: s.SnapshotId})
		if err != nil || len(f.backups) != 0 {
			t.Errorf("%v, left %v", err, slices.Collect(maps.Keys(f.backups)))
		}
	}
	if s, err := listed(c, s.SnapshotId); s != nil || err != nil {
		t.Errorf("%v, %v", s, err)
	}
}

// TestBackupSnapshotThatFails: whoever asks is told why a backup has failed, and the next call
// makes another one; without a target none is ordered.
func TestBackupSnapshotThatFails(t *testing.T) {
	f := newFake()
	f.looks = 5
	c := newController(f)
	ordered(t, c, createRequest("vol-1", gib))
	f.noTarget = true
	_, err := backingUp(c, "")
	csitest.Wants(t, err, codes.FailedPrecondition)
	csitest.Says(t, err, "not available")
	f.noTarget = false
	s, err := backingUp(c, "")
	if err != nil {
		t.Fatal(err)
	}
	name := strings.TrimPrefix(s.SnapshotId, "bak://vol-1/")
	f.backups[name].State, f.backups[name].Error = "Error", "no space"
	_, err = listed(c, s.SnapshotId)
	csitest.Wants(t, err, codes.FailedPrecondition)
	csitest.Says(t, err, "no space")
	_, err = backingUp(c, "")
	csitest.Wants(t, err, codes.FailedPrecondition)
	csitest.Says(t, err, "no space")
	if again, err := backingUp(c, ""); err != nil || again.SnapshotId == s.SnapshotId {
		t.Errorf("%v, %v", again, err)
	}
	_, err = backingUp(c, "half")
	csitest.Wants(t, err, codes.InvalidArgument)
	csitest.Says(t, err, "incremental")
}

// TestBackupAnswersLost: whichever call to the manager fails, the next call ends as if nothing had
// been, and one backup is made.
func TestBackupAnswersLost(t *testing.T) {
	for i, failure := range append(failures, failures...) {
		for failAt := 1; ; failAt++ {
			f := newFake()
			c := newController(f)
			ordered(t, c, createRequest("vol-1", gib))
			f.calls, f.failAt, f.lost, f.failure = 0, failAt, i < len(failures), failure
			calls := []func() error{
				func() error { _, err := backingUp(c, ""); return err },
				func() error { _, err := listed(c, "bak://vol-1/backup-3"); return err },
				func() error {
					_, err := c.DeleteSnapshot(background, &spec.DeleteSnapshotRequest{SnapshotId: "bak://vol-1/backup-3"})
					return err
				}}
			for _, call := range calls {
				if err := call(); err != nil {
					if code := status.Code(err); code != codes.Unavailable {
						t.Errorf("call %d of the manager: %v", failAt, err)
					}
					if err := call(); err != nil {
						t.Errorf("after call %d of the manager had failed: %v", failAt, err)
					}
				}
			}
			if f.orders != 3 || len(f.backups) != 0 {
				t.Errorf("call %d: %d orders, %d backups are left", failAt, f.orders, len(f.backups))
			}
			if f.calls < failAt {
				break // there were no more calls
			}
		}
	}
}

// TestRestoredByItsClass: parameter fromBackup names a backup that there is.
func TestRestoredByItsClass(t *testing.T) {
	f := newFake()
	c := newController(f)
	ordered(t, c, createRequest("vol-1", gib))
	if _, err := backingUp(c, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := listed(c, "bak://vol-1/backup-3"); err != nil {
		t.Fatal(err)
	}
	at := f.backups["backup-3"].URL
	for from, code := range map[string]codes.Code{at: codes.OK, "s3://x@r/?backup=backup-3&volume=vol-1": codes.NotFound,
		"s3://b@r/?backup=other&volume=vol-1": codes.NotFound, "s3://b@r/": codes.InvalidArgument,
		"%": codes.InvalidArgument} {
		r := createRequest("restored", gib)
		r.Parameters = map[string]string{"fromBackup": from}
		_, err := c.CreateVolume(background, r)
		csitest.Wants(t, err, code)
		delete(f.volumes, "restored")
	}
	r := createRequest("both", gib)
	r.Parameters, r.VolumeContentSource = map[string]string{"fromBackup": at}, volumeSource("vol-1")
	_, err := c.CreateVolume(background, r)
	csitest.Wants(t, err, codes.InvalidArgument)
}

// TestBackupOfAnEncryptedVolume: a claim that asks for as much as the volume had is restored from
// it, though the backup is of the device, which is 16 MiB larger.
func TestBackupOfAnEncryptedVolume(t *testing.T) {
	f := newFake()
	c := newController(f)
	encrypted := func(name string) *spec.CreateVolumeRequest {
		r := createRequest(name, gib)
		r.Parameters = map[string]string{request.ParamEncrypted: "true"}
		return r
	}
	ordered(t, c, encrypted("vol-1"))
	if _, err := backingUp(c, ""); err != nil {
		t.Fatal(err)
	}
	s, err := listed(c, "bak://vol-1/backup-3")
	if err != nil || s.SizeBytes != gib {
		t.Fatalf("%+v, %v", s, err)
	}
	r := encrypted("restored")
	r.CapacityRange.LimitBytes = gib
	r.VolumeContentSource = &spec.VolumeContentSource{Type: &spec.VolumeContentSource_Snapshot{
		Snapshot: &spec.VolumeContentSource_SnapshotSource{SnapshotId: s.SnapshotId}}}
	if v := ordered(t, c, r); v.CapacityBytes != gib || f.volumes["restored"].Size != strconv.Itoa(gib) {
		t.Errorf("%+v, %+v", v, f.volumes["restored"])
	}
}

// TestSnapshotForABackup: a volume may go while what was snapshotted for a backup is left in it.
func TestSnapshotForABackup(t *testing.T) {
	const uid = "snapshot-01234567-89ab-cdef-0123-456789abcdef"
	for _, tt := range []struct {
		labels map[string]string
		want   bool
	}{{naming.ForBackupByCSI(), false}, {naming.OrderedByCSI(), true}, {nil, true}} {
		if naming.IsOrderedByCSI(uid, tt.labels) != tt.want {
			t.Error(errors.New("a snapshot is taken for another kind"), tt.labels)
		}
	}
}
