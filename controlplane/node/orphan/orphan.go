// Package orphan looks after Orphan objects. They come about when an object is deleted while its
// node is away: its process, and its data, are there again with the node.
//
//   - Processes: engines and replicas that run in an instance manager while there is no Engine or
//     Replica of their name any more. The controller of instance managers reports them (Of), and
//     the leader (Reconciler) looks after them.
//   - Data: directories of replicas that no Replica names. The manager of their node (Agent) finds
//     them, reports them (OfData) and looks after them; the leader does while that node is not Ready.
//
// Deleting the Orphan ends the process, or removes the directory. That is done by a person, or by
// this package where setting orphan-resource-auto-deletion names the kind, after the grace period.
// docs/design/controlplane.md has the decision tables.
package orphan

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/object/condition"
	"ankole.storage/controlplane/object/firstseen"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/process/heard"
	"ankole.storage/controlplane/process/instance"
	"ankole.storage/controlplane/setting"
	"ankole.storage/controlplane/setting/stored"
)

// Config of the reconciler.
type Config struct {
	// Namespace of all objects.
	Namespace string
	// NodeName is the leader's node, the owner of orphans whose node is down.
	NodeName string
	// Heard is what instance managers say of their processes.
	Heard *heard.Lists
}

// Reconciler looks after orphaned processes, and after data on nodes that are not Ready. Use New.
type Reconciler struct {
	cfg       Config
	client    client.Client
	live      client.Reader
	processes instance.Processes
	since     *firstseen.Stamps
}

// New returns the reconciler; processes reaches the instance managers.
func New(cfg Config, processes instance.Processes) *Reconciler {
	return &Reconciler{cfg: cfg, processes: processes, since: firstseen.New()}
}

// SetupWithManager registers it; it runs on the leader.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	r.client, r.live = mgr.GetClient(), mgr.GetAPIReader()
	return loop.Setup(mgr, r.cfg.Namespace, r.Controller())
}

// WithClient gives the reconciler its client where there is no manager (tests).
func (r *Reconciler) WithClient(c client.Client) *Reconciler {
	r.client, r.live = c, c
	return r
}

// Controller describes the loop, for tests that step it by hand.
func (r *Reconciler) Controller() loop.Controller[*v1beta2.Orphan, seen] {
	return loop.Controller[*v1beta2.Orphan, seen]{
		Name:   naming.EventSource("orphan"),
		New:    func() *v1beta2.Orphan { return &v1beta2.Orphan{} },
		Gather: r.gather,
		Decide: decide,
		Carry:  r.carry,
		Gone:   func(_ context.Context, key client.ObjectKey) { r.since.At(time.Time{}, key.Name, "") },
		Watches: []loop.Watch{
			loop.Watching(&v1beta2.InstanceManager{}, func(im *v1beta2.InstanceManager) []string {
				return r.names(client.MatchingLabels{naming.LabelInstanceManager: im.Name})
			}),
			loop.Watching(&v1beta2.Node{}, func(n *v1beta2.Node) []string {
				return r.names(client.MatchingLabels{naming.LabelNode: naming.NodeLabel(n.Name)})
			}),
			loop.Watching(&v1beta2.Setting{}, r.onSetting),
		},
	}
}

func (r *Reconciler) onSetting(s *v1beta2.Setting) []string {
	if !decidesDeletion(s) {
		return nil
	}
	return r.names()
}

func (r *Reconciler) names(which ...client.ListOption) []string {
	var list v1beta2.OrphanList
	which = append(which, client.InNamespace(r.cfg.Namespace))
	if err := r.client.List(context.Background(), &list, which...); err != nil {
		return nil // the cache does not fail; an object's own change wakes it too
	}
	out := make([]string, len(list.Items))
	for i := range list.Items {
		out[i] = list.Items[i].Name
	}
	return out
}

// Of returns the Orphan of a process in an instance manager.
func Of(im *v1beta2.InstanceManager, p *v1beta2.InstanceProcess) *v1beta2.Orphan {
	kind, label := v1beta2.OrphanTypeReplicaInstance, naming.LabelReplica
	if p.Status.Type == v1beta2.InstanceTypeEngine {
		kind, label = v1beta2.OrphanTypeEngineInstance, naming.LabelEngine
	}
	return &v1beta2.Orphan{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: im.Namespace,
			Name: naming.OrphanInstanceName(p.Spec.Name, p.Status.UUID, im.Name,
				string(v1beta2.DataEngineTypeV1)),
			Labels:     naming.OrphanInstanceLabels(im.Spec.NodeID, string(kind), im.Name, label, p.Spec.Name),
			Finalizers: []string{v1beta2.Finalizer},
		},
		Spec: v1beta2.OrphanSpec{
			DataEngine: v1beta2.DataEngineTypeV1, NodeID: im.Spec.NodeID, OrphanType: kind,
			Parameters: map[string]string{
				v1beta2.OrphanParameterInstanceName:    p.Spec.Name,
				v1beta2.OrphanParameterInstanceUUID:    p.Status.UUID,
				v1beta2.OrphanParameterInstanceManager: im.Name,
			},
		},
	}
}

