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

// Keys of spec.sourceParameters.
const (
	BackingImageParameterURL              = "url"
	BackingImageParameterVolumeName       = "volume-name"
	BackingImageParameterExportType       = "export-type"
	BackingImageParameterBackupURL        = "backup-url"
	BackingImageParameterBackupTargetName = "backup-target-name"
	BackingImageParameterConcurrentLimit  = "concurrent-limit"
	BackingImageParameterBackingImage     = "backing-image"
	BackingImageParameterEncryption       = "encryption"
	BackingImageParameterSecret           = "secret"
	BackingImageParameterSecretNamespace  = "secret-namespace"
)

// BackingImageSpec is what is wanted of a BackingImage.
type BackingImageSpec struct {
	// +optional
	Checksum string `json:"checksum"`
	// +optional
	// +kubebuilder:default=v1
	// +kubebuilder:validation:Enum=v1
	DataEngine DataEngineType `json:"dataEngine,omitempty"`
	// +optional
	DiskFileSpecMap map[string]BackingImageDiskFileSpec `json:"diskFileSpecMap,omitzero"`
	// +optional
	DiskSelector []string `json:"diskSelector,omitzero"`
	// +optional
	Disks map[string]string `json:"disks,omitzero"`
	// +optional
	MinNumberOfCopies int `json:"minNumberOfCopies"`
	// +optional
	NodeSelector []string `json:"nodeSelector,omitzero"`
	// +optional
	Secret string `json:"secret"`
	// +optional
	SecretNamespace string `json:"secretNamespace"`
	// +optional
	SourceParameters map[string]string `json:"sourceParameters,omitzero"`
	// +optional
	// +kubebuilder:validation:Enum=download;upload;export-from-volume;restore;clone
	SourceType BackingImageSourceType `json:"sourceType,omitempty"`
}

// BackingImageDiskFileSpec is part of BackingImage.
type BackingImageDiskFileSpec struct {
	// +optional
	// +kubebuilder:validation:Enum=v1
	DataEngine DataEngineType `json:"dataEngine,omitempty"`
	// +optional
	EvictionRequested bool `json:"evictionRequested"`
}

// BackingImageStatus is what was observed of a BackingImage.
type BackingImageStatus struct {
	// +optional
	Checksum string `json:"checksum"`
	// +optional
	// +nullable
	DiskFileStatusMap map[string]BackingImageDiskFileStatus `json:"diskFileStatusMap"`
	// +optional
	// +nullable
	DiskLastRefAtMap map[string]string `json:"diskLastRefAtMap"`
	// +optional
	OwnerID string `json:"ownerID"`
	// +optional
	RealSize int64 `json:"realSize"`
	// +optional
	Size int64 `json:"size"`
	// +optional
	UUID string `json:"uuid"`
	// +optional
	VirtualSize int64 `json:"virtualSize"`
}

// BackingImageDiskFileStatus is part of BackingImage.
type BackingImageDiskFileStatus struct {
	// +optional
	// +kubebuilder:validation:Enum=v1
	DataEngine DataEngineType `json:"dataEngine,omitempty"`
	// +optional
	LastStateTransitionTime string `json:"lastStateTransitionTime"`
	// +optional
	Message string `json:"message"`
	// +optional
	Progress int `json:"progress"`
	// +optional
	State BackingImageState `json:"state"`
}

// BackingImage is one of the stored kinds.
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
