package v1beta2

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

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
	// InstanceReasonDirectoryDamaged is our addition: a replica's directory is not what an engine left.
	InstanceReasonDirectoryDamaged    = "DirectoryDamaged"
	EngineConditionFilesystemReadOnly = "FilesystemReadOnly"
	// ConditionReplicaFilesLost of an Engine and its Volume is our addition: True while files that a
	// replica has in use were removed or replaced, so that their content goes with its process.
	ConditionReplicaFilesLost = "ReplicaFilesLost"
)

// Membership is the witness record of a volume: the newest member set its engines agreed on. The instance manager
// proposes changes through a manager, which writes them by compare-and-swap on the Engine object. Nobody else writes
// it. An object without it belongs to a volume whose engine has never started. The first epoch is granted before
// there are members: such a record says nothing of the volume's copies (Founded).
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
	// Stored: every member but one that was joining had the record on its disk before it was written here. A copy
	// with an older one is then an older state of its directory. Engines of before do not say so.
	// +optional
	Stored bool `json:"stored,omitempty"`
	// Engine is the name of the engine instance the epoch was granted to.
	// +optional
	Engine string `json:"engine"`
	// InstanceManager is the name of the instance manager that engine runs in.
	// +optional
	InstanceManager string `json:"instanceManager"`
}

// Founded tells whether the record is of the volume with this UID and names its copies. One of another volume is
// void, and one without members is from before its first engine had agreed with them on anything: nothing has been
// acknowledged then.
func (m *Membership) Founded(volume types.UID) bool {
	return m != nil && m.VolumeUUID == string(volume) && len(m.Members) > 0
}

// EngineSpec is what is wanted of an Engine.
type EngineSpec struct {
	InstanceSpec `json:",inline"`

	// Active is true on the engine that serves the volume, false on one a live migration prepares.
	// +optional
	Active bool `json:"active"`
	// BackupVolume is the name of the volume in the backup store to restore from.
	// +optional
	BackupVolume string `json:"backupVolume"`
	// DisableFrontend runs the engine without a device.
	// +optional
	DisableFrontend bool `json:"disableFrontend"`
	// Frontend is copied from the volume.
	// +optional
	// +kubebuilder:validation:Enum=blockdev;iscsi;""
	Frontend VolumeFrontend `json:"frontend"`
	// RebuildConcurrentSyncLimit is how many files a rebuild copies at the same time.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=5
	RebuildConcurrentSyncLimit int `json:"rebuildConcurrentSyncLimit"`
	// ReplicaRebuildingBandwidthLimit is copied from the volume: how many MiB per second rebuilds send at most; 0
	// leaves it to the setting.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1048576
	ReplicaRebuildingBandwidthLimit int64 `json:"replicaRebuildingBandwidthLimit,omitempty"`
	// ReplicaAddressMap are the replicas to connect to: from replica name to storage address and port.
	// +optional
	ReplicaAddressMap map[string]string `json:"replicaAddressMap,omitzero"`
	// RequestedBackupRestore is the name of the backup to restore.
	// +optional
	RequestedBackupRestore string `json:"requestedBackupRestore"`
	// RequestedDataSource is the snapshot to clone from, as snap://volume/snapshot.
	// +optional
	RequestedDataSource string `json:"requestedDataSource"`
	// RestartAfter is our addition: the UUID of a process that has ended and that the next one follows at once, without
	// desireState stopped in between. Any other process is not meant.
	// +optional
	RestartAfter string `json:"restartAfter,omitempty"`
	// StandInFor is our addition: the address, ip:port, of the volume's engine on another node. This one only offers the
	// volume on its own node, and passes requests on.
	// +optional
	StandInFor string `json:"standInFor,omitempty"`
	// UnmapMarkSnapChainRemovedEnabled lets a trim give up the newest snapshots.
	// +optional
	UnmapMarkSnapChainRemovedEnabled bool `json:"unmapMarkSnapChainRemovedEnabled"`
	// UpgradeAttempt is our addition: the number of the hand-over that image and upgradedReplicaAddressMap ask for.
	// +optional
	UpgradeAttempt int `json:"upgradeAttempt,omitempty"`
	// UpgradedReplicaAddressMap are the replicas of the new image during a live upgrade.
	// +optional
	UpgradedReplicaAddressMap map[string]string `json:"upgradedReplicaAddressMap,omitzero"`
}

