package v1beta2

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// DiskType says what a disk is made of.
type DiskType string

// DiskTypeFilesystem is a directory of a mounted file system.
const DiskTypeFilesystem DiskType = "filesystem"

// DiskDriver is empty for file systems. The other values belong to raw block disks, which are refused.
type DiskDriver string

const (
	DiskDriverNone DiskDriver = ""
	DiskDriverAIO  DiskDriver = "aio"
	DiskDriverNVMe DiskDriver = "nvme"
)

// HealthStatus is the verdict of a disk about itself.
type HealthStatus string

const (
	HealthStatusFailed  HealthStatus = "FAILED"
	HealthStatusPassed  HealthStatus = "PASSED"
	HealthStatusUnknown HealthStatus = "UNKNOWN"
	HealthStatusWarning HealthStatus = "WARNING"
)

// HealthSource names where the health of a disk was read.
type HealthSource string

// HealthSourceSMART is the self-monitoring of disks.
const HealthSourceSMART HealthSource = "SMART"

// Condition types of a Node.
const (
	NodeConditionReady               = "Ready"
	NodeConditionSchedulable         = "Schedulable"
	NodeConditionMountPropagation    = "MountPropagation"
	NodeConditionMultipathd          = "Multipathd"
	NodeConditionKernelModulesLoaded = "KernelModulesLoaded"
	NodeConditionRequiredPackages    = "RequiredPackages"
	NodeConditionNFSClientInstalled  = "NFSClientInstalled"
)

// Reasons of the conditions of a Node.
const (
	NodeReasonManagerPodDown            = "ManagerPodDown"
	NodeReasonManagerPodMissing         = "ManagerPodMissing"
	NodeReasonKubernetesNodeGone        = "KubernetesNodeGone"
	NodeReasonKubernetesNodeNotReady    = "KubernetesNodeNotReady"
	NodeReasonKubernetesNodePressure    = "KubernetesNodePressure"
	NodeReasonUnknownNodeConditionTrue  = "UnknownNodeConditionTrue"
	NodeReasonKubernetesNodeCordoned    = "KubernetesNodeCordoned"
	NodeReasonNoMountPropagationSupport = "NoMountPropagationSupport"
	NodeReasonMultipathdIsRunning       = "MultipathdIsRunning"
	NodeReasonNamespaceExecutorErr      = "NamespaceExecutorErr"
	NodeReasonKernelModulesNotLoaded    = "KernelModulesNotLoaded"
	NodeReasonCheckKernelConfigFailed   = "CheckKernelConfigFailed"
	NodeReasonPackagesNotInstalled      = "PackagesNotInstalled"
	NodeReasonUnknownOS                 = "UnknownOS"
	NodeReasonNFSClientIsNotFound       = "NFSClientIsNotFound"
	NodeReasonNFSClientIsMisconfigured  = "NFSClientIsMisconfigured"
)

// Condition types of a disk of a Node.
const (
	DiskConditionReady       = "Ready"
	DiskConditionSchedulable = "Schedulable"
	DiskConditionError       = "Error"
)

// Reasons of the conditions of a disk.
const (
	DiskReasonNoDiskInfo             = "NoDiskInfo"
	DiskReasonDiskFilesystemChanged  = "DiskFilesystemChanged"
	DiskReasonNodeNotReady           = "NodeNotReady"
	DiskReasonDiskServiceUnreachable = "DiskServiceUnreachable"
	DiskReasonDiskPressure           = "DiskPressure"
	DiskReasonDiskNotReady           = "DiskNotReady"
)

// NodeSpec is what is wanted of a Node.
type NodeSpec struct {
	LegacyNodeSpec `json:",inline"`

	// +optional
	AllowScheduling bool `json:"allowScheduling"`
	// +optional
	Disks map[string]DiskSpec `json:"disks,omitzero"`
	// +optional
	EvictionRequested bool `json:"evictionRequested"`
	// +optional
	InstanceManagerCPURequest int `json:"instanceManagerCPURequest"`
	// +optional
	Name string `json:"name"`
	// +optional
	Tags []string `json:"tags,omitzero"`
}

