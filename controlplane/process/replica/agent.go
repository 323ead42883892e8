package replica

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/node/directory"
	"ankole.storage/controlplane/object/condition"
	"ankole.storage/controlplane/object/firstseen"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/volume/copies"
)

// AgentConfig of the agent of one node.
type AgentConfig struct {
	Namespace, NodeName string
	// Resolve turns a path as a Pod sees it into the one to open (hostpath.Resolve).
	Resolve func(path string) string
}

// Agent removes the data of deleted replicas on its own node. It runs in the manager Pod of every
// node, and its manager's cache needs only the node's own objects. Use NewAgent.
type Agent struct {
	cfg    AgentConfig
	client client.Client
	live   client.Reader
	since  *firstseen.Stamps
}

// NewAgent returns the agent of a node.
func NewAgent(cfg AgentConfig) *Agent { return &Agent{cfg: cfg, since: firstseen.New()} }

// SetupWithManager registers it with the manager of the node's own objects.
func (a *Agent) SetupWithManager(mgr ctrl.Manager) error {
	a.client, a.live = mgr.GetClient(), mgr.GetAPIReader()
	return loop.Setup(mgr, a.cfg.Namespace, a.Controller())
}

// WithClient gives the agent its client where there is no manager (tests).
func (a *Agent) WithClient(c client.Client) *Agent {
	a.client, a.live = c, c
	return a
}

// Controller describes the loop, for tests that step it by hand.
func (a *Agent) Controller() loop.Controller[*v1beta2.Replica, onDisk] {
	return loop.Controller[*v1beta2.Replica, onDisk]{
		Name:   naming.EventSource("replica"),
		New:    func() *v1beta2.Replica { return &v1beta2.Replica{} },
		Gather: a.gather,
		Decide: decideRemoval,
		Carry:  a.carry,
		Gone:   func(_ context.Context, key client.ObjectKey) { a.since.At(time.Time{}, key.Name, "") },
	}
}

// onDisk is what the agent sees of a replica's directory.
type onDisk struct {
	// Mine: the replica is deleted, stopped and on this node.
	Mine bool
	// Holds says why the volume cannot do without the data yet; empty if it can.
	Holds string
	// Keep says why the directory is not to be touched; empty if it may go.
	Keep string
	// Shared names another replica of the volume that keeps the directory, Before one that is deleted
	// too and leaves first: of several objects of one directory the last one takes it along.
	Shared, Before string
	// MayPass: the disk is one of the node's and only not ready at the moment, so the reason may go
	// away.
	MayPass bool
	// Since is when this process has seen first that the replica is deleted.
	Since time.Time
	// Exists says whether it is there.
	Exists bool
	Path   string
}

func (a *Agent) gather(ctx context.Context, rep *v1beta2.Replica) (onDisk, error) {
	mine := rep.Spec.NodeID == a.cfg.NodeName && rep.DeletionTimestamp != nil &&
		rep.Status.CurrentState == v1beta2.InstanceStateStopped && rep.Status.InstanceManagerName == ""
	if !mine {
		return onDisk{}, nil
	}
	set, _, err := readCopies(ctx, a.live, rep)
	if err != nil {
		return onDisk{}, err
	}
	s := onDisk{Mine: true, Since: a.since.At(time.Now(), rep.Name, string(rep.UID)),
		Holds: set.Holds(rep), Path: naming.ReplicaPath(rep.Spec.DiskPath, rep.Spec.DataDirectoryName)}
	if rep.Spec.DataDirectoryName == "" || s.Holds != "" {
		return s, nil // it never had one, or keeps it
	}
	var node v1beta2.Node
	if err := a.client.Get(ctx, client.ObjectKey{Namespace: rep.Namespace, Name: a.cfg.NodeName},
		&node); client.IgnoreNotFound(err) != nil {
		return s, fmt.Errorf("get node %s: %w", a.cfg.NodeName, err)
	}
	var others v1beta2.ReplicaList
	if err := a.live.List(ctx, &others, client.InNamespace(rep.Namespace),
		client.MatchingLabels{naming.LabelNode: naming.NodeLabel(a.cfg.NodeName)}); err != nil {
		return s, fmt.Errorf("list replicas: %w", err)
	}
	if s.Shared, s.Before = shared(rep, others.Items); s.Shared != "" || s.Before != "" {
		return s, nil
	}
	if s.Keep, s.MayPass = keepReason(rep, &node, others.Items); s.Keep != "" {
		return s, nil
	}
	if s.Exists, err = directoryExists(a.parent(rep), rep.Spec.DataDirectoryName); err != nil {
		return s, fmt.Errorf("look for the data of replica %s: %w", rep.Name, err)
	}
	return s, nil
}

// removeData is the agent's only order.
type removeData struct{}

func (a *Agent) carry(_ context.Context, rep *v1beta2.Replica, _ onDisk, _ any) error {
	return removeDirectory(a.parent(rep), rep.Spec.DataDirectoryName)
}

