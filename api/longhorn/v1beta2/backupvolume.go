package v1beta2

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// BackupVolumeSpec is what is wanted of a BackupVolume.
type BackupVolumeSpec struct {
	// BackupTargetName is the store.
	// +optional
	// +nullable
	BackupTargetName string `json:"backupTargetName"`
	// SyncRequestedAt asks for a comparison with the store.
	// +optional
	// +nullable
	SyncRequestedAt metav1.Time `json:"syncRequestedAt"`
	// VolumeName is the name of the volume in the store.
	// +optional
	VolumeName string `json:"volumeName"`
}

// BackupVolumeStatus is what was observed of a BackupVolume.
type BackupVolumeStatus struct {
	// BackingImageChecksum is the checksum of the backing image of the volume.
	// +optional
	BackingImageChecksum string `json:"backingImageChecksum"`
	// BackingImageName is the backing image of the volume.
	// +optional
	BackingImageName string `json:"backingImageName"`
	// CreatedAt is when the first backup was made.
	// +optional
	CreatedAt string `json:"createdAt"`
	// DataStored is how many bytes the store holds of the volume.
	// +optional
	DataStored string `json:"dataStored"`
	// Labels are the labels found in the store.
	// +optional
	// +nullable
	Labels map[string]string `json:"labels"`
	// LastBackupAt is when the newest backup was made.
	// +optional
	LastBackupAt string `json:"lastBackupAt"`
	// LastBackupName is the newest backup.
	// +optional
	LastBackupName string `json:"lastBackupName"`
	// LastModificationTime is when the entry in the store was last changed.
	// +optional
	// +nullable
	LastModificationTime metav1.Time `json:"lastModificationTime"`
	// LastSyncedAt is when the object was last compared with the store.
	// +optional
	// +nullable
	LastSyncedAt metav1.Time `json:"lastSyncedAt"`
	// Messages are texts under the keys info and error.
	// +optional
	// +nullable
	Messages map[string]string `json:"messages"`
	// OwnerID is the node whose manager looks after the object.
	// +optional
	OwnerID string `json:"ownerID"`
	// Size is the size of the volume in bytes, as a decimal number.
	// +optional
	Size string `json:"size"`
	// StorageClassName is the StorageClass the volume had.
	// +optional
	StorageClassName string `json:"storageClassName"`
}

// BackupVolume stands for all backups of one volume in a backup store.
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
