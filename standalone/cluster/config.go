// Package cluster puts the parts of a standalone cluster together: state folder, control plane,
// process nodes, the manager's objects, and the addresses on loopback that users know.
//
// Start-up goes from the ground up (lock, leftovers, ports, etcd and API server, nodes, manager),
// stopping the other way round, with a bound on every step: whatever hangs, the process ends, and
// the kernel ends its Pods with it.
package cluster

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/pflag"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"ankole.storage/standalone/node"
)

// ErrConfig marks a refused flag.
var ErrConfig = errors.New("bad configuration")

const (
	host = "127.0.0.1" // of the API server, etcd and the forwarders
	// maxNodes: addresses .1 to .250 of the node network.
	maxNodes = 250
	// DefaultKubeletPort is the usual one; every node has its own address.
	DefaultKubeletPort = 10250
	rootDeviceDir      = "/dev/longhorn"
)

// Config of a standalone cluster. The zero value is not usable; begin with Defaults.
type Config struct {
	Dir         string
	Nodes       int
	APIPort     int // REST API and UI on 127.0.0.1
	KubePort    int // Kubernetes API server; 0 keeps or chooses a free one
	KubeletPort int
	NodeNetwork string // IPv4 loopback network; node k has its address + k
	// PodNetworks are further networks, as namespace/name=IPv4 loopback network; a Pod on node k that
	// asks for one has its address + k.
	PodNetworks []string
	Images      string // directory with one directory per image
	DeviceDir   string // what Pods see as /dev/longhorn
	NodeCPU     string // quantity, or one for each node, separated by commas; empty for the machine's
	NodeMemory  string
	// BackupDir is the directory of the default backup target: "" for backups in Dir, NoBackups for
	// none.
	BackupDir string

	ManagerImage, EngineImage, InstanceManagerImage, BackingImageManagerImage string
	ManagerArgs                                                               []string
	MutualTLS                                                                 bool
	NoManager                                                                 bool
	NoKinds                                                                   bool // the manager is none that has objects

	NodeGrace time.Duration // without heartbeat until a node is NotReady
	StopGrace time.Duration // bound on every Pod's termination at stop

	// ExitWithStdin stops the cluster when standard input ends, so that a test that dies takes it
	// along.
	ExitWithStdin bool
	ReadyFile     string // gets one JSON line when the cluster is ready
	Output        string // "text" or "json"
	UnsafeNoFsync bool
	APIServerArgs []string
	ManagerKCMArg []string
}

// NoBackups is for a cluster without a backup target.
const NoBackups = "none"

// Defaults returns the configuration of a plain `ankole-standalone`.
func Defaults() Config {
	return Config{
		Dir: ".ankole", Nodes: 3, APIPort: 9500, KubeletPort: DefaultKubeletPort, NodeNetwork: "127.0.1.0",
		ManagerImage: "ankole/manager:dev", EngineImage: "ankole/engine:dev",
		InstanceManagerImage:     "ankole/instance-manager:dev",
		BackingImageManagerImage: "ankole/backing-image-manager:dev", MutualTLS: true,
		NodeGrace: 20 * time.Second, StopGrace: 25 * time.Second, Output: "text",
	}
}

