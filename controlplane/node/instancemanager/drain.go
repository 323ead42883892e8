package instancemanager

import (
	"context"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/object/condition"
	"ankole.storage/controlplane/object/index"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/setting"
)

// engineName matches names of engine processes: the volume, "-e-", and a last part without a dash.
var engineName = regexp.MustCompile(`^.+-e-[^-]+$`)

func isEngineName(process string) bool { return engineName.MatchString(process) }

// Values of setting node-drain-policy.
const (
	drainAlways    = "always-allow"
	drainIfStopped = "allow-if-replica-is-stopped"
	// DrainEviction and DrainEvictionOfLast move replicas away from a cordoned node.
	DrainEviction       = "block-for-eviction"
	DrainEvictionOfLast = "block-for-eviction-if-contains-last-replica"
	// The default, block-if-contains-last-replica, and DrainEvictionOfLast ask the same of a drain:
	// a copy elsewhere.
)

// budgetRetry is when a budget is looked at again that the cache would let go and the live objects
// do not: the cache lags behind.
const budgetRetry = time.Second

// anyVolume is the holder of a budget that is being judged at the moment.
const anyVolume = "*"

// drains are the instance managers whose node is to be drained: those whose budget is held back,
// each with a volume that holds it, and those that may be drained, each with its node.
type drains struct {
	mu       sync.Mutex
	held     map[string]string
	released map[string]string
}

func newDrains() *drains { return &drains{held: map[string]string{}, released: map[string]string{}} }

// release notes that nothing holds the budget of an instance manager on a node that is to be
// drained.
func (d *drains) release(manager, node string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.held, manager)
	d.released[manager] = node
}

// on lists the instance managers on nodes that may be drained: on those nodes, or all for nil.
func (d *drains) on(nodes func() []string) (names []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.released) == 0 {
		return nil
	}
	var these []string
	if nodes != nil {
		these = nodes()
	}
	for manager, node := range d.released {
		if nodes == nil || slices.Contains(these, node) {
			names = append(names, manager)
		}
	}
	return names
}

// note says which volume holds the budget of an instance manager, "" for none.
func (d *drains) note(manager, volume string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.released, manager)
	if volume == "" {
		delete(d.held, manager)
	} else {
		d.held[manager] = volume
	}
}

// names lists the instance managers whose budget a volume holds; those of all volumes for "".
func (d *drains) names(volume string) (names []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for manager, holder := range d.held {
		if volume == "" || volume == holder || holder == anyVolume {
			names = append(names, manager)
		}
	}
	return names
}

// drainWatches end the wait of a budget that is held back: a change of the volume that holds it,
// another budget that comes or goes, or a node that does, with its disks. A budget that was let go
// comes back when one of these changes so that it has to.
func (r *Reconciler) drainWatches() []loop.Watch {
	d, owner := r.drains, loop.ByOwner[*policyv1.PodDisruptionBudget]("InstanceManager")
	return []loop.Watch{
		loop.Watching(&v1beta2.Engine{}, func(e *v1beta2.Engine) []string {
			return r.drainedWith(e.Spec.VolumeName, e.Spec.NodeID)
		}),
		loop.Watching(&v1beta2.Replica{}, func(o *v1beta2.Replica) []string {
			return r.drainedWith(o.Spec.VolumeName, o.Spec.NodeID)
		}),
		loop.Watching(&policyv1.PodDisruptionBudget{}, func(b *policyv1.PodDisruptionBudget) []string {
			return slices.Concat(owner(b), d.names(""), d.on(nil))
		}),
		loop.WatchingChanges(&v1beta2.Node{}, loop.Changed(condition.CopiesView), func(*v1beta2.Node) []string {
			return append(d.names(""), d.on(nil)...)
		}),
	}
}

// drainedWith names the instance managers of nodes that are to be drained, and whose budget a
// volume holds or may hold: it has a replica there, or is changed on node.
func (r *Reconciler) drainedWith(volume, node string) []string {
	nodes := func() []string { return append(r.nodesOf(volume), node) }
	return append(r.drains.names(volume), r.drains.on(nodes)...)
}

// nodesOf lists the nodes that have a replica of a volume, from the cache.
func (r *Reconciler) nodesOf(volume string) (nodes []string) {
	var list v1beta2.ReplicaList
	if err := r.client.List(context.Background(), &list, client.InNamespace(r.cfg.Namespace), index.OfVolume(volume),
		client.UnsafeDisableDeepCopy); err != nil {
		return nil // the cache is stopping
	}
	for i := range list.Items {
		nodes = append(nodes, list.Items[i].Spec.NodeID)
	}
	return nodes
}

