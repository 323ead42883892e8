package resource

import "encoding/json"

// Volume is a volume with everything a client reads about it: wishes, state, engines, replicas and
// attachment.
type Volume struct {
	Resource
	VolumeSpec
	DisableFrontend bool   `json:"disableFrontend"`
	State           string `json:"state"`
	Robustness      string `json:"robustness"`
	Image           string `json:"image"`
	CurrentImage    string `json:"currentImage"`
	// Created has the form "2006-01-02 15:04:05 +0000 UTC".
	Created           string `json:"created"`
	LastBackup        string `json:"lastBackup"`
	LastBackupAt      string `json:"lastBackupAt"`
	LastAttachedBy    string `json:"lastAttachedBy"`
	RestoreRequired   bool   `json:"restoreRequired"`
	RestoreInitiated  bool   `json:"restoreInitiated"`
	UblkQueueDepth    int    `json:"ublkQueueDepth"`
	UblkNumberOfQueue int    `json:"ublkNumberOfQueue"`
	NvmeTCPNrIoQueues int    `json:"nvmeTcpNrIoQueues"`
	// ResourceVersion is the Volume object's. A deletion that names it deletes the volume as it was
	// shown, and no later one. It is our addition, and in answers about one volume only.
	ResourceVersion string `json:"resourceVersion,omitempty" schema:"-"`
	// ExpansionRequired is the field of that name of the Volume object, of the sizes that are shown
	// here: an engine that has not run yet (size 0 of its controller) is to grow first, and one may
	// grow yet whose volume's wish was taken back. It is our addition, and in answers about one volume
	// only.
	ExpansionRequired bool `json:"expansionRequired,omitempty" schema:"-"`

	DataLayout       VolumeDataLayout     `json:"dataLayout" api:"create" schema:"VolumeDataLayout"`
	Conditions       map[string]Condition `json:"conditions" schema:"map[volumeCondition]"`
	KubernetesStatus KubernetesStatus     `json:"kubernetesStatus"`
	CloneStatus      CloneStatus          `json:"cloneStatus"`
	// Ready says whether a workload may use the volume now; NotReadyMessage says why not.
	Ready           bool   `json:"ready"`
	NotReadyMessage string `json:"notReadyMessage"`
	// WaitsFor says what it waits for and what is wrong with it, and with which command to go on.
	WaitsFor      []string `json:"waitsFor"`
	ShareEndpoint string   `json:"shareEndpoint"`
	ShareState    string   `json:"shareState"`

	Replicas      []Replica       `json:"replicas"`
	Controllers   []Controller    `json:"controllers" api:"nullable"`
	BackupStatus  []BackupStatus  `json:"backupStatus"`
	RestoreStatus []RestoreStatus `json:"restoreStatus"`
	// PurgeStatus is null when nothing was purged; the other lists are never null.
	PurgeStatus      []PurgeStatus    `json:"purgeStatus"`
	RebuildStatus    []RebuildStatus  `json:"rebuildStatus"`
	VolumeAttachment VolumeAttachment `json:"volumeAttachment"`
}

// VolumeDataLayout describes erasure coding, which the v1 data engine does not have: always the
// zero value.
type VolumeDataLayout struct {
	LayoutType string `json:"type" schema:"string"`
	Mode       string `json:"mode"`
}

// TopologyTerm limits replicas to a failure domain; an empty part matches any.
type TopologyTerm struct {
	Zone   string `json:"zone"`
	Region string `json:"region"`
}

// VolumeRecurringJob names a job or a group of jobs that a volume follows.
type VolumeRecurringJob struct {
	Resource
	Name    string `json:"name"`
	IsGroup bool   `json:"isGroup"`
}

// MarshalJSON leaves the envelope out where the object is nested in a volume.
func (j VolumeRecurringJob) MarshalJSON() ([]byte, error) {
	type bare struct {
		Name    string `json:"name"`
		IsGroup bool   `json:"isGroup"`
	}
	if j.Type == "" {
		return json.Marshal(bare{j.Name, j.IsGroup})
	}
	type full VolumeRecurringJob
	return json.Marshal(full(j))
}

// Replica is one copy of a volume.
type Replica struct {
	Name                string `json:"name"`
	HostID              string `json:"hostId"`
	Address             string `json:"address"`
	Running             bool   `json:"running"`
	Image               string `json:"image"`
	CurrentImage        string `json:"currentImage"`
	InstanceManagerName string `json:"instanceManagerName"`
	DiskID              string `json:"diskID"`
	DiskPath            string `json:"diskPath"`
	DataPath            string `json:"dataPath"`
	// Mode is RW, WO (being rebuilt), ERR, or empty when the engine does not know the replica.
	Mode       string `json:"mode"`
	FailedAt   string `json:"failedAt"`
	DataEngine string `json:"dataEngine"`
}