// Flags binds the configuration to command line flags.
func (c *Config) Flags(fs *pflag.FlagSet) {
	fs.StringVar(&c.Dir, "dir", c.Dir, "folder that keeps all state")
	fs.IntVar(&c.Nodes, "nodes", c.Nodes, "number of storage nodes")
	fs.IntVar(&c.APIPort, "api-port", c.APIPort, "port on 127.0.0.1 of the REST API and UI")
	fs.IntVar(&c.KubePort, "kube-port", c.KubePort,
		"port on 127.0.0.1 of the Kubernetes API server (0: chosen once and kept)")
	fs.IntVar(&c.KubeletPort, "kubelet-port", c.KubeletPort, "port of each node's kubelet endpoint, on the node's address")
	fs.StringVar(&c.NodeNetwork, "node-network", c.NodeNetwork,
		"loopback network of the nodes: node k gets this address plus k")
	fs.StringArrayVar(&c.PodNetworks, "pod-network", c.PodNetworks,
		"further network for Pods that ask for it by annotation, as NAMESPACE/NAME=127.0.2.0: on node k they get this "+
			"address plus k (repeatable)")
	fs.StringVar(&c.Images, "images", c.Images,
		"directory of container images as directories (default: images/ beside the program's folder, then the built "+
			"programs themselves)")
	fs.StringVar(&c.DeviceDir, "device-dir", c.DeviceDir,
		"directory of the volumes' block devices, in which each node has its own "+
			"(default: /dev/longhorn as root, else nodes/<node>/dev in --dir)")
	fs.StringVar(&c.NodeCPU, "node-cpu", c.NodeCPU,
		"CPUs that each node offers, or a list such as 2,4,8: one for each node, the last one for the rest "+
			"(default: the machine's)")
	fs.StringVar(&c.NodeMemory, "node-memory", c.NodeMemory, "memory that each node offers (default: the machine's)")
	fs.StringVar(&c.BackupDir, "backup-directory", c.BackupDir,
		"directory of the default backup target of a new cluster (default: backups in --dir; "+NoBackups+": there is no target)")
	fs.StringVar(&c.ManagerImage, "manager-image", c.ManagerImage, "image of the manager")
	fs.StringVar(&c.EngineImage, "engine-image", c.EngineImage, "default engine image")
	fs.StringVar(&c.InstanceManagerImage, "instance-manager-image", c.InstanceManagerImage,
		"image of the instance managers")
	fs.StringVar(&c.BackingImageManagerImage, "backing-image-manager-image", c.BackingImageManagerImage,
		"image of what keeps backing images")
	fs.StringArrayVar(&c.ManagerArgs, "manager-arg", c.ManagerArgs, "further argument of the manager (repeatable)")
	fs.BoolVar(&c.MutualTLS, "mutual-tls", c.MutualTLS, "connections between the parts of the system have certificates")
	fs.BoolVar(&c.NoManager, "no-manager", c.NoManager, "start Kubernetes and the nodes only")
	fs.BoolVar(&c.NoKinds, "no-kinds", c.NoKinds,
		"define no kinds of objects, and wait for none of the manager's (tests of other managers)")
	fs.DurationVar(&c.NodeGrace, "node-grace", c.NodeGrace, "time without heartbeat after which a node is NotReady")
	fs.DurationVar(&c.StopGrace, "stop-grace", c.StopGrace, "longest time that Pods get to end when the cluster stops")
	fs.StringVar(&c.ReadyFile, "ready-file", c.ReadyFile, "file that gets one JSON line when the cluster is ready")
	fs.BoolVar(&c.ExitWithStdin, "exit-with-stdin", c.ExitWithStdin, "stop when standard input ends")
	fs.StringVarP(&c.Output, "output", "o", c.Output, "progress on the terminal: text or json (one line when ready)")
	fs.BoolVar(&c.UnsafeNoFsync, "unsafe-no-fsync", c.UnsafeNoFsync,
		"let etcd skip fsync (tests only: a power failure loses the cluster)")
	fs.StringArrayVar(&c.APIServerArgs, "kube-apiserver-arg", c.APIServerArgs,
		"further flag of kube-apiserver (repeatable)")
	fs.StringArrayVar(&c.ManagerKCMArg, "kube-controller-manager-arg", c.ManagerKCMArg,
		"further flag of kube-controller-manager (repeatable)")
}

// Validate refuses what cannot work, saying which flag to change.
func (c *Config) Validate() error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: "+format, append([]any{ErrConfig}, args...)...)
	}
	if c.Dir == "" {
		return bad("--dir is empty; name a folder for the cluster's state")
	}
	if c.Nodes < 1 || c.Nodes > maxNodes {
		return bad("--nodes %d is not between 1 and %d", c.Nodes, maxNodes)
	}
	for _, p := range []struct {
		flag string
		port int
		min  int
	}{{"--api-port", c.APIPort, 1}, {"--kube-port", c.KubePort, 0}, {"--kubelet-port", c.KubeletPort, 1}} {
		if p.port < p.min || p.port > 65535 {
			return bad("%s %d is not a port number", p.flag, p.port)
		}
	}
	if !c.NoManager && c.APIPort == c.KubePort {
		return bad("--api-port and --kube-port are both %d", c.APIPort)
	}
	if err := c.validateNetworks(); err != nil {
		return err
	}
	if c.NodeGrace < 5*time.Second {
		return bad("--node-grace %s is below 5s, less than heartbeats allow", c.NodeGrace)
	}
	if c.StopGrace < 0 {
		return bad("--stop-grace %s is negative", c.StopGrace)
	}
	if c.Output != "text" && c.Output != "json" {
		return bad("--output %q is neither text nor json", c.Output)
	}
	for k := 1; k <= c.Nodes; k++ {
		if _, err := c.capacity(k); err != nil {
			return err
		}
	}
	return nil
}

