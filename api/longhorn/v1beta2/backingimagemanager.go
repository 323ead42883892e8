package v1beta2

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// BackingImageManagerState follows the Pod of a backing image manager.
type BackingImageManagerState string

const (
	BackingImageManagerStateStopped  BackingImageManagerState = "stopped"
	BackingImageManagerStateStarting BackingImageManagerState = "starting"
	BackingImageManagerStateRunning  BackingImageManagerState = "running"
	BackingImageManagerStateError    BackingImageManagerState = "error"
	BackingImageManagerStateUnknown  BackingImageManagerState = "unknown"
)

// BackingImageManagerSpec is what is wanted of a BackingImageManager.
type BackingImageManagerSpec struct {
	// +optional
	BackingImages map[string]string `json:"backingImages,omitzero"`
	// +optional
	DiskPath string `json:"diskPath"`
	// +optional
	DiskUUID string `json:"diskUUID"`
	// +optional
	Image string `json:"image"`
	// +optional
	NodeID string `json:"nodeID"`
}

// BackingImageManagerStatus is what was observed of a BackingImageManager.
type BackingImageManagerStatus struct {
	// +optional
	APIMinVersion int `json:"apiMinVersion"`
	// +optional
	APIVersion int `json:"apiVersion"`
	// +optional
	// +nullable
	BackingImageFileMap map[string]BackingImageFileInfo `json:"backingImageFileMap"`
	// +optional
	CurrentState BackingImageManagerState `json:"currentState"`
	// +optional
	IP string `json:"ip"`
	// +optional
	OwnerID string `json:"ownerID"`
	// +optional
	StorageIP string `json:"storageIP"`
}

// BackingImageFileInfo is part of BackingImageManager.
type BackingImageFileInfo struct {
	// +optional
	CurrentChecksum string `json:"currentChecksum"`
	// +optional
	Message string `json:"message"`
	// +optional
	Name string `json:"name"`
	// +optional
	Progress int `json:"progress"`
	// +optional
	RealSize int64 `json:"realSize"`
	// +optional
	SenderManagerAddress string `json:"senderManagerAddress"`
	// +optional
	SendingReference int `json:"sendingReference"`
	// +optional
	Size int64 `json:"size"`
	// +optional
	State BackingImageState `json:"state"`
	// +optional
	UUID string `json:"uuid"`
	// +optional
	VirtualSize int64 `json:"virtualSize"`
}

// BackingImageManager is one of the stored kinds.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:storageversion
// +kubebuilder:resource:path=backingimagemanagers,singular=backingimagemanager,shortName=lhbim,scope=Namespaced
// +kubebuilder:metadata:labels="longhorn-manager="
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.currentState`
// +kubebuilder:printcolumn:name="Image",type=string,JSONPath=`.spec.image`
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.spec.nodeID`
// +kubebuilder:printcolumn:name="DiskUUID",type=string,JSONPath=`.spec.diskUUID`
// +kubebuilder:printcolumn:name="DiskPath",type=string,JSONPath=`.spec.diskPath`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type BackingImageManager struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   BackingImageManagerSpec   `json:"spec,omitempty"`
	Status BackingImageManagerStatus `json:"status,omitempty"`
}

// BackingImageManagerList is a list of BackingImageManager objects.
//
// +kubebuilder:object:root=true
type BackingImageManagerList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []BackingImageManager `json:"items"`
}
