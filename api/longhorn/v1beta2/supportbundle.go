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
	// +required
	Description string `json:"description"`
	// +optional
	// +nullable
	IssueURL string `json:"issueURL"`
	// +optional
	NodeID string `json:"nodeID"`
}

// SupportBundleStatus is what was observed of a SupportBundle.
type SupportBundleStatus struct {
	// +optional
	Conditions []Condition `json:"conditions,omitzero"`
	// +optional
	FileName string `json:"filename"`
	// +optional
	FileSize int64 `json:"filesize"`
	// +optional
	Image string `json:"image"`
	// +optional
	ManagerIP string `json:"managerIP"`
	// +optional
	OwnerID string `json:"ownerID"`
	// +optional
	Progress int `json:"progress"`
	// +optional
	State SupportBundleState `json:"state"`
}

// SupportBundle is one of the stored kinds.
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
