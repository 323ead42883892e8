package v1beta2

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ReplicaMode is what an engine thinks of one of its replicas.
type ReplicaMode string

const (
	// ReplicaModeRW replicas are in sync: they are read from and written to.
	ReplicaModeRW ReplicaMode = "RW"
	// ReplicaModeWO replicas are being rebuilt: they are written to only.
	ReplicaModeWO ReplicaMode = "WO"
	// ReplicaModeERR replicas have failed and are not used any more.
	ReplicaModeERR ReplicaMode = "ERR"
)

// UnknownReplicaPrefix starts the key of a replica in Engine status.replicaModeMap whose address belongs to no known
// Replica object.
const UnknownReplicaPrefix = "unknown-"

// VolumeHeadName is the key of the writable layer in Engine status.snapshots.
const VolumeHeadName = "volume-head"

// Values of the field state of the progress objects of an Engine (backup, clone, purge, rebuild, restore).
const (
	ProcessStateInProgress = "in_progress"
	ProcessStateComplete   = "complete"
	ProcessStateError      = "error"
)

// Condition types and reasons of an Engine; InstanceCreation is shared with Replica.
const (
	InstanceConditionInstanceCreation     = "InstanceCreation"
	InstanceReasonInstanceCreationFailure = "InstanceCreationFailure"
	EngineConditionFilesystemReadOnly     = "FilesystemReadOnly"
)

// Membership is the witness record of a volume: the newest member set its engines agreed on. The instance manager
// proposes changes through a manager, which writes them by compare-and-swap on the Engine object. Nobody else writes
// it. An object without it belongs to a volume whose engine has never started.
type Membership struct {
	// VolumeUUID is the UID of the Volume object. A record of another volume is void.
	// +optional
	VolumeUUID string `json:"volumeUUID"`
	// Epoch counts engine starts. Only the engine holding the newest epoch may propose members.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Epoch int64 `json:"epoch"`
	// RecordEpoch is the epoch in which Generation and Members were proposed; it may be older than Epoch.
	// +optional
	// +kubebuilder:validation:Minimum=0
	RecordEpoch int64 `json:"recordEpoch"`
	// Generation counts member sets.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Generation int64 `json:"generation"`
	// Members are the data directory names of the replicas of this generation.
	// +optional
	Members []string `json:"members,omitzero"`
	// Engine is the name of the engine instance the epoch was granted to.
	// +optional
	Engine string `json:"engine"`
	// InstanceManager is the name of the instance manager that engine runs in.
	// +optional
	InstanceManager string `json:"instanceManager"`
}

// EngineSpec is what is wanted of a Engine.
type EngineSpec struct {
	InstanceSpec `json:",inline"`

	// +optional
	Active bool `json:"active"`
	// +optional
	BackupVolume string `json:"backupVolume"`
	// +optional
	DisableFrontend bool `json:"disableFrontend"`
	// +optional
	// +kubebuilder:validation:Enum=blockdev;iscsi;""
	Frontend VolumeFrontend `json:"frontend"`
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=5
	RebuildConcurrentSyncLimit int `json:"rebuildConcurrentSyncLimit"`
	// +optional
	ReplicaAddressMap map[string]string `json:"replicaAddressMap,omitzero"`
	// +optional
	RequestedBackupRestore string `json:"requestedBackupRestore"`
	// +optional
	RequestedDataSource string `json:"requestedDataSource"`
	// +optional
	UnmapMarkSnapChainRemovedEnabled bool `json:"unmapMarkSnapChainRemovedEnabled"`
	// +optional
	UpgradedReplicaAddressMap map[string]string `json:"upgradedReplicaAddressMap,omitzero"`
}

