package admission

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/api/volumefield"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/setting"
)

// Bounds of a volume's fields.
const (
	// cliWithoutCounter is the command line version from which an engine can run without revision
	// counter.
	cliWithoutCounter = 4
)

// VolumeFacts is what the cluster says about a volume.
type VolumeFacts struct {
	Settings setting.Values
	// Image is the object of spec.image, nil if there is none.
	Image *v1beta2.EngineImage
	// BackingImageVirtualSize of spec.backingImage; BackingImageMissing if there is no such image.
	BackingImageVirtualSize int64
	BackingImageMissing     bool
	// BackingImageEncrypted: the image has a Secret.
	BackingImageEncrypted bool
	// Source is the volume spec.dataSource names, nil if there is none.
	Source *v1beta2.Volume
	// BackupTargetMissing: spec.backupTargetName names no object.
	BackupTargetMissing bool
	// Replicas and Engines are the volume's own.
	Replicas []v1beta2.Replica
	Engines  []v1beta2.Engine
	// Nodes are all of the cluster, where the volume is to grow.
	Nodes []v1beta2.Node
	// Claim is what the volume is bound to, where it is to grow; nil if it is not bound. ClaimGrows:
	// the claim's class allows that.
	Claim      *corev1.PersistentVolumeClaim
	ClaimGrows bool
}

// CheckVolume refuses a volume that cannot be (old nil: creation). Texts start with what is wrong,
// parts of them are matched by clients.
func CheckVolume(old, v *v1beta2.Volume, f VolumeFacts) error {
	if old == nil {
		return checkNewVolume(v, f)
	}
	return checkVolumeUpdate(old, v, f)
}

func checkNewVolume(v *v1beta2.Volume, f VolumeFacts) error {
	s := &v.Spec
	return firstOf(
		func() error {
			if err := naming.CheckVolumeName(v.Name); err != nil {
				return invalid("invalid name %s for volume: %v", v.Name, err)
			}
			return nil
		},
		func() error { return checkSize(v) },
		func() error {
			if s.Standby && s.FromBackup == "" {
				return invalid("failed to create standby volume %s without field FromBackup: it follows the backups of one", v.Name)
			}
			return checkFrontend(v)
		},
		func() error { return checkSelectors(&v1beta2.VolumeSpec{}, s) },
		func() error { return checkFields(v, f) },
		func() error {
			switch {
			case s.Image == "":
				return invalid("volume %s has no engine image; is setting default-engine-image set?", v.Name)
			case f.Image == nil:
				return invalid("engine image %s of volume %s does not exist", s.Image, v.Name)
			case f.Image.Status.Incompatible:
				return invalid("engine image %s of volume %s is incompatible with this manager", s.Image, v.Name)
			case s.RevisionCounterDisabled && f.Image.Status.Version != "" && f.Image.Status.CLIAPIVersion < cliWithoutCounter:
				return invalid("engine image %s of volume %s is too old to run without revision counter", s.Image, v.Name)
			}
			return nil
		},
		func() error { return checkBackingImage(v, f) },
		func() error { return checkSource(v, f) },
		func() error {
			if s.FromBackup != "" && s.DataSource != "" {
				return invalid("volume %s cannot be filled from backup %s and from %s", v.Name, s.FromBackup, s.DataSource)
			}
			return nil
		},
		func() error {
			switch {
			case s.Encrypted && s.Size <= v1beta2.LUKSHeaderBytes:
				return invalid("encrypted volume %s needs more than the %d bytes of its LUKS2 header size, not %d",
					v.Name, v1beta2.LUKSHeaderBytes, s.Size)
			case !f.Settings.Bool(setting.V1DataEngine):
				return invalid("volume %s cannot be created while setting v1-data-engine is false", v.Name)
			}
			return nil
		},
	)
}

// checkFrontend refuses what the schema takes and this version does not have. A standby volume has
// none, any other one has one.
func checkFrontend(v *v1beta2.Volume) error {
	switch {
	case v.Spec.Standby && v.Spec.Frontend == v1beta2.VolumeFrontendNone:
		return nil
	case v.Spec.Standby:
		return invalid("failed to set frontend for standby volume %s: it has none until it is activated", v.Name)
	}
	if err := volumefield.Get("frontend").Check(string(v.Spec.Frontend)); err != nil {
		return about("volume "+v.Name, invalid("%v", err))
	}
	return nil
}

func checkSize(v *v1beta2.Volume) error {
	switch s := v.Spec.Size; {
	case s <= 0:
		return invalid("invalid volume size: %d bytes of volume %s should be positive", s, v.Name)
	case s%sizeGrain != 0:
		return invalid("invalid volume size: %d bytes of volume %s is too large", s, v.Name)
	}
	return nil
}

// checkSelectors refuses new tags that no node and no disk can have.
func checkSelectors(was, now *v1beta2.VolumeSpec) error {
	return firstOf(
		func() error { return checkTags("node selector: ", was.NodeSelector, now.NodeSelector) },
		func() error { return checkTags("disk selector: ", was.DiskSelector, now.DiskSelector) },
	)
}