// Controller is a volume's engine; there are two while it migrates.
type Controller struct {
	Name                string `json:"name"`
	HostID              string `json:"hostId"`
	Address             string `json:"address"`
	Running             bool   `json:"running"`
	Image               string `json:"image"`
	CurrentImage        string `json:"currentImage"`
	InstanceManagerName string `json:"instanceManagerName"`
	Size                string `json:"size"`
	ActualSize          string `json:"actualSize"`
	// Endpoint is where the volume can be used on the engine's node: a device path or a URL.
	Endpoint                         string `json:"endpoint"`
	LastRestoredBackup               string `json:"lastRestoredBackup"`
	RequestedBackupRestore           string `json:"requestedBackupRestore"`
	IsExpanding                      bool   `json:"isExpanding"`
	LastExpansionError               string `json:"lastExpansionError"`
	LastExpansionFailedAt            string `json:"lastExpansionFailedAt"`
	UnmapMarkSnapChainRemovedEnabled bool   `json:"unmapMarkSnapChainRemovedEnabled"`
}

// BackupStatus is the progress of one backup of a volume; its ID is the backup's name.
type BackupStatus struct {
	ID        string            `json:"id"`
	Links     map[string]string `json:"links" schema:"-"`
	Actions   map[string]string `json:"actions" schema:"-"`
	Snapshot  string            `json:"snapshot"`
	Progress  int               `json:"progress"`
	BackupURL string            `json:"backupURL"`
	Error     string            `json:"error"`
	State     string            `json:"state"`
	Replica   string            `json:"replica"`
	Size      string            `json:"size"`
}

// RestoreStatus is the progress of restoring one replica.
type RestoreStatus struct {
	Resource
	Replica      string `json:"replica"`
	IsRestoring  bool   `json:"isRestoring"`
	LastRestored string `json:"lastRestored"`
	Progress     int    `json:"progress"`
	Error        string `json:"error"`
	Filename     string `json:"filename"`
	State        string `json:"state"`
	BackupURL    string `json:"backupURL"`
}

// PurgeStatus is the progress of merging removed snapshots in one replica.
type PurgeStatus struct {
	Resource
	Error     string `json:"error"`
	IsPurging bool   `json:"isPurging"`
	Progress  int    `json:"progress"`
	Replica   string `json:"replica"`
	State     string `json:"state"`
}

// RebuildStatus is the progress of rebuilding one replica, 0 to 100.
type RebuildStatus struct {
	Resource
	Error           string   `json:"error"`
	IsRebuilding    bool     `json:"isRebuilding"`
	Progress        int      `json:"progress"`
	Replica         string   `json:"replica"`
	State           string   `json:"state"`
	FromReplicaList []string `json:"fromReplicaList"`
}

// KubernetesStatus names the objects of Kubernetes that use a volume.
type KubernetesStatus struct {
	PVName          string           `json:"pvName"`
	PVStatus        string           `json:"pvStatus"`
	Namespace       string           `json:"namespace"`
	PVCName         string           `json:"pvcName"`
	LastPVCRefAt    string           `json:"lastPVCRefAt"`
	WorkloadsStatus []WorkloadStatus `json:"workloadsStatus"`
	LastPodRefAt    string           `json:"lastPodRefAt"`
}

// WorkloadStatus is one Pod that uses a volume.
type WorkloadStatus struct {
	PodName      string `json:"podName"`
	PodStatus    string `json:"podStatus"`
	WorkloadName string `json:"workloadName"`
	WorkloadType string `json:"workloadType"`
}

// CloneStatus is the progress of filling a volume from another one.
type CloneStatus struct {
	SourceVolume         string `json:"sourceVolume"`
	Snapshot             string `json:"snapshot"`
	State                string `json:"state"`
	AttemptCount         int    `json:"attemptCount"`
	NextAllowedAttemptAt string `json:"nextAllowedAttemptAt"`
	// Progress of the copy, 0 to 100. It is our addition.
	Progress int `json:"progress"`
}

// VolumeAttachment lists who wants a volume where, nested in the volume or as a resource of its
// own.
type VolumeAttachment struct {
	Resource
	// Attachments maps a ticket's id to the ticket; never null.
	Attachments map[string]Attachment `json:"attachments"`
	Volume      string                `json:"volume"`
	// Withdrawals counts the calls of detach that have withdrawn a ticket, and those that named one
	// which was not there. It is our addition, in volumes only.
	Withdrawals int64 `json:"withdrawals,omitempty" schema:"-"`
}

// Attachment is one ticket.
type Attachment struct {
	AttachmentID   string            `json:"attachmentID"`
	AttachmentType string            `json:"attachmentType"`
	NodeID         string            `json:"nodeID"`
	Parameters     map[string]string `json:"parameters"`
	Satisfied      bool              `json:"satisfied"`
	// Generation tells tickets of one id from each other: a ticket that is withdrawn and filed again
	// has a greater one. It is our addition.
	Generation int64       `json:"generation" schema:"-"`
	Conditions []Condition `json:"conditions" schema:"array[longhornCondition]"`
}

// Condition is an observation with a reason.
type Condition struct {
	ConditionType      string `json:"type" schema:"string"`
	Status             string `json:"status"`
	LastProbeTime      string `json:"lastProbeTime"`
	LastTransitionTime string `json:"lastTransitionTime"`
	Reason             string `json:"reason"`
	Message            string `json:"message"`
}
