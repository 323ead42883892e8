// Package plan says what everything of a cluster bed is called and where it is: addresses, network
// interfaces, control groups, files.
//
// A bed is a Kubernetes cluster of real nodes on one machine. A node is a process with namespaces
// of its own (PID, mounts, network, host name, IPC); all its network interfaces, control groups and
// files carry names that follow from the bed's folder, so that a later process can remove what a
// killed one has left.
//
//	10.213.0.1           the machine: API server, etcd
//	10.213.0.10+k        node k, on its interface eth0
//	10.213.k.0/24        Pods of node k
//	10.213.128+k.0/24    Pods of node k on the storage network, one segment of 10.213.128.0/17
package plan

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"path/filepath"
	"strings"
)

const (
	// MaxNodes is bounded by the addresses of a bed.
	MaxNodes = 32
	// KubePort, EtcdPort and EtcdPeerPort are served on the bed's own address, so they are fixed.
	KubePort, EtcdPort, EtcdPeerPort = 6443, 2379, 2380
	// StorageNetwork is the name by which Pods ask for the second network.
	StorageNetwork = "kube-system/storage"
	// firstNode is the last number of node 0's address.
	firstNode = 10
	// storageBase is added to a node's number for its part of the storage network.
	storageBase = 128
)

// ErrConfig marks errors of what the user asked for.
var ErrConfig = errors.New("configuration")

// Plan of a bed.
type Plan struct {
	Dir     string `json:"dir"` // absolute
	Nodes   int    `json:"nodes"`
	Network string `json:"network"` // first address, such as 10.213.0.0
}

// hidden are directories that a node sees as its own, so a bed's folder cannot lie in them.
var hidden = []string{"/var", "/run", "/dev", "/proc", "/sys"}

// Validate returns the plan with an absolute folder.
func (p Plan) Validate() (Plan, error) {
	abs, err := filepath.Abs(p.Dir)
	if err != nil {
		return p, fmt.Errorf("folder %s: %w", p.Dir, err)
	}
	if p.Dir, err = resolve(abs); err != nil {
		return p, fmt.Errorf("folder %s: %w", abs, err)
	}
	for _, h := range hidden {
		for _, dir := range []string{abs, p.Dir} {
			if dir == h || strings.HasPrefix(dir, h+"/") {
				return p, fmt.Errorf("%w: the bed's folder %s lies below %s, which every node has for itself; choose another",
					ErrConfig, dir, h)
			}
		}
	}
	if p.Nodes < 1 || p.Nodes > MaxNodes {
		return p, fmt.Errorf("%w: %d nodes: from 1 to %d can be had", ErrConfig, p.Nodes, MaxNodes)
	}
	a, err := netip.ParseAddr(p.Network)
	if err != nil || !a.Is4() || a.As4()[2] != 0 || a.As4()[3] != 0 {
		return p, fmt.Errorf("%w: network %q is not the first address of a /16 network, such as 10.213.0.0", ErrConfig,
			p.Network)
	}
	return p, nil
}

// resolve follows the links in the part of a path that is there: one folder has one name, which the
// kernel's tables tell.
func resolve(abs string) (string, error) {
	real, err := filepath.EvalSymlinks(abs)
	if !errors.Is(err, fs.ErrNotExist) || abs == "/" {
		return real, err
	}
	parent, err := resolve(filepath.Dir(abs))
	return filepath.Join(parent, filepath.Base(abs)), err
}

func (p Plan) address(third, fourth int) string {
	a := netip.MustParseAddr(p.Network).As4()
	a[2], a[3] = byte(third), byte(fourth)
	return netip.AddrFrom4(a).String()
}

// ID is short and follows from the folder.
func (p Plan) ID() string {
	sum := sha256.Sum256([]byte(p.Dir))
	return hex.EncodeToString(sum[:3])
}

// Host is the address of the machine in the bed's network.
func (p Plan) Host() string { return p.address(0, 1) }

// NodeName of node k, counted from 1.
func (p Plan) NodeName(k int) string { return fmt.Sprintf("node-%d", k) }

// NodeAddress is the address of node k.
func (p Plan) NodeAddress(k int) string { return p.address(0, firstNode+k) }

// PodNetwork is the network of the Pods of node k.
func (p Plan) PodNetwork(k int) string { return p.address(k, 0) + "/24" }

// PodNetworks holds the Pods of all nodes, and the nodes.
func (p Plan) PodNetworks() string { return p.address(0, 0) + "/17" }

// Storage returns the segment of the storage network, and the first and the last address that Pods
// of node k have on it.
func (p Plan) Storage(k int) (segment, first, last string) {
	return p.address(storageBase, 0) + "/17", p.address(storageBase+k, 1), p.address(storageBase+k, 254)
}

// InterfacePrefix begins the names of all network interfaces of the bed on the machine.
func (p Plan) InterfacePrefix() string { return "ab" + p.ID() }

// Bridge is the machine's bridge of the first network.
func (p Plan) Bridge() string { return p.InterfacePrefix() + "br" }

// StorageBridge is that of the storage network.
func (p Plan) StorageBridge() string { return p.InterfacePrefix() + "st" }

// Veth is the machine's end of node k's interface in a network.
func (p Plan) Veth(k int, storage bool) string {
	if storage {
		return fmt.Sprintf("%ss%d", p.InterfacePrefix(), k)
	}
	return fmt.Sprintf("%sn%d", p.InterfacePrefix(), k)
}

// Cgroup is the control group of the whole bed, below the root of every hierarchy.
func (p Plan) Cgroup() string { return "/ankole-bed-" + p.ID() }

// NodeCgroup is the control group of a node, below which its kubelet makes those of Pods.
func (p Plan) NodeCgroup(k int) string { return p.Cgroup() + "/" + p.NodeName(k) }

// Path of something in the bed's folder.
func (p Plan) Path(parts ...string) string {
	return filepath.Join(append([]string{p.Dir}, parts...)...)
}

// AuditLog is where the API server logs what the system's accounts ask for.
func (p Plan) AuditLog() string { return p.Path("logs", "audit.log") }

// NodePath of something of node k.
func (p Plan) NodePath(k int, parts ...string) string {
	return p.Path(append([]string{"nodes", p.NodeName(k)}, parts...)...)
}
