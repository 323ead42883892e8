package node

import (
	"context"
	"log/slog"
	"sync"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"k8s.io/mount-utils"
	"k8s.io/utils/exec"

	"ankole.storage/csi/request"
	"ankole.storage/host/hostpath"
)

// hostProcesses is where the Pod has the processes of its node.
const hostProcesses = "/host/proc"

// Server serves the node service of one node. Its state is the kernel's table of mounts.
type Server struct {
	spec.UnimplementedNodeServer
	id string
	// place is where the node says it is.
	place    *place
	patience time.Duration
	log      *slog.Logger
	locks    request.Locks
	// run starts mkfs, fsck and the like, mounts the program mount.
	run    exec.Interface
	mounts mount.Interface
	// proc is where the processes of the host are shown; told is what the manager was told of those
	// who keep a volume here, by volume.
	proc string
	told sync.Map
	// sys is where sysfs is; unmap removes a device of device-mapper, by its number, and aside
	// renames one that is in use.
	sys   string
	unmap func(number uint64) error
	aside func(name string, number uint64) error
	// step is called at each boundary between two steps; tests end calls there.
	step func(name string)
}

// New returns the node service of a node, whose calls wait for patience at the longest. m says
// where the node is and hears who keeps volumes; nil: nobody does.
func New(id string, m request.Manager, patience time.Duration, log *slog.Logger) *Server {
	return &Server{id: id, place: newPlace(id, m, log), patience: patience, log: log, run: exec.New(),
		mounts: mount.NewWithoutSystemd(""), proc: hostpath.Resolve(hostProcesses),
		sys: "/sys", unmap: removeMapping, aside: setAside, step: request.Step}
}

var nodeCapabilities = []spec.NodeServiceCapability_RPC_Type{
	spec.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME,
	spec.NodeServiceCapability_RPC_GET_VOLUME_STATS,
	spec.NodeServiceCapability_RPC_EXPAND_VOLUME,
	spec.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
	spec.NodeServiceCapability_RPC_VOLUME_CONDITION,
}

// NodeGetCapabilities implements the node service.
func (n *Server) NodeGetCapabilities(context.Context, *spec.NodeGetCapabilitiesRequest) (
	*spec.NodeGetCapabilitiesResponse, error) {
	out := &spec.NodeGetCapabilitiesResponse{}
	for _, t := range nodeCapabilities {
		out.Capabilities = append(out.Capabilities, &spec.NodeServiceCapability{
			Type: &spec.NodeServiceCapability_Rpc{Rpc: &spec.NodeServiceCapability_RPC{Type: t}}})
	}
	return out, nil
}