// gatherDrain finds out whether the disruption budget may go: the node is being emptied, or the
// autoscaler may remove it, and the drain policy is satisfied. The cache says whether it is worth
// asking; reserve asks the live objects.
func (r *Reconciler) gatherDrain(ctx context.Context, im *v1beta2.InstanceManager, s *seen) error {
	if !s.cordoned() && !s.Autoscaler {
		r.drains.note(im.Name, "")
		return nil
	}
	if s.mayRun() && s.Processes == nil { // nobody knows yet, and the first list ends this wait
		r.drains.note(im.Name, "")
		return nil
	}
	if process := s.engineIn(); process != "" { // the list of processes ends this wait
		r.drains.note(im.Name, "")
		s.Held = heldByEngine(process[:max(0, strings.LastIndex(process, "-e-"))])
		return nil
	}
	// Before anything is read: what changes after that is not in what drainHolder sees.
	r.drains.note(im.Name, anyVolume)
	node, policy := im.Spec.NodeID, s.DrainPolicy
	held, err := drainHolder(ctx, r.client, im.Namespace, node, policy, nil)
	if err != nil {
		return err
	}
	if held.volume == "" {
		r.drains.release(im.Name, node)
	} else {
		r.drains.note(im.Name, held.volume)
	}
	s.Held, s.Drained = held, held.volume == ""
	return nil
}

// reserve lets the disruption budget go, if live objects allow it.
func (r *Reconciler) reserve(ctx context.Context, im *v1beta2.InstanceManager, s seen, _ loop.Change) (func(error),
	error) {
	node := im.Spec.NodeID
	return r.cfg.Budgets.Release(ctx, node, func(ctx context.Context, released map[string]bool) (bool, error) {
		held, err := drainHolder(ctx, r.live, im.Namespace, node, s.DrainPolicy, released)
		if held.volume != "" {
			slog.Info("the disruption budget of a node that is drained is kept", "node", node, "reason", held.message)
		}
		return held.volume == "", err
	})
}

// drainHolder says for which volume the node must not be drained yet, if there is one.
// Budgets of the nodes in released do not count.
func drainHolder(ctx context.Context, c client.Reader, namespace, node, policy string,
	released map[string]bool) (held hold, err error) {
	in := []client.ListOption{client.InNamespace(namespace), client.UnsafeDisableDeepCopy}
	var engines v1beta2.EngineList
	if err := c.List(ctx, &engines, in...); err != nil {
		return held, fmt.Errorf("list engines: %w", err)
	}
	var replicas v1beta2.ReplicaList
	if err := c.List(ctx, &replicas, in...); err != nil {
		return held, fmt.Errorf("list replicas: %w", err)
	}
	shelter, err := ReadShelter(ctx, c, namespace)
	if err != nil {
		return held, err
	}
	for n := range released {
		delete(shelter.budgets, naming.NodeLabel(n))
	}
	return mayDrain(node, policy, engines.Items, replicas.Items, shelter), nil
}

// Shelter is where copies are left alone by drains: on nodes whose instance manager has a
// disruption budget, and which are there, with the disk. A budget may outlive its machine: it goes
// with its instance manager, whose Node stays while replicas are on it.
type Shelter struct {
	budgets map[string]bool
	nodes   map[string]*v1beta2.Node
}

// NewShelter joins the labels of nodes with a budget and all nodes.
func NewShelter(budgets []string, nodes []v1beta2.Node) Shelter {
	s := Shelter{map[string]bool{}, map[string]*v1beta2.Node{}}
	for _, n := range budgets {
		s.budgets[n] = true
	}
	for i := range nodes {
		s.nodes[nodes[i].Name] = &nodes[i]
	}
	return s
}

// ReadShelter reads it from the cache or live.
func ReadShelter(ctx context.Context, r client.Reader, namespace string) (Shelter, error) {
	in := []client.ListOption{client.InNamespace(namespace), client.UnsafeDisableDeepCopy}
	var budgets policyv1.PodDisruptionBudgetList
	if err := r.List(ctx, &budgets,
		append(in, client.MatchingLabels{naming.LabelComponent: naming.ComponentInstanceManager})...); err != nil {
		return Shelter{}, fmt.Errorf("list disruption budgets: %w", err)
	}
	var names []string
	for _, b := range budgets.Items {
		if b.DeletionTimestamp == nil {
			names = append(names, b.Labels[naming.LabelOnNode])
		}
	}
	var nodes v1beta2.NodeList
	if err := r.List(ctx, &nodes, in...); err != nil {
		return Shelter{}, fmt.Errorf("list nodes: %w", err)
	}
	return NewShelter(names, nodes.Items), nil
}

