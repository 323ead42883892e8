package v1beta2

// DataEngineType names the generation of the data path. There is one.
type DataEngineType string

// DataEngineTypeV1 is the only data engine.
const DataEngineTypeV1 DataEngineType = "v1"

// Override is a per-volume answer to a question that a setting answers for all: "ignored" leaves it to the setting.
type Override string

const (
	OverrideIgnored  Override = "ignored"
	OverrideEnabled  Override = "enabled"
	OverrideDisabled Override = "disabled"
)

// Or is what the override says, or else the setting.
func (o Override) Or(setting bool) bool {
	switch o {
	case OverrideEnabled:
		return true
	case OverrideDisabled:
		return false
	}
	return setting
}

// InstanceState is the state of the process of an engine or a replica. Wanted states are running and stopped only.
type InstanceState string

const (
	InstanceStateRunning  InstanceState = "running"
	InstanceStateStopped  InstanceState = "stopped"
	InstanceStateError    InstanceState = "error"
	InstanceStateStarting InstanceState = "starting"
	InstanceStateStopping InstanceState = "stopping"
	InstanceStateUnknown  InstanceState = "unknown"
)

// InstanceType tells the two kinds of processes apart.
type InstanceType string

const (
	InstanceTypeEngine  InstanceType = "engine"
	InstanceTypeReplica InstanceType = "replica"
)

// InstanceSpec is the part of the spec that Engine and Replica share: which process is wanted, where, from which image.
type InstanceSpec struct {
	LegacyInstanceSpec `json:",inline"`

	// VolumeName is the volume the instance belongs to.
	// +optional
	VolumeName string `json:"volumeName"`
	// VolumeSize is the size of the volume in bytes. Raising it makes the engine expand.
	// +optional
	// +kubebuilder:validation:Type=string
	VolumeSize int64 `json:"volumeSize,string"`
	// NodeID is the node to run on; a replica without one is not scheduled yet.
	// +optional
	NodeID string `json:"nodeID"`
	// Image is the engine image wanted. Differing from status.currentImage it asks for a live upgrade.
	// +optional
	Image string `json:"image"`
	// DesireState is running or stopped.
	// +optional
	DesireState InstanceState `json:"desireState"`
	// LogRequested asks for the log of the process, once.
	// +optional
	LogRequested bool `json:"logRequested"`
	// SalvageRequested asks an engine to start from replicas marked as failed.
	// +optional
	SalvageRequested bool `json:"salvageRequested"`
	// RevisionCounterDisabled is copied from the volume.
	// +optional
	RevisionCounterDisabled bool `json:"revisionCounterDisabled"`
	// SnapshotMaxCount is copied from the volume.
	// +optional
	SnapshotMaxCount int `json:"snapshotMaxCount"`
	// SnapshotMaxSize in bytes is copied from the volume; 0 sets no limit.
	// +optional
	// +kubebuilder:validation:Type=string
	SnapshotMaxSize int64 `json:"snapshotMaxSize,string"`
	// DataEngine is v1.
	// +optional
	// +kubebuilder:validation:Enum=v1
	DataEngine DataEngineType `json:"dataEngine,omitempty"`
	// StorageNetwork is our addition: the storage network that the process has to be on, as the setting had it when the
	// process was ordered; empty for the cluster's network.
	// +optional
	StorageNetwork string `json:"storageNetwork,omitempty"`
}

// InstanceStatus is the part of the status that Engine and Replica share. Outside of state running the addresses, the
// port and the image are empty.
type InstanceStatus struct {
	// OwnerID is the node whose manager looks after the object.
	// +optional
	OwnerID string `json:"ownerID"`
	// InstanceManagerName is the instance manager that holds the process; it is cleared once the process is stopped.
	// +optional
	InstanceManagerName string `json:"instanceManagerName"`
	// CurrentState is the state of the process.
	// +optional
	CurrentState InstanceState `json:"currentState"`
	// CurrentImage is the engine image the process runs.
	// +optional
	CurrentImage string `json:"currentImage"`
	// IP is the address of the instance manager's Pod.
	// +optional
	IP string `json:"ip"`
	// StorageIP is the address for data: that on the storage network, or else IP.
	// +optional
	StorageIP string `json:"storageIP"`
	// Port is the first port of the process.
	// +optional
	Port int `json:"port"`
	// UUID is the identity the instance manager gave to this run of the process.
	// +optional
	UUID string `json:"uuid"`
	// Order is our addition: the last order of a process for this object, "<UID of the object>/<number>". It is in force
	// while the process is starting or started; a process of the object's name that was made for another one is not the
	// object's.
	// +optional
	Order string `json:"order,omitempty"`
	// Started is true once the process was seen running while it is wanted.
	// +optional
	Started bool `json:"started"`
	// Starting is true between the order to create the process and seeing it run.
	// +optional
	Starting bool `json:"starting"`
	// LogFetched is true when the log asked for has been read.
	// +optional
	LogFetched bool `json:"logFetched"`
	// SalvageExecuted is true when the start for a salvage has been ordered.
	// +optional
	SalvageExecuted bool `json:"salvageExecuted"`
	// Conditions are the observations about the process.
	// +optional
	// +nullable
	Conditions []Condition `json:"conditions"`
}

// Off tells whether an instance that is not wanted has no process: one that was ordered and never
// seen may be there.
func (s *InstanceStatus) Off() bool {
	return (s.CurrentState == InstanceStateStopped || s.CurrentState == "") && !s.Starting
}
