package csi

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"syscall"
	"testing"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"ankole.storage/rest/resource"
	"ankole.storage/test/lack"
	"ankole.storage/test/wait"
)

// amount is how much each volume holds.
const amount = 16 * mib

// write fills a volume's file with the content of a seed, durably, and returns its sum.
func (c *claim) write(t *testing.T, d *driver, seed byte) [32]byte {
	t.Helper()
	p := make([]byte, amount)
	r := rand.NewChaCha8([32]byte{seed})
	_, _ = r.Read(p) // never fails
	f, err := os.OpenFile(c.file(d), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt(p, 0); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		t.Fatal(err)
	}
	return sha256.Sum256(p)
}

// read returns the sum of what write has written.
func (c *claim) read(t *testing.T, d *driver) (sum [32]byte) {
	t.Helper()
	f, err := os.Open(c.file(d))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	h := sha256.New()
	if n, err := io.Copy(h, io.LimitReader(f, amount)); err != nil || n != amount {
		t.Fatalf("%d bytes, %v", n, err)
	}
	h.Sum(sum[:0])
	return sum
}

func (d *driver) has(t *testing.T, c *claim, want [32]byte) {
	t.Helper()
	if got := c.read(t, d); got != want {
		t.Errorf("%s has %x, want %x", c.name, got, want)
	}
}

// TestVolumes runs scenarios side by side on one cluster.
func TestVolumes(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	first, second := b.start(t, 1, ""), b.start(t, 2, "")
	t.Run("group", func(t *testing.T) {
		for _, fs := range []string{"ext4", "xfs", ""} {
			name := fs
			if fs == "" {
				name = "block"
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				life(t, first, second, &claim{name: "life-" + name, fs: fs, size: 320 * mib})
			})
		}
		t.Run("Backup", func(t *testing.T) { t.Parallel(); throughBackup(t, b, first) })
		t.Run("Image", func(t *testing.T) { t.Parallel(); throughImage(t, first) })
		t.Run("Modify", func(t *testing.T) { t.Parallel(); modify(t, b, first) })
	})
}

// life: a volume is written, snapshotted, grown, moved, cloned and restored; whatever was written
// is where it should be.
func life(t *testing.T, first, second *driver, c *claim) {
	first.all(t, c.provide(false)...)
	before := c.write(t, first, 1)
	snapshot := taken(t, first, c)
	after := c.write(t, first, 2)
	larger := 2 * c.size
	if c.fs == "ext4" && !lack.GrowingExt4(t) {
		lack.Less(t, "CAP_SYS_RESOURCE: without it ext4 does not grow while it is mounted")
		larger = c.size
	} else {
		grow(t, first, c, larger)
	}
	first.has(t, c, after)
	first.all(t, c.release()...)
	second.all(t, c.provide(true)[1:]...)
	second.has(t, c, after)
	readOnly(t, second, c)
	restored := &claim{name: c.name + "-old", fs: c.fs, size: larger, from: &spec.VolumeContentSource{
		Type: &spec.VolumeContentSource_Snapshot{Snapshot: &spec.VolumeContentSource_SnapshotSource{SnapshotId: snapshot}}}}
	clone := &claim{name: c.name + "-new", fs: c.fs, size: larger, from: &spec.VolumeContentSource{
		Type: &spec.VolumeContentSource_Volume{Volume: &spec.VolumeContentSource_VolumeSource{VolumeId: c.name}}}}
	for _, copied := range []*claim{restored, clone} {
		want := before
		if copied == clone {
			want = after
		}
		second.all(t, copied.provide(false)...)
		second.has(t, copied, want)
		copied.write(t, second, 3)
	}
	second.has(t, c, after)
	for _, copied := range []*claim{restored, clone, c} {
		second.all(t, copied.release()...)
	}
	second.all(t, call{"delete snapshot", func(ctx context.Context, d *driver) error {
		_, err := d.DeleteSnapshot(ctx, &spec.DeleteSnapshotRequest{SnapshotId: snapshot})
		return err
	}})
	for _, gone := range []*claim{restored, clone, c} {
		first.all(t, gone.remove())
	}
}

// taken takes a snapshot and returns its id.
func taken(t *testing.T, d *driver, c *claim) (id string) {
	t.Helper()
	d.all(t, call{"snapshot", func(ctx context.Context, d *driver) error {
		r, err := d.CreateSnapshot(ctx, &spec.CreateSnapshotRequest{SourceVolumeId: c.name, Name: "snapshot-" + c.name,
			Parameters: map[string]string{"type": "snap"}})
		id = r.GetSnapshot().GetSnapshotId()
		return err
	}})
	return id
}