// validateNetworks refuses networks that are none, or that have addresses in common.
func (c *Config) validateNetworks() error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: "+format, append([]any{ErrConfig}, args...)...)
	}
	if !loopbackNetwork(c.NodeNetwork) {
		return bad("--node-network %q is not an IPv4 loopback network such as 127.0.1.0", c.NodeNetwork)
	}
	if c.NodeNetwork == "127.0.0.0" {
		return bad("--node-network 127.0.0.0 would give node 1 the address 127.0.0.1, which the API server uses; take " +
			"127.0.1.0")
	}
	taken := map[string]string{c.NodeNetwork: "--node-network", "127.0.0.0": "the API server"}
	for _, value := range c.PodNetworks {
		name, network, _ := strings.Cut(value, "=")
		namespace, rest, _ := strings.Cut(name, "/")
		switch {
		case namespace == "" || rest == "" || strings.Contains(rest, "/") || !loopbackNetwork(network):
			return bad("--pod-network %q is not NAMESPACE/NAME=NETWORK, such as kube-system/storage=127.0.2.0", value)
		case taken[network] != "":
			return bad("--pod-network %q: %s is used by %s", value, network, taken[network])
		case taken[name] != "":
			return bad("--pod-network %s is given twice", name)
		}
		taken[network], taken[name] = name, name
	}
	return nil
}

func loopbackNetwork(value string) bool {
	ip := net.ParseIP(value).To4()
	return ip != nil && ip.IsLoopback() && ip[3] == 0
}

// capacity is what node k, counted from 1, offers.
func (c *Config) capacity(k int) (v1.ResourceList, error) {
	list := node.MachineCapacity()
	cpus := strings.Split(c.NodeCPU, ",")
	for _, o := range []struct {
		flag, value string
		name        v1.ResourceName
	}{{"--node-cpu", cpus[min(k, len(cpus))-1], v1.ResourceCPU}, {"--node-memory", c.NodeMemory, v1.ResourceMemory}} {
		if o.value == "" {
			continue
		}
		q, err := resource.ParseQuantity(o.value)
		if err != nil || q.Sign() <= 0 {
			return nil, fmt.Errorf("%w: %s %q is not a positive quantity such as 4 or 8Gi", ErrConfig, o.flag, o.value)
		}
		list[o.name] = q
	}
	return list, nil
}

// nodeName and nodeAddress of node k, counted from 1.
func nodeName(k int) string { return fmt.Sprintf("node-%d", k) }

func (c *Config) nodeAddress(k int) string { return address(c.NodeNetwork, k) }

func address(network string, k int) string {
	ip := net.ParseIP(network).To4()
	return net.IPv4(ip[0], ip[1], ip[2], byte(k)).String()
}

// lastAddress of a network is the last one that a node or Pod has.
const lastAddress = 250

// place is node k, counted from 1, in a network: the nodes' addresses come first, then each node's
// second one, and so on.
func (c *Config) place(network string, k int) node.Place {
	p := node.Place{Address: address(network, k)}
	for next := k + c.Nodes; next <= lastAddress; next += c.Nodes {
		p.Further = append(p.Further, address(network, next))
	}
	return p
}

// podNetworks are the further networks as node k, counted from 1, is on them.
func (c *Config) podNetworks(k int) []node.PodNetwork {
	var out []node.PodNetwork
	for _, value := range c.PodNetworks {
		name, network, _ := strings.Cut(value, "=")
		out = append(out, node.PodNetwork{Name: name, Place: c.place(network, k)})
	}
	return out
}

// deviceDir of node k. Each node has its own, since a volume may be offered on two nodes at a time.
func (c *Config) deviceDir(stateDir string, k int) string {
	switch {
	case c.DeviceDir != "":
		return filepath.Join(c.DeviceDir, nodeName(k))
	case os.Geteuid() == 0:
		return filepath.Join(rootDeviceDir, nodeName(k))
	}
	return filepath.Join(stateDir, "nodes", nodeName(k), "dev")
}

// leaseTimes derives the heartbeat from the grace: a lease is renewed four times within it, so that
// one lost renewal on a busy machine is no loss of a node.
func (c *Config) leaseTimes() (renew, length time.Duration) {
	return c.NodeGrace / 4, c.NodeGrace
}
