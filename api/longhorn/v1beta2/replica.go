package v1beta2

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// MaxRebuildRetryCount is the number of failed rebuilds after which the data of a replica is not reused. Replicas that
// are made to replace a lost one start at it.
const MaxRebuildRetryCount = 5

// Condition types of a Replica, besides InstanceCreation.
const (
	ReplicaConditionRebuildFailed       = "RebuildFailed"
	ReplicaConditionWaitForBackingImage = "WaitForBackingImage"
)

// Reasons of the conditions of a Replica. The two about backing images are shared with Volume.
const (
	ReplicaReasonRebuildDisconnection  = "Disconnection"
	ReplicaReasonRebuildGeneral        = "General"
	ReplicaReasonGetBackingImageFailed = "GetBackingImageFailed"
	ReplicaReasonWaiting               = "Waiting"
)

// ReplicaSpec is what is wanted of a Replica.
type ReplicaSpec struct {
	InstanceSpec `json:",inline"`

	// +optional
	Active bool `json:"active"`
	// +optional
	BackingImage string `json:"backingImage"`
	// +optional
	DataDirectoryName string `json:"dataDirectoryName"`
	// +optional
	DiskID string `json:"diskID"`
	// +optional
	DiskPath string `json:"diskPath"`
	// +optional
	EngineName string `json:"engineName"`
	// +optional
	EvictionRequested bool `json:"evictionRequested"`
	// +optional
	FailedAt string `json:"failedAt"`
	// +optional
	HardNodeAffinity string `json:"hardNodeAffinity"`
	// +optional
	HealthyAt string `json:"healthyAt"`
	// +optional
	LastFailedAt string `json:"lastFailedAt"`
	// +optional
	LastHealthyAt string `json:"lastHealthyAt"`
	// +optional
	RebuildRetryCount int `json:"rebuildRetryCount"`
	// +optional
	UnmapMarkDiskChainRemovedEnabled bool `json:"unmapMarkDiskChainRemovedEnabled"`
}

// ReplicaStatus is what was observed of a Replica.
type ReplicaStatus struct {
	InstanceStatus `json:",inline"`
}

// Replica is one of the stored kinds.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:storageversion
// +kubebuilder:resource:path=replicas,singular=replica,shortName=lhr,scope=Namespaced
// +kubebuilder:metadata:labels="longhorn-manager="
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.currentState`
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.spec.nodeID`
// +kubebuilder:printcolumn:name="Disk",type=string,JSONPath=`.spec.diskID`
// +kubebuilder:printcolumn:name="InstanceManager",type=string,JSONPath=`.status.instanceManagerName`
// +kubebuilder:printcolumn:name="Image",type=string,JSONPath=`.status.currentImage`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Replica struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   ReplicaSpec   `json:"spec,omitempty"`
	Status ReplicaStatus `json:"status,omitempty"`
}

// ReplicaList is a list of Replica objects.
//
// +kubebuilder:object:root=true
type ReplicaList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Replica `json:"items"`
}
