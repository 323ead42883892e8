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

	// Active is false on the second process a live upgrade or migration starts on the same data.
	// +optional
	Active bool `json:"active"`
	// BackingImage is the image below the volume, if any.
	// +optional
	BackingImage string `json:"backingImage"`
	// DataDirectoryName is the name of the directory below the folder replicas of the disk.
	// +optional
	DataDirectoryName string `json:"dataDirectoryName"`
	// DiskID is the UUID of the disk; empty until one was chosen.
	// +optional
	DiskID string `json:"diskID"`
	// DiskPath is the path of the disk on its node.
	// +optional
	DiskPath string `json:"diskPath"`
	// EngineName is the engine the replica serves.
	// +optional
	EngineName string `json:"engineName"`
	// EvictionRequested is true when the replica should leave its disk as soon as another one is in sync.
	// +optional
	EvictionRequested bool `json:"evictionRequested"`
	// FailedAt is when the replica failed; it is cleared when the replica is used again.
	// +optional
	FailedAt string `json:"failedAt"`
	// HardNodeAffinity is the only node the replica may be placed on, if any.
	// +optional
	HardNodeAffinity string `json:"hardNodeAffinity"`
	// HealthyAt is when the replica was first in sync since it was last built. Empty means that its data cannot be
	// used.
	// +optional
	HealthyAt string `json:"healthyAt"`
	// LastFailedAt is when the replica last failed; it is never cleared.
	// +optional
	LastFailedAt string `json:"lastFailedAt"`
	// LastHealthyAt is when the replica was last in sync; it is never cleared.
	// +optional
	LastHealthyAt string `json:"lastHealthyAt"`
	// RebuildRetryCount counts rebuilds that failed; see MaxRebuildRetryCount.
	// +optional
	RebuildRetryCount int `json:"rebuildRetryCount"`
	// UnmapMarkDiskChainRemovedEnabled lets a trim give up the newest snapshots.
	// +optional
	UnmapMarkDiskChainRemovedEnabled bool `json:"unmapMarkDiskChainRemovedEnabled"`
}

// ReplicaStatus is what was observed of a Replica.
type ReplicaStatus struct {
	InstanceStatus `json:",inline"`
}

// Replica is one full copy of the data of a volume: a directory on a disk, and a process that serves it to the
// engine.
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