// Owned says whether an Engine or Replica of a process's name exists. Whoever has the name looks
// after the process: it takes it, or ends it.
func Owned(ctx context.Context, c client.Reader, namespace, name string, engine bool) (bool, error) {
	var object client.Object = &v1beta2.Replica{}
	if engine {
		object = &v1beta2.Engine{}
	}
	err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, object, client.UnsafeDisableDeepCopy)
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("look for the object of process %s: %w", name, err)
	}
	return err == nil, nil
}

// seen is what decide looks at besides the orphan.
type seen struct {
	// Manager is the orphan's instance manager, nil if it is gone.
	Manager *v1beta2.InstanceManager
	// Process is the orphan's process as Manager was heard to say, nil if it is not there. Silent:
	// nothing was heard from Manager yet.
	Process *v1beta2.InstanceProcess
	Silent  bool
	// Node is the orphan's, nil if it is gone.
	Node *v1beta2.Node
	// NodeDown: the node does not answer or is gone.
	NodeDown bool
	// Owned: there is an object of the process's name.
	Owned bool
	// Auto: orphaned processes are deleted when they are Grace old.
	Auto  bool
	Grace time.Duration
	// Since is when this process has seen it first, or that it is deleted.
	Since time.Time
	// Owner of an orphan whose node is down.
	Owner string
}

func (r *Reconciler) gather(ctx context.Context, o *v1beta2.Orphan) (seen, error) {
	s := seen{Owner: r.cfg.NodeName, Since: r.since.At(time.Now(), o.Name, stampOf(o))}
	var err error
	s.Node, err = readNode(ctx, r.client, client.ObjectKey{Namespace: o.Namespace, Name: o.Spec.NodeID})
	if err != nil || !ofProcess(o) {
		return s, err
	}
	s.NodeDown = condition.NodeDown(s.Node)
	settings, err := stored.Read(ctx, r.client, o.Namespace)
	if err != nil {
		return s, err
	}
	s.Auto, s.Grace = autoDeletion(settings, setting.OrphanKindInstance)
	var im v1beta2.InstanceManager
	key := client.ObjectKey{Namespace: o.Namespace, Name: o.Spec.Parameters[v1beta2.OrphanParameterInstanceManager]}
	switch err := r.client.Get(ctx, key, &im); {
	case client.IgnoreNotFound(err) != nil:
		return s, fmt.Errorf("get instance manager %s: %w", key.Name, err)
	case err == nil:
		s.Manager = &im
	}
	name := o.Spec.Parameters[v1beta2.OrphanParameterInstanceName]
	uuid := o.Spec.Parameters[v1beta2.OrphanParameterInstanceUUID]
	list, _ := r.cfg.Heard.Of(key.Name)
	s.Silent = list == nil
	if p := list.Find(name); p != nil && p.Status.UUID == uuid {
		s.Process = p
	}
	engine := o.Spec.OrphanType == v1beta2.OrphanTypeEngineInstance
	s.Owned, err = Owned(ctx, r.client, o.Namespace, name, engine)
	return s, err
}

// endProcess is the only order about an orphaned process.
type endProcess struct{}

// carry ends the process, unless it has an object again.
func (r *Reconciler) carry(ctx context.Context, o *v1beta2.Orphan, s seen, _ any) error {
	name := o.Spec.Parameters[v1beta2.OrphanParameterInstanceName]
	owned, err := Owned(ctx, r.live, o.Namespace, name, o.Spec.OrphanType == v1beta2.OrphanTypeEngineInstance)
	if err != nil || owned {
		return err
	}
	return r.processes.DeleteLast(ctx, s.Manager, name, s.Process.Status.UUID)
}

// ofProcess tells an orphan of this package from one of data.
func ofProcess(o *v1beta2.Orphan) bool {
	return o.Spec.OrphanType == v1beta2.OrphanTypeEngineInstance || o.Spec.OrphanType == v1beta2.OrphanTypeReplicaInstance
}

// stampOf tells an orphan from one of its name before it, and from itself before it was deleted.
func stampOf(o *v1beta2.Orphan) string {
	stamp := string(o.UID) + " made " + o.CreationTimestamp.String()
	if o.DeletionTimestamp != nil {
		stamp = string(o.UID) + " deleted " + o.DeletionTimestamp.String()
	}
	return stamp
}
