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

// VolumeSpec is what is wanted of a Volume.
type VolumeSpec struct {
	LegacyVolumeSpec `json:",inline"`

	// Standby marks a volume that follows the backups of another cluster until it is activated. The name begins
	// with a capital letter.
	// +optional
	Standby bool `json:"Standby"`
	// AccessMode says how many nodes may use the volume at once.
	// +optional
	// +kubebuilder:validation:Enum=rwo;rwop;rwx
	AccessMode AccessMode `json:"accessMode,omitempty"`
	// BackingImage is the image below the volume, if any. It cannot be changed.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="backingImage is immutable"
	BackingImage string `json:"backingImage"`
	// BackupBlockSize is the size in bytes of the blocks of backups, 2 or 16 MiB.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Enum="2097152";"16777216"
	BackupBlockSize int64 `json:"backupBlockSize,omitempty,string"`
	// BackupCompressionMethod is the codec of the blocks of backups. Once set it stays.
	// +optional
	// +kubebuilder:validation:Enum=none;lz4;gzip
	BackupCompressionMethod BackupCompressionMethod `json:"backupCompressionMethod,omitempty"`
	// BackupTargetName is where new backups go.
	// +optional
	BackupTargetName string `json:"backupTargetName"`
	// CloneMode says how the data of a clone is made. It is set for clones only.
	// +optional
	// +kubebuilder:validation:Enum="";full-copy
	CloneMode CloneMode `json:"cloneMode"`
	// DataEngine is v1.
	// +optional
	// +kubebuilder:validation:Enum=v1
	DataEngine DataEngineType `json:"dataEngine,omitempty"`
	// DataLocality says whether one replica belongs on the node the volume is attached to.
	// +optional
	// +kubebuilder:validation:Enum=disabled;best-effort;strict-local
	DataLocality DataLocality `json:"dataLocality,omitempty"`
	// DataSource is what the volume is a clone of: vol://volume or snap://volume/snapshot.
	// +optional
	DataSource string `json:"dataSource"`
	// DisableFrontend attaches the volume without a device, for maintenance. The winning ticket decides.
	// +optional
	DisableFrontend bool `json:"disableFrontend"`
	// DiskSelector are the tags a disk must have, all of them, to take a replica.
	// +optional
	DiskSelector []string `json:"diskSelector,omitzero"`
	// Encrypted puts LUKS between the device and its file system. It cannot be changed.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="encrypted is immutable"
	Encrypted bool `json:"encrypted"`
	// FreezeFilesystemForSnapshot overrides the setting of this name.
	// +optional
	// +kubebuilder:validation:Enum=ignored;enabled;disabled
	FreezeFilesystemForSnapshot Override `json:"freezeFilesystemForSnapshot,omitempty"`
	// FromBackup is the URL of the backup the volume is restored from.
	// +optional
	FromBackup string `json:"fromBackup"`
	// Frontend is the way the volume shows itself on its node. Only a standby volume may have none.
	// +optional
	// +kubebuilder:validation:Enum=blockdev;iscsi;""
	Frontend VolumeFrontend `json:"frontend"`
	// Image is the engine image wanted. Differing from status.currentImage it asks for an upgrade.
	// +optional
	Image string `json:"image"`
	// LastAttachedBy is taken over from the ticket that won.
	// +optional
	LastAttachedBy string `json:"lastAttachedBy"`
	// Migratable allows two nodes to have the volume attached while a virtual machine moves.
	// +optional
	Migratable bool `json:"migratable"`
	// MigrationNodeID is the node a live migration leads to. Only the controller of VolumeAttachment writes it.
	// +optional
	MigrationNodeID string `json:"migrationNodeID"`
	// NodeID is the node to be attached to, empty to be detached. Only the controller of VolumeAttachment writes
	// it.
	// +optional
	NodeID string `json:"nodeID"`
	// NodeSelector are the tags a node must have, all of them, to take a replica.
	// +optional
	NodeSelector []string `json:"nodeSelector,omitzero"`
	// NumberOfReplicas is how many replicas the volume should have, 1 to 20.
	// +optional
	NumberOfReplicas int `json:"numberOfReplicas"`
	// DeleteSnapshotsWithVolume lets the CSI driver delete the volume while VolumeSnapshots stand on
	// it, which are lost with it.
	// +optional
	DeleteSnapshotsWithVolume bool `json:"deleteSnapshotsWithVolume,omitempty"`
	// OfflineRebuilding overrides setting offline-replica-rebuilding.
	// +optional
	// +kubebuilder:validation:Enum=ignored;disabled;enabled
	OfflineRebuilding Override `json:"offlineRebuilding,omitempty"`
	// RebuildConcurrentSyncLimit is how many files a rebuild copies at the same time; 0 leaves it to the setting.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=5
	RebuildConcurrentSyncLimit int `json:"rebuildConcurrentSyncLimit"`
	// ReplicaRebuildingBandwidthLimit is how many MiB per second rebuilds of the volume send at most; 0 leaves it to
	// the setting.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1048576
	ReplicaRebuildingBandwidthLimit int64 `json:"replicaRebuildingBandwidthLimit,omitempty"`
	// ReplicaAutoBalance overrides the setting of this name.
	// +optional
	// +kubebuilder:validation:Enum=ignored;disabled;least-effort;best-effort
	ReplicaAutoBalance ReplicaAutoBalance `json:"replicaAutoBalance,omitempty"`
	// ReplicaDiskSoftAntiAffinity overrides the setting: may two replicas share a disk.
	// +optional
	// +kubebuilder:validation:Enum=ignored;enabled;disabled
	ReplicaDiskSoftAntiAffinity Override `json:"replicaDiskSoftAntiAffinity,omitempty"`
	// ReplicaSoftAntiAffinity overrides the setting: may two replicas share a node.
	// +optional
	// +kubebuilder:validation:Enum=ignored;enabled;disabled
	ReplicaSoftAntiAffinity Override `json:"replicaSoftAntiAffinity,omitempty"`
	// ReplicaZoneSoftAntiAffinity overrides the setting: may two replicas share a zone.
	// +optional
	// +kubebuilder:validation:Enum=ignored;enabled;disabled
	ReplicaZoneSoftAntiAffinity Override `json:"replicaZoneSoftAntiAffinity,omitempty"`
	// RestoreVolumeRecurringJob overrides the setting: bring back the recurring jobs stored with the backup.
	// +optional
	// +kubebuilder:validation:Enum=ignored;enabled;disabled
	RestoreVolumeRecurringJob Override `json:"restoreVolumeRecurringJob,omitempty"`
	// RevisionCounterDisabled leaves out the counter of writes beside the data of a replica.
	// +optional
	RevisionCounterDisabled bool `json:"revisionCounterDisabled"`
	// Size is the size in bytes, a multiple of 2 MiB. It can only grow.
	// +optional
	// +kubebuilder:validation:Type=string
	Size int64 `json:"size,string"`
	// SnapshotDataIntegrity overrides the setting of this name.
	// +optional
	// +kubebuilder:validation:Enum=ignored;disabled;enabled;fast-check
	SnapshotDataIntegrity SnapshotDataIntegrity `json:"snapshotDataIntegrity,omitempty"`
	// SnapshotHashingRequestedAt asks for the checksums of all snapshots of users (RFC 3339).
	// +optional
	SnapshotHashingRequestedAt string `json:"snapshotHashingRequestedAt"`
	// SnapshotMaxCount is how many snapshots the volume may have, 2 to 250.
	// +optional
	SnapshotMaxCount int `json:"snapshotMaxCount"`
	// SnapshotMaxSize is how many bytes all snapshots together may have; 0 sets no limit.
	// +optional
	// +kubebuilder:validation:Type=string
	SnapshotMaxSize int64 `json:"snapshotMaxSize,string"`
	// StaleReplicaTimeout is how many minutes a failed replica is kept; 0 keeps it however old it is.
	// +optional
	StaleReplicaTimeout int `json:"staleReplicaTimeout"`
	// TopologyRequirement are the failure domains the replicas must stay in; a node must fit one of them. It
	// cannot be changed.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="topologyRequirement is immutable"
	TopologyRequirement []TopologyTerm `json:"topologyRequirement,omitzero"`
	// UnmapMarkSnapChainRemoved overrides setting remove-snapshots-during-filesystem-trim.
	// +optional
	// +kubebuilder:validation:Enum=ignored;disabled;enabled
	UnmapMarkSnapChainRemoved Override `json:"unmapMarkSnapChainRemoved,omitempty"`
}

