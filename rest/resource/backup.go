package resource

// Snapshot is one snapshot of a volume as its engine reports it; volume-head is listed too.
type Snapshot struct {
	Resource
	Name   string `json:"name"`
	Parent string `json:"parent"`
	// Children maps the names of the children to true.
	Children    map[string]bool   `json:"children"`
	Removed     bool              `json:"removed"`
	UserCreated bool              `json:"usercreated"`
	Created     string            `json:"created"`
	Size        string            `json:"size"`
	Labels      map[string]string `json:"labels"`
	Checksum    string            `json:"checksum"`
}

// SnapshotCR is a declarative snapshot. Sizes are bytes as numbers, unlike in Snapshot.
type SnapshotCR struct {
	Resource
	Name           string            `json:"name"`
	CRCreationTime string            `json:"crCreationTime"`
	Volume         string            `json:"volume"`
	CreateSnapshot bool              `json:"createSnapshot"`
	Parent         string            `json:"parent"`
	Children       map[string]bool   `json:"children"`
	MarkRemoved    bool              `json:"markRemoved"`
	UserCreated    bool              `json:"userCreated"`
	CreationTime   string            `json:"creationTime"`
	Size           int64             `json:"size"`
	Labels         map[string]string `json:"labels"`
	OwnerID        string            `json:"ownerID"`
	Error          string            `json:"error,omitempty"`
	RestoreSize    int64             `json:"restoreSize"`
	ReadyToUse     bool              `json:"readyToUse"`
	Checksum       string            `json:"checksum"`
	// OrderedByCSI: a VolumeSnapshot stands on it.
	OrderedByCSI bool `json:"orderedByCSI"`
	// Blocked: it is ordered and cannot be taken until something else changes; Error says what.
	// Deleting: its object is deleted, and goes when the engine has no such snapshot.
	Blocked  bool `json:"blocked,omitempty" schema:"-"`
	Deleting bool `json:"deleting,omitempty" schema:"-"`
}

// BackupTarget is a place where backups are kept.
type BackupTarget struct {
	Resource
	Name             string `json:"name" api:"create,required,unique"`
	BackupTargetURL  string `json:"backupTargetURL" api:"create" default:""`
	CredentialSecret string `json:"credentialSecret" api:"create" default:""`
	// PollInterval is whole seconds on input and Go duration text on output.
	PollInterval string `json:"pollInterval" api:"create" default:"300"`
	Available    bool   `json:"available"`
	Message      string `json:"message"`
}

// BackupVolume is all backups of one volume on one target.
type BackupVolume struct {
	Resource
	Name                 string            `json:"name"`
	VolumeName           string            `json:"volumeName"`
	BackupTargetName     string            `json:"backupTargetName"`
	Size                 string            `json:"size"`
	Labels               map[string]string `json:"labels"`
	Created              string            `json:"created"`
	LastBackupName       string            `json:"lastBackupName"`
	LastBackupAt         string            `json:"lastBackupAt"`
	DataStored           string            `json:"dataStored"`
	Messages             map[string]string `json:"messages"`
	BackingImageName     string            `json:"backingImageName"`
	BackingImageChecksum string            `json:"backingImageChecksum"`
	StorageClassName     string            `json:"storageClassName"`
}

// Backup is one backup; its URL is what a new volume is restored from.
type Backup struct {
	Resource
	Name                   string            `json:"name"`
	State                  string            `json:"state"`
	Progress               int               `json:"progress"`
	Error                  string            `json:"error"`
	URL                    string            `json:"url"`
	SnapshotName           string            `json:"snapshotName"`
	SnapshotCreated        string            `json:"snapshotCreated"`
	Created                string            `json:"created"`
	Size                   string            `json:"size"`
	Labels                 map[string]string `json:"labels"`
	BackupMode             string            `json:"backupMode"`
	Messages               map[string]string `json:"messages"`
	VolumeName             string            `json:"volumeName"`
	VolumeSize             string            `json:"volumeSize"`
	VolumeCreated          string            `json:"volumeCreated"`
	VolumeBackingImageName string            `json:"volumeBackingImageName"`
	CompressionMethod      string            `json:"compressionMethod"`
	NewlyUploadedDataSize  string            `json:"newlyUploadDataSize"`
	ReUploadedDataSize     string            `json:"reUploadedDataSize"`
	BackupTargetName       string            `json:"backupTargetName"`
	BlockSize              string            `json:"blockSize"`
}

