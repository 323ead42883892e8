package v1beta2

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// SnapshotSpec is what is wanted of a Snapshot.
type SnapshotSpec struct {
	// CreateSnapshot is true to take a snapshot, false if the object was made for one the engine has.
	// +optional
	CreateSnapshot bool `json:"createSnapshot"`
	// Labels are given to the engine.
	// +optional
	// +nullable
	Labels map[string]string `json:"labels"`
	// Volume is the volume. It cannot be changed.
	// +required
	Volume string `json:"volume"`
}

// SnapshotStatus is what was observed of a Snapshot.
type SnapshotStatus struct {
	// Blocked says that the snapshot is ordered and cannot be taken until something else changes; error
	// says what.
	// +optional
	Blocked bool `json:"blocked,omitempty"`
	// Checksum is the checksum of the layer.
	// +optional
	Checksum string `json:"checksum"`
	// ChecksumCalculatedAt is when it was computed (RFC 3339).
	// +optional
	ChecksumCalculatedAt string `json:"checksumCalculatedAt"`
	// Children are the layers directly above.
	// +optional
	// +nullable
	Children map[string]bool `json:"children"`
	// CreationTime is when the snapshot was taken.
	// +optional
	CreationTime string `json:"creationTime"`
	// Error says what went wrong, empty if nothing did.
	// +optional
	Error string `json:"error"`
	// Labels are the labels the engine has.
	// +optional
	// +nullable
	Labels map[string]string `json:"labels"`
	// MarkRemoved is true if the layer is deleted and waits for its space to be freed.
	// +optional
	MarkRemoved bool `json:"markRemoved"`
	// OwnerID is the node whose manager looks after the object.
	// +optional
	OwnerID string `json:"ownerID"`
	// Parent is the layer directly below.
	// +optional
	Parent string `json:"parent"`
	// ReadyToUse is true while the snapshot exists and is not being deleted.
	// +optional
	ReadyToUse bool `json:"readyToUse"`
	// RequestedTime is when the engine was asked to take it.
	// +optional
	RequestedTime string `json:"requestedTime"`
	// RestoreSize is the size in bytes of a volume made from the snapshot.
	// +optional
	RestoreSize int64 `json:"restoreSize"`
	// Size is how many bytes the layer takes.
	// +optional
	Size int64 `json:"size"`
	// UserCreated is false for snapshots the system made for itself.
	// +optional
	UserCreated bool `json:"userCreated"`
}

// Snapshot is a state of a volume's data at one moment, kept as a layer below the newer writes.
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