// EngineStatus is what was observed of an Engine.
type EngineStatus struct {
	InstanceStatus `json:",inline"`

	// BackupStatus is the progress of backups by name.
	// +optional
	// +nullable
	BackupStatus map[string]EngineBackupStatus `json:"backupStatus"`
	// CloneStatus is the progress of a clone by replica address.
	// +optional
	// +nullable
	CloneStatus map[string]SnapshotCloneStatus `json:"cloneStatus"`
	// CurrentReplicaAddressMap are the replicas the engine was last told to use.
	// +optional
	// +nullable
	CurrentReplicaAddressMap map[string]string `json:"currentReplicaAddressMap"`
	// CurrentSize is the size in bytes the engine reports.
	// +optional
	// +kubebuilder:validation:Type=string
	CurrentSize int64 `json:"currentSize,string"`
	// Endpoint is the path of the device or the URL of the target; empty without a frontend.
	// +optional
	Endpoint string `json:"endpoint"`
	// DeviceID is our addition: it tells the block device from others that were or will be at the same path. It stays when
	// the device goes on in another process.
	// +optional
	DeviceID string `json:"deviceID,omitempty"`
	// DeviceIn is our addition: the instance manager in which the engine has had its block device, which is kept there for
	// the next one if the engine dies. Empty when it is told that none follows.
	// +optional
	DeviceIn string `json:"deviceIn,omitempty"`
	// IsExpanding is true while the engine grows its replicas.
	// +optional
	IsExpanding bool `json:"isExpanding"`
	// LastExpansionError says why the last growth failed.
	// +optional
	LastExpansionError string `json:"lastExpansionError"`
	// LastExpansionFailedAt is when it failed.
	// +optional
	LastExpansionFailedAt string `json:"lastExpansionFailedAt"`
	// FailedUpgradeAttempt is our addition: the newest spec.upgradeAttempt that has failed. The engine before it serves.
	// +optional
	FailedUpgradeAttempt int `json:"failedUpgradeAttempt,omitempty"`
	// LastUpgradeError is our addition: why it failed.
	// +optional
	LastUpgradeError string `json:"lastUpgradeError,omitempty"`
	// LastUpgradeFailedAt is our addition: when it failed.
	// +optional
	LastUpgradeFailedAt string `json:"lastUpgradeFailedAt,omitempty"`
	// LastRestoredBackup is the backup restored last, completely.
	// +optional
	LastRestoredBackup string `json:"lastRestoredBackup"`
	// PurgeStatus is the progress of a purge by replica address.
	// +optional
	// +nullable
	PurgeStatus map[string]PurgeStatus `json:"purgeStatus"`
	// RebuildConcurrentSyncLimit is the limit the engine uses.
	// +optional
	// +kubebuilder:validation:Minimum=0
	RebuildConcurrentSyncLimit int `json:"rebuildConcurrentSyncLimit"`
	// RebuildStatus is the progress of rebuilds by replica address.
	// +optional
	// +nullable
	RebuildStatus map[string]RebuildStatus `json:"rebuildStatus"`
	// ReplicaModeMap is the mode of each replica by name; null until the engine has been asked.
	// +optional
	// +nullable
	ReplicaModeMap map[string]ReplicaMode `json:"replicaModeMap"`
	// ReplicaTransitionTimeMap is when each replica entered its mode.
	// +optional
	ReplicaTransitionTimeMap map[string]string `json:"replicaTransitionTimeMap,omitzero"`
	// RestoreStatus is the progress of a restore by replica address, as tcp://ip:port.
	// +optional
	// +nullable
	RestoreStatus map[string]RestoreStatus `json:"restoreStatus"`
	// SnapshotMaxCount is the limit the engine uses.
	// +optional
	SnapshotMaxCount int `json:"snapshotMaxCount"`
	// SnapshotMaxSize is the limit in bytes the engine uses.
	// +optional
	// +kubebuilder:validation:Type=string
	SnapshotMaxSize int64 `json:"snapshotMaxSize,string"`
	// Snapshots are the layers of the volume by name, volume-head among them.
	// +optional
	// +nullable
	Snapshots map[string]SnapshotInfo `json:"snapshots"`
	// SnapshotsError says why the layers could not be read.
	// +optional
	SnapshotsError string `json:"snapshotsError"`
	// UnmapMarkSnapChainRemovedEnabled is the value the engine uses.
	// +optional
	UnmapMarkSnapChainRemovedEnabled bool `json:"unmapMarkSnapChainRemovedEnabled"`
	// Membership is the witness record of the volume; see Membership.
	// +optional
	Membership *Membership `json:"membership,omitempty"`
}

// EngineBackupStatus is the progress of one backup.
type EngineBackupStatus struct {
	// BackupURL is where the backup lies.
	// +optional
	BackupURL string `json:"backupURL"`
	// Error says what went wrong, empty if nothing did.
	// +optional
	Error string `json:"error"`
	// Progress goes from 0 to 100.
	// +optional
	Progress int `json:"progress"`
	// ReplicaAddress is the replica that uploads.
	// +optional
	ReplicaAddress string `json:"replicaAddress"`
	// SnapshotName is the snapshot backed up.
	// +optional
	SnapshotName string `json:"snapshotName"`
	// State is in_progress, complete or error.
	// +optional
	State string `json:"state"`
}

// SnapshotCloneStatus is the progress of filling one replica with the data of another volume.
type SnapshotCloneStatus struct {
	// Error says what went wrong, empty if nothing did.
	// +optional
	Error string `json:"error"`
	// FromReplicaAddress is the replica copied from.
	// +optional
	FromReplicaAddress string `json:"fromReplicaAddress"`
	// IsCloning is true while the copy runs.
	// +optional
	IsCloning bool `json:"isCloning"`
	// Progress goes from 0 to 100.
	// +optional
	Progress int `json:"progress"`
	// SnapshotName is the snapshot copied from.
	// +optional
	SnapshotName string `json:"snapshotName"`
	// State is in_progress, complete or error.
	// +optional
	State string `json:"state"`
}

