package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/setting"
	"ankole.storage/controlplane/setting/stored"
)

// AgentConfig is what the agent of a node is told.
type AgentConfig struct {
	Namespace, NodeName, PodName string
	Host                         Host
}

// Agent reports the facts of its own node; its manager's cache needs that node's objects and the
// settings only.
type Agent struct {
	cfg    AgentConfig
	client client.Client
	health *healthWatch
	// unprepared is, by the path of a disk, why its last preparation failed.
	unprepared sync.Map
}

// NewAgent returns the agent of a node.
func NewAgent(cfg AgentConfig) *Agent {
	return &Agent{cfg: cfg, health: newHealthWatch(cfg.Host.Health, time.Now)}
}

// SetupWithManager registers the agent with the manager of the node's own objects.
func (a *Agent) SetupWithManager(mgr ctrl.Manager) error {
	a.client = mgr.GetClient()
	if err := mgr.Add(a.health); err != nil {
		return fmt.Errorf("add the questions about the health of disks: %w", err)
	}
	return loop.Setup(mgr, a.cfg.Namespace, loop.Controller[*v1beta2.Node, agentSeen]{
		Name:       naming.EventSource("node"),
		New:        func() *v1beta2.Node { return &v1beta2.Node{} },
		Gather:     a.gather,
		Decide:     decideAgent,
		Carry:      a.carry,
		Conditions: conditions,
		// The agent of the node and the leader write one status.
		SharedStatus: true,
		Wakeups:      loop.By(a.health.wakeups),
		Watches:      []loop.Watch{loop.Watching(&corev1.Node{}, loop.BySameName[*corev1.Node]())},
	})
}

func (a *Agent) gather(ctx context.Context, n *v1beta2.Node) (agentSeen, error) {
	s := agentSeen{Facts: map[string]DiskFacts{}}
	if n.Name != a.cfg.NodeName {
		return s, fmt.Errorf("the agent of node %s was asked about node %s: its cache is not restricted",
			a.cfg.NodeName, n.Name)
	}
	kube := &corev1.Node{}
	switch err := a.client.Get(ctx, client.ObjectKey{Name: n.Name}, kube); {
	case err == nil:
		s.KubeNode = kube
	case !apierrors.IsNotFound(err):
		return s, fmt.Errorf("read Kubernetes node %s: %w", n.Name, err)
	}
	for name := range n.Status.DiskStatus {
		path := n.Spec.Disks[name].Path
		facts := a.cfg.Host.Look(path, false)
		if why, failed := a.unprepared.Load(path); failed {
			facts.Unprepared = why.(string)
		}
		s.Facts[name] = facts
	}
	pod := &corev1.Pod{}
	if err := a.client.Get(ctx, client.ObjectKey{Namespace: a.cfg.Namespace, Name: a.cfg.PodName}, pod); err != nil {
		pod = nil // only a check of mounts is lost
	}
	s.Host = a.cfg.Host.Checks(pod)
	values, err := stored.Read(ctx, a.client, n.Namespace)
	if err != nil {
		return s, err
	}
	s.Health = a.healthOf(n, values.Bool(setting.NodeDiskHealthMonitoring))
	if s.Join, err = lackedBy(n, s.KubeNode, rulesFrom(values), a.cfg.Host.Look); err != nil {
		slog.Warn("the node does not get all that it asks for", "node", n.Name, "err", err)
	}
	return s, nil
}

// carry prepares disks; one that takes no file does not keep the others from theirs.
func (a *Agent) carry(_ context.Context, n *v1beta2.Node, _ agentSeen, order any) (err error) {
	for _, name := range order.(prepareOrder).Disks {
		err = errors.Join(err, a.prepare(n.Spec.Disks[name].Path, name))
	}
	return err
}

// prepare is Host.Prepare; its error is told with the disk's condition.
func (a *Agent) prepare(path, diskName string) error {
	err := a.cfg.Host.Prepare(path, diskName)
	if err == nil {
		a.unprepared.Delete(path)
		return nil
	}
	why := err.Error()
	if errno := syscall.Errno(0); errors.As(err, &errno) {
		why = errno.Error() // the rest names a temporary file, another one each time
	}
	a.unprepared.Store(path, why)
	return err
}

// healthOf is what the devices below each disk say about themselves; nil if nobody is to ask.
func (a *Agent) healthOf(n *v1beta2.Node, wanted bool) map[string]Health {
	if !wanted {
		a.health.Forget()
		return nil
	}
	out := map[string]Health{}
	for name, d := range n.Status.DiskStatus {
		if path := n.Spec.Disks[name].Path; path != "" {
			out[name] = a.health.Of(n.Name, path, d.HealthDataLastCollectedAt.Time)
		}
	}
	return out
}

// joinSettings are those that rulesFrom reads.
var joinSettings = []string{setting.CreateDefaultDiskLabeledNodes, setting.DefaultDataPath,
	setting.StorageReservedPercentageForDefaultDisk}

// ErrNoSettings: the controllers have not made the settings yet. A node that joins by their
// defaults may get a disk that its administrator does not want.
var ErrNoSettings = errors.New("no controller has made the setting yet")

func rulesFrom(v setting.Values) joinRules {
	return joinRules{
		LabeledOnly:     v.Bool(setting.CreateDefaultDiskLabeledNodes),
		DataPath:        v.String(setting.DefaultDataPath),
		ReservedPercent: int64(v.Int(setting.StorageReservedPercentageForDefaultDisk)),
	}
}

// Join makes the Node object of this node, with its default disk, if there is none yet.
func Join(ctx context.Context, c client.Client, cfg AgentConfig) error {
	err := c.Get(ctx, client.ObjectKey{Namespace: cfg.Namespace, Name: cfg.NodeName}, &v1beta2.Node{})
	if !apierrors.IsNotFound(err) {
		return err
	}
	kube := &corev1.Node{}
	if err := c.Get(ctx, client.ObjectKey{Name: cfg.NodeName}, kube); err != nil {
		return fmt.Errorf("read Kubernetes node %s: %w", cfg.NodeName, err)
	}
	values, err := stored.Read(ctx, c, cfg.Namespace)
	if err != nil {
		return err
	}
	for _, name := range joinSettings {
		if _, there := values[name]; !there {
			return fmt.Errorf("%w: %s", ErrNoSettings, name)
		}
	}
	j, err := joinFor(kube, rulesFrom(values), cfg.Host.Look)
	if err != nil {
		// Its administrator adds the rest when the cause is mended.
		slog.Warn("node joins without some disks or tags", "node", cfg.NodeName, "err", err)
	}
	err = c.Create(ctx, newNode(cfg.Namespace, cfg.NodeName, j))
	if apierrors.IsInvalid(err) {
		slog.Warn("node joins without the disks and tags it asks for, which are refused", "node", cfg.NodeName, "err", err)
		err = c.Create(ctx, newNode(cfg.Namespace, cfg.NodeName, joining{}))
	}
	if err == nil {
		slog.Info("node joined", "node", cfg.NodeName, "disks", len(j.Disks))
	}
	return client.IgnoreAlreadyExists(err)
}
