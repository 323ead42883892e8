package rest

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/admission"
	"ankole.storage/controlplane/object/conflict"
	"ankole.storage/rest/resource"
)

// volumeUpdates are the actions that change one field of what is wanted of a volume.
var volumeUpdates = map[string]handler{
	resource.ActionUpdateReplicaCount: update("replica count", setReplicaCount),
	"updateRebuildConcurrentSyncLimit": update("rebuild concurrent sync limit", func(v *lh.Volume,
		in resource.UpdateRebuildConcurrentSyncLimitInput) error {
		v.Spec.RebuildConcurrentSyncLimit = in.RebuildConcurrentSyncLimit
		return admission.CheckRebuildLimits(v)
	}),
	"updateSnapshotMaxCount": update("snapshot max count", func(v *lh.Volume,
		in resource.UpdateSnapshotMaxCountInput) error {
		v.Spec.SnapshotMaxCount = in.SnapshotMaxCount
		return nil
	}),
	"updateSnapshotMaxSize": update("snapshot max size", func(v *lh.Volume,
		in resource.UpdateSnapshotMaxSizeInput) (err error) {
		v.Spec.SnapshotMaxSize, err = parseSize("snapshotMaxSize", in.SnapshotMaxSize)
		return err
	}),
	"updateBackupTargetName": update("backup target name", func(v *lh.Volume,
		in resource.UpdateBackupTargetInput) error {
		if in.BackupTargetName == "" {
			return errors.New("no backup target named")
		}
		v.Spec.BackupTargetName = in.BackupTargetName // admission knows whether there is one
		return nil
	}),
	"updateReplicaRebuildingBandwidthLimit": update("replica rebuilding bandwidth limit", func(v *lh.Volume,
		in resource.UpdateReplicaRebuildingBandwidthLimitInput) (err error) {
		v.Spec.ReplicaRebuildingBandwidthLimit, err = parseSize("replicaRebuildingBandwidthLimit",
			in.ReplicaRebuildingBandwidthLimit)
		if err != nil {
			return err
		}
		return admission.CheckRebuildLimits(v)
	}),
	"updateUblkQueueDepth": update("ublk queue depth", func(_ *lh.Volume,
		in resource.UpdateUblkQueueDepthInput) error {
		return onlyV2("ublkQueueDepth", int64(in.UblkQueueDepth))
	}),
	"updateUblkNumberOfQueue": update("ublk number of queues", func(_ *lh.Volume,
		in resource.UpdateUblkNumberOfQueueInput) error {
		return onlyV2("ublkNumberOfQueue", int64(in.UblkNumberOfQueue))
	}),
	resource.ActionUpdateDataLocality: choose(admission.LocalityChoice, func(s *lh.VolumeSpec,
		in resource.UpdateDataLocalityInput) (*lh.DataLocality, string) {
		return &s.DataLocality, in.DataLocality
	}, admission.CheckLocalityChange),
	"updateAccessMode": choose(admission.AccessChoice, func(s *lh.VolumeSpec, in resource.UpdateAccessModeInput) (
		*lh.AccessMode, string) {
		return &s.AccessMode, in.AccessMode
	}, admission.CheckAccessChange),
	"updateReplicaAutoBalance": choose(admission.BalanceChoice, func(s *lh.VolumeSpec,
		in resource.UpdateReplicaAutoBalanceInput) (*lh.ReplicaAutoBalance, string) {
		return &s.ReplicaAutoBalance, in.ReplicaAutoBalance
	}),
	"updateSnapshotDataIntegrity": choose(admission.IntegrityChoice, func(s *lh.VolumeSpec,
		in resource.UpdateSnapshotDataIntegrityInput) (*lh.SnapshotDataIntegrity, string) {
		return &s.SnapshotDataIntegrity, in.SnapshotDataIntegrity
	}),
	"updateBackupCompressionMethod": choose(admission.CompressionChoice, func(s *lh.VolumeSpec,
		in resource.UpdateBackupCompressionInput) (*lh.BackupCompressionMethod, string) {
		return &s.BackupCompressionMethod, in.BackupCompressionMethod
	}),
	"updateUnmapMarkSnapChainRemoved": choose(admission.UnmapChoice, func(s *lh.VolumeSpec,
		in resource.UpdateUnmapMarkSnapChainRemovedInput) (*lh.Override, string) {
		return &s.UnmapMarkSnapChainRemoved, in.UnmapMarkSnapChainRemoved
	}),
	"updateReplicaSoftAntiAffinity": choose(admission.NodeAffinityChoice, func(s *lh.VolumeSpec,
		in resource.UpdateReplicaSoftAntiAffinityInput) (*lh.Override, string) {
		return &s.ReplicaSoftAntiAffinity, in.ReplicaSoftAntiAffinity
	}),
	"updateReplicaZoneSoftAntiAffinity": choose(admission.ZoneAffinityChoice, func(s *lh.VolumeSpec,
		in resource.UpdateReplicaZoneSoftAntiAffinityInput) (*lh.Override, string) {
		return &s.ReplicaZoneSoftAntiAffinity, in.ReplicaZoneSoftAntiAffinity
	}),
	"updateReplicaDiskSoftAntiAffinity": choose(admission.DiskAffinityChoice, func(s *lh.VolumeSpec,
		in resource.UpdateReplicaDiskSoftAntiAffinityInput) (*lh.Override, string) {
		return &s.ReplicaDiskSoftAntiAffinity, in.ReplicaDiskSoftAntiAffinity
	}),
	"updateFreezeFilesystemForSnapshot": choose(admission.FreezeChoice, func(s *lh.VolumeSpec,
		in resource.UpdateFreezeFilesystemForSnapshotInput) (*lh.Override, string) {
		return &s.FreezeFilesystemForSnapshot, in.FreezeFilesystemForSnapshot
	}),
	"offlineReplicaRebuilding": choose(admission.OfflineChoice, func(s *lh.VolumeSpec,
		in resource.UpdateOfflineRebuildingInput) (*lh.Override, string) {
		return &s.OfflineRebuilding, in.OfflineRebuilding
	}),
}