// DiskSpec is part of Node.
type DiskSpec struct {
	// +optional
	AllowScheduling bool `json:"allowScheduling"`
	// +optional
	// +kubebuilder:validation:Enum="";aio;nvme
	DiskDriver DiskDriver `json:"diskDriver"`
	// +optional
	// +kubebuilder:validation:Enum=filesystem
	DiskType DiskType `json:"diskType,omitempty"`
	// +optional
	EvictionRequested bool `json:"evictionRequested"`
	// +optional
	Path string `json:"path"`
	// +optional
	StorageReserved int64 `json:"storageReserved"`
	// +optional
	Tags []string `json:"tags,omitzero"`
}

// NodeStatus is what was observed of a Node.
type NodeStatus struct {
	// +optional
	AutoEvicting bool `json:"autoEvicting"`
	// +optional
	// +nullable
	Conditions []Condition `json:"conditions"`
	// +optional
	// +nullable
	DiskStatus map[string]DiskStatus `json:"diskStatus"`
	// +optional
	Region string `json:"region"`
	// +optional
	SnapshotCheckStatus SnapshotCheckStatus `json:"snapshotCheckStatus"`
	// +optional
	Zone string `json:"zone"`
}

// DiskStatus is part of Node.
type DiskStatus struct {
	// +optional
	// +nullable
	Conditions []Condition `json:"conditions"`
	// +optional
	DiskDriver DiskDriver `json:"diskDriver"`
	// +optional
	DiskName string `json:"diskName"`
	// +optional
	DiskPath string `json:"diskPath"`
	// +optional
	DiskType DiskType `json:"diskType"`
	// +optional
	DiskUUID string `json:"diskUUID"`
	// +optional
	FilesystemType string `json:"filesystemType"`
	// +optional
	HealthData map[string]DiskHealth `json:"healthData,omitzero"`
	// +optional
	HealthDataLastCollectedAt metav1.Time `json:"healthDataLastCollectedAt,omitzero"`
	// +optional
	InstanceManagerName string `json:"instanceManagerName"`
	// +optional
	// +nullable
	ScheduledBackingImage map[string]int64 `json:"scheduledBackingImage"`
	// +optional
	// +nullable
	ScheduledReplica map[string]int64 `json:"scheduledReplica"`
	// +optional
	StorageAvailable int64 `json:"storageAvailable"`
	// +optional
	StorageMaximum int64 `json:"storageMaximum"`
	// +optional
	StorageScheduled int64 `json:"storageScheduled"`
}

// DiskHealth is part of Node.
type DiskHealth struct {
	// +optional
	// +kubebuilder:validation:Enum=FAILED;PASSED;UNKNOWN;WARNING
	HealthStatus HealthStatus `json:"healthStatus,omitempty"`
	// +optional
	// +kubebuilder:validation:Enum=SMART
	Source HealthSource `json:"source,omitempty"`
}

// SnapshotCheckStatus is part of Node.
type SnapshotCheckStatus struct {
	// +optional
	LastPeriodicCheckedAt metav1.Time `json:"lastPeriodicCheckedAt,omitzero"`
}

// Node is one of the stored kinds.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:storageversion
// +kubebuilder:resource:path=nodes,singular=node,shortName=lhn,scope=Namespaced
// +kubebuilder:metadata:labels="longhorn-manager="
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=='Ready')].status`
// +kubebuilder:printcolumn:name="AllowScheduling",type=boolean,JSONPath=`.spec.allowScheduling`
// +kubebuilder:printcolumn:name="Schedulable",type=string,JSONPath=`.status.conditions[?(@.type=='Schedulable')].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Node struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   NodeSpec   `json:"spec,omitempty"`
	Status NodeStatus `json:"status,omitempty"`
}

// NodeList is a list of Node objects.
//
// +kubebuilder:object:root=true
type NodeList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Node `json:"items"`
}