// keeps says whether a drain leaves a replica alone, and its copy is there.
func (s Shelter) keeps(r *v1beta2.Replica) bool {
	return s.budgets[naming.NodeLabel(r.Spec.NodeID)] && condition.CopyThere(s.nodes[r.Spec.NodeID], r)
}

// hold is why a budget is kept: a volume, a reason of condition DrainAllowed, and what a person can
// do.
type hold struct{ volume, reason, message string }

// unmovable names the policies under which a drain does not wait for another copy.
const unmovable = "; where there is no place for one (event EvictionFailed), " + drainIfStopped +
	" lets the drain go on while the volume is detached, " + drainAlways + " while its engine is elsewhere"

func heldByEngine(volume string) hold {
	return hold{volume, v1beta2.InstanceManagerReasonEngineOnNode, fmt.Sprintf("volume %s is attached here: "+
		"the drain goes on when the Pods that use it have left, or when it is detached", volume)}
}

// mayDrain applies the drain policy to one node and says what holds the node's budget, if anything
// does.
func mayDrain(node, policy string, engines []v1beta2.Engine, replicas []v1beta2.Replica, shelter Shelter) hold {
	for i := range engines {
		if engines[i].Spec.NodeID == node {
			return heldByEngine(engines[i].Spec.VolumeName)
		}
	}
	if policy == drainAlways {
		return hold{}
	}
	recorded := recordedCopies(engines, replicas)
	for i := range replicas {
		rep := &replicas[i]
		volume := rep.Spec.VolumeName
		if rep.Spec.NodeID != node {
			continue
		}
		if policy == DrainEviction {
			return hold{volume, v1beta2.InstanceManagerReasonReplicaOnNode, fmt.Sprintf("replica %s of volume %s is "+
				"moved to another node first (setting node-drain-policy is %s)%s", rep.Name, volume, policy, unmovable)}
		}
		if policy == drainIfStopped && rep.Status.CurrentState == v1beta2.InstanceStateStopped {
			continue
		}
		if rep.Spec.HealthyAt == "" && rep.Spec.FailedAt == "" {
			continue // never started: holds nothing
		}
		if !CopyElsewhere(rep, recorded, shelter) {
			return hold{volume, v1beta2.InstanceManagerReasonLastReplica, fmt.Sprintf("replica %s of volume %s has no "+
				"healthy copy on another node that a drain leaves alone (setting node-drain-policy is %s): rebuild one "+
				"elsewhere first%s", rep.Name, volume, policy, unmovable)}
		}
	}
	return hold{}
}

// recordedCopies leaves out the replicas that are not members of their volume's newest record: they
// may lack what was written since, whatever their marks say.
func recordedCopies(engines []v1beta2.Engine, replicas []v1beta2.Replica) []v1beta2.Replica {
	newest := map[string]*v1beta2.Membership{}
	for i := range engines {
		m, volume := engines[i].Status.Membership, engines[i].Spec.VolumeName
		if m != nil && len(m.Members) > 0 && (newest[volume] == nil || m.Epoch > newest[volume].Epoch) {
			newest[volume] = m
		}
	}
	return slices.DeleteFunc(slices.Clone(replicas), func(r v1beta2.Replica) bool {
		m := newest[r.Spec.VolumeName]
		return m != nil && !slices.Contains(m.Members, r.Spec.DataDirectoryName)
	})
}

// CopyElsewhere tells whether the volume has a healthy replica on another node that a drain would
// not take away.
func CopyElsewhere(of *v1beta2.Replica, replicas []v1beta2.Replica, shelter Shelter) bool {
	for i := range replicas {
		r := &replicas[i]
		if r.Spec.VolumeName == of.Spec.VolumeName && r.Spec.NodeID != of.Spec.NodeID && r.Spec.Active &&
			r.Spec.HealthyAt != "" && r.Spec.FailedAt == "" && r.DeletionTimestamp == nil && shelter.keeps(r) {
			return true
		}
	}
	return false
}

// gatherSettings reads the settings decide needs.
func (r *Reconciler) gatherSettings(s *seen, v setting.Values) {
	s.Settings = SettingsFrom(v, r.cfg.ServiceAccount)
	s.DefaultImage = v.String(setting.DefaultInstanceManagerImage)
	s.DrainPolicy = v.String(setting.NodeDrainPolicy)
	s.Autoscaler = v.Bool(setting.KubernetesClusterAutoscalerEnabled)
}
