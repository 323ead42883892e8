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
	// BackupTargetURL is where the store is: s3, nfs, cifs or azblob. Empty turns it off.
	// +optional
	BackupTargetURL string `json:"backupTargetURL"`
	// CredentialSecret is the name of the Secret with the credentials.
	// +optional
	CredentialSecret string `json:"credentialSecret"`
	// PollInterval is the time between two comparisons, for example 300s; 0 stops them.
	// +optional
	PollInterval string `json:"pollInterval"`
	// SyncRequestedAt asks for a comparison with the store.
	// +optional
	// +nullable
	SyncRequestedAt metav1.Time `json:"syncRequestedAt"`
}

// BackupTargetStatus is what was observed of a BackupTarget.
type BackupTargetStatus struct {
	// Available is true if the store could be reached.
	// +optional
	Available bool `json:"available"`
	// Conditions are the observations about the object.
	// +optional
	// +nullable
	Conditions []Condition `json:"conditions"`
	// LastSyncedAt is when the object was last compared with the store.
	// +optional
	// +nullable
	LastSyncedAt metav1.Time `json:"lastSyncedAt"`
	// OwnerID is the node whose manager looks after the object.
	// +optional
	OwnerID string `json:"ownerID"`
}

// BackupTarget is a backup store: where it is and how to get in.
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
