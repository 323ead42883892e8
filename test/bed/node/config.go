// Package node is the inside of a node of a bed: the first process of its namespaces. It makes the
// node's view of the machine, starts containerd, kubelet and kube-proxy, and takes in orphans. When
// it ends, for whatever reason, the kernel ends everything of the node with it.
package node

// Config is what the first process of a node is told on its standard input, once its network
// interfaces are there.
type Config struct {
	Name    string `json:"name"`
	Program string `json:"program"` // the bed's program, which is kubelet and kube-proxy too
	Dir     string `json:"dir"`     // the node's folder
	// Disk is a file with a file system, for /var/lib/longhorn.
	Disk string `json:"disk"`

	Address    string   `json:"address"`
	Gateway    string   `json:"gateway"` // the machine
	DNS        string   `json:"dns"`     // address of the server of names; empty for none
	Domain     string   `json:"domain"`  // of Services
	PodNetwork string   `json:"podNetwork"`
	AllPods    string   `json:"allPods"`
	Neighbours []Remote `json:"neighbours"`
	// Storage network: its segment and this node's part.
	StorageName    string `json:"storageName"`
	StorageSegment string `json:"storageSegment"`
	StorageFirst   string `json:"storageFirst"`
	StorageLast    string `json:"storageLast"`

	Cgroup string `json:"cgroup"` // of the node
	// Files on the machine.
	CAFile             string `json:"caFile"`
	KubeletCertificate string `json:"kubeletCertificate"`
	KubeletKey         string `json:"kubeletKey"`
	KubeletKubeconfig  string `json:"kubeletKubeconfig"`
	ProxyKubeconfig    string `json:"proxyKubeconfig"`
	NetworksKubeconfig string `json:"networksKubeconfig"`
	PauseImage         string `json:"pauseImage"` // archive
}

// Remote is another node's part of the network.
type Remote struct {
	PodNetwork string `json:"podNetwork"`
	Address    string `json:"address"`
}

// PauseImageName is the image of the process that holds a Pod's namespaces.
const PauseImageName = "ankole/pause:dev"

// ContainerdSocket in a node.
const ContainerdSocket = "/run/containerd/containerd.sock"
