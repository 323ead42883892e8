package v1beta2

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// RecurringJobTask is what a recurring job does to each of its volumes.
type RecurringJobTask string

const (
	RecurringJobTaskSnapshot            RecurringJobTask = "snapshot"
	RecurringJobTaskSnapshotForceCreate RecurringJobTask = "snapshot-force-create"
	RecurringJobTaskSnapshotCleanup     RecurringJobTask = "snapshot-cleanup"
	RecurringJobTaskSnapshotDelete      RecurringJobTask = "snapshot-delete"
	RecurringJobTaskBackup              RecurringJobTask = "backup"
	RecurringJobTaskBackupForceCreate   RecurringJobTask = "backup-force-create"
	RecurringJobTaskFilesystemTrim      RecurringJobTask = "filesystem-trim"
	RecurringJobTaskSystemBackup        RecurringJobTask = "system-backup"
)

// RetentionPolicy says whether old results are counted or aged out.
type RetentionPolicy string

const (
	RetentionPolicyCountBased RetentionPolicy = "count-based"
	RetentionPolicyAgeBased   RetentionPolicy = "age-based"
)

// Keys of spec.parameters.
const (
	RecurringJobParameterFullBackupInterval = "full-backup-interval"
	RecurringJobParameterVolumeBackupPolicy = "volume-backup-policy"
)

// Condition type and reasons of a RecurringJob.
const (
	// RecurringJobConditionReady is True while the job is run on its schedule.
	RecurringJobConditionReady = "Ready"
	// RecurringJobReasonSystemBackupsMissing: the task makes system backups, which are not there yet.
	RecurringJobReasonSystemBackupsMissing = "SystemBackupsNotAvailable"
	// RecurringJobReasonNameTaken: a CronJob of the name belongs to somebody else.
	RecurringJobReasonNameTaken = "CronJobNameTaken"
)

// MakesBackups says whether a task backs up volumes.
func (t RecurringJobTask) MakesBackups() bool {
	return t == RecurringJobTaskBackup || t == RecurringJobTaskBackupForceCreate
}

// RecurringJobGroupDefault is the group of all volumes without a job or group label.
const RecurringJobGroupDefault = "default"

// RecurringJobSpec is what is wanted of a RecurringJob.
type RecurringJobSpec struct {
	// Concurrency is how many volumes are worked on at the same time.
	// +optional
	Concurrency int `json:"concurrency"`
	// Cron is the schedule, a cron line of five fields.
	// +optional
	Cron string `json:"cron"`
	// Groups are the groups the job belongs to; default is that of all volumes without a label.
	// +optional
	Groups []string `json:"groups,omitzero"`
	// Labels are put on the snapshots and backups made.
	// +optional
	Labels map[string]string `json:"labels,omitzero"`
	// Name is the name of the object again.
	// +optional
	Name string `json:"name"`
	// Parameters depend on the task.
	// +optional
	Parameters map[string]string `json:"parameters,omitzero"`
	// Retain is how many results are kept, if they are counted.
	// +optional
	Retain int `json:"retain"`
	// RetainAge is how long results are kept, if they age out, for example 72h.
	// +optional
	// +kubebuilder:validation:XValidation:rule="!self.startsWith('-')",message="retainAge must not be negative"
	RetainAge string `json:"retainAge"`
	// RetentionPolicy says whether old results are counted or aged out.
	// +optional
	// +kubebuilder:default=count-based
	// +kubebuilder:validation:Enum=count-based;age-based
	RetentionPolicy RetentionPolicy `json:"retentionPolicy,omitempty"`
	// Task is what is done.
	// +optional
	// +kubebuilder:validation:Enum=snapshot;snapshot-force-create;snapshot-cleanup;snapshot-delete;backup;backup-force-create;filesystem-trim;system-backup
	Task RecurringJobTask `json:"task,omitempty"`
}

// RecurringJobStatus is what was observed of a RecurringJob.
type RecurringJobStatus struct {
	// Conditions are the observations about the object.
	// +optional
	// +nullable
	Conditions []Condition `json:"conditions"`
	// ExecutionCount is how often the job has run.
	// +optional
	ExecutionCount int `json:"executionCount"`
	// OwnerID is the node whose manager looks after the object.
	// +optional
	OwnerID string `json:"ownerID"`
}

// RecurringJob is work done on a schedule for all volumes that carry its label or that of one of its groups.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:storageversion
// +kubebuilder:resource:path=recurringjobs,singular=recurringjob,shortName=lhrj,scope=Namespaced
// +kubebuilder:metadata:labels="longhorn-manager="
// +kubebuilder:printcolumn:name="Groups",type=string,JSONPath=`.spec.groups`
// +kubebuilder:printcolumn:name="Task",type=string,JSONPath=`.spec.task`
// +kubebuilder:printcolumn:name="Cron",type=string,JSONPath=`.spec.cron`
// +kubebuilder:printcolumn:name="Retain",type=integer,JSONPath=`.spec.retain`
// +kubebuilder:printcolumn:name="Concurrency",type=integer,JSONPath=`.spec.concurrency`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Labels",type=string,JSONPath=`.spec.labels`
type RecurringJob struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   RecurringJobSpec   `json:"spec,omitempty"`
	Status RecurringJobStatus `json:"status,omitempty"`
}

// RecurringJobList is a list of RecurringJob objects.
//
// +kubebuilder:object:root=true
type RecurringJobList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []RecurringJob `json:"items"`
}
