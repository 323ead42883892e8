package v1beta2

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// BackupBackingImageSpec is what is wanted of a BackupBackingImage.
type BackupBackingImageSpec struct {
	// +required
	BackingImage string `json:"backingImage"`
	// +optional
	// +nullable
	BackupTargetName string `json:"backupTargetName"`
	// +optional
	Labels map[string]string `json:"labels,omitzero"`
	// +optional
	// +nullable
	SyncRequestedAt metav1.Time `json:"syncRequestedAt"`
	// +required
	UserCreated bool `json:"userCreated"`
}

// BackupBackingImageStatus is what was observed of a BackupBackingImage.
type BackupBackingImageStatus struct {
	// +optional
	BackingImage string `json:"backingImage"`
	// +optional
	BackupCreatedAt string `json:"backupCreatedAt"`
	// +optional
	Checksum string `json:"checksum"`
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
	ManagerAddress string `json:"managerAddress"`
	// +optional
	// +nullable
	Messages map[string]string `json:"messages"`
	// +optional
	OwnerID string `json:"ownerID"`
	// +optional
	Progress int `json:"progress"`
	// +optional
	Secret string `json:"secret"`
	// +optional
	SecretNamespace string `json:"secretNamespace"`
	// +optional
	Size int64 `json:"size"`
	// +optional
	State BackupState `json:"state"`
	// +optional
	URL string `json:"url"`
}

// BackupBackingImage is one of the stored kinds.
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
