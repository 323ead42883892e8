package v1beta2

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// BackupVolumeSpec is what is wanted of a BackupVolume.
type BackupVolumeSpec struct {
	// +optional
	// +nullable
	BackupTargetName string `json:"backupTargetName"`
	// +optional
	// +nullable
	SyncRequestedAt metav1.Time `json:"syncRequestedAt"`
	// +optional
	VolumeName string `json:"volumeName"`
}

// BackupVolumeStatus is what was observed of a BackupVolume.
type BackupVolumeStatus struct {
	// +optional
	BackingImageChecksum string `json:"backingImageChecksum"`
	// +optional
	BackingImageName string `json:"backingImageName"`
	// +optional
	CreatedAt string `json:"createdAt"`
	// +optional
	DataStored string `json:"dataStored"`
	// +optional
	// +nullable
	Labels map[string]string `json:"labels"`
	// +optional
	LastBackupAt string `json:"lastBackupAt"`
	// +optional
	LastBackupName string `json:"lastBackupName"`
	// +optional
	// +nullable
	LastModificationTime metav1.Time `json:"lastModificationTime"`
	// +optional
	// +nullable
	LastSyncedAt metav1.Time `json:"lastSyncedAt"`
	// +optional
	// +nullable
	Messages map[string]string `json:"messages"`
	// +optional
	OwnerID string `json:"ownerID"`
	// +optional
	Size string `json:"size"`
	// +optional
	StorageClassName string `json:"storageClassName"`
}

// BackupVolume is one of the stored kinds.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:storageversion
// +kubebuilder:resource:path=backupvolumes,singular=backupvolume,shortName=lhbv,scope=Namespaced
// +kubebuilder:metadata:labels="longhorn-manager="
// +kubebuilder:printcolumn:name="CreatedAt",type=string,JSONPath=`.status.createdAt`
// +kubebuilder:printcolumn:name="LastBackupName",type=string,JSONPath=`.status.lastBackupName`
// +kubebuilder:printcolumn:name="LastBackupAt",type=string,JSONPath=`.status.lastBackupAt`
// +kubebuilder:printcolumn:name="LastSyncedAt",type=string,JSONPath=`.status.lastSyncedAt`
type BackupVolume struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   BackupVolumeSpec   `json:"spec,omitempty"`
	Status BackupVolumeStatus `json:"status,omitempty"`
}

// BackupVolumeList is a list of BackupVolume objects.
//
// +kubebuilder:object:root=true
type BackupVolumeList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []BackupVolume `json:"items"`
}