// TopologyTerm is a failure domain. An empty field matches any.
type TopologyTerm struct {
	// Region is the region a node must be in.
	// +optional
	Region string `json:"region"`
	// Zone is the zone a node must be in.
	// +optional
	Zone string `json:"zone"`
}

// VolumeStatus is what was observed of a Volume.
type VolumeStatus struct {
	// ActualSize is how many bytes all layers of the volume take.
	// +optional
	ActualSize int64 `json:"actualSize"`
	// CloneStatus is the progress of filling a clone.
	// +optional
	CloneStatus VolumeCloneStatus `json:"cloneStatus"`
	// Conditions are the observations about the object.
	// +optional
	// +nullable
	Conditions []Condition `json:"conditions"`
	// CurrentImage is the engine image in use.
	// +optional
	CurrentImage string `json:"currentImage"`
	// CurrentMigrationNodeID is the node the second engine of a live migration runs on.
	// +optional
	CurrentMigrationNodeID string `json:"currentMigrationNodeID"`
	// CurrentNodeID is the node the volume is attached to, empty if it is not.
	// +optional
	CurrentNodeID string `json:"currentNodeID"`
	// ExpansionRequired is true while the volume grows.
	// +optional
	ExpansionRequired bool `json:"expansionRequired"`
	// FrontendDisabled is spec.disableFrontend as it was when the volume was attached.
	// +optional
	FrontendDisabled bool `json:"frontendDisabled"`
	// IsStandby is true for a standby volume that has not been activated.
	// +optional
	IsStandby bool `json:"isStandby"`
	// KubernetesStatus says which objects of Kubernetes use the volume.
	// +optional
	KubernetesStatus KubernetesStatus `json:"kubernetesStatus"`
	// LastAutoSalvagedAt is when the volume was last brought back by itself.
	// +optional
	LastAutoSalvagedAt string `json:"lastAutoSalvagedAt"`
	// LastBackup is the name of the newest backup.
	// +optional
	LastBackup string `json:"lastBackup"`
	// LastBackupAt is when that backup was made.
	// +optional
	LastBackupAt string `json:"lastBackupAt"`
	// LastDegradedAt is since when the volume has fewer replicas than wanted; empty when it has enough.
	// +optional
	LastDegradedAt string `json:"lastDegradedAt"`
	// LastOnDemandSnapshotHashingCompleteAt equals spec.snapshotHashingRequestedAt once that wish is fulfilled.
	// +optional
	LastOnDemandSnapshotHashingCompleteAt string `json:"lastOnDemandSnapshotHashingCompleteAt"`
	// OwnerID is the node whose manager looks after the object.
	// +optional
	OwnerID string `json:"ownerID"`
	// RemountRequestedAt makes workload Pods that are older than this start again, so that they mount anew.
	// +optional
	RemountRequestedAt string `json:"remountRequestedAt"`
	// DeviceID is our addition: the block device that users of the attached volume have, see the Engine's. When the engine
	// has another one, they have to mount again.
	// +optional
	DeviceID string `json:"deviceID,omitempty"`
	// ProcessKey is our addition: the master key, of Secret longhorn-volume-keys, from which the processes of the volume
	// have what they prove to each other. It changes only while none of them runs.
	// +optional
	ProcessKey string `json:"processKey,omitempty"`
	// RestoreInitiated is true once the restore has been prepared.
	// +optional
	RestoreInitiated bool `json:"restoreInitiated"`
	// RestoreRequired is true until the data of a backup is restored, and on a standby volume.
	// +optional
	RestoreRequired bool `json:"restoreRequired"`
	// Robustness compares the replicas in sync with the number wanted.
	// +optional
	Robustness VolumeRobustness `json:"robustness"`
	// ShareEndpoint is the NFS address of a volume used by many nodes.
	// +optional
	ShareEndpoint string `json:"shareEndpoint"`
	// ShareState is the state of its share manager.
	// +optional
	ShareState ShareManagerState `json:"shareState"`
	// State is the phase of attaching and detaching.
	// +optional
	State VolumeState `json:"state"`
}

