package demo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"ankole.storage/rest/client"
	"ankole.storage/rest/findings"
	"ankole.storage/rest/resource"
)

const (
	// storedBytes is what the volume holds that is backed up, laterBytes what changes of it later.
	storedBytes = 8 << 20
	laterBytes  = 2 << 20
	target      = "default"
)

// stored is a volume that is backed up, and the one that follows its backups; nil if there is no
// backup target.
type stored struct {
	volume, standby string
	device          device
	content         []byte
}

// backUp shows that a backup is taken, that damage in its store is found and mended by the next
// one, and a standby volume that is filled.
func (t *tour) backUp(ctx context.Context) error {
	t.say("", "A volume is backed up, its store is damaged and mended, and a standby volume follows")
	at, err := t.backupTarget(ctx)
	if at == nil || err != nil {
		return err
	}
	s := &stored{volume: t.Prefix + "-stored", standby: t.Prefix + "-standby", content: aligned(storedBytes)}
	randomise(s.content)
	if err := t.create(ctx, client.VolumeSpec{Name: s.volume, Size: tourSize, NumberOfReplicas: 2}); err != nil {
		return err
	}
	if s.device, err = t.open(ctx, s.volume, t.nodes[0]); err != nil {
		return err
	}
	t.stored = s
	if err := s.write(0, s.content); err != nil {
		return err
	}
	first, err := t.backedUp(ctx, "1")
	if err != nil {
		return err
	}
	if err := t.damage(ctx, at, first); err != nil {
		return err
	}
	return t.fillStandby(ctx, first)
}

// randomise fills a buffer with what cannot be compressed.
func randomise(data []byte) {
	source := rand.NewChaCha8(seedOf(rand.Uint64()))
	_, _ = source.Read(data)
}

func (s *stored) write(at int64, data []byte) error {
	if _, err := s.device.WriteAt(data, at); err != nil {
		return fmt.Errorf("writing to volume %s: %w", s.volume, err)
	}
	return s.device.Flush()
}

// end closes the device, once.
func (s *stored) end() error {
	if s == nil || s.device == nil {
		return nil
	}
	d := s.device
	s.device = nil
	return d.Close()
}

// backupTarget is the default one; nil, and told, if it cannot be used.
func (t *tour) backupTarget(ctx context.Context) (*resource.BackupTarget, error) {
	all, err := t.Client.BackupTargets(ctx)
	if err != nil {
		return nil, err
	}
	for i := range all {
		if all[i].Name == target && all[i].Available {
			return &all[i], nil
		}
	}
	t.tell("left out: backup target %s cannot be used; give it a place with: ankole backup-target set %s --url URL", target,
		target)
	return nil, nil
}

// backedUp takes a snapshot of the stored volume and backs it up. The backups go at the end of the
// tour.
func (t *tour) backedUp(ctx context.Context, name string) (*resource.Backup, error) {
	volume, snapshot := t.stored.volume, t.Prefix+"-backup-"+name
	if _, err := t.Client.OrderSnapshot(ctx, volume, resource.SnapshotCRInput{Name: snapshot}); err != nil {
		return nil, err
	}
	if name == "1" {
		t.later("deleting the backups of volume "+volume, func(ctx context.Context) error { return t.forget(ctx, volume) })
	}
	if _, err := t.Client.BackUp(ctx, volume, resource.SnapshotInput{Name: snapshot}); err != nil {
		return nil, err
	}
	var made resource.Backup
	err := t.wait(ctx, "a backup of snapshot "+snapshot, sampleEvery, func() (bool, string, error) {
		all, err := t.Client.AllBackups(ctx, volume)
		for _, b := range all {
			if b.SnapshotName == snapshot {
				made = b
			}
		}
		if made.State == "Error" {
			return false, "", fmt.Errorf("backup %s: %s", made.Name, made.Error)
		}
		return made.State == "Completed", fmt.Sprintf("%s %d %%", made.State, made.Progress), err
	})
	if err == nil {
		t.tell("ankole backup create %s %s: %s holds %s bytes; new in the store are %s, written again %s", volume, snapshot,
			made.Name, made.Size, made.NewlyUploadedDataSize, made.ReUploadedDataSize)
	}
	return &made, err
}

