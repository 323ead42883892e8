package v1beta2

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// InstanceManagerType says which processes an instance manager holds.
type InstanceManagerType string

// InstanceManagerTypeAllInOne is the only type that is created; the others are in legacy.go.
const InstanceManagerTypeAllInOne InstanceManagerType = "aio"

// InstanceManagerState follows the Pod of an instance manager.
type InstanceManagerState string

const (
	InstanceManagerStateStopped  InstanceManagerState = "stopped"
	InstanceManagerStateStarting InstanceManagerState = "starting"
	InstanceManagerStateRunning  InstanceManagerState = "running"
	InstanceManagerStateError    InstanceManagerState = "error"
	InstanceManagerStateUnknown  InstanceManagerState = "unknown"
)

// Condition types of an InstanceManager.
const (
	InstanceManagerConditionNodeReady     = "NodeReady"
	InstanceManagerConditionPodReady      = "PodReady"
	InstanceManagerConditionSettingSynced = "SettingSynced"
)

// Reasons of the conditions of an InstanceManager.
const (
	InstanceManagerReasonNodeDown          = "Down"
	InstanceManagerReasonNodeUnschedulable = "Unschedulable"
	InstanceManagerReasonPodNotFound       = "NotFound"
	InstanceManagerReasonPodDeleting       = "Deleting"
	InstanceManagerReasonPodFailed         = "Failed"
	InstanceManagerReasonPodStarting       = "Starting"
	InstanceManagerReasonPodRunning        = "Running"
	InstanceManagerReasonSettingNotSynced  = "SettingNotSynced"
)

// InstanceManagerSpec is what is wanted of a InstanceManager.
type InstanceManagerSpec struct {
	LegacyInstanceManagerSpec `json:",inline"`

	// +optional
	DataEngine DataEngineType `json:"dataEngine"`
	// +optional
	Image string `json:"image"`
	// +optional
	NodeID string `json:"nodeID"`
	// +optional
	// +kubebuilder:validation:Enum=aio;engine;replica
	Type InstanceManagerType `json:"type,omitempty"`
}

// InstanceManagerStatus is what was observed of a InstanceManager.
type InstanceManagerStatus struct {
	LegacyInstanceManagerStatus `json:",inline"`

	// +optional
	APIMinVersion int `json:"apiMinVersion"`
	// +optional
	APIVersion int `json:"apiVersion"`
	// +optional
	// +nullable
	Conditions []Condition `json:"conditions"`
	// +optional
	CurrentState InstanceManagerState `json:"currentState"`
	// +optional
	// +nullable
	InstanceEngines map[string]InstanceProcess `json:"instanceEngines"`
	// +optional
	// +nullable
	InstanceReplicas map[string]InstanceProcess `json:"instanceReplicas"`
	// +optional
	IP string `json:"ip"`
	// +optional
	OwnerID string `json:"ownerID"`
	// +optional
	ProxyAPIMinVersion int `json:"proxyApiMinVersion"`
	// +optional
	ProxyAPIVersion int `json:"proxyApiVersion"`
}

// InstanceProcess is part of InstanceManager.
type InstanceProcess struct {
	// +optional
	Spec InstanceProcessSpec `json:"spec"`
	// +optional
	Status InstanceProcessStatus `json:"status"`
}

// InstanceProcessSpec is part of InstanceManager.
type InstanceProcessSpec struct {
	// +optional
	DataEngine DataEngineType `json:"dataEngine"`
	// +optional
	Name string `json:"name"`
}

// InstanceProcessStatus is part of InstanceManager.
type InstanceProcessStatus struct {
	// +optional
	// +nullable
	Conditions map[string]bool `json:"conditions"`
	// +optional
	Endpoint string `json:"endpoint"`
	// +optional
	ErrorMsg string `json:"errorMsg"`
	// +optional
	Frontend string `json:"frontend"`
	// +optional
	Listen string `json:"listen"`
	// +optional
	PortEnd int `json:"portEnd"`
	// +optional
	PortStart int `json:"portStart"`
	// +optional
	ResourceVersion int64 `json:"resourceVersion"`
	// +optional
	State InstanceState `json:"state"`
	// +optional
	Type InstanceType `json:"type"`
	// +optional
	UUID string `json:"uuid"`
}

// InstanceManager is one of the stored kinds.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:storageversion
// +kubebuilder:resource:path=instancemanagers,singular=instancemanager,shortName=lhim,scope=Namespaced
// +kubebuilder:metadata:labels="longhorn-manager="
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.currentState`
// +kubebuilder:printcolumn:name="Type",type=string,JSONPath=`.spec.type`
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.spec.nodeID`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type InstanceManager struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   InstanceManagerSpec   `json:"spec,omitempty"`
	Status InstanceManagerStatus `json:"status,omitempty"`
}

// InstanceManagerList is a list of InstanceManager objects.
//
// +kubebuilder:object:root=true
type InstanceManagerList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []InstanceManager `json:"items"`
}