// PurgeStatus is the progress of freeing deleted snapshots in one replica.
type PurgeStatus struct {
	// Error says what went wrong; the replica is then failed.
	// +optional
	Error string `json:"error"`
	// IsPurging is true while the purge runs.
	// +optional
	IsPurging bool `json:"isPurging"`
	// Progress goes from 0 to 100.
	// +optional
	Progress int `json:"progress"`
	// State is in_progress, complete or error.
	// +optional
	State string `json:"state"`
}

// RebuildStatus is the progress of rebuilding one replica.
type RebuildStatus struct {
	// AppliedRebuildingMBps is 0.
	// +optional
	AppliedRebuildingMBps int64 `json:"appliedRebuildingMBps"`
	// Error says what went wrong, empty if nothing did.
	// +optional
	Error string `json:"error"`
	// FromReplicaAddress is a replica copied from; new readers take the list.
	// +optional
	FromReplicaAddress string `json:"fromReplicaAddress"`
	// FromReplicaAddressList are the replicas copied from.
	// +optional
	FromReplicaAddressList []string `json:"fromReplicaAddressList,omitzero"`
	// IsRebuilding is true while the rebuild runs.
	// +optional
	IsRebuilding bool `json:"isRebuilding"`
	// Progress goes from 0 to 100.
	// +optional
	Progress int `json:"progress"`
	// State is in_progress, complete or error.
	// +optional
	State string `json:"state"`
}

// RestoreStatus is the progress of restoring a backup into one replica.
type RestoreStatus struct {
	// BackupURL is the backup read from.
	// +optional
	BackupURL string `json:"backupURL"`
	// CurrentRestoringBackup is the backup being restored.
	// +optional
	CurrentRestoringBackup string `json:"currentRestoringBackup"`
	// Damage names the ranges that are zero because the store did not have them, and a person has accepted that.
	// +optional
	Damage string `json:"damage,omitempty"`
	// Error says what went wrong; the replica is then failed.
	// +optional
	Error string `json:"error"`
	// FileName is the file being written.
	// +optional
	FileName string `json:"filename"`
	// IsRestoring is true while the restore runs.
	// +optional
	IsRestoring bool `json:"isRestoring"`
	// LastRestored is the backup restored last.
	// +optional
	LastRestored string `json:"lastRestored"`
	// Progress goes from 0 to 100.
	// +optional
	Progress int `json:"progress"`
	// State is in_progress, complete or error.
	// +optional
	State string `json:"state"`
}

// SnapshotInfo is one layer of a volume as its engine sees it.
type SnapshotInfo struct {
	// Children are the layers directly above.
	// +optional
	// +nullable
	Children map[string]bool `json:"children"`
	// Created is when the layer was closed (RFC 3339).
	// +optional
	Created string `json:"created"`
	// Labels were given by who ordered the snapshot.
	// +optional
	// +nullable
	Labels map[string]string `json:"labels"`
	// Name is the name of the layer.
	// +optional
	Name string `json:"name"`
	// Parent is the layer directly below, empty at the bottom.
	// +optional
	Parent string `json:"parent"`
	// Removed is true if the layer is deleted and waits for its space to be freed.
	// +optional
	Removed bool `json:"removed"`
	// Size is how many bytes the layer takes, as a decimal number.
	// +optional
	Size string `json:"size"`
	// UserCreated is false for layers the system made for itself.
	// +optional
	UserCreated bool `json:"usercreated"`
}

// Engine is the process that serves the I/O of a volume and mirrors it to the replicas. It runs on the node
// the volume is attached to.
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

// SizeBytes is the size of the volume as far as it is known: what the engine has reported, or what
// it was made with if it never has.
func (e *Engine) SizeBytes() int64 {
	if e.Status.CurrentSize != 0 {
		return e.Status.CurrentSize
	}
	return e.Spec.VolumeSize
}

// Purging says whether a purge of snapshots runs.
func (e *Engine) Purging() bool {
	for _, p := range e.Status.PurgeStatus {
		if p.IsPurging {
			return true
		}
	}
	return false
}

// Busy says whether a purge or a clone runs, of which a node does some at a time only.
func (e *Engine) Busy() bool {
	for _, c := range e.Status.CloneStatus {
		if c.IsCloning {
			return true
		}
	}
	return e.Purging()
}

// Crowded says whether so many other engines of all on this one's node are busy as limit allows; 0
// allows any number. Without an engine nothing is crowded.
func (e *Engine) Crowded(all []Engine, limit int) bool {
	if e == nil || limit == 0 {
		return false
	}
	busy := 0
	for i := range all {
		if o := &all[i]; o.Spec.NodeID == e.Spec.NodeID && o.Name != e.Name && o.Busy() {
			busy++
		}
	}
	return busy >= limit
}