// throughBackup: a snapshot in a backup outlives its volume, is restored into a larger one, and
// goes.
func throughBackup(t *testing.T, b *bed, d *driver) {
	_, err := b.rest.UpdateBackupTarget(context.Background(), resource.BackupTarget{Name: "default", PollInterval: "300",
		BackupTargetURL: "vfs://" + t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	c := &claim{name: "backed", size: 64 * mib}
	d.all(t, c.provide(false)...)
	want, id := c.write(t, d, 5), ""
	d.all(t, call{"back up", func(ctx context.Context, d *driver) error {
		r, err := d.CreateSnapshot(ctx, &spec.CreateSnapshotRequest{SourceVolumeId: c.name, Name: "snapshot-" + c.name})
		id = r.GetSnapshot().GetSnapshotId()
		return err
	}})
	wait.For(t, "the backup is complete", func() error {
		r, err := d.ListSnapshots(context.Background(), &spec.ListSnapshotsRequest{SnapshotId: id})
		if err != nil || len(r.Entries) != 1 || !r.Entries[0].Snapshot.ReadyToUse {
			return fmt.Errorf("%v, %w", r, err)
		}
		return nil
	})
	d.all(t, append(c.release(), c.remove())...)
	restored := &claim{name: "restored", size: 96 * mib, from: &spec.VolumeContentSource{
		Type: &spec.VolumeContentSource_Snapshot{Snapshot: &spec.VolumeContentSource_SnapshotSource{SnapshotId: id}}}}
	d.all(t, restored.provide(false)...)
	d.has(t, restored, want)
	d.all(t, append(restored.release(), restored.remove())...)
	d.all(t, call{"delete the backup", func(ctx context.Context, d *driver) error {
		_, err := d.DeleteSnapshot(ctx, &spec.DeleteSnapshotRequest{SnapshotId: id})
		return err
	}})
	if r, err := d.ListSnapshots(context.Background(), &spec.ListSnapshotsRequest{SnapshotId: id}); err != nil ||
		len(r.Entries) != 0 {
		t.Errorf("%v, %v", r, err)
	}
}

// throughImage: a snapshot in a backing image has what was written before it, outlives its volume,
// is under a volume that is made of it, and goes when no volume lies on it.
func throughImage(t *testing.T, d *driver) {
	c := &claim{name: "imaged", size: 64 * mib}
	d.all(t, c.provide(false)...)
	want, id := c.write(t, d, 6), ""
	d.all(t, call{"make an image", func(ctx context.Context, d *driver) error {
		r, err := d.CreateSnapshot(ctx, &spec.CreateSnapshotRequest{SourceVolumeId: c.name, Name: "snapshot-" + c.name,
			Parameters: map[string]string{"type": "bi"}})
		id = r.GetSnapshot().GetSnapshotId()
		return err
	}})
	c.write(t, d, 7)
	wait.For(t, "the image is ready", func() error {
		r, err := d.ListSnapshots(context.Background(), &spec.ListSnapshotsRequest{SnapshotId: id})
		if err != nil || len(r.Entries) != 1 || !r.Entries[0].Snapshot.ReadyToUse ||
			r.Entries[0].Snapshot.SizeBytes != c.size {
			return fmt.Errorf("%v, %w", r, err)
		}
		return nil
	})
	d.all(t, append(c.release(), c.remove())...)
	on := &claim{name: "on-image", size: 96 * mib, from: &spec.VolumeContentSource{
		Type: &spec.VolumeContentSource_Snapshot{Snapshot: &spec.VolumeContentSource_SnapshotSource{SnapshotId: id}}}}
	d.all(t, on.provide(false)...)
	d.has(t, on, want)
	remove := func(ctx context.Context, d *driver) error {
		_, err := d.DeleteSnapshot(ctx, &spec.DeleteSnapshotRequest{SnapshotId: id})
		return err
	}
	if err := remove(context.Background(), d); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("the deletion of an image under a volume ends with %v", err)
	}
	d.all(t, append(on.release(), on.remove())...)
	d.all(t, call{"delete the image", remove})
}

// grow makes a volume larger while it is used.
func grow(t *testing.T, d *driver, c *claim, size int64) {
	t.Helper()
	d.all(t, call{"expand", func(ctx context.Context, d *driver) error {
		r, err := d.ControllerExpandVolume(ctx, &spec.ControllerExpandVolumeRequest{VolumeId: c.name,
			CapacityRange: &spec.CapacityRange{RequiredBytes: size}, VolumeCapability: capability(c.fs)})
		if err == nil && (r.CapacityBytes != size || r.NodeExpansionRequired != (c.fs != "")) {
			t.Errorf("%v", r)
		}
		return err
	}})
	d.all(t, call{"expand on the node", func(ctx context.Context, d *driver) error {
		_, err := d.NodeExpandVolume(ctx, &spec.NodeExpandVolumeRequest{VolumeId: c.name, VolumePath: c.target(d),
			StagingTargetPath: c.staging(d), CapacityRange: &spec.CapacityRange{RequiredBytes: size},
			VolumeCapability: capability(c.fs)})
		return err
	}})
	r, err := d.NodeGetVolumeStats(context.Background(), &spec.NodeGetVolumeStatsRequest{VolumeId: c.name,
		VolumePath: c.target(d)})
	if err != nil || r.Usage[0].Total < size*9/10 || r.VolumeCondition.GetAbnormal() {
		t.Errorf("%v, %v", r, err)
	}
}

// readOnly: a Pod that may only read cannot write.
func readOnly(t *testing.T, d *driver, c *claim) {
	t.Helper()
	f, err := os.OpenFile(c.file(d), os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteAt([]byte("no"), 0)
		err = errors.Join(err, f.Sync(), f.Close())
	}
	if !errors.Is(err, syscall.EROFS) && !errors.Is(err, syscall.EPERM) && !errors.Is(err, syscall.EIO) {
		t.Errorf("a write by a reader ends with %v", err)
	}
}

// modify: a VolumeAttributesClass changes a volume that is used.
func modify(t *testing.T, b *bed, d *driver) {
	c := &claim{name: "modify", fs: "ext4", size: 64 * mib}
	d.all(t, c.provide(false)...)
	d.all(t, call{"modify", func(ctx context.Context, d *driver) error {
		_, err := d.ControllerModifyVolume(ctx, &spec.ControllerModifyVolumeRequest{VolumeId: c.name,
			MutableParameters: map[string]string{"numberOfReplicas": "3", "replicaAutoBalance": "least-effort",
				"snapshotMaxCount": "10"}})
		return err
	}})
	v, err := b.rest.Volume(context.Background(), c.name)
	if err != nil || v.NumberOfReplicas != 3 || v.ReplicaAutoBalance != "least-effort" || v.SnapshotMaxCount != 10 {
		t.Errorf("%+v, %v", v, err)
	}
	d.all(t, append(c.release(), c.remove())...)
}

// steps are where the driver can end, in the order in which a life reaches them.
var steps = []string{"created", "ticket-filed", "stage-begun", "formatted", "staged-mounted", "resized", "staged",
	"target-made",
	"published", "snapshot-ordered", "growth-ordered", "unpublished", "unstaged", "ticket-withdrawn", "checked",
	"snapshot-deleted", "deleted"}

// TestKilledAtEachStep: the driver is killed at each step of a volume's life; the next process goes
// on, and at the end the content is what was written and nothing is left.
func TestKilledAtEachStep(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	for i, step := range steps {
		t.Run(step, func(t *testing.T) {
			c := &claim{name: fmt.Sprintf("killed-%d", i), fs: []string{"ext4", "xfs"}[i%2], size: 320 * mib}
			if step == "growth-ordered" {
				c.fs = "xfs" // which grows everywhere
			}
			d := b.start(t, 1, step)
			died := 0
			run := func(calls ...call) {
				t.Helper()
				for _, one := range calls {
					ctx, cancel := context.WithTimeout(context.Background(), longest)
					err := one.do(ctx, d)
					cancel()
					select {
					case <-d.ended:
						died++
						d.conn.Close()
						d = b.start(t, 1, "")
					case <-time.After(deathIsSeen(err)):
					}
					d.all(t, one)
				}
			}
			run(c.provide(false)...)
			sum := c.write(t, d, byte(i))
			var id string
			run(call{"snapshot", func(ctx context.Context, d *driver) error {
				r, err := d.CreateSnapshot(ctx, &spec.CreateSnapshotRequest{SourceVolumeId: c.name, Name: "snapshot-" + c.name,
					Parameters: map[string]string{"type": "snap"}})
				id = r.GetSnapshot().GetSnapshotId()
				return err
			}})
			if c.fs == "xfs" || lack.GrowingExt4(t) {
				run(call{"expand", func(ctx context.Context, d *driver) error {
					_, err := d.ControllerExpandVolume(ctx, &spec.ControllerExpandVolumeRequest{VolumeId: c.name,
						CapacityRange: &spec.CapacityRange{RequiredBytes: c.size + 64*mib}, VolumeCapability: capability("")})
					return err
				}})
			}
			d.has(t, c, sum)
			run(c.release()...)
			run(c.provide(false)[1:]...) // checks the file system, and grows it
			d.has(t, c, sum)
			run(c.release()...)
			run(call{"delete snapshot", func(ctx context.Context, d *driver) error {
				_, err := d.DeleteSnapshot(ctx, &spec.DeleteSnapshotRequest{SnapshotId: id})
				return err
			}}, c.remove())
			if died != 1 {
				t.Errorf("the driver was killed %d times at %s", died, step)
			}
			d.stop(t)
		})
	}
}

// deathIsSeen is how long to wait for the end of a process whose call has failed like that: its
// connection ends a moment before its parent hears of it.
func deathIsSeen(err error) time.Duration {
	if status.Code(err) == codes.Unavailable {
		return 5 * time.Second
	}
	return 0
}
