package v1beta2

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// VolumeBackupPolicy says which volumes are backed up together with the system.
type VolumeBackupPolicy string

const (
	VolumeBackupPolicyIfNotPresent VolumeBackupPolicy = "if-not-present"
	VolumeBackupPolicyAlways       VolumeBackupPolicy = "always"
	VolumeBackupPolicyDisabled     VolumeBackupPolicy = "disabled"
)

// SystemBackupState is the phase of a system backup.
type SystemBackupState string

const (
	SystemBackupStateNew                 SystemBackupState = ""
	SystemBackupStateSyncing             SystemBackupState = "Syncing"
	SystemBackupStateVolumeBackups       SystemBackupState = "CreatingVolumeBackups"
	SystemBackupStateBackingImageBackups SystemBackupState = "CreatingBackingImageBackups"
	SystemBackupStateGenerating          SystemBackupState = "Generating"
	SystemBackupStateUploading           SystemBackupState = "Uploading"
	SystemBackupStateReady               SystemBackupState = "Ready"
	SystemBackupStateError               SystemBackupState = "Error"
	SystemBackupStateDeleting            SystemBackupState = "Deleting"
)

// Condition type and reasons of a SystemBackup.
const (
	SystemBackupConditionError = "Error"
	SystemBackupReasonDelete   = "Delete"
	SystemBackupReasonGenerate = "Generate"
	SystemBackupReasonUpload   = "Upload"
	SystemBackupReasonSync     = "Sync"
)

// SystemBackupSpec is what is wanted of a SystemBackup.
type SystemBackupSpec struct {
	// VolumeBackupPolicy says which volumes are backed up as well.
	// +optional
	// +nullable
	VolumeBackupPolicy VolumeBackupPolicy `json:"volumeBackupPolicy"`
}

// SystemBackupStatus is what was observed of a SystemBackup.
type SystemBackupStatus struct {
	// Conditions are the observations about the object.
	// +optional
	// +nullable
	Conditions []Condition `json:"conditions"`
	// CreatedAt is when the backup was made.
	// +optional
	CreatedAt metav1.Time `json:"createdAt,omitzero"`
	// GitCommit is the commit the manager was built from.
	// +optional
	// +nullable
	GitCommit string `json:"gitCommit"`
	// LastSyncedAt is when the object was last compared with the store.
	// +optional
	// +nullable
	LastSyncedAt metav1.Time `json:"lastSyncedAt"`
	// ManagerImage is the image of the manager.
	// +optional
	ManagerImage string `json:"managerImage"`
	// OwnerID is the node whose manager looks after the object.
	// +optional
	OwnerID string `json:"ownerID"`
	// State is the phase of the backup.
	// +optional
	State SystemBackupState `json:"state"`
	// Version is the version of the manager.
	// +optional
	// +nullable
	Version string `json:"version"`
}

// SystemBackup is a backup of the objects of the system.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:storageversion
// +kubebuilder:resource:path=systembackups,singular=systembackup,shortName=lhsb,scope=Namespaced
// +kubebuilder:metadata:labels="longhorn-manager="
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=`.status.version`
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.state`
// +kubebuilder:printcolumn:name="Created",type=string,JSONPath=`.status.createdAt`
// +kubebuilder:printcolumn:name="LastSyncedAt",type=string,JSONPath=`.status.lastSyncedAt`
type SystemBackup struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   SystemBackupSpec   `json:"spec,omitempty"`
	Status SystemBackupStatus `json:"status,omitempty"`
}

// SystemBackupList is a list of SystemBackup objects.
//
// +kubebuilder:object:root=true
type SystemBackupList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []SystemBackup `json:"items"`
}
