package v1beta2

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// AccessMode says how many nodes may use a volume at once.
type AccessMode string

const (
	AccessModeReadWriteOnce    AccessMode = "rwo"
	AccessModeReadWriteOncePod AccessMode = "rwop"
	AccessModeReadWriteMany    AccessMode = "rwx"
)

// BackupCompressionMethod names the codec of the blocks of a backup.
type BackupCompressionMethod string

const (
	BackupCompressionNone BackupCompressionMethod = "none"
	BackupCompressionLz4  BackupCompressionMethod = "lz4"
	BackupCompressionGzip BackupCompressionMethod = "gzip"
)

// Sizes of backup blocks in bytes. BackupBlockSizeInvalid marks a backup whose block size is not known; it cannot be
// restored.
const (
	BackupBlockSizeInvalid int64 = -1
	BackupBlockSize2Mi     int64 = 2 << 20
	BackupBlockSize16Mi    int64 = 16 << 20
)

// CloneMode says how the data of a clone is made.
type CloneMode string

const (
	CloneModeNone     CloneMode = ""
	CloneModeFullCopy CloneMode = "full-copy"
)

// DataLocality says whether one replica must be, or should be, on the node a volume is attached to.
type DataLocality string

const (
	DataLocalityDisabled    DataLocality = "disabled"
	DataLocalityBestEffort  DataLocality = "best-effort"
	DataLocalityStrictLocal DataLocality = "strict-local"
)

// ReplicaAutoBalance says how eagerly replicas are spread again after the cluster changed. On a volume "ignored" means
// the setting of the same name decides.
type ReplicaAutoBalance string

const (
	ReplicaAutoBalanceIgnored     ReplicaAutoBalance = "ignored"
	ReplicaAutoBalanceDisabled    ReplicaAutoBalance = "disabled"
	ReplicaAutoBalanceLeastEffort ReplicaAutoBalance = "least-effort"
	ReplicaAutoBalanceBestEffort  ReplicaAutoBalance = "best-effort"
)

// SnapshotDataIntegrity says when checksums of snapshots are computed. On a volume "ignored" means the setting of the
// same name decides.
type SnapshotDataIntegrity string

const (
	SnapshotDataIntegrityIgnored   SnapshotDataIntegrity = "ignored"
	SnapshotDataIntegrityDisabled  SnapshotDataIntegrity = "disabled"
	SnapshotDataIntegrityEnabled   SnapshotDataIntegrity = "enabled"
	SnapshotDataIntegrityFastCheck SnapshotDataIntegrity = "fast-check"
)

// VolumeFrontend is the way a volume shows itself on its node.
type VolumeFrontend string

const (
	VolumeFrontendBlockDev VolumeFrontend = "blockdev"
	VolumeFrontendISCSI    VolumeFrontend = "iscsi"
	VolumeFrontendNone     VolumeFrontend = ""
)

// VolumeState is the phase of attaching and detaching. It is empty on an object nobody has handled yet.
type VolumeState string

const (
	VolumeStateNew       VolumeState = ""
	VolumeStateCreating  VolumeState = "creating"
	VolumeStateAttached  VolumeState = "attached"
	VolumeStateDetached  VolumeState = "detached"
	VolumeStateAttaching VolumeState = "attaching"
	VolumeStateDetaching VolumeState = "detaching"
	VolumeStateDeleting  VolumeState = "deleting"
)

// VolumeRobustness compares the replicas in sync with the number wanted.
type VolumeRobustness string

const (
	VolumeRobustnessHealthy  VolumeRobustness = "healthy"
	VolumeRobustnessDegraded VolumeRobustness = "degraded"
	VolumeRobustnessFaulted  VolumeRobustness = "faulted"
	VolumeRobustnessUnknown  VolumeRobustness = "unknown"
)

// VolumeCloneState is the phase of filling a clone.
type VolumeCloneState string

const (
	VolumeCloneStateNone                   VolumeCloneState = ""
	VolumeCloneStateInitiated              VolumeCloneState = "initiated"
	VolumeCloneStateCopyCompletedUnhealthy VolumeCloneState = "copy-completed-awaiting-healthy"
	VolumeCloneStateCompleted              VolumeCloneState = "completed"
	VolumeCloneStateFailed                 VolumeCloneState = "failed"
)

// Condition types of a Volume.
const (
	VolumeConditionScheduled                = "Scheduled"
	VolumeConditionRestore                  = "Restore"
	VolumeConditionTooManySnapshots         = "TooManySnapshots"
	VolumeConditionWaitForBackingImage      = "WaitForBackingImage"
	VolumeConditionBackingImageIncompatible = "BackingImageIncompatible"
	VolumeConditionOfflineRebuilding        = "OfflineRebuilding"
)

