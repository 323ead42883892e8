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

// UpdateUblkQueueDepthInput matters to the v2 data engine only.
type UpdateUblkQueueDepthInput struct {
	UblkQueueDepth int `json:"ublkQueueDepth"`
}

// UpdateUblkNumberOfQueueInput matters to the v2 data engine only.
type UpdateUblkNumberOfQueueInput struct {
	UblkNumberOfQueue int `json:"ublkNumberOfQueue"`
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