// VolumeCloneStatus is the progress of filling a volume from another one.
type VolumeCloneStatus struct {
	// AttemptCount is how often it was tried, at most 10 times.
	// +optional
	AttemptCount int `json:"attemptCount"`
	// NextAllowedAttemptAt is when it may be tried again.
	// +optional
	NextAllowedAttemptAt string `json:"nextAllowedAttemptAt"`
	// Snapshot is the snapshot copied from.
	// +optional
	Snapshot string `json:"snapshot"`
	// SourceVolume is the volume copied from.
	// +optional
	SourceVolume string `json:"sourceVolume"`
	// State is the phase of the copy.
	// +optional
	State VolumeCloneState `json:"state"`
}

// KubernetesStatus says which objects of Kubernetes use, or last used, a volume.
type KubernetesStatus struct {
	// LastPVCRefAt is set when the claim is gone; the fields about it are then history.
	// +optional
	LastPVCRefAt string `json:"lastPVCRefAt"`
	// LastPodRefAt is set when the Pods are gone; the fields about them are then history.
	// +optional
	LastPodRefAt string `json:"lastPodRefAt"`
	// Namespace is the namespace of the claim.
	// +optional
	Namespace string `json:"namespace"`
	// PVName is the name of the PersistentVolume.
	// +optional
	PVName string `json:"pvName"`
	// PVStatus is its phase.
	// +optional
	PVStatus string `json:"pvStatus"`
	// PVCName is the name of the PersistentVolumeClaim.
	// +optional
	PVCName string `json:"pvcName"`
	// WorkloadsStatus are the Pods that use the claim.
	// +optional
	// +nullable
	WorkloadsStatus []WorkloadStatus `json:"workloadsStatus"`
}