// checkFields holds the rules that apply at creation and later. Choices, and bounds that the schema
// has, are the schema's alone.
func checkFields(v *v1beta2.Volume, f VolumeFacts) error {
	s := &v.Spec
	return firstOf(
		func() error { return CheckReplicaCount(v) },
		func() error { return checkModes(v) },
		func() error { return checkSnapshotLimits(v) },
		func() error {
			switch {
			case s.BackupTargetName == "":
				return invalid("volume %s has no backup target name", v.Name)
			case f.BackupTargetMissing:
				return invalid("backup target %s of volume %s does not exist", s.BackupTargetName, v.Name)
			}
			return nil
		},
		func() error {
			if pinsOneZone(s.TopologyRequirement) && s.ReplicaZoneSoftAntiAffinity != v1beta2.OverrideEnabled &&
				s.NumberOfReplicas > 1 {
				return invalid("topology requirement pins volume %s to zone %s, so replicaZoneSoftAntiAffinity must be enabled",
					v.Name, s.TopologyRequirement[0].Zone)
			}
			return nil
		},
		func() error { return checkBlockSize(v) },
	)
}

// CheckReplicaCount refuses a number of replicas that a volume cannot have.
func CheckReplicaCount(v *v1beta2.Volume) error {
	n, f := v.Spec.NumberOfReplicas, volumefield.Get("numberOfReplicas")
	if !f.Within(int64(n)) {
		return invalid("number of replicas %d of volume %s must between %d to %d", n, v.Name, f.Least, f.Most)
	}
	if v.Spec.DataLocality == v1beta2.DataLocalityStrictLocal && n != 1 {
		return invalid("number of replica count should be 1 when data locality is strict-local: volume %s has %d", v.Name, n)
	}
	return nil
}

func checkModes(v *v1beta2.Volume) error {
	s := &v.Spec
	switch {
	case s.DataLocality == v1beta2.DataLocalityStrictLocal && s.AccessMode == v1beta2.AccessModeReadWriteMany &&
		!s.Migratable:
		return invalid("access mode rwx of volume %s is incompatible with data locality strict-local", v.Name)
	case s.Migratable && s.AccessMode != v1beta2.AccessModeReadWriteMany:
		return invalid("migratable volumes are only supported in ReadWriteMany (rwx) access mode: volume %s is %s",
			v.Name, s.AccessMode)
	}
	return nil
}

func checkSnapshotLimits(v *v1beta2.Volume) error {
	s, count := &v.Spec, volumefield.Get("snapshotMaxCount")
	if !count.Within(int64(s.SnapshotMaxCount)) {
		return invalid("snapshot max count should be between %d to %d: volume %s has %d", count.Least, count.Most, v.Name,
			s.SnapshotMaxCount)
	}
	if s.SnapshotMaxSize != 0 && s.SnapshotMaxSize/2 < s.Size {
		return invalid("snapshot max size %d of volume %s should be 0 or at least twice the volume size %d",
			s.SnapshotMaxSize, v.Name, s.Size)
	}
	return nil
}

func validBlockSize(n int64) bool {
	return n == v1beta2.BackupBlockSize2Mi || n == v1beta2.BackupBlockSize16Mi
}

func checkBlockSize(v *v1beta2.Volume) error {
	n := v.Spec.BackupBlockSize
	if !validBlockSize(n) {
		return invalid("unsupported BackupBlockSize %d of volume %s: should be %d or %d", n, v.Name,
			v1beta2.BackupBlockSize2Mi, v1beta2.BackupBlockSize16Mi)
	}
	if v.Spec.Size%n != 0 {
		return invalid("unsupported BackupBlockSize %d of volume %s: the volume size %d is not a multiple of it", n,
			v.Name, v.Spec.Size)
	}
	return nil
}

func checkBackingImage(v *v1beta2.Volume, f VolumeFacts) error {
	switch {
	case f.BackingImageMissing:
		return invalid("backing image %s of volume %s does not exist", v.Spec.BackingImage, v.Name)
	case f.BackingImageVirtualSize > v.DeviceBytes():
		return invalid(
			"volume size should be larger than the backing image size: volume %s has %d bytes, backing image %s has %d",
			v.Name, v.Spec.Size, v.Spec.BackingImage, v.UserBytes(f.BackingImageVirtualSize))
	case v.Spec.BackingImage != "" && v.Spec.Encrypted && !f.BackingImageEncrypted:
		return invalid("volume %s is to be encrypted, and backing image %s is not: its content would not be a LUKS volume",
			v.Name, v.Spec.BackingImage)
	}
	return nil
}

