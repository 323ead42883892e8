package resource

// DeviceKeepersInput is what the CSI driver of a node tells of a volume that cannot leave the node
// since its file system is mounted in other mount namespaces. No Keepers: nothing is in its way.
type DeviceKeepersInput struct {
	NodeID  string         `json:"nodeID"`
	Keepers []DeviceKeeper `json:"keepers"`
}

// DeviceKeeper is a process in whose mount namespace a file system is mounted, at Path.
type DeviceKeeper struct {
	// PodUID is that of the Pod that the process belongs to; empty: of none that is known.
	PodUID  string `json:"podUID"`
	Program string `json:"program"`
	PID     int    `json:"pid"`
	Path    string `json:"path"`
}