// WorkloadStatus is one Pod that uses a volume.
type WorkloadStatus struct {
	// PodName is the name of the Pod.
	// +optional
	PodName string `json:"podName"`
	// PodStatus is its phase.
	// +optional
	PodStatus string `json:"podStatus"`
	// WorkloadName is the name of what made the Pod, a Deployment rather than its ReplicaSet.
	// +optional
	WorkloadName string `json:"workloadName"`
	// WorkloadType is the kind of what made the Pod.
	// +optional
	WorkloadType string `json:"workloadType"`
}

// Volume is a block device of a fixed size whose data is kept by several replicas.
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

// LUKSHeaderBytes is what the LUKS2 header takes at the beginning of the device of an encrypted
// volume.
const LUKSHeaderBytes = 16 << 20

// DeviceBytes is the size of the volume's device, and so of its replicas: that of an encrypted
// volume has room for a LUKS2 header before what the user has.
func (v *Volume) DeviceBytes() int64 {
	if v.Spec.Encrypted {
		return v.Spec.Size + LUKSHeaderBytes
	}
	return v.Spec.Size
}

// UserBytes is what the user has of a device of a size.
func (v *Volume) UserBytes(deviceBytes int64) int64 {
	if v.Spec.Encrypted {
		return max(deviceBytes-LUKSHeaderBytes, 0)
	}
	return deviceBytes
}

// VolumeList is a list of Volume objects.
//
// +kubebuilder:object:root=true
type VolumeList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Volume `json:"items"`
}
