package resource

// AttachInput asks for a volume on a node.
type AttachInput struct {
	HostID          string `json:"hostId" api:"required"`
	DisableFrontend bool   `json:"disableFrontend"`
	AttachedBy      string `json:"attachedBy"`
	// AttacherType gives the ticket's priority; empty means "longhorn-api".
	AttacherType string `json:"attacherType"`
	// AttachmentID names the ticket; the UI and plain callers use the empty one.
	AttachmentID string `json:"attachmentID"`
	// Withdrawals is what the caller has read of the volume's attachment: with another number there a
	// new ticket is refused (409). Nil means any. It is our addition.
	Withdrawals *int64 `json:"withdrawals,omitempty" schema:"-"`
}

// DetachInput withdraws a ticket, or all of them with ForceDetach.
type DetachInput struct {
	AttachmentID string `json:"attachmentID"`
	HostID       string `json:"hostId"`
	ForceDetach  bool   `json:"forceDetach"`
	// Generation of the ticket that is meant; another one of its id stays. Nil means any. It is our
	// addition.
	Generation *int64 `json:"generation,omitempty" schema:"-"`
}

// SnapshotInput names a snapshot and its labels; BackupMode matters to snapshotBackup only.
type SnapshotInput struct {
	Name       string            `json:"name"`
	Labels     map[string]string `json:"labels"`
	BackupMode string            `json:"backupMode"`
}

// SnapshotCRInput names a declarative snapshot.
type SnapshotCRInput struct {
	Name   string            `json:"name"`
	Labels map[string]string `json:"labels"`
}

// BackupInput names a backup.
type BackupInput struct {
	Name string `json:"name"`
}

// SyncBackupResource asks for an immediate look at a backup target, everything on it, or one
// volume.
type SyncBackupResource struct {
	SyncAllBackupTargets bool `json:"syncAllBackupTargets"`
	SyncBackupTarget     bool `json:"syncBackupTarget"`
	SyncAllBackupVolumes bool `json:"syncAllBackupVolumes"`
	SyncBackupVolume     bool `json:"syncBackupVolume"`
}

// ReplicaRemoveInput names the replica to delete.
type ReplicaRemoveInput struct {
	Name string `json:"name"`
}

// SalvageInput names the replicas whose failure marks are cleared.
type SalvageInput struct {
	Names []string `json:"names"`
}

// ActivateInput turns a standby volume into a normal one with the given frontend.
type ActivateInput struct {
	Frontend string `json:"frontend"`
}

// ExpandInput is the new size, a Kubernetes quantity.
type ExpandInput struct {
	Size string `json:"size"`
}

// EngineUpgradeInput is the wanted engine image.
type EngineUpgradeInput struct {
	Image string `json:"image"`
}

// UpdateReplicaCountInput is the wanted number of replicas, 1 to 20.
type UpdateReplicaCountInput struct {
	ReplicaCount int `json:"replicaCount"`
}

// UpdateReplicaAutoBalanceInput is the input of updateReplicaAutoBalance.
type UpdateReplicaAutoBalanceInput struct {
	ReplicaAutoBalance string `json:"replicaAutoBalance"`
}

// UpdateRebuildConcurrentSyncLimitInput is the input of updateRebuildConcurrentSyncLimit.
type UpdateRebuildConcurrentSyncLimitInput struct {
	RebuildConcurrentSyncLimit int `json:"rebuildConcurrentSyncLimit"`
}

// UpdateDataLocalityInput is the input of updateDataLocality.
type UpdateDataLocalityInput struct {
	DataLocality string `json:"dataLocality"`
}

// UpdateAccessModeInput is the input of updateAccessMode.
type UpdateAccessModeInput struct {
	AccessMode string `json:"accessMode"`
}

// UpdateSnapshotDataIntegrityInput is the input of updateSnapshotDataIntegrity.
type UpdateSnapshotDataIntegrityInput struct {
	SnapshotDataIntegrity string `json:"snapshotDataIntegrity"`
}

// UpdateSnapshotMaxCountInput is the input of updateSnapshotMaxCount.
type UpdateSnapshotMaxCountInput struct {
	SnapshotMaxCount int `json:"snapshotMaxCount"`
}

// UpdateSnapshotMaxSizeInput is the input of updateSnapshotMaxSize, a quantity.
type UpdateSnapshotMaxSizeInput struct {
	SnapshotMaxSize string `json:"snapshotMaxSize"`
}