// EngineStatus is what was observed of a Engine.
type EngineStatus struct {
	InstanceStatus `json:",inline"`

	// +optional
	// +nullable
	BackupStatus map[string]EngineBackupStatus `json:"backupStatus"`
	// +optional
	// +nullable
	CloneStatus map[string]SnapshotCloneStatus `json:"cloneStatus"`
	// +optional
	// +nullable
	CurrentReplicaAddressMap map[string]string `json:"currentReplicaAddressMap"`
	// +optional
	// +kubebuilder:validation:Type=string
	CurrentSize int64 `json:"currentSize,string"`
	// +optional
	Endpoint string `json:"endpoint"`
	// +optional
	IsExpanding bool `json:"isExpanding"`
	// +optional
	LastExpansionError string `json:"lastExpansionError"`
	// +optional
	LastExpansionFailedAt string `json:"lastExpansionFailedAt"`
	// +optional
	LastRestoredBackup string `json:"lastRestoredBackup"`
	// +optional
	// +nullable
	PurgeStatus map[string]PurgeStatus `json:"purgeStatus"`
	// +optional
	// +kubebuilder:validation:Minimum=0
	RebuildConcurrentSyncLimit int `json:"rebuildConcurrentSyncLimit"`
	// +optional
	// +nullable
	RebuildStatus map[string]RebuildStatus `json:"rebuildStatus"`
	// +optional
	// +nullable
	ReplicaModeMap map[string]ReplicaMode `json:"replicaModeMap"`
	// +optional
	ReplicaTransitionTimeMap map[string]string `json:"replicaTransitionTimeMap,omitzero"`
	// +optional
	// +nullable
	RestoreStatus map[string]RestoreStatus `json:"restoreStatus"`
	// +optional
	SnapshotMaxCount int `json:"snapshotMaxCount"`
	// +optional
	// +kubebuilder:validation:Type=string
	SnapshotMaxSize int64 `json:"snapshotMaxSize,string"`
	// +optional
	// +nullable
	Snapshots map[string]SnapshotInfo `json:"snapshots"`
	// +optional
	SnapshotsError string `json:"snapshotsError"`
	// +optional
	UnmapMarkSnapChainRemovedEnabled bool `json:"unmapMarkSnapChainRemovedEnabled"`
	// Membership is the witness record of the volume; see Membership.
	// +optional
	Membership *Membership `json:"membership,omitempty"`
}

// EngineBackupStatus is part of Engine.
type EngineBackupStatus struct {
	// +optional
	BackupURL string `json:"backupURL"`
	// +optional
	Error string `json:"error"`
	// +optional
	Progress int `json:"progress"`
	// +optional
	ReplicaAddress string `json:"replicaAddress"`
	// +optional
	SnapshotName string `json:"snapshotName"`
	// +optional
	State string `json:"state"`
}

// SnapshotCloneStatus is part of Engine.
type SnapshotCloneStatus struct {
	// +optional
	Error string `json:"error"`
	// +optional
	FromReplicaAddress string `json:"fromReplicaAddress"`
	// +optional
	IsCloning bool `json:"isCloning"`
	// +optional
	Progress int `json:"progress"`
	// +optional
	SnapshotName string `json:"snapshotName"`
	// +optional
	State string `json:"state"`
}

// PurgeStatus is part of Engine.
type PurgeStatus struct {
	// +optional
	Error string `json:"error"`
	// +optional
	IsPurging bool `json:"isPurging"`
	// +optional
	Progress int `json:"progress"`
	// +optional
	State string `json:"state"`
}

// RebuildStatus is part of Engine.
type RebuildStatus struct {
	// +optional
	AppliedRebuildingMBps int64 `json:"appliedRebuildingMBps"`
	// +optional
	Error string `json:"error"`
	// +optional
	FromReplicaAddress string `json:"fromReplicaAddress"`
	// +optional
	FromReplicaAddressList []string `json:"fromReplicaAddressList,omitzero"`
	// +optional
	IsRebuilding bool `json:"isRebuilding"`
	// +optional
	Progress int `json:"progress"`
	// +optional
	State string `json:"state"`
}

// RestoreStatus is part of Engine.
type RestoreStatus struct {
	// +optional
	BackupURL string `json:"backupURL"`
	// +optional
	CurrentRestoringBackup string `json:"currentRestoringBackup"`
	// +optional
	Error string `json:"error"`
	// +optional
	FileName string `json:"filename"`
	// +optional
	IsRestoring bool `json:"isRestoring"`
	// +optional
	LastRestored string `json:"lastRestored"`
	// +optional
	Progress int `json:"progress"`
	// +optional
	State string `json:"state"`
}

// SnapshotInfo is part of Engine.
type SnapshotInfo struct {
	// +optional
	// +nullable
	Children map[string]bool `json:"children"`
	// +optional
	Created string `json:"created"`
	// +optional
	// +nullable
	Labels map[string]string `json:"labels"`
	// +optional
	Name string `json:"name"`
	// +optional
	Parent string `json:"parent"`
	// +optional
	Removed bool `json:"removed"`
	// +optional
	Size string `json:"size"`
	// +optional
	UserCreated bool `json:"usercreated"`
}

// Engine is one of the stored kinds.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:storageversion
// +kubebuilder:resource:path=engines,singular=engine,shortName=lhe,scope=Namespaced
// +kubebuilder:metadata:labels="longhorn-manager="
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.currentState`
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.spec.nodeID`
// +kubebuilder:printcolumn:name="InstanceManager",type=string,JSONPath=`.status.instanceManagerName`
// +kubebuilder:printcolumn:name="Image",type=string,JSONPath=`.status.currentImage`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Engine struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   EngineSpec   `json:"spec,omitempty"`
	Status EngineStatus `json:"status,omitempty"`
}

// EngineList is a list of Engine objects.
//
// +kubebuilder:object:root=true
type EngineList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Engine `json:"items"`
}
