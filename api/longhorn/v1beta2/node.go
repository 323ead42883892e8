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
	// NodeReasonNoBlockDevices: FUSE or loop devices are missing.
	NodeReasonNoBlockDevices           = "NoBlockDevices"
	NodeReasonCheckKernelConfigFailed  = "CheckKernelConfigFailed"
	NodeReasonPackagesNotInstalled     = "PackagesNotInstalled"
	NodeReasonUnknownOS                = "UnknownOS"
	NodeReasonNFSClientIsNotFound      = "NFSClientIsNotFound"
	NodeReasonNFSClientIsMisconfigured = "NFSClientIsMisconfigured"
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
	// DiskReasonPreparing: the disk is new and gets its configuration file.
	DiskReasonPreparing = "Preparing"
	// DiskReasonDuplicateUUID: another disk with the same UUID was there at the same time.
	DiskReasonDuplicateUUID = "DuplicateUUID"
	// DiskReasonUUIDOfOtherDisk: another disk has the same UUID, and nobody knows whether it is there.
	DiskReasonUUIDOfOtherDisk = "UUIDOfOtherDisk"
)

// NodeSpec is what is wanted of a Node.
type NodeSpec struct {
	LegacyNodeSpec `json:",inline"`

	// AllowScheduling lets new replicas be placed on the node.
	// +optional
	AllowScheduling bool `json:"allowScheduling"`
	// Disks are the disks by name.
	// +optional
	Disks map[string]DiskSpec `json:"disks,omitzero"`
	// EvictionRequested asks for all replicas to leave the node. Scheduling must be off.
	// +optional
	EvictionRequested bool `json:"evictionRequested"`
	// InstanceManagerCPURequest is the CPU request of the node's instance manager in thousandths of a CPU; 0
	// leaves it to setting guaranteed-instance-manager-cpu.
	// +optional
	InstanceManagerCPURequest int `json:"instanceManagerCPURequest"`
	// Name is the name of the object again.
	// +optional
	Name string `json:"name"`
	// Tags are what volumes can ask for in their node selector.
	// +optional
	Tags []string `json:"tags,omitzero"`
}

// DiskSpec is what is wanted of a disk of a node.
type DiskSpec struct {
	// AllowScheduling lets new replicas be placed on the disk.
	// +optional
	AllowScheduling bool `json:"allowScheduling"`
	// DiskDriver is empty for file systems.
	// +optional
	// +kubebuilder:validation:Enum="";aio;nvme
	DiskDriver DiskDriver `json:"diskDriver"`
	// DiskType is filesystem.
	// +optional
	// +kubebuilder:validation:Enum=filesystem
	DiskType DiskType `json:"diskType,omitempty"`
	// EvictionRequested asks for all replicas to leave the disk. Scheduling must be off.
	// +optional
	EvictionRequested bool `json:"evictionRequested"`
	// Path is the directory on the host. Two disks of a node cannot share one.
	// +optional
	Path string `json:"path"`
	// StorageReserved is how many bytes replicas cannot take.
	// +optional
	StorageReserved int64 `json:"storageReserved"`
	// Tags are what volumes can ask for in their disk selector.
	// +optional
	Tags []string `json:"tags,omitzero"`
}

// NodeStatus is what was observed of a Node.
type NodeStatus struct {
	// AutoEvicting is true while replicas leave because the node is being drained.
	// +optional
	AutoEvicting bool `json:"autoEvicting"`
	// Conditions are the observations about the object.
	// +optional
	// +nullable
	Conditions []Condition `json:"conditions"`
	// DiskStatus is what was observed of the disks by name.
	// +optional
	// +nullable
	DiskStatus map[string]DiskStatus `json:"diskStatus"`
	// Region is the region label of the Kubernetes node.
	// +optional
	Region string `json:"region"`
	// SnapshotCheckStatus is about the checksums of snapshots on this node.
	// +optional
	SnapshotCheckStatus SnapshotCheckStatus `json:"snapshotCheckStatus"`
	// Zone is the zone label of the Kubernetes node.
	// +optional
	Zone string `json:"zone"`
}

// DiskStatus is what was observed of a disk of a node.
type DiskStatus struct {
	// Conditions are the observations about the disk.
	// +optional
	// +nullable
	Conditions []Condition `json:"conditions"`
	// DiskDriver is empty for file systems.
	// +optional
	DiskDriver DiskDriver `json:"diskDriver"`
	// DiskName is the name in the configuration file on the disk.
	// +optional
	DiskName string `json:"diskName"`
	// DiskPath is the directory on the host.
	// +optional
	DiskPath string `json:"diskPath"`
	// DiskType is filesystem.
	// +optional
	DiskType DiskType `json:"diskType"`
	// DiskUUID is the identity in the configuration file on the disk.
	// +optional
	DiskUUID string `json:"diskUUID"`
	// FilesystemType is the type of the file system, for example xfs or ext2/ext3.
	// +optional
	FilesystemType string `json:"filesystemType"`
	// HealthData is what the devices below report about themselves, by device.
	// +optional
	HealthData map[string]DiskHealth `json:"healthData,omitzero"`
	// HealthDataLastCollectedAt is when that was last read.
	// +optional
	HealthDataLastCollectedAt metav1.Time `json:"healthDataLastCollectedAt,omitzero"`
	// InstanceManagerName is the instance manager that serves the disk.
	// +optional
	InstanceManagerName string `json:"instanceManagerName"`
	// ScheduledBackingImage is how many bytes each backing image takes on the disk.
	// +optional
	// +nullable
	ScheduledBackingImage map[string]int64 `json:"scheduledBackingImage"`
	// ScheduledReplica is how many bytes each replica on the disk may grow to.
	// +optional
	// +nullable
	ScheduledReplica map[string]int64 `json:"scheduledReplica"`
	// StorageAvailable is how many bytes are free, rounded down to 100 MiB.
	// +optional
	StorageAvailable int64 `json:"storageAvailable"`
	// StorageMaximum is how many bytes the file system has.
	// +optional
	StorageMaximum int64 `json:"storageMaximum"`
	// StorageScheduled is the sum over scheduledReplica and scheduledBackingImage.
	// +optional
	StorageScheduled int64 `json:"storageScheduled"`
}

// DiskHealth is what a device reports about itself.
type DiskHealth struct {
	// HealthStatus is the verdict of the device.
	// +optional
	// +kubebuilder:validation:Enum=FAILED;PASSED;UNKNOWN;WARNING
	HealthStatus HealthStatus `json:"healthStatus,omitempty"`
	// Source says how it was read.
	// +optional
	// +kubebuilder:validation:Enum=SMART
	Source HealthSource `json:"source,omitempty"`
	// Attributes are what the device counts: hours, temperature, errors.
	// +optional
	// +kubebuilder:validation:MaxItems=256
	Attributes []HealthAttribute `json:"attributes,omitempty"`
}

// HealthAttribute is something that a device counts.
type HealthAttribute struct {
	// Name is what smartctl calls it.
	Name string `json:"name"`
	// ID is the number of an ATA attribute; 0 for others.
	// +optional
	ID int `json:"id,omitempty"`
	// RawValue is the value as the device counts; its unit depends on device and attribute.
	RawValue int64 `json:"rawValue"`
}

// SnapshotCheckStatus says when checksums of snapshots were last checked.
type SnapshotCheckStatus struct {
	// LastPeriodicCheckedAt is when the last regular check ended.
	// +optional
	LastPeriodicCheckedAt metav1.Time `json:"lastPeriodicCheckedAt,omitzero"`
}

// Node is a node of the cluster with the disks that replicas may be placed on. It has the name of the
// Kubernetes node.
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
