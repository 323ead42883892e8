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
	// BackingImages are the images wanted on the disk, from name to UUID.
	// +optional
	BackingImages map[string]string `json:"backingImages,omitzero"`
	// DiskPath is the path of the disk on its node.
	// +optional
	DiskPath string `json:"diskPath"`
	// DiskUUID is the disk.
	// +optional
	DiskUUID string `json:"diskUUID"`
	// Image is the image of the Pod.
	// +optional
	Image string `json:"image"`
	// NodeID is the node of the disk.
	// +optional
	NodeID string `json:"nodeID"`
}

// BackingImageManagerStatus is what was observed of a BackingImageManager.
type BackingImageManagerStatus struct {
	// APIMinVersion is the oldest interface the Pod still speaks.
	// +optional
	APIMinVersion int `json:"apiMinVersion"`
	// APIVersion is the interface the Pod speaks.
	// +optional
	APIVersion int `json:"apiVersion"`
	// BackingImageFileMap are the copies by name of the backing image.
	// +optional
	// +nullable
	BackingImageFileMap map[string]BackingImageFileInfo `json:"backingImageFileMap"`
	// CurrentState follows the Pod.
	// +optional
	CurrentState BackingImageManagerState `json:"currentState"`
	// IP is the address of the Pod.
	// +optional
	IP string `json:"ip"`
	// OwnerID is the node whose manager looks after the object.
	// +optional
	OwnerID string `json:"ownerID"`
	// StorageIP is the address for data: that on the storage network, or else IP.
	// +optional
	StorageIP string `json:"storageIP"`
}

// BackingImageFileInfo is one copy as its manager reports it.
type BackingImageFileInfo struct {
	// CurrentChecksum is the SHA-512 of the file.
	// +optional
	CurrentChecksum string `json:"currentChecksum"`
	// Message says what went wrong, empty if nothing did.
	// +optional
	Message string `json:"message"`
	// Name is the name of the backing image.
	// +optional
	Name string `json:"name"`
	// Progress goes from 0 to 100.
	// +optional
	Progress int `json:"progress"`
	// RealSize is how many bytes the file takes on the disk.
	// +optional
	RealSize int64 `json:"realSize"`
	// SenderManagerAddress is the manager the file is copied from.
	// +optional
	SenderManagerAddress string `json:"senderManagerAddress"`
	// SendingReference is how many others copy from this file at the moment.
	// +optional
	SendingReference int `json:"sendingReference"`
	// Size is how many bytes the file has.
	// +optional
	Size int64 `json:"size"`
	// State is the phase of the copy.
	// +optional
	State BackingImageState `json:"state"`
	// UUID is the UUID of the backing image.
	// +optional
	UUID string `json:"uuid"`
	// VirtualSize is how many bytes a volume needs to hold the image.
	// +optional
	VirtualSize int64 `json:"virtualSize"`
}

// BackingImageManager is the Pod that holds the copies of backing images on one disk.
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