// Reasons of the conditions of a Volume.
const (
	VolumeReasonReplicaSchedulingFailure        = "ReplicaSchedulingFailure"
	VolumeReasonLocalReplicaSchedulingFailure   = "LocalReplicaSchedulingFailure"
	VolumeReasonRestoreInProgress               = "RestoreInProgress"
	VolumeReasonRestoreFailure                  = "RestoreFailure"
	VolumeReasonTooManySnapshots                = "TooManySnapshots"
	VolumeReasonBackingImageVirtualSizeTooLarge = "BackingImageVirtualSizeTooLarge"
	VolumeReasonOfflineRebuildingInProgress     = "OfflineRebuildingInProgress"
)

// VolumeSpec is what is wanted of a Volume.
type VolumeSpec struct {
	LegacyVolumeSpec `json:",inline"`

	// +optional
	Standby bool `json:"Standby"`
	// +optional
	// +kubebuilder:validation:Enum=rwo;rwop;rwx
	AccessMode AccessMode `json:"accessMode,omitempty"`
	// +optional
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="backingImage is immutable"
	BackingImage string `json:"backingImage"`
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Enum="2097152";"16777216"
	BackupBlockSize int64 `json:"backupBlockSize,omitempty,string"`
	// +optional
	// +kubebuilder:validation:Enum=none;lz4;gzip
	BackupCompressionMethod BackupCompressionMethod `json:"backupCompressionMethod,omitempty"`
	// +optional
	BackupTargetName string `json:"backupTargetName"`
	// +optional
	// +kubebuilder:validation:Enum="";full-copy
	CloneMode CloneMode `json:"cloneMode"`
	// +optional
	// +kubebuilder:validation:Enum=v1
	DataEngine DataEngineType `json:"dataEngine,omitempty"`
	// +optional
	// +kubebuilder:validation:Enum=disabled;best-effort;strict-local
	DataLocality DataLocality `json:"dataLocality,omitempty"`
	// +optional
	DataSource string `json:"dataSource"`
	// +optional
	DisableFrontend bool `json:"disableFrontend"`
	// +optional
	DiskSelector []string `json:"diskSelector,omitzero"`
	// +optional
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="encrypted is immutable"
	Encrypted bool `json:"encrypted"`
	// +optional
	// +kubebuilder:validation:Enum=ignored;enabled;disabled
	FreezeFilesystemForSnapshot Override `json:"freezeFilesystemForSnapshot,omitempty"`
	// +optional
	FromBackup string `json:"fromBackup"`
	// +optional
	// +kubebuilder:validation:Enum=blockdev;iscsi;""
	Frontend VolumeFrontend `json:"frontend"`
	// +optional
	Image string `json:"image"`
	// +optional
	LastAttachedBy string `json:"lastAttachedBy"`
	// +optional
	Migratable bool `json:"migratable"`
	// +optional
	MigrationNodeID string `json:"migrationNodeID"`
	// +optional
	NodeID string `json:"nodeID"`
	// +optional
	NodeSelector []string `json:"nodeSelector,omitzero"`
	// +optional
	NumberOfReplicas int `json:"numberOfReplicas"`
	// +optional
	// +kubebuilder:validation:Enum=ignored;disabled;enabled
	OfflineRebuilding Override `json:"offlineRebuilding,omitempty"`
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=5
	RebuildConcurrentSyncLimit int `json:"rebuildConcurrentSyncLimit"`
	// +optional
	// +kubebuilder:validation:Enum=ignored;disabled;least-effort;best-effort
	ReplicaAutoBalance ReplicaAutoBalance `json:"replicaAutoBalance,omitempty"`
	// +optional
	// +kubebuilder:validation:Enum=ignored;enabled;disabled
	ReplicaDiskSoftAntiAffinity Override `json:"replicaDiskSoftAntiAffinity,omitempty"`
	// +optional
	// +kubebuilder:validation:Enum=ignored;enabled;disabled
	ReplicaSoftAntiAffinity Override `json:"replicaSoftAntiAffinity,omitempty"`
	// +optional
	// +kubebuilder:validation:Enum=ignored;enabled;disabled
	ReplicaZoneSoftAntiAffinity Override `json:"replicaZoneSoftAntiAffinity,omitempty"`
	// +optional
	// +kubebuilder:validation:Enum=ignored;enabled;disabled
	RestoreVolumeRecurringJob Override `json:"restoreVolumeRecurringJob,omitempty"`
	// +optional
	RevisionCounterDisabled bool `json:"revisionCounterDisabled"`
	// +optional
	// +kubebuilder:validation:Type=string
	Size int64 `json:"size,string"`
	// +optional
	// +kubebuilder:validation:Enum=ignored;disabled;enabled;fast-check
	SnapshotDataIntegrity SnapshotDataIntegrity `json:"snapshotDataIntegrity,omitempty"`
	// +optional
	SnapshotHashingRequestedAt string `json:"snapshotHashingRequestedAt"`
	// +optional
	SnapshotMaxCount int `json:"snapshotMaxCount"`
	// +optional
	// +kubebuilder:validation:Type=string
	SnapshotMaxSize int64 `json:"snapshotMaxSize,string"`
	// +optional
	StaleReplicaTimeout int `json:"staleReplicaTimeout"`
	// +optional
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="topologyRequirement is immutable"
	TopologyRequirement []TopologyTerm `json:"topologyRequirement,omitzero"`
	// +optional
	// +kubebuilder:validation:Enum=ignored;disabled;enabled
	UnmapMarkSnapChainRemoved Override `json:"unmapMarkSnapChainRemoved,omitempty"`
}