// choose is an action that sets a field, which of returns together with the word of the input, to
// one of a choice. The checks are asked only for another word than there is.
func choose[T any, F ~string](c admission.Choice, of func(*lh.VolumeSpec, T) (*F, string),
	checks ...func(v *lh.Volume, word F) error) handler {
	return update(c.What, func(v *lh.Volume, in T) error {
		field, word := of(&v.Spec, in)
		if err := c.Check(word); err != nil || *field == F(word) {
			return err
		}
		for _, check := range checks {
			if err := check(v, F(word)); err != nil {
				return err
			}
		}
		*field = F(word)
		return nil
	})
}

// update is an action that changes what is wanted of a volume: T is its input, edit judges and
// makes the change.
func update[T any](what string, edit func(v *lh.Volume, in T) error) handler {
	return func(q *request) (any, error) {
		var in T
		if err := q.decode(&in); err != nil {
			return nil, err
		}
		name := q.params["name"]
		if err := q.editVolume(name, func(v *lh.Volume) error { return edit(v, in) }); err != nil {
			return nil, fmt.Errorf("unable to update %s of volume %s: %w", what, name, err)
		}
		return q.volume(name)
	}
}

// editVolume changes the spec and the labels of a volume. A change that changes nothing writes
// nothing.
func (q *request) editVolume(name string, edit func(*lh.Volume) error) error {
	return conflict.Retry(func() error {
		var v lh.Volume
		if err := q.server.get(q.Context(), name, &v); err != nil {
			return err
		}
		before := v.DeepCopy()
		if err := edit(&v); err != nil {
			return err
		}
		if equality.Semantic.DeepEqual(before.Spec, v.Spec) && equality.Semantic.DeepEqual(before.Labels, v.Labels) {
			return nil
		}
		return q.server.cfg.Client.Update(q.Context(), &v)
	})
}

func setReplicaCount(v *lh.Volume, in resource.UpdateReplicaCountInput) error {
	switch {
	case v.Status.State != lh.VolumeStateAttached:
		return fmt.Errorf("invalid volume state to update replica count: the volume is %s, attach it first", volumeState(v))
	case v.Status.CurrentImage != "" && v.Status.CurrentImage != v.Spec.Image:
		return errors.New("the engine is being upgraded; wait until that is done")
	case v.Spec.MigrationNodeID != "":
		return errMigrating
	}
	v.Spec.NumberOfReplicas = in.ReplicaCount
	return admission.CheckReplicaCount(v) // 0 would be taken for the setting's
}

// onlyV2 refuses a value for a field that the v1 data engine has not. Zero is what every volume
// has.
func onlyV2(field string, value int64) error {
	if value != 0 {
		return fmt.Errorf("%s belongs to data engine v2: a volume of data engine v1 takes only 0", field)
	}
	return nil
}
