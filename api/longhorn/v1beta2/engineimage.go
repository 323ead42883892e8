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

// EngineImageSpec is what is wanted of an EngineImage.
type EngineImageSpec struct {
	// Image is the reference of the container image.
	// +required
	// +kubebuilder:validation:MinLength=1
	Image string `json:"image"`
}

// EngineImageStatus is what was observed of an EngineImage.
type EngineImageStatus struct {
	// BuildDate is when the program was built.
	// +optional
	BuildDate string `json:"buildDate"`
	// CLIAPIMinVersion is the oldest command line interface the program still speaks.
	// +optional
	CLIAPIMinVersion int `json:"cliAPIMinVersion"`
	// CLIAPIVersion is the command line interface the program speaks.
	// +optional
	CLIAPIVersion int `json:"cliAPIVersion"`
	// Conditions are the observations about the object.
	// +optional
	// +nullable
	Conditions []Condition `json:"conditions"`
	// ControllerAPIMinVersion is the oldest interface between engine and replica the program still speaks.
	// +optional
	ControllerAPIMinVersion int `json:"controllerAPIMinVersion"`
	// ControllerAPIVersion is the interface between engine and replica; it decides whether a live upgrade is
	// possible.
	// +optional
	ControllerAPIVersion int `json:"controllerAPIVersion"`
	// DataFormatMinVersion is the oldest format of replica directories the program can read.
	// +optional
	DataFormatMinVersion int `json:"dataFormatMinVersion"`
	// DataFormatVersion is the format of replica directories the program writes.
	// +optional
	DataFormatVersion int `json:"dataFormatVersion"`
	// GitCommit is the commit the program was built from.
	// +optional
	GitCommit string `json:"gitCommit"`
	// Incompatible is true if this manager cannot work with the program.
	// +optional
	Incompatible bool `json:"incompatible"`
	// NoRefSince is since when nothing uses the image.
	// +optional
	NoRefSince string `json:"noRefSince"`
	// NodeDeploymentMap says for each node whether the program is installed there.
	// +optional
	// +nullable
	NodeDeploymentMap map[string]bool `json:"nodeDeploymentMap"`
	// OwnerID is the node whose manager looks after the object.
	// +optional
	OwnerID string `json:"ownerID"`
	// RefCount is how many volumes, engines and replicas use the image.
	// +optional
	RefCount int `json:"refCount"`
	// State says whether the program is installed everywhere.
	// +optional
	State EngineImageState `json:"state"`
	// Version is the version the program reports.
	// +optional
	Version string `json:"version"`
}

// EngineImage is a version of the program that engines and replicas run, installed on the nodes.
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