// forget deletes all backups of a volume, and waits until they are gone.
func (t *tour) forget(ctx context.Context, volume string) error {
	for {
		all, err := t.Client.BackupVolumes(ctx)
		if err != nil {
			return err
		}
		left := 0
		for _, v := range all {
			if v.VolumeName != volume {
				continue
			}
			left++
			if err := t.Client.DeleteBackupVolume(ctx, v.Name); err != nil && !client.IsNotFound(err) {
				return err
			}
		}
		if left == 0 {
			return nil
		}
		if err := pause(ctx, lookEvery); err != nil {
			return err
		}
	}
}

// damage changes a byte of a block in the store, where that is a directory of this machine, and has
// it found, and mended by another backup.
func (t *tour) damage(ctx context.Context, at *resource.BackupTarget, first *resource.Backup) error {
	block, err := blockOf(at.BackupTargetURL, t.stored.volume)
	if err != nil {
		return err
	}
	if block == "" {
		t.tell("the store is no directory of this machine: nothing is damaged in it")
		return nil
	}
	if err := flip(block); err != nil {
		return err
	}
	t.tell("a byte is changed in %s", block)
	found, err := t.verified(ctx)
	if err != nil {
		return err
	}
	if found.FaultCount != 1 || len(found.Faults) != 1 || len(found.Faults[0].Backups) != 1 ||
		found.Faults[0].Backups[0] != first.Name {
		return fmt.Errorf("one block of backup %s was damaged, and %d faults were found: %+v", first.Name, found.FaultCount,
			found.Faults)
	}
	t.tell("ankole backup verify %s: the block is %s, which hurts %s", t.stored.volume, found.Faults[0].Kind, first.Name)
	if _, err := t.backedUp(ctx, "2"); err != nil {
		return err
	}
	if found, err = t.verified(ctx); err == nil && found.FaultCount != 0 {
		err = fmt.Errorf("after another backup of what the volume holds there are %d faults: %+v", found.FaultCount,
			found.Faults)
	}
	if err == nil {
		t.tell("the next backup has written the block again: %d blocks are right, of %d backups", found.Blocks,
			len(found.Backups))
	}
	return err
}

// blockOf is a block that a store has of a volume; "" if the store is no directory of this machine.
func blockOf(targetURL, volume string) (block string, err error) {
	u, err := url.Parse(targetURL)
	if err != nil || u.Scheme != "vfs" {
		return "", err
	}
	if _, err := os.Stat(u.Path); err != nil {
		return "", nil
	}
	volumes := filepath.Join(u.Path, "backupstore/volumes")
	err = filepath.WalkDir(volumes, func(path string, e fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".blk") && strings.Contains(path, "/"+volume+"/") {
			block = path
			return fs.SkipAll
		}
		return err
	})
	if err == nil && block == "" {
		err = fmt.Errorf("%s has no block of volume %s", u.Path, volume)
	}
	return block, err
}

// flip changes a byte in the middle of a file.
func flip(name string) error {
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	b := make([]byte, 1)
	if err == nil {
		_, err = f.ReadAt(b, info.Size()/2)
	}
	if err == nil {
		b[0] ^= 1
		_, err = f.WriteAt(b, info.Size()/2)
	}
	return errors.Join(err, f.Close())
}

// verified has all read that the store has of the stored volume.
func (t *tour) verified(ctx context.Context) (found *resource.BackupVerification, err error) {
	of := ""
	what := "the cluster knows what the store has of volume " + t.stored.volume
	err = t.wait(ctx, what, sampleEvery, func() (bool, string, error) {
		all, err := t.Client.BackupVolumes(ctx)
		for _, v := range all {
			if v.VolumeName == t.stored.volume && v.BackupTargetName == target {
				of = v.Name
			}
		}
		return of != "", "not yet", err
	})
	if err != nil {
		return nil, err
	}
	asked, err := t.Client.VerifyBackups(ctx, of, resource.VerifyBackupsInput{})
	if err != nil {
		return nil, err
	}
	err = t.wait(ctx, "the backups are verified", sampleEvery, func() (bool, string, error) {
		found, err = t.Client.BackupVerification(ctx, of)
		if err != nil {
			return false, "", err
		}
		return found.State == "done" && found.RequestedAt == asked.RequestedAt, found.State + " " + found.Error, nil
	})
	return found, err
}

// fillStandby makes the standby volume, and waits until it holds what the backups do.
func (t *tour) fillStandby(ctx context.Context, of *resource.Backup) error {
	spec := client.VolumeSpec{Name: t.stored.standby, NumberOfReplicas: 2, FromBackup: of.URL, Standby: true}
	if _, err := t.Client.CreateVolume(ctx, spec); err != nil {
		return err
	}
	t.undo = append(t.undo, undo{what: "deleting volume " + spec.Name, volume: true,
		do: func(ctx context.Context) error { return t.remove(ctx, spec.Name) }})
	if err := t.followed(ctx); err != nil {
		return err
	}
	t.tell("ankole standby create %s %s: filled, and follows", of.Name, spec.Name)
	return nil
}

