package v1beta2

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// BackupMode says whether a backup may build on the one before it.
type BackupMode string

const (
	BackupModeFull        BackupMode = "full"
	BackupModeIncremental BackupMode = "incremental"
)

// BackupState is the phase of a backup, of a volume or of a backing image.
type BackupState string

const (
	BackupStateNew        BackupState = ""
	BackupStatePending    BackupState = "Pending"
	BackupStateInProgress BackupState = "InProgress"
	BackupStateCompleted  BackupState = "Completed"
	BackupStateError      BackupState = "Error"
	BackupStateUnknown    BackupState = "Unknown"
	BackupStateDeleting   BackupState = "Deleting"
)

// Keys of the field messages of backups and backup volumes.
const (
	BackupMessageInfo  = "info"
	BackupMessageError = "error"
)

// Condition type and reason of a Backup. The condition is True when all that the store has of the
// backup was sound when it was verified, and False when not.
const (
	BackupConditionVerified = "Verified"
	BackupReasonDamaged     = "Damaged"
)

// BackupSpec is what is wanted of a Backup.
type BackupSpec struct {
	// BackupBlockSize is the size in bytes of the blocks; -1 if it is not known.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Enum="-1";"2097152";"16777216"
	BackupBlockSize int64 `json:"backupBlockSize,omitempty,string"`
	// BackupMode says whether the backup may build on the one before it.
	// +optional
	// +kubebuilder:validation:Enum=full;incremental
	BackupMode BackupMode `json:"backupMode,omitempty"`
	// Labels are stored with the backup.
	// +optional
	Labels map[string]string `json:"labels,omitzero"`
	// SnapshotName is the snapshot to back up; empty if the object was made for a backup found in the store.
	// +optional
	SnapshotName string `json:"snapshotName"`
	// SyncRequestedAt asks for a comparison with the store.
	// +optional
	// +nullable
	SyncRequestedAt metav1.Time `json:"syncRequestedAt"`
}

// BackupStatus is what was observed of a Backup.
type BackupStatus struct {
	// BackupCreatedAt is when the backup was complete.
	// +optional
	BackupCreatedAt string `json:"backupCreatedAt"`
	// BackupTargetName is the store.
	// +optional
	BackupTargetName string `json:"backupTargetName"`
	// Conditions are the observations about the object.
	// +optional
	Conditions []Condition `json:"conditions,omitempty"`
	// CompressionMethod is the codec of the blocks.
	// +optional
	CompressionMethod string `json:"compressionMethod"`
	// Error says what went wrong, empty if nothing did.
	// +optional
	Error string `json:"error"`
	// Labels are the labels found in the store.
	// +optional
	// +nullable
	Labels map[string]string `json:"labels"`
	// LastSyncedAt is when the object was last compared with the store.
	// +optional
	// +nullable
	LastSyncedAt metav1.Time `json:"lastSyncedAt"`
	// Messages are texts under the keys info and error.
	// +optional
	// +nullable
	Messages map[string]string `json:"messages"`
	// NewlyUploadDataSize is how many bytes were new, as a decimal number.
	// +optional
	NewlyUploadDataSize string `json:"newlyUploadDataSize"`
	// OwnerID is the node whose manager looks after the object.
	// +optional
	OwnerID string `json:"ownerID"`
	// Progress goes from 0 to 100.
	// +optional
	Progress int `json:"progress"`
	// ReUploadedDataSize is how many bytes were sent again, as a decimal number.
	// +optional
	ReUploadedDataSize string `json:"reUploadedDataSize"`
	// ReplicaAddress is the replica that uploads.
	// +optional
	ReplicaAddress string `json:"replicaAddress"`
	// Size is how many bytes the backup has, as a decimal number.
	// +optional
	Size string `json:"size"`
	// SnapshotCreatedAt is when the snapshot was made.
	// +optional
	SnapshotCreatedAt string `json:"snapshotCreatedAt"`
	// SnapshotName is the snapshot.
	// +optional
	SnapshotName string `json:"snapshotName"`
	// State is the phase of the backup.
	// +optional
	State BackupState `json:"state"`
	// URL is where the backup lies.
	// +optional
	URL string `json:"url"`
	// VolumeBackingImageName is the backing image of the volume.
	// +optional
	VolumeBackingImageName string `json:"volumeBackingImageName"`
	// VolumeCreated is when the volume was made.
	// +optional
	VolumeCreated string `json:"volumeCreated"`
	// VolumeName is the volume.
	// +optional
	VolumeName string `json:"volumeName"`
	// VolumeSize is the size of the volume in bytes, as a decimal number.
	// +optional
	VolumeSize string `json:"volumeSize"`
}

// Backup is the backup of one snapshot of a volume in a backup store.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:storageversion
// +kubebuilder:resource:path=backups,singular=backup,shortName=lhb,scope=Namespaced
// +kubebuilder:metadata:labels="longhorn-manager="
// +kubebuilder:printcolumn:name="SnapshotName",type=string,JSONPath=`.status.snapshotName`
// +kubebuilder:printcolumn:name="SnapshotSize",type=string,JSONPath=`.status.size`
// +kubebuilder:printcolumn:name="SnapshotCreatedAt",type=string,JSONPath=`.status.snapshotCreatedAt`
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.state`
// +kubebuilder:printcolumn:name="LastSyncedAt",type=string,JSONPath=`.status.lastSyncedAt`
type Backup struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   BackupSpec   `json:"spec,omitempty"`
	Status BackupStatus `json:"status,omitempty"`
}

// BackupList is a list of Backup objects.
//
// +kubebuilder:object:root=true
type BackupList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Backup `json:"items"`
}
