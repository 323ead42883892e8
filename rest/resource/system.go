package resource

// RecurringJob is work done on volumes by the clock.
type RecurringJob struct {
	Resource
	Name            string            `json:"name" api:"create,required,unique"`
	Task            string            `json:"task"`
	Cron            string            `json:"cron" api:"create,required"`
	Groups          []string          `json:"groups" api:"nullable"`
	Retain          int               `json:"retain" api:"create,required"`
	Concurrency     int               `json:"concurrency" api:"create,required"`
	Labels          map[string]string `json:"labels" api:"nullable"`
	Parameters      map[string]string `json:"parameters" api:"nullable"`
	RetainAge       string            `json:"retainAge" api:"create"`
	RetentionPolicy string            `json:"retentionPolicy" api:"create"`
	ExecutionCount  int               `json:"executionCount"`
	OwnerID         string            `json:"ownerID"`
}

// Orphan is data or a process on a node that no object claims.
type Orphan struct {
	Resource
	Name       string            `json:"name"`
	NodeID     string            `json:"nodeID"`
	OrphanType string            `json:"orphanType"`
	DataEngine string            `json:"dataEngine"`
	Parameters map[string]string `json:"parameters"`
}

// SystemBackup is a backup of the system's own objects.
type SystemBackup struct {
	Resource
	Name               string `json:"name" api:"create,required,unique"`
	VolumeBackupPolicy string `json:"volumeBackupPolicy"`
	Version            string `json:"version,omitempty"`
	ManagerImage       string `json:"managerImage,omitempty"`
	State              string `json:"state,omitempty"`
	// CreatedAt has the form "2006-01-02 15:04:05 +0000 UTC".
	CreatedAt string `json:"createdAt"`
	Error     string `json:"error,omitempty"`
}

// SystemRestore brings a SystemBackup back.
type SystemRestore struct {
	Resource
	Name         string `json:"name" api:"create,required,unique"`
	SystemBackup string `json:"systemBackup" api:"required,unique"`
	State        string `json:"state,omitempty"`
	// CreatedAt has the form "2006-01-02 15:04:05 +0000 UTC".
	CreatedAt string `json:"createdAt"`
	Error     string `json:"error,omitempty"`
}

// SupportBundle is an archive of everything needed to look into a problem.
type SupportBundle struct {
	Resource
	NodeID             string `json:"nodeID"`
	Name               string `json:"name"`
	State              string `json:"state"`
	ErrorMessage       string `json:"errorMessage"`
	ProgressPercentage int    `json:"progressPercentage"`
}

// Schema describes one type of the API; the schema document is a collection of them.
type Schema struct {
	Resource
	PluralName        string                    `json:"pluralName"`
	CollectionMethods []string                  `json:"collectionMethods"`
	ResourceMethods   []string                  `json:"resourceMethods"`
	ResourceFields    map[string]SchemaField    `json:"resourceFields" schema:"map[string]"`
	ResourceActions   map[string]ResourceAction `json:"resourceActions,omitempty" schema:"map[string]"`
}

// SchemaField describes one field. Everything that is zero is left out.
type SchemaField struct {
	FieldType string `json:"type,omitempty"`
	Default   any    `json:"default,omitempty"`
	Unique    bool   `json:"unique,omitempty"`
	Nullable  bool   `json:"nullable,omitempty"`
	Create    bool   `json:"create,omitempty"`
	Required  bool   `json:"required,omitempty"`
	Update    bool   `json:"update,omitempty"`
}

// ResourceAction names the schema types that an action takes and answers with; empty for none.
type ResourceAction struct {
	Input  string `json:"input,omitempty"`
	Output string `json:"output,omitempty"`
}
