package v1beta2

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// DefaultBackupTargetName is the name of the target that exists in every cluster.
const DefaultBackupTargetName = "default"

// Condition type and reason of a BackupTarget. The condition is True when the store cannot be used.
const (
	BackupTargetConditionUnavailable = "Unavailable"
	BackupTargetReasonUnavailable    = "Unavailable"
)

// BackupTargetSpec is what is wanted of a BackupTarget.
type BackupTargetSpec struct {
	// +optional
	BackupTargetURL string `json:"backupTargetURL"`
	// +optional
	CredentialSecret string `json:"credentialSecret"`
	// +optional
	PollInterval string `json:"pollInterval"`
	// +optional
	// +nullable
	SyncRequestedAt metav1.Time `json:"syncRequestedAt"`
}

// BackupTargetStatus is what was observed of a BackupTarget.
type BackupTargetStatus struct {
	// +optional
	Available bool `json:"available"`
	// +optional
	// +nullable
	Conditions []Condition `json:"conditions"`
	// +optional
	// +nullable
	LastSyncedAt metav1.Time `json:"lastSyncedAt"`
	// +optional
	OwnerID string `json:"ownerID"`
}

// BackupTarget is one of the stored kinds.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:storageversion
// +kubebuilder:resource:path=backuptargets,singular=backuptarget,shortName=lhbt,scope=Namespaced
// +kubebuilder:metadata:labels="longhorn-manager="
// +kubebuilder:printcolumn:name="URL",type=string,JSONPath=`.spec.backupTargetURL`
// +kubebuilder:printcolumn:name="Credential",type=string,JSONPath=`.spec.credentialSecret`
// +kubebuilder:printcolumn:name="LastBackupAt",type=string,JSONPath=`.spec.pollInterval`
// +kubebuilder:printcolumn:name="Available",type=boolean,JSONPath=`.status.available`
// +kubebuilder:printcolumn:name="LastSyncedAt",type=string,JSONPath=`.status.lastSyncedAt`
type BackupTarget struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   BackupTargetSpec   `json:"spec,omitempty"`
	Status BackupTargetStatus `json:"status,omitempty"`
}

// BackupTargetList is a list of BackupTarget objects.
//
// +kubebuilder:object:root=true
type BackupTargetList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []BackupTarget `json:"items"`
}
