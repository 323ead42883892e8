package v1beta2

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// BackingImageDataSourceSpec is what is wanted of a BackingImageDataSource.
type BackingImageDataSourceSpec struct {
	// Checksum is the SHA-512 the image must have, or empty.
	// +optional
	Checksum string `json:"checksum"`
	// DiskPath is the path of the disk on its node.
	// +optional
	DiskPath string `json:"diskPath"`
	// DiskUUID is the disk the first copy is made on.
	// +optional
	DiskUUID string `json:"diskUUID"`
	// FileTransferred is true once a backing image manager has taken the file.
	// +optional
	FileTransferred bool `json:"fileTransferred"`
	// NodeID is the node of the disk.
	// +optional
	NodeID string `json:"nodeID"`
	// Parameters are the sourceParameters of the backing image.
	// +optional
	Parameters map[string]string `json:"parameters,omitzero"`
	// SourceType says how the copy is made.
	// +optional
	// +kubebuilder:validation:Enum=download;upload;export-from-volume;restore;clone
	SourceType BackingImageSourceType `json:"sourceType,omitempty"`
	// UUID is the UUID of the backing image.
	// +optional
	UUID string `json:"uuid"`
}

// BackingImageDataSourceStatus is what was observed of a BackingImageDataSource.
type BackingImageDataSourceStatus struct {
	// Checksum is the SHA-512 of the file.
	// +optional
	Checksum string `json:"checksum"`
	// CurrentState is the phase of the copy.
	// +optional
	CurrentState BackingImageState `json:"currentState"`
	// IP is the address of the Pod.
	// +optional
	IP string `json:"ip"`
	// Message says what went wrong, empty if nothing did.
	// +optional
	Message string `json:"message"`
	// OwnerID is the node whose manager looks after the object.
	// +optional
	OwnerID string `json:"ownerID"`
	// Progress goes from 0 to 100.
	// +optional
	Progress int `json:"progress"`
	// RunningParameters are the parameters the Pod was started with.
	// +optional
	// +nullable
	RunningParameters map[string]string `json:"runningParameters"`
	// Size is how many bytes the file has.
	// +optional
	Size int64 `json:"size"`
	// StorageIP is the address for data: that on the storage network, or else IP.
	// +optional
	StorageIP string `json:"storageIP"`
}

// BackingImageDataSource makes the first copy of a backing image. It has the name of the backing image.
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
