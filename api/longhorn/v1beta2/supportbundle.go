package v1beta2

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// SupportBundleState is the phase of collecting a support bundle.
type SupportBundleState string

const (
	SupportBundleStateNew        SupportBundleState = ""
	SupportBundleStateStarted    SupportBundleState = "Started"
	SupportBundleStateGenerating SupportBundleState = "Generating"
	SupportBundleStateReady      SupportBundleState = "ReadyForDownload"
	SupportBundleStateError      SupportBundleState = "Error"
	SupportBundleStateReplaced   SupportBundleState = "Replaced"
	SupportBundleStatePurging    SupportBundleState = "Purging"
	SupportBundleStateDeleting   SupportBundleState = "Deleting"
	SupportBundleStateUnknown    SupportBundleState = "Unknown"
)

// Condition types of a SupportBundle.
const (
	SupportBundleConditionError   = "Error"
	SupportBundleConditionManager = "Manager"
)

// SupportBundleSpec is what is wanted of a SupportBundle.
type SupportBundleSpec struct {
	// Description says what the problem is.
	// +required
	Description string `json:"description"`
	// IssueURL is where the problem is discussed.
	// +optional
	// +nullable
	IssueURL string `json:"issueURL"`
	// NodeID is the node the collector should run on.
	// +optional
	NodeID string `json:"nodeID"`
}

// SupportBundleStatus is what was observed of a SupportBundle.
type SupportBundleStatus struct {
	// Conditions are the observations about the object.
	// +optional
	Conditions []Condition `json:"conditions,omitzero"`
	// FileName is the name of the archive.
	// +optional
	FileName string `json:"filename"`
	// FileSize is how many bytes the archive has.
	// +optional
	FileSize int64 `json:"filesize"`
	// Image is the image of the collector.
	// +optional
	Image string `json:"image"`
	// ManagerIP is the address of the collector.
	// +optional
	ManagerIP string `json:"managerIP"`
	// OwnerID is the node whose manager looks after the object.
	// +optional
	OwnerID string `json:"ownerID"`
	// Progress goes from 0 to 100.
	// +optional
	Progress int `json:"progress"`
	// State is the phase of the collection.
	// +optional
	State SupportBundleState `json:"state"`
}

// SupportBundle is an archive of logs and objects for somebody who looks into a problem.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:storageversion
// +kubebuilder:resource:path=supportbundles,singular=supportbundle,shortName=lhbundle,scope=Namespaced
// +kubebuilder:metadata:labels="longhorn-manager="
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.state`
// +kubebuilder:printcolumn:name="Issue",type=string,JSONPath=`.spec.issueURL`
// +kubebuilder:printcolumn:name="Description",type=string,JSONPath=`.spec.description`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type SupportBundle struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   SupportBundleSpec   `json:"spec,omitempty"`
	Status SupportBundleStatus `json:"status,omitempty"`
}

// SupportBundleList is a list of SupportBundle objects.
//
// +kubebuilder:object:root=true
type SupportBundleList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []SupportBundle `json:"items"`
}
