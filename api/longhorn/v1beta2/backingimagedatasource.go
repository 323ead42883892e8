package v1beta2

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// BackingImageDataSourceSpec is what is wanted of a BackingImageDataSource.
type BackingImageDataSourceSpec struct {
	// +optional
	Checksum string `json:"checksum"`
	// +optional
	DiskPath string `json:"diskPath"`
	// +optional
	DiskUUID string `json:"diskUUID"`
	// +optional
	FileTransferred bool `json:"fileTransferred"`
	// +optional
	NodeID string `json:"nodeID"`
	// +optional
	Parameters map[string]string `json:"parameters,omitzero"`
	// +optional
	// +kubebuilder:validation:Enum=download;upload;export-from-volume;restore;clone
	SourceType BackingImageSourceType `json:"sourceType,omitempty"`
	// +optional
	UUID string `json:"uuid"`
}

// BackingImageDataSourceStatus is what was observed of a BackingImageDataSource.
type BackingImageDataSourceStatus struct {
	// +optional
	Checksum string `json:"checksum"`
	// +optional
	CurrentState BackingImageState `json:"currentState"`
	// +optional
	IP string `json:"ip"`
	// +optional
	Message string `json:"message"`
	// +optional
	OwnerID string `json:"ownerID"`
	// +optional
	Progress int `json:"progress"`
	// +optional
	// +nullable
	RunningParameters map[string]string `json:"runningParameters"`
	// +optional
	Size int64 `json:"size"`
	// +optional
	StorageIP string `json:"storageIP"`
}

// BackingImageDataSource is one of the stored kinds.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:storageversion
// +kubebuilder:resource:path=backingimagedatasources,singular=backingimagedatasource,shortName=lhbids,scope=Namespaced
// +kubebuilder:metadata:labels="longhorn-manager="
// +kubebuilder:printcolumn:name="UUID",type=string,JSONPath=`.spec.uuid`
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.currentState`
// +kubebuilder:printcolumn:name="SourceType",type=string,JSONPath=`.spec.sourceType`
// +kubebuilder:printcolumn:name="Size",type=string,JSONPath=`.status.size`
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.spec.nodeID`
// +kubebuilder:printcolumn:name="DiskUUID",type=string,JSONPath=`.spec.diskUUID`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type BackingImageDataSource struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   BackingImageDataSourceSpec   `json:"spec,omitempty"`
	Status BackingImageDataSourceStatus `json:"status,omitempty"`
}

// BackingImageDataSourceList is a list of BackingImageDataSource objects.
//
// +kubebuilder:object:root=true
type BackingImageDataSourceList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []BackingImageDataSource `json:"items"`
}