// TopologyTerm is part of Volume.
type TopologyTerm struct {
	// +optional
	Region string `json:"region"`
	// +optional
	Zone string `json:"zone"`
}

// VolumeStatus is what was observed of a Volume.
type VolumeStatus struct {
	// +optional
	ActualSize int64 `json:"actualSize"`
	// +optional
	CloneStatus VolumeCloneStatus `json:"cloneStatus"`
	// +optional
	// +nullable
	Conditions []Condition `json:"conditions"`
	// +optional
	CurrentImage string `json:"currentImage"`
	// +optional
	CurrentMigrationNodeID string `json:"currentMigrationNodeID"`
	// +optional
	CurrentNodeID string `json:"currentNodeID"`
	// +optional
	ExpansionRequired bool `json:"expansionRequired"`
	// +optional
	FrontendDisabled bool `json:"frontendDisabled"`
	// +optional
	IsStandby bool `json:"isStandby"`
	// +optional
	KubernetesStatus KubernetesStatus `json:"kubernetesStatus"`
	// +optional
	LastAutoSalvagedAt string `json:"lastAutoSalvagedAt"`
	// +optional
	LastBackup string `json:"lastBackup"`
	// +optional
	LastBackupAt string `json:"lastBackupAt"`
	// +optional
	LastDegradedAt string `json:"lastDegradedAt"`
	// +optional
	LastOnDemandSnapshotHashingCompleteAt string `json:"lastOnDemandSnapshotHashingCompleteAt"`
	// +optional
	OwnerID string `json:"ownerID"`
	// +optional
	RemountRequestedAt string `json:"remountRequestedAt"`
	// +optional
	RestoreInitiated bool `json:"restoreInitiated"`
	// +optional
	RestoreRequired bool `json:"restoreRequired"`
	// +optional
	Robustness VolumeRobustness `json:"robustness"`
	// +optional
	ShareEndpoint string `json:"shareEndpoint"`
	// +optional
	ShareState ShareManagerState `json:"shareState"`
	// +optional
	State VolumeState `json:"state"`
}

// VolumeCloneStatus is part of Volume.
type VolumeCloneStatus struct {
	// +optional
	AttemptCount int `json:"attemptCount"`
	// +optional
	NextAllowedAttemptAt string `json:"nextAllowedAttemptAt"`
	// +optional
	Snapshot string `json:"snapshot"`
	// +optional
	SourceVolume string `json:"sourceVolume"`
	// +optional
	State VolumeCloneState `json:"state"`
}

// KubernetesStatus is part of Volume.
type KubernetesStatus struct {
	// +optional
	LastPVCRefAt string `json:"lastPVCRefAt"`
	// +optional
	LastPodRefAt string `json:"lastPodRefAt"`
	// +optional
	Namespace string `json:"namespace"`
	// +optional
	PVName string `json:"pvName"`
	// +optional
	PVStatus string `json:"pvStatus"`
	// +optional
	PVCName string `json:"pvcName"`
	// +optional
	// +nullable
	WorkloadsStatus []WorkloadStatus `json:"workloadsStatus"`
}

// WorkloadStatus is part of Volume.
type WorkloadStatus struct {
	// +optional
	PodName string `json:"podName"`
	// +optional
	PodStatus string `json:"podStatus"`
	// +optional
	WorkloadName string `json:"workloadName"`
	// +optional
	WorkloadType string `json:"workloadType"`
}

// Volume is one of the stored kinds.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:storageversion
// +kubebuilder:resource:path=volumes,singular=volume,shortName=lhv,scope=Namespaced
// +kubebuilder:metadata:labels="longhorn-manager="
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.state`
// +kubebuilder:printcolumn:name="Robustness",type=string,JSONPath=`.status.robustness`
// +kubebuilder:printcolumn:name="Scheduled",type=string,JSONPath=`.status.conditions[?(@.type=='Schedulable')].status`
// +kubebuilder:printcolumn:name="Size",type=string,JSONPath=`.spec.size`
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.status.currentNodeID`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Volume struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   VolumeSpec   `json:"spec,omitempty"`
	Status VolumeStatus `json:"status,omitempty"`
}

// VolumeList is a list of Volume objects.
//
// +kubebuilder:object:root=true
type VolumeList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Volume `json:"items"`
}
