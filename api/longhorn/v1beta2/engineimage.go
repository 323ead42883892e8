package v1beta2

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// EngineImageState says whether an engine binary is installed on all nodes that should have it.
type EngineImageState string

const (
	EngineImageStateDeploying EngineImageState = "deploying"
	EngineImageStateDeployed  EngineImageState = "deployed"
)

// Condition type and reasons of an EngineImage. The type is spelt in lower case.
const (
	EngineImageConditionReady  = "ready"
	EngineImageReasonDaemonSet = "daemonSet"
	EngineImageReasonBinary    = "binary"
)

// EngineImageSpec is what is wanted of a EngineImage.
type EngineImageSpec struct {
	// +required
	// +kubebuilder:validation:MinLength=1
	Image string `json:"image"`
}

// EngineImageStatus is what was observed of a EngineImage.
type EngineImageStatus struct {
	// +optional
	BuildDate string `json:"buildDate"`
	// +optional
	CLIAPIMinVersion int `json:"cliAPIMinVersion"`
	// +optional
	CLIAPIVersion int `json:"cliAPIVersion"`
	// +optional
	// +nullable
	Conditions []Condition `json:"conditions"`
	// +optional
	ControllerAPIMinVersion int `json:"controllerAPIMinVersion"`
	// +optional
	ControllerAPIVersion int `json:"controllerAPIVersion"`
	// +optional
	DataFormatMinVersion int `json:"dataFormatMinVersion"`
	// +optional
	DataFormatVersion int `json:"dataFormatVersion"`
	// +optional
	GitCommit string `json:"gitCommit"`
	// +optional
	Incompatible bool `json:"incompatible"`
	// +optional
	NoRefSince string `json:"noRefSince"`
	// +optional
	// +nullable
	NodeDeploymentMap map[string]bool `json:"nodeDeploymentMap"`
	// +optional
	OwnerID string `json:"ownerID"`
	// +optional
	RefCount int `json:"refCount"`
	// +optional
	State EngineImageState `json:"state"`
	// +optional
	Version string `json:"version"`
}

// EngineImage is one of the stored kinds.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:storageversion
// +kubebuilder:resource:path=engineimages,singular=engineimage,shortName=lhei,scope=Namespaced
// +kubebuilder:metadata:labels="longhorn-manager="
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.state`
// +kubebuilder:printcolumn:name="Image",type=string,JSONPath=`.spec.image`
// +kubebuilder:printcolumn:name="RefCount",type=integer,JSONPath=`.status.refCount`
// +kubebuilder:printcolumn:name="BuildDate",type=date,JSONPath=`.status.buildDate`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type EngineImage struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   EngineImageSpec   `json:"spec,omitempty"`
	Status EngineImageStatus `json:"status,omitempty"`
}

// EngineImageList is a list of EngineImage objects.
//
// +kubebuilder:object:root=true
type EngineImageList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []EngineImage `json:"items"`
}
