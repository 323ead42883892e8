package v1beta2

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// BackingImageSourceType says how the first copy of a backing image comes into being.
type BackingImageSourceType string

const (
	BackingImageSourceTypeDownload         BackingImageSourceType = "download"
	BackingImageSourceTypeUpload           BackingImageSourceType = "upload"
	BackingImageSourceTypeExportFromVolume BackingImageSourceType = "export-from-volume"
	BackingImageSourceTypeRestore          BackingImageSourceType = "restore"
	BackingImageSourceTypeClone            BackingImageSourceType = "clone"
)

// BackingImageState is the phase of one copy of a backing image; it is shared by the three kinds that hold copies.
type BackingImageState string

const (
	BackingImageStateNew              BackingImageState = ""
	BackingImageStatePending          BackingImageState = "pending"
	BackingImageStateStarting         BackingImageState = "starting"
	BackingImageStateReadyForTransfer BackingImageState = "ready-for-transfer"
	BackingImageStateInProgress       BackingImageState = "in-progress"
	BackingImageStateReady            BackingImageState = "ready"
	BackingImageStateFailed           BackingImageState = "failed"
	BackingImageStateFailedAndCleanUp BackingImageState = "failed-and-cleanup"
	BackingImageStateUnknown          BackingImageState = "unknown"
)

// Values of parameter export-type.
const (
	BackingImageExportRaw   = "raw"
	BackingImageExportQCOW2 = "qcow2"
)

// Values of parameter encryption.
const (
	BackingImageEncryptionIgnore  = "ignore"
	BackingImageEncryptionEncrypt = "encrypt"
	BackingImageEncryptionDecrypt = "decrypt"
)

// Keys of spec.sourceParameters.
const (
	BackingImageParameterURL              = "url"
	BackingImageParameterVolumeName       = "volume-name"
	BackingImageParameterExportType       = "export-type"
	BackingImageParameterSnapshotName     = "snapshot-name"
	BackingImageParameterBackupURL        = "backup-url"
	BackingImageParameterBackupTargetName = "backup-target-name"
	BackingImageParameterConcurrentLimit  = "concurrent-limit"
	BackingImageParameterBackingImage     = "backing-image"
	BackingImageParameterEncryption       = "encryption"
	BackingImageParameterSecret           = "secret"
	BackingImageParameterSecretNamespace  = "secret-namespace"
	// BackingImageParameterNodeBandwidth is of orders of backups: the bytes per second that all backups
	// and restores of the node send and read at most.
	BackingImageParameterNodeBandwidth = "node-bandwidth"
)

// BackingImageSpec is what is wanted of a BackingImage.
type BackingImageSpec struct {
	// Checksum is the SHA-512 the image must have, 128 hex digits, or empty.
	// +optional
	Checksum string `json:"checksum"`
	// DataEngine is v1.
	// +optional
	// +kubebuilder:default=v1
	// +kubebuilder:validation:Enum=v1
	DataEngine DataEngineType `json:"dataEngine,omitempty"`
	// DiskFileSpecMap are the copies wanted by UUID of the disk.
	// +optional
	DiskFileSpecMap map[string]BackingImageDiskFileSpec `json:"diskFileSpecMap,omitzero"`
	// DiskSelector are the tags a disk must have to take a copy.
	// +optional
	DiskSelector []string `json:"diskSelector,omitzero"`
	// Disks is an older form of diskFileSpecMap.
	// +optional
	Disks map[string]string `json:"disks,omitzero"`
	// MinNumberOfCopies is how many copies are kept even if no replica uses them.
	// +optional
	MinNumberOfCopies int `json:"minNumberOfCopies"`
	// NodeSelector are the tags a node must have to take a copy.
	// +optional
	NodeSelector []string `json:"nodeSelector,omitzero"`
	// Secret is the name of the Secret with the key of an encrypted image. Once set it stays.
	// +optional
	Secret string `json:"secret"`
	// SecretNamespace is the namespace of that Secret. Once set it stays.
	// +optional
	SecretNamespace string `json:"secretNamespace"`
	// SourceParameters depend on sourceType.
	// +optional
	SourceParameters map[string]string `json:"sourceParameters,omitzero"`
	// SourceType says how the first copy is made.
	// +optional
	// +kubebuilder:validation:Enum=download;upload;export-from-volume;restore;clone
	SourceType BackingImageSourceType `json:"sourceType,omitempty"`
}

// BackingImageDiskFileSpec is the copy wanted on one disk.
type BackingImageDiskFileSpec struct {
	// DataEngine is v1.
	// +optional
	// +kubebuilder:validation:Enum=v1
	DataEngine DataEngineType `json:"dataEngine,omitempty"`
	// EvictionRequested asks for the copy to leave the disk.
	// +optional
	EvictionRequested bool `json:"evictionRequested"`
}

// BackingImageStatus is what was observed of a BackingImage.
type BackingImageStatus struct {
	// Checksum is the SHA-512 of the image.
	// +optional
	Checksum string `json:"checksum"`
	// DiskFileStatusMap are the copies by UUID of the disk.
	// +optional
	// +nullable
	DiskFileStatusMap map[string]BackingImageDiskFileStatus `json:"diskFileStatusMap"`
	// DiskLastRefAtMap is since when no replica uses a copy, by UUID of the disk.
	// +optional
	// +nullable
	DiskLastRefAtMap map[string]string `json:"diskLastRefAtMap"`
	// OwnerID is the node whose manager looks after the object.
	// +optional
	OwnerID string `json:"ownerID"`
	// RealSize is how many bytes a copy takes on its disk.
	// +optional
	RealSize int64 `json:"realSize"`
	// Size is how many bytes the file has.
	// +optional
	Size int64 `json:"size"`
	// UUID is eight characters that tell images of the same name apart.
	// +optional
	UUID string `json:"uuid"`
	// VirtualSize is how many bytes a volume needs to hold the image.
	// +optional
	VirtualSize int64 `json:"virtualSize"`
}

// BackingImageDiskFileStatus is the copy on one disk.
type BackingImageDiskFileStatus struct {
	// DataEngine is v1.
	// +optional
	// +kubebuilder:validation:Enum=v1
	DataEngine DataEngineType `json:"dataEngine,omitempty"`
	// LastStateTransitionTime is when the state last changed (RFC 3339).
	// +optional
	LastStateTransitionTime string `json:"lastStateTransitionTime"`
	// Message says what went wrong, empty if nothing did.
	// +optional
	Message string `json:"message"`
	// Progress goes from 0 to 100.
	// +optional
	Progress int `json:"progress"`
	// State is the phase of the copy.
	// +optional
	State BackingImageState `json:"state"`
}

// BackingImage is a read-only image that volumes can be built upon. Copies of it are kept on the disks where
// it is used.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:storageversion
// +kubebuilder:resource:path=backingimages,singular=backingimage,shortName=lhbi,scope=Namespaced
// +kubebuilder:metadata:labels="longhorn-manager="
// +kubebuilder:printcolumn:name="UUID",type=string,JSONPath=`.status.uuid`
// +kubebuilder:printcolumn:name="SourceType",type=string,JSONPath=`.spec.sourceType`
// +kubebuilder:printcolumn:name="Size",type=string,JSONPath=`.status.size`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type BackingImage struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   BackingImageSpec   `json:"spec,omitempty"`
	Status BackingImageStatus `json:"status,omitempty"`
}

// BackingImageList is a list of BackingImage objects.
//
// +kubebuilder:object:root=true
type BackingImageList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []BackingImage `json:"items"`
}
