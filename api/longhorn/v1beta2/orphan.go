package v1beta2

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// OrphanType says what was found without an owner.
type OrphanType string

const (
	OrphanTypeReplicaData     OrphanType = "replica"
	OrphanTypeEngineInstance  OrphanType = "engine-instance"
	OrphanTypeReplicaInstance OrphanType = "replica-instance"
)

// Keys of spec.parameters.
const (
	OrphanParameterDataName        = "DataName"
	OrphanParameterDiskName        = "DiskName"
	OrphanParameterDiskUUID        = "DiskUUID"
	OrphanParameterDiskPath        = "DiskPath"
	OrphanParameterDiskType        = "DiskType"
	OrphanParameterInstanceName    = "InstanceName"
	OrphanParameterInstanceUUID    = "InstanceUUID"
	OrphanParameterInstanceManager = "InstanceManager"
)

// Condition types and reasons of an Orphan. The reason of InstanceExist is the state of the instance.
const (
	OrphanConditionDataCleanable = "DataCleanable"
	OrphanConditionInstanceExist = "InstanceExist"
	OrphanConditionError         = "Error"

	OrphanReasonNodeUnavailable = "NodeUnavailable"
	OrphanReasonNodeEvicted     = "NodeEvicted"
	OrphanReasonDiskInvalid     = "DiskInvalid"
	OrphanReasonDiskEvicted     = "DiskEvicted"
	OrphanReasonDiskChanged     = "DiskChanged"
)

// OrphanSpec is what is wanted of an Orphan.
type OrphanSpec struct {
	// DataEngine is v1 for processes.
	// +optional
	// +kubebuilder:validation:Enum=v1
	DataEngine DataEngineType `json:"dataEngine,omitempty"`
	// NodeID is the node it was found on.
	// +optional
	NodeID string `json:"nodeID"`
	// OrphanType says what was found.
	// +optional
	OrphanType OrphanType `json:"orphanType"`
	// Parameters say where it was found; they depend on the type.
	// +optional
	Parameters map[string]string `json:"parameters,omitzero"`
}

// OrphanStatus is what was observed of an Orphan.
type OrphanStatus struct {
	// Conditions are the observations about the object.
	// +optional
	// +nullable
	Conditions []Condition `json:"conditions"`
	// OwnerID is the node whose manager looks after the object.
	// +optional
	OwnerID string `json:"ownerID"`
}

// Orphan is something nobody owns: a replica directory without a Replica object, or a process without its
// object. Deleting the Orphan deletes what it stands for.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:storageversion
// +kubebuilder:resource:path=orphans,singular=orphan,shortName=lho,scope=Namespaced
// +kubebuilder:metadata:labels="longhorn-manager="
// +kubebuilder:printcolumn:name="Type",type=string,JSONPath=`.spec.orphanType`
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.spec.nodeID`
type Orphan struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   OrphanSpec   `json:"spec,omitempty"`
	Status OrphanStatus `json:"status,omitempty"`
}

// OrphanList is a list of Orphan objects.
//
// +kubebuilder:object:root=true
type OrphanList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Orphan `json:"items"`
}
