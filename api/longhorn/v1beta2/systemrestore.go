package v1beta2

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// SystemRestoreState is the phase of a system restore.
type SystemRestoreState string

const (
	SystemRestoreStateNew          SystemRestoreState = ""
	SystemRestoreStatePending      SystemRestoreState = "Pending"
	SystemRestoreStateInitializing SystemRestoreState = "Initializing"
	SystemRestoreStateDownloading  SystemRestoreState = "Downloading"
	SystemRestoreStateUnpacking    SystemRestoreState = "Unpacking"
	SystemRestoreStateRestoring    SystemRestoreState = "Restoring"
	SystemRestoreStateInProgress   SystemRestoreState = "InProgress"
	SystemRestoreStateCompleted    SystemRestoreState = "Completed"
	SystemRestoreStateError        SystemRestoreState = "Error"
	SystemRestoreStateDeleting     SystemRestoreState = "Deleting"
	SystemRestoreStateUnknown      SystemRestoreState = "Unknown"
)

// Condition type and reasons of a SystemRestore.
const (
	SystemRestoreConditionError = "Error"
	SystemRestoreReasonUnpack   = "Unpack"
	SystemRestoreReasonRestore  = "Restore"
)

// SystemRestoreSpec is what is wanted of a SystemRestore.
type SystemRestoreSpec struct {
	// SystemBackup is the name of the SystemBackup.
	// +required
	SystemBackup string `json:"systemBackup"`
}

// SystemRestoreStatus is what was observed of a SystemRestore.
type SystemRestoreStatus struct {
	// Conditions are the observations about the object.
	// +optional
	// +nullable
	Conditions []Condition `json:"conditions"`
	// OwnerID is the node whose manager looks after the object.
	// +optional
	OwnerID string `json:"ownerID"`
	// SourceURL is where the archive lies.
	// +optional
	SourceURL string `json:"sourceURL"`
	// State is the phase of the restore.
	// +optional
	State SystemRestoreState `json:"state"`
}

// SystemRestore brings the objects of a system backup back into the cluster.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:storageversion
// +kubebuilder:resource:path=systemrestores,singular=systemrestore,shortName=lhsr,scope=Namespaced
// +kubebuilder:metadata:labels="longhorn-manager="
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.state`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type SystemRestore struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   SystemRestoreSpec   `json:"spec,omitempty"`
	Status SystemRestoreStatus `json:"status,omitempty"`
}

// SystemRestoreList is a list of SystemRestore objects.
//
// +kubebuilder:object:root=true
type SystemRestoreList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []SystemRestore `json:"items"`
}