// followed waits until the standby volume holds the newest backup that was taken.
func (t *tour) followed(ctx context.Context) error {
	all, err := t.Client.AllBackups(ctx, t.stored.volume)
	if err != nil {
		return err
	}
	newest := resource.Backup{}
	for _, b := range all {
		if b.SnapshotCreated > newest.SnapshotCreated || b.SnapshotCreated == newest.SnapshotCreated &&
			b.SnapshotName > newest.SnapshotName {
			newest = b
		}
	}
	return t.wait(ctx, "volume "+t.stored.standby+" holds "+newest.Name, sampleEvery, func() (bool, string, error) {
		v, err := t.Client.Volume(ctx, t.stored.standby)
		if err != nil {
			return false, "", err
		}
		held := findings.HeldBackup(v)
		return held == newest.Name && v.Conditions["Restore"].Status == "False",
			fmt.Sprintf("%s, %q of %q", v.State, held, v.LastBackup), nil
	})
}

// standbyByHand brings the standby volume to another engine image, which only a person does.
func (t *tour) standbyByHand(ctx context.Context, other string) error {
	if t.stored == nil {
		return nil
	}
	t.tell("ankole volume upgrade %s --image %s", t.stored.standby, other)
	err := t.wait(ctx, "the upgrade is granted", lookEvery, func() (bool, string, error) {
		_, err := t.Client.UpgradeEngine(ctx, t.stored.standby, other)
		if err != nil && ctx.Err() == nil {
			return false, err.Error(), nil
		}
		return err == nil, "", err
	})
	if err != nil {
		return err
	}
	return t.standbyHas(ctx, other)
}

func (t *tour) standbyHas(ctx context.Context, image string) error {
	return t.wait(ctx, "volume "+t.stored.standby+" has engine image "+image, sampleEvery, func() (bool, string, error) {
		v, err := t.Client.Volume(ctx, t.stored.standby)
		if err != nil {
			return false, "", err
		}
		return v.Image == image && v.CurrentImage == image, v.CurrentImage, nil
	})
}

// standbyLeftAlone shows that automatic upgrades have left the standby volume as it was, that it
// goes on following, and that it is upgraded when it is activated.
func (t *tour) standbyLeftAlone(ctx context.Context, def string) error {
	s := t.stored
	if s == nil {
		return nil
	}
	v, err := t.Client.Volume(ctx, s.standby)
	if err != nil {
		return err
	}
	if v.Image == def || v.CurrentImage == def {
		return fmt.Errorf("standby volume %s was upgraded by itself to %s", s.standby, def)
	}
	t.tell("%s was left alone: it follows backups, and has %s", s.standby, v.CurrentImage)
	randomise(s.content[:laterBytes])
	if err := s.write(0, s.content[:laterBytes]); err != nil {
		return err
	}
	if _, err := t.backedUp(ctx, "3"); err != nil {
		return err
	}
	if err := t.followed(ctx); err != nil {
		return err
	}
	if _, err := t.Client.ActivateVolume(ctx, s.standby, "blockdev"); err != nil {
		return err
	}
	if err := t.standbyHas(ctx, def); err != nil {
		return err
	}
	return t.standbyHolds(ctx)
}

// standbyHolds compares what the volume that was activated holds with what was backed up.
func (t *tour) standbyHolds(ctx context.Context) error {
	active := func(v *resource.Volume) bool { return !v.Standby && !v.RestoreRequired && v.State == "detached" }
	_, err := follow(ctx, t.Client, t.NewProgress, t.stored.standby, "active", readyTimeout, active)
	if err != nil {
		return err
	}
	d, err := t.open(ctx, t.stored.standby, t.nodes[0])
	if err != nil {
		return err
	}
	got := aligned(storedBytes)
	_, err = d.ReadAt(got, 0)
	if err = errors.Join(err, d.Close()); err != nil {
		return fmt.Errorf("reading volume %s: %w", t.stored.standby, err)
	}
	if !bytes.Equal(got, t.stored.content) {
		return fmt.Errorf("volume %s does not hold what the newest backup of %s does", t.stored.standby, t.stored.volume)
	}
	t.tell("ankole standby activate %s: it holds the newest backup, byte for byte, and came to the default image then",
		t.stored.standby)
	return nil
}
