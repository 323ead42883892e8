package v1beta2

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// SnapshotSpec is what is wanted of a Snapshot.
type SnapshotSpec struct {
	// +optional
	CreateSnapshot bool `json:"createSnapshot"`
	// +optional
	// +nullable
	Labels map[string]string `json:"labels"`
	// +required
	Volume string `json:"volume"`
}

// SnapshotStatus is what was observed of a Snapshot.
type SnapshotStatus struct {
	// +optional
	Checksum string `json:"checksum"`
	// +optional
	ChecksumCalculatedAt string `json:"checksumCalculatedAt"`
	// +optional
	// +nullable
	Children map[string]bool `json:"children"`
	// +optional
	CreationTime string `json:"creationTime"`
	// +optional
	Error string `json:"error"`
	// +optional
	// +nullable
	Labels map[string]string `json:"labels"`
	// +optional
	MarkRemoved bool `json:"markRemoved"`
	// +optional
	OwnerID string `json:"ownerID"`
	// +optional
	Parent string `json:"parent"`
	// +optional
	ReadyToUse bool `json:"readyToUse"`
	// +optional
	RequestedTime string `json:"requestedTime"`
	// +optional
	RestoreSize int64 `json:"restoreSize"`
	// +optional
	Size int64 `json:"size"`
	// +optional
	UserCreated bool `json:"userCreated"`
}

// Snapshot is one of the stored kinds.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:storageversion
// +kubebuilder:resource:path=snapshots,singular=snapshot,shortName=lhsnap,scope=Namespaced
// +kubebuilder:metadata:labels="longhorn-manager="
// +kubebuilder:printcolumn:name="Volume",type=string,JSONPath=`.spec.volume`
// +kubebuilder:printcolumn:name="CreationTime",type=string,JSONPath=`.status.creationTime`
// +kubebuilder:printcolumn:name="ReadyToUse",type=boolean,JSONPath=`.status.readyToUse`
// +kubebuilder:printcolumn:name="RestoreSize",type=string,JSONPath=`.status.restoreSize`
// +kubebuilder:printcolumn:name="Size",type=string,JSONPath=`.status.size`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Snapshot struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   SnapshotSpec   `json:"spec,omitempty"`
	Status SnapshotStatus `json:"status,omitempty"`
}

// SnapshotList is a list of Snapshot objects.
//
// +kubebuilder:object:root=true
type SnapshotList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Snapshot `json:"items"`
}