// BackupBackingImage is the backup of a backing image.
type BackupBackingImage struct {
	Resource
	Name              string            `json:"name"`
	BackingImageName  string            `json:"backingImageName"`
	BackupTargetName  string            `json:"backupTargetName"`
	State             string            `json:"state"`
	Progress          int               `json:"progress"`
	Error             string            `json:"error"`
	URL               string            `json:"url"`
	Created           string            `json:"created"`
	Size              int64             `json:"size"`
	Labels            map[string]string `json:"labels"`
	Messages          map[string]string `json:"messages"`
	CompressionMethod string            `json:"compressionMethod"`
	Secret            string            `json:"secret"`
	SecretNamespace   string            `json:"secretNamespace"`
}

// BackingImage is a read-only base that volumes can share.
type BackingImage struct {
	Resource
	Name              string                                `json:"name" api:"create,required,unique"`
	UUID              string                                `json:"uuid"`
	SourceType        string                                `json:"sourceType" api:"create,required"`
	Parameters        map[string]string                     `json:"parameters" api:"create,required"`
	ExpectedChecksum  string                                `json:"expectedChecksum" api:"create"`
	CurrentChecksum   string                                `json:"currentChecksum"`
	MinNumberOfCopies int                                   `json:"minNumberOfCopies"`
	NodeSelector      []string                              `json:"nodeSelector"`
	DiskSelector      []string                              `json:"diskSelector"`
	DiskFileStatusMap map[string]BackingImageDiskFileStatus `json:"diskFileStatusMap"`
	Size              int64                                 `json:"size"`
	VirtualSize       int64                                 `json:"virtualSize"`
	Secret            string                                `json:"secret"`
	SecretNamespace   string                                `json:"secretNamespace"`
	DataEngine        string                                `json:"dataEngine"`
	DeletionTimestamp string                                `json:"deletionTimestamp"`
	// WaitsFor says what it waits for and what is wrong with it, and what helps.
	WaitsFor []string `json:"waitsFor"`
}

// BackingImageDiskFileStatus is the state of a backing image's file on one disk.
type BackingImageDiskFileStatus struct {
	State                   string `json:"state"`
	Progress                int    `json:"progress"`
	Message                 string `json:"message"`
	LastStateTransitionTime string `json:"lastStateTransitionTime"`
	DataEngine              string `json:"dataEngine"`
}

// BackupTargetListOutput, like the other ListOutput types, is declared for clients; a collection is
// what is sent.
type BackupTargetListOutput struct {
	Data []BackupTarget `json:"data"`
	Kind string         `json:"type"`
}

// BackupVolumeListOutput is declared for clients; a collection is what is sent.
type BackupVolumeListOutput struct {
	Data []BackupVolume `json:"data"`
	Kind string         `json:"type"`
}

// BackupListOutput is declared for clients; a collection is what is sent.
type BackupListOutput struct {
	Data []Backup `json:"data"`
	Kind string   `json:"type"`
}

// SnapshotListOutput is declared for clients; a collection is what is sent.
type SnapshotListOutput struct {
	Data []Snapshot `json:"data"`
	Kind string     `json:"type"`
}

// SnapshotCRListOutput is declared for clients; a collection is what is sent.
type SnapshotCRListOutput struct {
	Data []SnapshotCR `json:"data"`
	Kind string       `json:"type"`
}
