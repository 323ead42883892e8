// Package node is a small kubelet whose containers are plain processes.
//
// An Agent stands for one node of the cluster. It keeps the Node object and its Lease, watches the
// Pods bound to the node and runs each container as a process of this machine: the image names a
// local directory instead of a registry, and volumes are directories that the process finds through
// the environment variable ANKOLE_MOUNTS instead of a mount namespace. Everything the API shows
// about a Pod (phases, conditions, container states, reasons, restart counts, events, logs) is what
// a kubelet would show, because controllers and people act on it.
//
// One goroutine per Pod, its worker, owns all that is known about the Pod. It is driven by events
// (a new version of the Pod, a container's exit, a probe's verdict, a timer) and after each one it
// looks at the whole state and does what is due. What is due is decided by pure functions
// (decide.go, status.go), which the tests drive without processes.
package node

import (
	"log/slog"
	"path/filepath"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"ankole.storage/standalone/pki"
	"ankole.storage/standalone/process"
)

// KubeletVersion is reported by every node: the version of the libraries linked in.
const KubeletVersion = "v1.36.3"

// Config describes one node.
type Config struct {
	Name string
	// Place is the node in the cluster's own network: its address is the InternalIP.
	Place
	Networks []PodNetwork
	Port     int    // kubelet endpoint
	StateDir string // the cluster's folder, part of every process's marker
	// DeviceDir is what Pods see as /dev/longhorn.
	DeviceDir   string
	Images      Images
	Capacity    v1.ResourceList
	Client      kubernetes.Interface
	Objects     *Objects
	API         APIEndpoint
	Spawner     *process.Spawner
	Serving     pki.Pair
	BackOff     BackOff
	LeaseRenew  time.Duration
	LeaseLength time.Duration
	Log         *slog.Logger
}

// APIEndpoint is what Pods are told about the API server.
type APIEndpoint struct {
	Host   string
	Port   int
	CAFile string
	Config *rest.Config
}

// BackOff bounds the pauses between restarts of a failing container. The first restart is
// immediate, then pauses double from Initial to Max. A container that ran for Reset starts over.
type BackOff struct{ Initial, Max, Reset time.Duration }

// DefaultBackOff is shorter than a kubelet's (10 s, 5 min): on a development cluster the next
// attempt is usually the one the user is waiting for.
var DefaultBackOff = BackOff{Initial: time.Second, Max: 30 * time.Second, Reset: 5 * time.Minute}

const (
	// retryInterval between attempts at what is missing: an image directory, a Secret, a mountable
	// volume.
	retryInterval = 2 * time.Second
	// statusRetry is the pause after a failed report of a Pod's status.
	statusRetry = 500 * time.Millisecond
	// refreshInterval of materialised volumes whose source changed without an event reaching us.
	refreshInterval = time.Minute
	// maxTerminationMessage is the kubelet's bound on the message a container leaves.
	maxTerminationMessage = 4096
)

func (c *Config) dir(elem ...string) string {
	return filepath.Join(append([]string{c.StateDir, "nodes", c.Name}, elem...)...)
}

// Root is the directory that Pods of the node see as the host's /.
func (c *Config) Root() string { return c.dir("root") }

func (c *Config) marker(parts ...string) string {
	return process.Marker(append([]string{c.StateDir, c.Name}, parts...)...)
}