// UpdateReplicaRebuildingBandwidthLimitInput is a quantity of MiB per second; 0 leaves it to the
// setting.
type UpdateReplicaRebuildingBandwidthLimitInput struct {
	ReplicaRebuildingBandwidthLimit string `json:"replicaRebuildingBandwidthLimit"`
}

// UpdateUblkQueueDepthInput matters to the v2 data engine only.
type UpdateUblkQueueDepthInput struct {
	UblkQueueDepth int `json:"ublkQueueDepth"`
}

// UpdateUblkNumberOfQueueInput matters to the v2 data engine only.
type UpdateUblkNumberOfQueueInput struct {
	UblkNumberOfQueue int `json:"ublkNumberOfQueue"`
}

// UpdateBackupCompressionInput is the input of updateBackupCompressionMethod.
type UpdateBackupCompressionInput struct {
	BackupCompressionMethod string `json:"backupCompressionMethod"`
}

// UpdateUnmapMarkSnapChainRemovedInput is the input of updateUnmapMarkSnapChainRemoved.
type UpdateUnmapMarkSnapChainRemovedInput struct {
	UnmapMarkSnapChainRemoved string `json:"unmapMarkSnapChainRemoved"`
}

// UpdateReplicaSoftAntiAffinityInput is the input of updateReplicaSoftAntiAffinity.
type UpdateReplicaSoftAntiAffinityInput struct {
	ReplicaSoftAntiAffinity string `json:"replicaSoftAntiAffinity"`
}

// UpdateReplicaZoneSoftAntiAffinityInput is the input of updateReplicaZoneSoftAntiAffinity.
type UpdateReplicaZoneSoftAntiAffinityInput struct {
	ReplicaZoneSoftAntiAffinity string `json:"replicaZoneSoftAntiAffinity"`
}

// UpdateReplicaDiskSoftAntiAffinityInput is the input of updateReplicaDiskSoftAntiAffinity.
type UpdateReplicaDiskSoftAntiAffinityInput struct {
	ReplicaDiskSoftAntiAffinity string `json:"replicaDiskSoftAntiAffinity"`
}

// UpdateFreezeFilesystemForSnapshotInput is the input of updateFreezeFilesystemForSnapshot.
type UpdateFreezeFilesystemForSnapshotInput struct {
	FreezeFilesystemForSnapshot string `json:"freezeFilesystemForSnapshot"`
}

// UpdateBackupTargetInput is the input of updateBackupTargetName.
type UpdateBackupTargetInput struct {
	BackupTargetName string `json:"backupTargetName"`
}

// UpdateOfflineRebuildingInput is the input of offlineReplicaRebuilding.
type UpdateOfflineRebuildingInput struct {
	OfflineRebuilding string `json:"offlineRebuilding"`
}

// VolumeRecurringJobInput names a job or group to add to or remove from a volume.
type VolumeRecurringJobInput struct {
	Name    string `json:"name"`
	IsGroup bool   `json:"isGroup"`
}

// PVCreateInput describes the static PersistentVolume to create.
type PVCreateInput struct {
	PVName           string `json:"pvName"`
	FSType           string `json:"fsType"`
	SecretName       string `json:"secretName"`
	SecretNamespace  string `json:"secretNamespace"`
	StorageClassName string `json:"storageClassName"`
}

// PVCCreateInput describes the claim to create for an existing PersistentVolume.
type PVCCreateInput struct {
	Namespace string `json:"namespace"`
	PVCName   string `json:"pvcName"`
}

// SupportBundleInput asks for a support bundle.
type SupportBundleInput struct {
	IssueURL    string `json:"issueURL"`
	Description string `json:"description"`
}

// BackingImageCleanupInput lists the disks (by UUID) to remove a backing image from.
type BackingImageCleanupInput struct {
	Disks []string `json:"disks"`
}

// UpdateMinNumberOfCopiesInput is the input of updateMinNumberOfCopies.
type UpdateMinNumberOfCopiesInput struct {
	MinNumberOfCopies int `json:"minNumberOfCopies"`
}

// BackingImageRestoreInput is the input of backupBackingImageRestore.
type BackingImageRestoreInput struct {
	Secret          string `json:"secret"`
	SecretNamespace string `json:"secretNamespace"`
	DataEngine      string `json:"dataEngine" api:"required"`
}
