package v1beta2

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// BackupBackingImageSpec is what is wanted of a BackupBackingImage.
type BackupBackingImageSpec struct {
	// BackingImage is the backing image.
	// +required
	BackingImage string `json:"backingImage"`
	// BackupTargetName is the store.
	// +optional
	// +nullable
	BackupTargetName string `json:"backupTargetName"`
	// Labels are stored with the backup.
	// +optional
	Labels map[string]string `json:"labels,omitzero"`
	// SyncRequestedAt asks for a comparison with the store.
	// +optional
	// +nullable
	SyncRequestedAt metav1.Time `json:"syncRequestedAt"`
	// UserCreated is true to make a backup, false if the object was made for one found in the store.
	// +required
	UserCreated bool `json:"userCreated"`
	// VerifyBandwidthLimit is the most that verifications read, in MiB per second; 0: as setting
	// backup-verify-bandwidth-limit says.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1048576
	VerifyBandwidthLimit int64 `json:"verifyBandwidthLimit,omitempty"`
	// VerifyRequestedAt asks for a verification of the backup in the store.
	// +optional
	// +nullable
	VerifyRequestedAt metav1.Time `json:"verifyRequestedAt,omitzero"`
}

// BackupBackingImageStatus is what was observed of a BackupBackingImage.
type BackupBackingImageStatus struct {
	// BackingImage is the backing image.
	// +optional
	BackingImage string `json:"backingImage"`
	// BackupCreatedAt is when the backup was complete.
	// +optional
	BackupCreatedAt string `json:"backupCreatedAt"`
	// Checksum is the SHA-512 of the image.
	// +optional
	Checksum string `json:"checksum"`
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
	// ManagerAddress is the backing image manager that uploads.
	// +optional
	ManagerAddress string `json:"managerAddress"`
	// Messages are texts under the keys info and error.
	// +optional
	// +nullable
	Messages map[string]string `json:"messages"`
	// OwnerID is the node whose manager looks after the object.
	// +optional
	OwnerID string `json:"ownerID"`
	// Progress goes from 0 to 100.
	// +optional
	Progress int `json:"progress"`
	// Secret is the name of the Secret with the key of an encrypted image.
	// +optional
	Secret string `json:"secret"`
	// SecretNamespace is the namespace of that Secret.
	// +optional
	SecretNamespace string `json:"secretNamespace"`
	// Size is how many bytes the backup has.
	// +optional
	Size int64 `json:"size"`
	// State is the phase of the backup.
	// +optional
	State BackupState `json:"state"`
	// URL is where the backup lies.
	// +optional
	URL string `json:"url"`
	// Verification is the latest one; absent: there was none. Its backups are those of backing images,
	// by the names of these.
	// +optional
	Verification *BackupVerification `json:"verification,omitempty"`
}

// BackupBackingImage is the backup of a backing image in a backup store.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:storageversion
// +kubebuilder:resource:path=backupbackingimages,singular=backupbackingimage,shortName=lhbbi,scope=Namespaced
// +kubebuilder:metadata:labels="longhorn-manager="
// +kubebuilder:printcolumn:name="BackingImage",type=string,JSONPath=`.status.backingImage`
// +kubebuilder:printcolumn:name="Size",type=string,JSONPath=`.status.size`
// +kubebuilder:printcolumn:name="BackupCreatedAt",type=string,JSONPath=`.status.backupCreatedAt`
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.state`
// +kubebuilder:printcolumn:name="LastSyncedAt",type=string,JSONPath=`.status.lastSyncedAt`
type BackupBackingImage struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   BackupBackingImageSpec   `json:"spec,omitempty"`
	Status BackupBackingImageStatus `json:"status,omitempty"`
}

// BackupBackingImageList is a list of BackupBackingImage objects.
//
// +kubebuilder:object:root=true
type BackupBackingImageList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []BackupBackingImage `json:"items"`
}
