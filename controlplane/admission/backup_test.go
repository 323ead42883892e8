package admission

import (
	"testing"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/naming"
)

func backupOf(name, snapshot string, edit func(*v1beta2.Backup)) *v1beta2.Backup {
	return named(&v1beta2.Backup{}, name, nil, func(b *v1beta2.Backup) {
		b.Spec.SnapshotName = snapshot
		if edit != nil {
			edit(b)
		}
	})
}

func availableTarget(name string) *v1beta2.BackupTarget {
	t := targetAt(name, "s3://b@r/", "")
	t.Status.Available = true
	return t
}

// TestBackups has the rules of new and changed backups, and what completes them.
func TestBackups(t *testing.T) {
	const plural = "backups"
	v := namedVolume("v", func(v *v1beta2.Volume) {
		v.Spec.Size, v.Spec.BackupTargetName, v.Spec.BackupBlockSize = 6<<20, "default", v1beta2.BackupBlockSize2Mi
		v.Spec.AccessMode = v1beta2.AccessModeReadWriteMany
	})
	snapshot := named(&v1beta2.Snapshot{}, "s", nil, func(s *v1beta2.Snapshot) { s.Spec.Volume = "v" })
	busy := namedVolume("moving", func(v *v1beta2.Volume) {
		v.Spec.Size, v.Spec.BackupTargetName, v.Spec.MigrationNodeID = 2<<20, "default", "n2"
	})
	standby := namedVolume("standby", func(v *v1beta2.Volume) {
		v.Spec.Size, v.Spec.BackupTargetName, v.Spec.Standby = 2<<20, "default", true
	})
	ofBusy := named(&v1beta2.Snapshot{}, "m", nil, func(s *v1beta2.Snapshot) { s.Spec.Volume = "moving" })
	ofStandby := named(&v1beta2.Snapshot{}, "d", nil, func(s *v1beta2.Snapshot) { s.Spec.Volume = "standby" })
	w := worldOf(t, v, snapshot, busy, standby, ofBusy, ofStandby, availableTarget("default"), targetAt("off", "", ""),
		targetAt("away", "s3://b@r/x", ""))
	label := func(key, value string) func(*v1beta2.Backup) {
		return func(b *v1beta2.Backup) { b.Labels = map[string]string{key: value} }
	}
	for _, tt := range []struct {
		name string
		b    *v1beta2.Backup
		want string
	}{
		{"whole", backupOf("b1", "s", nil), ""},
		{"a name", backupOf("B", "s", nil), "invalid name B for backup"},
		{"a mode", backupOf("b1", "s", func(b *v1beta2.Backup) { b.Spec.BackupMode = "some" }), "neither full nor"},
		{"of a volume that is migrated", backupOf("b1", "m", nil), "cannot be backed up during its migration"},
		{"of a standby volume", backupOf("b1", "d", nil), "failed to create backup for standby volume standby"},
		{"no snapshot of the name", backupOf("b1", "none", label(naming.LabelBackupTarget, "default")), "does not exist"},
		{"another target than the volume's", backupOf("b1", "s", label(naming.LabelBackupTarget, "off")), "has no URL"},
		{"a target that is away", backupOf("b1", "s", label(naming.LabelBackupTarget, "away")), "is not available"},
		{"no target of the name", backupOf("b1", "s", label(naming.LabelBackupTarget, "none")), "does not exist"},
		{"a size of blocks", backupOf("b1", "s", func(b *v1beta2.Backup) { b.Spec.BackupBlockSize = 7 }), "block size 7"},
		{"one that does not divide", backupOf("b1", "s", func(b *v1beta2.Backup) {
			b.Spec.BackupBlockSize = v1beta2.BackupBlockSize16Mi
		}), "not a multiple"},
		{"of the store, size of blocks not known", backupOf("b1", "", func(b *v1beta2.Backup) {
			b.Labels = map[string]string{naming.LabelBackupTarget: "default", naming.LabelBackupVolume: "ww"}
			b.Spec.BackupBlockSize = v1beta2.BackupBlockSizeInvalid
		}), ""},
		{"of the store, no target", backupOf("b1", "", nil), "has no label backup-target"},
	} {
		expect(t, tt.name, asked(t, w, plural, nil, tt.b), tt.want)
	}
	var none *v1beta2.Backup
	completes(t, "of a volume", w, plural, none, backupOf("b1", "s", nil), func(b *v1beta2.Backup) {
		b.Finalizers = []string{v1beta2.Finalizer}
		b.Labels = map[string]string{naming.LabelBackupVolume: "v", naming.LabelBackupTarget: "default"}
		b.Spec.BackupMode, b.Spec.BackupBlockSize = v1beta2.BackupModeIncremental, v1beta2.BackupBlockSize2Mi
		b.Spec.Labels = map[string]string{naming.LabelVolumeAccessMode: "rwx"}
	})
	before := backupOf("b1", "s", func(b *v1beta2.Backup) { b.Spec.BackupBlockSize = v1beta2.BackupBlockSize2Mi })
	after := before.DeepCopy()
	after.Spec.BackupBlockSize = v1beta2.BackupBlockSize16Mi
	expect(t, "another size", asked(t, w, plural, before, after), "changing the block size")
	before.Spec.BackupBlockSize = v1beta2.BackupBlockSizeInvalid
	expect(t, "a size that was not known", asked(t, w, plural, before, after), "")
}