// parent is the directory that has those of the replicas on a replica's disk.
func (a *Agent) parent(rep *v1beta2.Replica) string {
	return a.cfg.Resolve(naming.InHostMount(path.Join(rep.Spec.DiskPath, naming.ReplicaDirectory)))
}

// keepReason says why a replica's directory must stay: what the object names must be, beyond doubt,
// a replica directory of its volume on a working disk of this node that nobody else uses. mayPass:
// a disk at that path is wanted on the node but not ready, as right after the node came up.
func keepReason(rep *v1beta2.Replica, node *v1beta2.Node, all []v1beta2.Replica) (reason string, mayPass bool) {
	dir := rep.Spec.DataDirectoryName
	if path.Base(dir) != dir || !naming.IsReplicaDataDirectory(dir) || !hasVolumePrefix(dir, rep.Spec.VolumeName) {
		return fmt.Sprintf("%q is not the name of a replica directory of volume %s", dir, rep.Spec.VolumeName), false
	}
	found := false
	for name, disk := range node.Spec.Disks {
		if path.Clean(disk.Path) != path.Clean(rep.Spec.DiskPath) || rep.Spec.DiskID == "" {
			continue
		}
		status := node.Status.DiskStatus[name]
		ready := condition.DiskReady(status)
		found = found || ready && status.DiskUUID == rep.Spec.DiskID
		mayPass = mayPass || !ready
	}
	if !found {
		return fmt.Sprintf("no ready disk of node %s has UUID %s at %s", node.Name, rep.Spec.DiskID, rep.Spec.DiskPath),
			mayPass
	}
	for i := range all {
		o := &all[i]
		if o.UID != rep.UID && o.Spec.DiskID == rep.Spec.DiskID && o.Spec.DataDirectoryName == dir {
			return "replica " + o.Name + " uses the same directory", false
		}
	}
	return "", false
}

// shared looks for other objects of a replica's directory: a live upgrade starts a second process
// on it. keeps is one that stays, or that is deleted and comes after rep in the order of names;
// before is one that comes before it.
func shared(rep *v1beta2.Replica, all []v1beta2.Replica) (keeps, before string) {
	for i := range all {
		o := &all[i]
		switch {
		case o.Spec.VolumeName != rep.Spec.VolumeName || !copies.SameDirectory(rep, o):
		case o.DeletionTimestamp == nil || o.Name > rep.Name:
			keeps = o.Name
		default:
			before = o.Name
		}
	}
	return keeps, before
}

func hasVolumePrefix(dir, volume string) bool {
	return volume != "" && len(dir) == len(volume)+1+8 && dir[:len(volume)+1] == volume+"-"
}

// How long a removal waits for a disk that is not ready, and how often it looks. A disk that stays
// away keeps the data, but not the volume's deletion.
const (
	diskWait  = 2 * time.Minute
	diskRetry = 2 * time.Second
	// holdRetry is how often a deleted replica that its volume cannot do without is looked at again.
	holdRetry = 2 * time.Second
)

func decideRemoval(now time.Time, rep *v1beta2.Replica, s onDisk) loop.Decision {
	if !s.Mine {
		return loop.Decision{}
	}
	switch {
	case s.Holds != "":
		return loop.Decision{After: holdRetry}
	case s.Shared != "":
		return removeFinalizer(rep)
	case s.Before != "":
		return loop.Decision{After: diskRetry} // it goes first
	}
	if s.Keep != "" && s.MayPass && now.Sub(s.Since) < diskWait {
		return loop.Decision{After: diskRetry}
	}
	if s.Keep == "" && s.Exists {
		// Crash window: a removal that was interrupted leaves part of the directory; the next step
		// removes the rest.
		return loop.Decision{
			Do:            loop.Call{What: "remove " + s.Path, Order: removeData{}},
			FailureReason: naming.EventFailedDeleting,
			After:         time.Millisecond,
		}
	}
	d := removeFinalizer(rep)
	if s.Keep != "" && d.Do != nil {
		d.Events = []loop.Event{{Warning: true, Reason: naming.EventFailedDeleting,
			Message: "Left " + s.Path + " where it is: " + s.Keep}}
	}
	return d
}

// directoryExists looks without following symbolic links out of the parent. A missing parent means
// it does not exist.
func directoryExists(parent, name string) (bool, error) {
	root, err := os.OpenRoot(parent)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer root.Close()
	info, err := root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if !info.IsDir() {
		return false, fmt.Errorf("%s is not a directory; remove it by hand", path.Join(parent, name))
	}
	return true, nil
}

// removeDirectory cannot leave the parent, whatever links lie in it, and removes nothing under a
// process: an order to start the replica may arrive late.
func removeDirectory(parent, name string) error {
	root, err := os.OpenRoot(parent)
	if err != nil {
		return err
	}
	defer root.Close()
	dir, err := directory.Hold(root, name)
	if err != nil {
		return err
	}
	defer dir.Close()
	return root.RemoveAll(name)
}
