package resource

// Node is a storage node and its disks.
type Node struct {
	Resource
	Name string `json:"name"`
	// Address is the IP of the manager on the node, empty while there is none.
	Address           string               `json:"address"`
	AllowScheduling   bool                 `json:"allowScheduling" api:"required"`
	EvictionRequested bool                 `json:"evictionRequested" api:"required"`
	Disks             map[string]DiskInfo  `json:"disks" api:"nullable"`
	Conditions        map[string]Condition `json:"conditions" schema:"map[nodeCondition]"`
	Tags              []string             `json:"tags" api:"create"`
	Region            string               `json:"region"`
	Zone              string               `json:"zone"`
	// InstanceManagerCPURequest is in milli-CPU; 0 means the global setting.
	InstanceManagerCPURequest int `json:"instanceManagerCPURequest"`
	// The same for instance managers of types engine and replica.
	EngineManagerCPURequest  int  `json:"engineManagerCPURequest"`
	ReplicaManagerCPURequest int  `json:"replicaManagerCPURequest"`
	AutoEvicting             bool `json:"autoEvicting"`
	// WaitsFor says what it waits for and what is wrong with it, and with which command to go on.
	WaitsFor []string `json:"waitsFor"`
}

// NodeInput is what PUT of a node reads. A key that is left out counts as its zero value; the two
// older CPU keys, in milli-CPU, are taken too and left alone when they are missing.
type NodeInput struct {
	AllowScheduling           bool     `json:"allowScheduling"`
	EvictionRequested         bool     `json:"evictionRequested"`
	Tags                      []string `json:"tags"`
	InstanceManagerCPURequest int      `json:"instanceManagerCPURequest"`
	EngineManagerCPURequest   *int     `json:"engineManagerCPURequest,omitempty"`
	ReplicaManagerCPURequest  *int     `json:"replicaManagerCPURequest,omitempty"`
}

// DiskInfo is one disk of a node. The storage figures are bytes.
type DiskInfo struct {
	Path                      string               `json:"path"`
	DiskType                  string               `json:"diskType"`
	DiskDriver                string               `json:"diskDriver"`
	AllowScheduling           bool                 `json:"allowScheduling"`
	EvictionRequested         bool                 `json:"evictionRequested"`
	StorageReserved           int64                `json:"storageReserved"`
	Tags                      []string             `json:"tags"`
	Conditions                map[string]Condition `json:"conditions" schema:"map[diskCondition]"`
	StorageAvailable          int64                `json:"storageAvailable"`
	StorageScheduled          int64                `json:"storageScheduled"`
	StorageMaximum            int64                `json:"storageMaximum"`
	ScheduledReplica          map[string]int64     `json:"scheduledReplica" schema:"map[string]"`
	ScheduledBackingImage     map[string]int64     `json:"scheduledBackingImage" schema:"map[string]"`
	DiskUUID                  string               `json:"diskUUID"`
	HealthData                map[string]any       `json:"healthData,omitempty" schema:"map[string]"`
	HealthDataLastCollectedAt string               `json:"healthDataLastCollectedAt,omitempty"`
}

// DiskUpdate is the wanted state of one disk.
type DiskUpdate struct {
	Path              string   `json:"path"`
	DiskType          string   `json:"diskType"`
	DiskDriver        string   `json:"diskDriver"`
	AllowScheduling   bool     `json:"allowScheduling"`
	EvictionRequested bool     `json:"evictionRequested"`
	StorageReserved   int64    `json:"storageReserved"`
	Tags              []string `json:"tags"`
}

// DiskUpdateInput is the full set of a node's disks by name; one left out is removed.
// The schema has always declared an array; the wire has a map.
type DiskUpdateInput struct {
	Disks map[string]DiskUpdate `json:"disks" schema:"array[diskUpdate]"`
}

// Tag is a label that some node or disk carries.
type Tag struct {
	Resource
	Name string `json:"name"`
	// TagType is "disk" or "node".
	TagType string `json:"tagType"`
}

// InstanceManager holds the engine and replica processes of one node.
type InstanceManager struct {
	Resource
	CurrentState            string                     `json:"currentState"`
	Image                   string                     `json:"image"`
	Name                    string                     `json:"name"`
	NodeID                  string                     `json:"nodeID"`
	ManagerType             string                     `json:"managerType"`
	DataEngine              string                     `json:"dataEngine"`
	InstanceEngines         map[string]InstanceProcess `json:"instanceEngines" schema:"map[string]"`
	InstanceReplicas        map[string]InstanceProcess `json:"instanceReplicas" schema:"map[string]"`
	InstanceEngineFrontends map[string]InstanceProcess `json:"instanceEngineFrontends" schema:"map[string]"`
	Instances               map[string]InstanceProcess `json:"instances" schema:"map[string]"`
	// Conditions are by type; SettingSynced says what the Pod waits for.
	Conditions map[string]Condition `json:"conditions" schema:"map[string]"`
	// WaitsFor says what it waits for and what is wrong with it, and with which command to go on.
	WaitsFor []string `json:"waitsFor"`
}

// InstanceProcess is one process of an instance manager.
type InstanceProcess struct {
	Spec   InstanceProcessSpec   `json:"spec" schema:"string"`
	Status InstanceProcessStatus `json:"status" schema:"string"`
}

// InstanceProcessSpec identifies the process.
type InstanceProcessSpec struct {
	Name       string `json:"name"`
	DataEngine string `json:"dataEngine"`
}

// InstanceProcessStatus is what the instance manager last said of the process.
type InstanceProcessStatus struct {
	Conditions      map[string]bool `json:"conditions"`
	Endpoint        string          `json:"endpoint"`
	ErrorMsg        string          `json:"errorMsg"`
	Listen          string          `json:"listen"`
	PortEnd         int32           `json:"portEnd"`
	PortStart       int32           `json:"portStart"`
	ResourceVersion int64           `json:"resourceVersion"`
	State           string          `json:"state"`
	ProcessType     string          `json:"type"`
	UUID            string          `json:"uuid"`
}

// EngineImage is a version of the data path's programs.
type EngineImage struct {
	Resource
	Name                    string          `json:"name"`
	Image                   string          `json:"image" api:"create,required,unique"`
	Default                 bool            `json:"default"`
	State                   string          `json:"state"`
	RefCount                int             `json:"refCount"`
	NoRefSince              string          `json:"noRefSince"`
	Incompatible            bool            `json:"incompatible"`
	Conditions              []Condition     `json:"conditions" schema:"array[string]"`
	NodeDeploymentMap       map[string]bool `json:"nodeDeploymentMap" schema:"map[string]"`
	OwnerID                 string          `json:"ownerID"`
	Version                 string          `json:"version"`
	GitCommit               string          `json:"gitCommit"`
	BuildDate               string          `json:"buildDate"`
	CLIAPIVersion           int             `json:"cliAPIVersion"`
	CLIAPIMinVersion        int             `json:"cliAPIMinVersion"`
	ControllerAPIVersion    int             `json:"controllerAPIVersion"`
	ControllerAPIMinVersion int             `json:"controllerAPIMinVersion"`
	DataFormatVersion       int             `json:"dataFormatVersion"`
	DataFormatMinVersion    int             `json:"dataFormatMinVersion"`
	// WaitsFor says what it waits for and what is wrong with it, and with which command to go on.
	WaitsFor []string `json:"waitsFor"`
}

// Event is a Kubernetes event about one of the system's objects.
type Event struct {
	Resource
	Event     any    `json:"event" schema:"v1.Event"`
	EventType string `json:"eventType"`
}
