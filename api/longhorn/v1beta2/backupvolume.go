package v1beta2

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// BackupVolumeSpec is what is wanted of a BackupVolume.
type BackupVolumeSpec struct {
	// BackupTargetName is the store.
	// +optional
	// +nullable
	BackupTargetName string `json:"backupTargetName"`
	// SyncRequestedAt asks for a comparison with the store.
	// +optional
	// +nullable
	SyncRequestedAt metav1.Time `json:"syncRequestedAt"`
	// VerifyBandwidthLimit is the most that verifications read, in MiB per second; 0: as setting
	// backup-verify-bandwidth-limit says.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1048576
	VerifyBandwidthLimit int64 `json:"verifyBandwidthLimit,omitempty"`
	// VerifyRequestedAt asks for a verification of all that the store has of the volume.
	// +optional
	// +nullable
	VerifyRequestedAt metav1.Time `json:"verifyRequestedAt,omitzero"`
	// VolumeName is the name of the volume in the store.
	// +optional
	VolumeName string `json:"volumeName"`
}

// BackupVerification is how far the latest verification is, and what it has found.
type BackupVerification struct {
	// RequestedAt is the request that it answers; zero if nobody has asked.
	// +optional
	// +nullable
	RequestedAt metav1.Time `json:"requestedAt"`
	// StartedAt is when it began, EndedAt when it was over; zero while it is under way.
	// +optional
	// +nullable
	StartedAt metav1.Time `json:"startedAt"`
	// +optional
	// +nullable
	EndedAt metav1.Time `json:"endedAt"`
	// Progress goes from 0 to 100.
	// +optional
	Progress int `json:"progress"`
	// Next is the block behind which it goes on; empty: it is at the beginning or at the end.
	// +optional
	Next string `json:"next"`
	// Blocks is how many blocks were read, ReadBytes how many bytes these are in the store.
	// +optional
	Blocks int64 `json:"blocks"`
	// +optional
	ReadBytes int64 `json:"readBytes"`
	// Backups are the complete backups that were there when it began, and those with faults.
	// +optional
	Backups []VerifiedBackup `json:"backups,omitempty"`
	// Faults are the first of FaultCount.
	// +optional
	Faults []BackupFault `json:"faults,omitempty"`
	// +optional
	FaultCount int64 `json:"faultCount"`
	// Error is why it does not go on, or has ended before its time; empty if nothing is wrong with it.
	// +optional
	Error string `json:"error"`
}

// VerifiedBackup is a backup that was verified.
type VerifiedBackup struct {
	// Name of the backup.
	// +optional
	Name string `json:"name"`
	// Faults is how many of its blocks and records are damaged or missing.
	// +optional
	Faults int64 `json:"faults"`
}

// BackupFault is something that is wrong in a store.
type BackupFault struct {
	// Kind is missing, damaged or record.
	// +optional
	Kind string `json:"kind"`
	// Object is the name in the store.
	// +optional
	Object string `json:"object"`
	// Message says what was found.
	// +optional
	Message string `json:"message"`
	// Backups are the first of BackupCount that cannot be restored whole because of it.
	// +optional
	Backups []string `json:"backups,omitempty"`
	// +optional
	BackupCount int64 `json:"backupCount"`
}

// BackupVolumeStatus is what was observed of a BackupVolume.
type BackupVolumeStatus struct {
	// BackingImageChecksum is the checksum of the backing image of the volume.
	// +optional
	BackingImageChecksum string `json:"backingImageChecksum"`
	// BackingImageName is the backing image of the volume.
	// +optional
	BackingImageName string `json:"backingImageName"`
	// CreatedAt is when the first backup was made.
	// +optional
	CreatedAt string `json:"createdAt"`
	// DataStored is how many bytes the store holds of the volume.
	// +optional
	DataStored string `json:"dataStored"`
	// Labels are the labels found in the store.
	// +optional
	// +nullable
	Labels map[string]string `json:"labels"`
	// LastBackupAt is when the newest backup was made.
	// +optional
	LastBackupAt string `json:"lastBackupAt"`
	// LastBackupName is the newest backup.
	// +optional
	LastBackupName string `json:"lastBackupName"`
	// LastModificationTime is when the entry in the store was last changed.
	// +optional
	// +nullable
	LastModificationTime metav1.Time `json:"lastModificationTime"`
	// LastSyncedAt is when the object was last compared with the store.
	// +optional
	// +nullable
	LastSyncedAt metav1.Time `json:"lastSyncedAt"`
	// Messages are texts under the keys info and error.
	// +optional
	// +nullable
	Messages map[string]string `json:"messages"`
	// OwnerID is the node whose manager looks after the object.
	// +optional
	OwnerID string `json:"ownerID"`
	// Size is the size of the volume in bytes, as a decimal number.
	// +optional
	Size string `json:"size"`
	// StorageClassName is the StorageClass the volume had.
	// +optional
	StorageClassName string `json:"storageClassName"`
	// Verification is the latest one; absent: there was none.
	// +optional
	Verification *BackupVerification `json:"verification,omitempty"`
}

// Ended says whether the verification is over.
func (v *BackupVerification) Ended() bool { return !v.EndedAt.IsZero() }

// BackupVolume stands for all backups of one volume in a backup store.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:storageversion
// +kubebuilder:resource:path=backupvolumes,singular=backupvolume,shortName=lhbv,scope=Namespaced
// +kubebuilder:metadata:labels="longhorn-manager="
// +kubebuilder:printcolumn:name="CreatedAt",type=string,JSONPath=`.status.createdAt`
// +kubebuilder:printcolumn:name="LastBackupName",type=string,JSONPath=`.status.lastBackupName`
// +kubebuilder:printcolumn:name="LastBackupAt",type=string,JSONPath=`.status.lastBackupAt`
// +kubebuilder:printcolumn:name="LastSyncedAt",type=string,JSONPath=`.status.lastSyncedAt`
type BackupVolume struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   BackupVolumeSpec   `json:"spec,omitempty"`
	Status BackupVolumeStatus `json:"status,omitempty"`
}

// BackupVolumeList is a list of BackupVolume objects.
//
// +kubebuilder:object:root=true
type BackupVolumeList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []BackupVolume `json:"items"`
}
