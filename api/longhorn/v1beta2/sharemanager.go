package v1beta2

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ShareManagerState follows the Pod that exports a volume over NFS.
type ShareManagerState string

const (
	ShareManagerStateUnknown  ShareManagerState = "unknown"
	ShareManagerStateStarting ShareManagerState = "starting"
	ShareManagerStateRunning  ShareManagerState = "running"
	ShareManagerStateStopping ShareManagerState = "stopping"
	ShareManagerStateStopped  ShareManagerState = "stopped"
	ShareManagerStateError    ShareManagerState = "error"
)

// ShareManagerSpec is what is wanted of a ShareManager.
type ShareManagerSpec struct {
	// Image is the image of the Pod wanted.
	// +optional
	Image string `json:"image"`
}

// ShareManagerStatus is what was observed of a ShareManager.
type ShareManagerStatus struct {
	// CurrentImage is the image of the Pod that runs.
	// +optional
	CurrentImage string `json:"currentImage"`
	// Endpoint is the NFS address.
	// +optional
	Endpoint string `json:"endpoint"`
	// OwnerID is the node whose manager looks after the object.
	// +optional
	OwnerID string `json:"ownerID"`
	// State follows the Pod.
	// +optional
	State ShareManagerState `json:"state"`
}

// ShareManager exports a volume over NFS, so that many nodes can use it. It has the name of the volume.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:storageversion
// +kubebuilder:resource:path=sharemanagers,singular=sharemanager,shortName=lhsm,scope=Namespaced
// +kubebuilder:metadata:labels="longhorn-manager="
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.state`
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.status.ownerID`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ShareManager struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   ShareManagerSpec   `json:"spec,omitempty"`
	Status ShareManagerStatus `json:"status,omitempty"`
}

// ShareManagerList is a list of ShareManager objects.
//
// +kubebuilder:object:root=true
type ShareManagerList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []ShareManager `json:"items"`
}
