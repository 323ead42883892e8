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

// BackupSpec is what is wanted of a Backup.
type BackupSpec struct {
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Enum="-1";"2097152";"16777216"
	BackupBlockSize int64 `json:"backupBlockSize,omitempty,string"`
	// +optional
	// +kubebuilder:validation:Enum=full;incremental
	BackupMode BackupMode `json:"backupMode,omitempty"`
	// +optional
	Labels map[string]string `json:"labels,omitzero"`
	// +optional
	SnapshotName string `json:"snapshotName"`
	// +optional
	// +nullable
	SyncRequestedAt metav1.Time `json:"syncRequestedAt"`
}

// BackupStatus is what was observed of a Backup.
type BackupStatus struct {
	// +optional
	BackupCreatedAt string `json:"backupCreatedAt"`
	// +optional
	BackupTargetName string `json:"backupTargetName"`
	// +optional
	CompressionMethod string `json:"compressionMethod"`
	// +optional
	Error string `json:"error"`
	// +optional
	// +nullable
	Labels map[string]string `json:"labels"`
	// +optional
	// +nullable
	LastSyncedAt metav1.Time `json:"lastSyncedAt"`
	// +optional
	// +nullable
	Messages map[string]string `json:"messages"`
	// +optional
	NewlyUploadDataSize string `json:"newlyUploadDataSize"`
	// +optional
	OwnerID string `json:"ownerID"`
	// +optional
	Progress int `json:"progress"`
	// +optional
	ReUploadedDataSize string `json:"reUploadedDataSize"`
	// +optional
	ReplicaAddress string `json:"replicaAddress"`
	// +optional
	Size string `json:"size"`
	// +optional
	SnapshotCreatedAt string `json:"snapshotCreatedAt"`
	// +optional
	SnapshotName string `json:"snapshotName"`
	// +optional
	State BackupState `json:"state"`
	// +optional
	URL string `json:"url"`
	// +optional
	VolumeBackingImageName string `json:"volumeBackingImageName"`
	// +optional
	VolumeCreated string `json:"volumeCreated"`
	// +optional
	VolumeName string `json:"volumeName"`
	// +optional
	VolumeSize string `json:"volumeSize"`
}

// Backup is one of the stored kinds.
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
