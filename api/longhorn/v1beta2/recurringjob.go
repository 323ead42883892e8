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

// RecurringJobGroupDefault is the group of all volumes without a job or group label.
const RecurringJobGroupDefault = "default"

// RecurringJobSpec is what is wanted of a RecurringJob.
type RecurringJobSpec struct {
	// +optional
	Concurrency int `json:"concurrency"`
	// +optional
	Cron string `json:"cron"`
	// +optional
	Groups []string `json:"groups,omitzero"`
	// +optional
	Labels map[string]string `json:"labels,omitzero"`
	// +optional
	Name string `json:"name"`
	// +optional
	Parameters map[string]string `json:"parameters,omitzero"`
	// +optional
	Retain int `json:"retain"`
	// +optional
	// +kubebuilder:validation:XValidation:rule="!self.startsWith('-')",message="retainAge must not be negative"
	RetainAge string `json:"retainAge"`
	// +optional
	// +kubebuilder:default=count-based
	// +kubebuilder:validation:Enum=count-based;age-based
	RetentionPolicy RetentionPolicy `json:"retentionPolicy,omitempty"`
	// +optional
	// +kubebuilder:validation:Enum=snapshot;snapshot-force-create;snapshot-cleanup;snapshot-delete;backup;backup-force-create;filesystem-trim;system-backup
	Task RecurringJobTask `json:"task,omitempty"`
}

// RecurringJobStatus is what was observed of a RecurringJob.
type RecurringJobStatus struct {
	// +optional
	ExecutionCount int `json:"executionCount"`
	// +optional
	OwnerID string `json:"ownerID"`
}

// RecurringJob is one of the stored kinds.
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