func checkSource(v *v1beta2.Volume, f VolumeFacts) error {
	if v.Spec.DataSource == "" {
		if v.Spec.CloneMode != v1beta2.CloneModeNone {
			return invalid("volume %s has clone mode %s without a data source", v.Name, v.Spec.CloneMode)
		}
		return nil
	}
	name, _, ok := naming.ParseCloneSource(v.Spec.DataSource)
	switch {
	case !ok:
		return invalid(
			"failed to verify data source: %q of volume %s should be vol://<volume> or snap://<volume>/<snapshot>",
			v.Spec.DataSource, v.Name)
	case f.Source == nil:
		return invalid("failed to verify data source: volume %s does not exist", name)
	case f.Source.Spec.Size != v.Spec.Size:
		return invalid("failed to verify data source: volume %s has %d bytes, its source %s has %d", v.Name,
			v.Spec.Size, name, f.Source.Spec.Size)
	case f.Source.Spec.Encrypted != v.Spec.Encrypted:
		return invalid("failed to verify data source: encrypted is %t for volume %s and %t for its source %s; a clone is as "+
			"its source", v.Spec.Encrypted, v.Name, f.Source.Spec.Encrypted, name)
	case f.Source.Spec.BackingImage != v.Spec.BackingImage:
		return invalid("failed to verify data source: volume %s is to stand on backing image %q, and its source %s stands on "+
			"%q: leave it out", v.Name, v.Spec.BackingImage, name, f.Source.Spec.BackingImage)
	case v.Spec.CloneMode != v1beta2.CloneModeFullCopy:
		return invalid("volume %s has clone mode %q, only full-copy is supported", v.Name, v.Spec.CloneMode)
	}
	return nil
}

func checkVolumeRequest(ctx context.Context, w world, r request[*v1beta2.Volume]) error {
	var f VolumeFacts
	var err error
	switch {
	case r.deleted():
		return nil // any volume can be deleted
	case r.created():
		f, err = w.newVolumeFacts(ctx, r.new)
	default:
		f, err = w.changedVolumeFacts(ctx, &r.old.Spec, r.new)
	}
	if err != nil {
		return err
	}
	return CheckVolume(r.old, r.new, f)
}

// newVolumeFacts reads what a new volume is judged by.
func (w world) newVolumeFacts(ctx context.Context, v *v1beta2.Volume) (f VolumeFacts, err error) {
	if f.Settings, err = w.settings(ctx); err != nil {
		return f, err
	}
	if f.Image, err = w.engineImage(ctx, v.Spec.Image); err != nil {
		return f, err
	}
	if v.Spec.BackingImage != "" {
		bi, err := find(ctx, w, v.Spec.BackingImage, &v1beta2.BackingImage{})
		if err != nil {
			return f, err
		}
		f.BackingImageMissing = bi == nil
		if bi != nil {
			f.BackingImageVirtualSize, f.BackingImageEncrypted = bi.Status.VirtualSize, bi.Spec.Secret != ""
		}
	}
	if name, _, ok := naming.ParseCloneSource(v.Spec.DataSource); ok {
		if f.Source, err = w.volume(ctx, name); err != nil {
			return f, err
		}
	}
	f.BackupTargetMissing, err = w.lacksBackupTarget(ctx, v)
	return f, err
}

// changedVolumeFacts reads what a change is judged by, and no more: controllers change a volume at
// each attachment, which concerns none of it.
func (w world) changedVolumeFacts(ctx context.Context, old *v1beta2.VolumeSpec, v *v1beta2.Volume) (f VolumeFacts,
	err error) {
	n := &v.Spec
	if old.Image != n.Image {
		if f.Image, err = w.engineImage(ctx, n.Image); err != nil {
			return f, err
		}
	}
	if old.BackupTargetName != n.BackupTargetName {
		if f.BackupTargetMissing, err = w.lacksBackupTarget(ctx, v); err != nil {
			return f, err
		}
	}
	if old.Size != n.Size || n.DataLocality == v1beta2.DataLocalityStrictLocal && old.NodeID != n.NodeID {
		if f.Replicas, err = w.replicasOf(ctx, v.Name); err != nil {
			return f, err
		}
	}
	if old.Size < n.Size {
		if err = w.roomFacts(ctx, &f); err != nil {
			return f, err
		}
		if f.Claim, f.ClaimGrows, err = BoundClaim(ctx, w.Reader, v); err != nil {
			return f, err
		}
	}
	if old.Size > n.Size || old.SnapshotMaxCount != n.SnapshotMaxCount || old.SnapshotMaxSize != n.SnapshotMaxSize {
		f.Engines, err = w.enginesOf(ctx, v.Name)
	}
	return f, err
}

// roomFacts reads what says how much room there is on disks.
func (w world) roomFacts(ctx context.Context, f *VolumeFacts) (err error) {
	if f.Settings, err = w.cachedSettings(ctx); err != nil {
		return err
	}
	f.Nodes, err = w.nodes(ctx)
	return err
}

func (w world) lacksBackupTarget(ctx context.Context, v *v1beta2.Volume) (bool, error) {
	bt, err := find(ctx, w, v.Spec.BackupTargetName, &v1beta2.BackupTarget{})
	return bt == nil, err
}
