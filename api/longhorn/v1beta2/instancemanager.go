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
	// InstanceManagerConditionCompatible is our addition: manager and instance manager speak a version in common.
	InstanceManagerConditionCompatible = "Compatible"
	// InstanceManagerConditionProcessesConfirmed is our addition. It is there since the instance manager has not answered
	// for a while: the processes in the status are those that it reported last.
	InstanceManagerConditionProcessesConfirmed = "ProcessesConfirmed"
	// InstanceManagerConditionCertificateUsable is our addition. It is there since certificates could not be used.
	InstanceManagerConditionCertificateUsable = "CertificateUsable"
	// InstanceManagerConditionDrainAllowed is our addition. It is there while the Kubernetes node is cordoned: whether the
	// disruption budget lets a drain go on, or what it waits for.
	InstanceManagerConditionDrainAllowed = "DrainAllowed"
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
	InstanceManagerReasonBadSecret         = "BadSecret"
	InstanceManagerReasonNoCertificate     = "NoCertificate"
	InstanceManagerReasonIncompatible      = "Incompatible"
	InstanceManagerReasonNotAnswering      = "NotAnswering"
	InstanceManagerReasonEngineOnNode      = "EngineOnNode"
	InstanceManagerReasonReplicaOnNode     = "ReplicaOnNode"
	InstanceManagerReasonLastReplica       = "LastReplica"
)

// InstanceManagerSpec is what is wanted of an InstanceManager.
type InstanceManagerSpec struct {
	LegacyInstanceManagerSpec `json:",inline"`

	// DataEngine is v1.
	// +optional
	DataEngine DataEngineType `json:"dataEngine"`
	// Image is the image of the Pod.
	// +optional
	Image string `json:"image"`
	// NodeID is the node of the Pod.
	// +optional
	NodeID string `json:"nodeID"`
	// Type says which processes the Pod holds.
	// +optional
	// +kubebuilder:validation:Enum=aio;engine;replica
	Type InstanceManagerType `json:"type,omitempty"`
}

// InstanceManagerStatus is what was observed of an InstanceManager.
type InstanceManagerStatus struct {
	LegacyInstanceManagerStatus `json:",inline"`

	// APIMinVersion is the oldest process service the Pod still speaks.
	// +optional
	APIMinVersion int `json:"apiMinVersion"`
	// APIVersion is the process service the Pod speaks.
	// +optional
	APIVersion int `json:"apiVersion"`
	// ClosedPod is our addition: the UID of the Pod if it is about to be removed. No process is ordered in it any more.
	// +optional
	ClosedPod string `json:"closedPod,omitempty"`
	// Conditions are the observations about the object.
	// +optional
	// +nullable
	Conditions []Condition `json:"conditions"`
	// CurrentState follows the Pod.
	// +optional
	CurrentState InstanceManagerState `json:"currentState"`
	// InstanceEngines are the processes of engines by name.
	// +optional
	// +nullable
	InstanceEngines map[string]InstanceProcess `json:"instanceEngines"`
	// InstanceReplicas are the processes of replicas by name.
	// +optional
	// +nullable
	InstanceReplicas map[string]InstanceProcess `json:"instanceReplicas"`
	// IP is the address of the Pod.
	// +optional
	IP string `json:"ip"`
	// OwnerID is the node whose manager looks after the object.
	// +optional
	OwnerID string `json:"ownerID"`
	// ProxyAPIMinVersion is the oldest proxy service the Pod still speaks; 0 means that it has none.
	// +optional
	ProxyAPIMinVersion int `json:"proxyApiMinVersion"`
	// ProxyAPIVersion is the proxy service the Pod speaks; 0 means that it has none.
	// +optional
	ProxyAPIVersion int `json:"proxyApiVersion"`
	// StorageIP is our addition: the address of the Pod for data, that on the storage network, or else IP.
	// +optional
	StorageIP string `json:"storageIP,omitempty"`
	// StorageNetwork is our addition: the storage network that the running Pod was made for; empty for the cluster's
	// network.
	// +optional
	StorageNetwork string `json:"storageNetwork,omitempty"`
}

// InstanceProcess is one process in an instance manager.
type InstanceProcess struct {
	// Spec says which process it is.
	// +optional
	Spec InstanceProcessSpec `json:"spec"`
	// Status is what was reported of it.
	// +optional
	Status InstanceProcessStatus `json:"status"`
}

// InstanceProcessSpec says which process it is.
type InstanceProcessSpec struct {
	// Binary is our addition: the program that an engine's process was started from, as the instance manager sees it.
	// +optional
	Binary string `json:"binary,omitempty"`
	// DataEngine is v1.
	// +optional
	DataEngine DataEngineType `json:"dataEngine"`
	// Name is the name of the Engine or Replica object.
	// +optional
	Name string `json:"name"`
	// Order is our addition: the order that the process was made for (status.order of the Engine or Replica). Instance
	// managers that cannot tell leave it empty.
	// +optional
	Order string `json:"order,omitempty"`
}

// InstanceProcessStatus is what the instance manager reports of a process.
type InstanceProcessStatus struct {
	// Conditions are observations by name, for example FilesystemReadOnly.
	// +optional
	// +nullable
	Conditions map[string]bool `json:"conditions"`
	// Endpoint is the device of an engine.
	// +optional
	Endpoint string `json:"endpoint"`
	// ErrorMsg is the last error of the process.
	// +optional
	ErrorMsg string `json:"errorMsg"`
	// Frontend is the name of the frontend of an engine.
	// +optional
	Frontend string `json:"frontend"`
	// Listen is the address the process listens on.
	// +optional
	Listen string `json:"listen"`
	// PortEnd is the last port of the process.
	// +optional
	PortEnd int `json:"portEnd"`
	// PortStart is the first port of the process.
	// +optional
	PortStart int `json:"portStart"`
	// ResourceVersion grows with every report, so that late ones can be told.
	// +optional
	ResourceVersion int64 `json:"resourceVersion"`
	// State is the state of the process.
	// +optional
	State InstanceState `json:"state"`
	// Type says whether it is an engine or a replica.
	// +optional
	Type InstanceType `json:"type"`
	// UUID is the identity of this run of the process.
	// +optional
	UUID string `json:"uuid"`
}

// InstanceManager is the Pod on a node in which the processes of engines and replicas run.
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