// TestBackupVolumes: both names are needed, and are its labels.
func TestBackupVolumes(t *testing.T) {
	w := worldOf(t)
	of := func(volume, target string) *v1beta2.BackupVolume {
		return named(&v1beta2.BackupVolume{}, "x", nil, func(v *v1beta2.BackupVolume) {
			v.Spec.VolumeName, v.Spec.BackupTargetName = volume, target
		})
	}
	expect(t, "no volume", asked(t, w, "backupvolumes", nil, of("", "t")), "names no volume")
	expect(t, "no target", asked(t, w, "backupvolumes", nil, of("v", "")), "names no backup target")
	var none *v1beta2.BackupVolume
	completes(t, "whole", w, "backupvolumes", none, of("v", "t"), func(v *v1beta2.BackupVolume) {
		v.Finalizers = []string{v1beta2.Finalizer}
		v.Labels = map[string]string{naming.LabelBackupVolume: "v", naming.LabelBackupTarget: "t"}
	})
}

// TestVolumeFromBackup: it has the size, target, access mode and blocks of its backup, which has to
// be there.
func TestVolumeFromBackup(t *testing.T) {
	const url = "s3://b@r/?backup=b1&volume=ww"
	made := func(edit func(*v1beta2.Backup)) *v1beta2.Backup {
		return backupOf("b1", "", func(b *v1beta2.Backup) {
			b.Labels = map[string]string{naming.LabelBackupTarget: "far", naming.LabelBackupVolume: "ww"}
			b.Spec.BackupBlockSize = v1beta2.BackupBlockSize16Mi
			b.Status = v1beta2.BackupStatus{State: v1beta2.BackupStateCompleted, URL: url, VolumeSize: "33554432",
				Labels: map[string]string{naming.LabelVolumeAccessMode: "rwx"}}
			if edit != nil {
				edit(b)
			}
		})
	}
	onImage := func(name string) func(*v1beta2.Backup) {
		return func(b *v1beta2.Backup) { b.Status.VolumeBackingImageName = name }
	}
	for _, tt := range []struct {
		name, from string
		b          *v1beta2.Backup
		want       string
	}{
		{"whole", url, made(nil), ""},
		{"no URL", "b1", made(nil), "cannot get backup"},
		{"another store", "s3://other@r/?backup=b1&volume=ww", made(nil), "cannot get backup"},
		{"another backup", "s3://b@r/?backup=b2&volume=ww", made(nil), "cannot get backup"},
		{"not complete", url, made(func(b *v1beta2.Backup) { b.Status.State = v1beta2.BackupStateInProgress }), "InProgress"},
		{"of an encrypted volume", url, made(nil), ""},
		{"of a volume on an image", url, made(onImage("iso")), ""},
		{"of a volume on another image", url, made(onImage("other")), "on backing image \"other\""},
		{"blocks of no known size", url, made(func(b *v1beta2.Backup) { b.Spec.BackupBlockSize = -1 }), "cannot be restored"},
	} {
		v := namedVolume("new", func(v *v1beta2.Volume) {
			v.Spec.FromBackup, v.Spec.AccessMode, v.Spec.BackupBlockSize = tt.from, "", 0
			v.Spec.Encrypted = tt.name == "of an encrypted volume"
			if tt.b.Status.VolumeBackingImageName == "other" {
				v.Spec.BackingImage = "iso"
			}
		})
		err := worldOf(t, tt.b).restoreFrom(t.Context(), v)
		expect(t, tt.name, err, tt.want)
		if tt.want == "" && v.Spec.BackingImage != tt.b.Status.VolumeBackingImageName {
			t.Errorf("%s: on image %q", tt.name, v.Spec.BackingImage)
		}
		if tt.want == "" && (v.DeviceBytes() != 32<<20 || v.Spec.BackupTargetName != "far" || v.Spec.AccessMode != "rwx" ||
			v.Spec.BackupBlockSize != v1beta2.BackupBlockSize16Mi || v.Labels[naming.LabelBackupVolume] != "ww") {
			t.Errorf("%s: %+v", tt.name, v.Spec)
		}
	}
}
