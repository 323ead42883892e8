package node

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/node/instancemanager"
	"ankole.storage/controlplane/object/condition"
	"ankole.storage/controlplane/object/firstseen"
	"ankole.storage/controlplane/object/index"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/schedule"
	"ankole.storage/controlplane/setting"
	"ankole.storage/controlplane/setting/stored"
)

// Reconciler is the leader's part.
type Reconciler struct {
	namespace string
	client    client.Client
	// unready is when this process has first seen that a kubelet says its node is not ready.
	unready *firstseen.Stamps
	// twins is the same of disks that are ready at once and have one UUID.
	twins *firstseen.Stamps
}

// New returns the reconciler; SetupWithManager puts it to work.
func New(namespace string) *Reconciler {
	return &Reconciler{namespace: namespace, unready: firstseen.New(), twins: firstseen.New()}
}

// SetupWithManager registers the controller.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	r.client = mgr.GetClient()
	return loop.Setup(mgr, r.namespace, loop.Controller[*v1beta2.Node, seen]{
		Name:       naming.EventSource("node"),
		New:        func() *v1beta2.Node { return &v1beta2.Node{} },
		Gather:     r.gather,
		Decide:     decide,
		Conditions: conditions,
		// The agent of the node and the leader write one status.
		SharedStatus: true,
		Watches: []loop.Watch{
			loop.WatchingChanges(&corev1.Node{}, condition.KubeNodeChanged, loop.BySameName[*corev1.Node]()),
			loop.WatchingChanges(&corev1.Pod{}, loop.Changed(podOn), func(p *corev1.Pod) []string {
				if p.Labels[naming.LabelApp] != naming.AppManager {
					return nil
				}
				return []string{p.Spec.NodeName}
			}),
			loop.WatchingChanges(&v1beta2.Replica{}, loop.Changed(countedOf), r.onReplica).Within(countWithin),
			// Whether there is one; what it says of its processes is no matter of the node.
			loop.WatchingChanges(&v1beta2.InstanceManager{}, loop.Changed(existing),
				loop.ByOwner[*v1beta2.InstanceManager]("Node")),
			loop.WatchingChanges(&v1beta2.BackingImageManager{}, imagesChanged,
				func(m *v1beta2.BackingImageManager) []string { return []string{m.Spec.NodeID} }).Within(countWithin),
			loop.Watching(&v1beta2.Setting{}, r.onSetting),
			loop.Watching(&policyv1.PodDisruptionBudget{}, func(*policyv1.PodDisruptionBudget) []string { return r.cordoned() }),
			loop.WatchingChanges(&v1beta2.Node{}, loop.Changed(condition.CopiesView),
				func(*v1beta2.Node) []string { return r.cordoned() }),
			loop.WatchingChanges(&v1beta2.Node{}, loop.Changed(twinView), r.withTwins),
		},
	})
}

// countWithin is how long a replica may go uncounted: the status of a node with many is large, and
// what is free for new ones the allocator counts.
const countWithin = 500 * time.Millisecond

// placed is where a Pod is and whether it is ready there.
type placed struct {
	node  string
	ready bool
}

func podOn(p *corev1.Pod) placed { return placed{p.Spec.NodeName, condition.PodReady(p)} }

func existing(im *v1beta2.InstanceManager) types.UID { return im.UID }

// counted is what of a replica its node looks at: where it is, its size, and whether it may have to
// leave.
type counted struct {
	volume, node, disk, path string
	size                     int64
	evicted, deleting        bool
	active, healthy, failed  bool
}

func countedOf(r *v1beta2.Replica) counted {
	s := &r.Spec
	return counted{s.VolumeName, s.NodeID, s.DiskID, s.DiskPath, s.VolumeSize, s.EvictionRequested,
		r.DeletionTimestamp != nil, s.Active, s.HealthyAt != "", s.FailedAt != ""}
}

// onReplica wakes the node of a replica and those that report its disk, which differ while a disk
// moves, and cordoned ones with another replica of its volume, which may be the last one now. After
// an update it is asked for the replica as it was too, so that the node which counted it looks
// again.
func (r *Reconciler) onReplica(rep *v1beta2.Replica) []string {
	names := r.cordonedSiblings(rep)
	if rep.Spec.NodeID != "" {
		names = append(names, rep.Spec.NodeID)
	}
	if rep.Spec.DiskID == "" {
		return names
	}
	for _, n := range r.reporting(rep.Spec.DiskID) {
		if n != rep.Spec.NodeID {
			names = append(names, n)
		}
	}
	return names
}

// reporting names the nodes that report a disk.
func (r *Reconciler) reporting(uuid string) (names []string) {
	var list v1beta2.NodeList
	if err := r.client.List(context.Background(), &list, client.InNamespace(r.namespace), index.OnDisk(uuid),
		client.UnsafeDisableDeepCopy); err != nil {
		return nil // the cache is stopping
	}
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names
}

// withTwins names the other nodes that report a disk with the UUID of one of this node.
func (r *Reconciler) withTwins(n *v1beta2.Node) (names []string) {
	for _, d := range n.Status.DiskStatus {
		if d.DiskUUID == "" {
			continue
		}
		for _, other := range r.reporting(d.DiskUUID) {
			if other != n.Name {
				names = append(names, other)
			}
		}
	}
	return names
}

func (r *Reconciler) onSetting(s *v1beta2.Setting) []string {
	switch s.Name {
	case setting.NodeDrainPolicy, setting.DisableSchedulingOnCordonedNode, setting.StorageOverProvisioningPercentage,
		setting.StorageMinimalAvailablePercentage, setting.DefaultInstanceManagerImage:
	default:
		return nil
	}
	var names []string
	for _, n := range r.all() {
		names = append(names, n.Name)
	}
	return names
}

// cordoned names the nodes whose Kubernetes node is cordoned: whether their replicas have to leave
// depends on the others: their disruption budgets, and whether they and their disks are there.
func (r *Reconciler) cordoned() (names []string) {
	var kubes corev1.NodeList
	if err := r.client.List(context.Background(), &kubes, index.Cordoned(), client.UnsafeDisableDeepCopy); err != nil {
		return nil // the cache is stopping
	}
	for i := range kubes.Items {
		names = append(names, kubes.Items[i].Name)
	}
	return names
}

func (r *Reconciler) isCordoned(node string) bool {
	kube := &corev1.Node{}
	err := r.client.Get(context.Background(), client.ObjectKey{Name: node}, kube, client.UnsafeDisableDeepCopy)
	return err == nil && kube.Spec.Unschedulable
}

// cordonedSiblings names the cordoned nodes with another replica of a replica's volume.
func (r *Reconciler) cordonedSiblings(rep *v1beta2.Replica) (names []string) {
	siblings, err := r.replicas(context.Background(), r.namespace, index.OfVolume(rep.Spec.VolumeName))
	if err != nil {
		return nil // the cache is stopping
	}
	for i := range siblings {
		if n := siblings[i].Spec.NodeID; n != "" && n != rep.Spec.NodeID && r.isCordoned(n) {
			names = append(names, n)
		}
	}
	return names
}

// all lists the nodes from the cache, to look at only.
func (r *Reconciler) all() []v1beta2.Node {
	var list v1beta2.NodeList
	if err := r.client.List(context.Background(), &list, client.InNamespace(r.namespace),
		client.UnsafeDisableDeepCopy); err != nil {
		return nil // the cache is stopping
	}
	return list.Items
}

func (r *Reconciler) gather(ctx context.Context, n *v1beta2.Node) (seen, error) {
	values, err := stored.Read(ctx, r.client, n.Namespace)
	if err != nil {
		return seen{}, err
	}
	s := seen{
		DefaultManagerImage: values.String(setting.DefaultInstanceManagerImage),
		DrainPolicy:         values.String(setting.NodeDrainPolicy),
		DisableOnCordon:     values.Bool(setting.DisableSchedulingOnCordonedNode),
		Policy: schedule.Policy{
			OverProvisioningPercent: int64(values.Int(setting.StorageOverProvisioningPercentage)),
			MinimalAvailablePercent: int64(values.Int(setting.StorageMinimalAvailablePercentage)),
		},
	}
	if s.Images, err = r.imagesOn(ctx, n); err != nil {
		return seen{}, err
	}
	kube := &corev1.Node{}
	switch err := r.client.Get(ctx, client.ObjectKey{Name: n.Name}, kube, client.UnsafeDisableDeepCopy); {
	case err == nil:
		s.KubeNode = kube
		s.Unready = r.unready.At(time.Now(), n.Name, unreadyStamp(kube))
	case !apierrors.IsNotFound(err):
		return seen{}, fmt.Errorf("read Kubernetes node %s: %w", n.Name, err)
	}
	if s.ManagerPod, err = r.managerPod(ctx, n); err != nil {
		return seen{}, err
	}
	if s.DefaultManager, err = r.defaultManager(ctx, n, s.DefaultManagerImage); err != nil {
		return seen{}, err
	}
	return s, r.gatherReplicas(ctx, n, &s)
}

// managerPod finds the manager Pod on the node: a ready one rather than one that ends.
func (r *Reconciler) managerPod(ctx context.Context, n *v1beta2.Node) (*corev1.Pod, error) {
	var pods corev1.PodList
	err := r.client.List(ctx, &pods, client.InNamespace(n.Namespace),
		index.ManagerOn(n.Name), client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, fmt.Errorf("list manager Pods: %w", err)
	}
	var found *corev1.Pod
	for i := range pods.Items {
		p := &pods.Items[i]
		if found == nil || condition.PodReady(p) {
			found = p
		}
	}
	return found, nil
}

func (r *Reconciler) defaultManager(ctx context.Context, n *v1beta2.Node, image string) (*v1beta2.InstanceManager,
	error) {
	var im v1beta2.InstanceManager
	err := r.client.Get(ctx, client.ObjectKey{Namespace: n.Namespace, Name: naming.InstanceManagerName(n.Name, image)},
		&im, client.UnsafeDisableDeepCopy)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the instance manager of node %s: %w", n.Name, err)
	}
	return &im, nil
}

// gatherReplicas reads the replicas of the node. The items are shared with the cache: decide copies
// the one it changes.
func (r *Reconciler) gatherReplicas(ctx context.Context, n *v1beta2.Node, s *seen) error {
	replicas, err := r.replicas(ctx, n.Namespace, index.OnNode(n.Name))
	if err != nil {
		return err
	}
	s.Replicas = replicas
	for _, d := range n.Status.DiskStatus {
		if d.DiskUUID == "" {
			continue
		}
		onDisk, err := r.replicas(ctx, n.Namespace, index.OnDisk(d.DiskUUID))
		if err != nil {
			return err
		}
		for i := range onDisk {
			if onDisk[i].Spec.NodeID != n.Name { // the others are there already
				s.Replicas = append(s.Replicas, onDisk[i])
			}
		}
	}
	if s.Others, err = r.others(ctx, n, s.Replicas); err != nil {
		return err
	}
	s.TwinsSince = r.twins.Each(time.Now(), n.Name, twinStamps(n, *s))
	if s.KubeNode == nil || !s.KubeNode.Spec.Unschedulable {
		return nil // only for a cordoned node the drain policy is asked
	}
	volumes := map[string]bool{}
	for i := range s.Replicas {
		name := s.Replicas[i].Spec.VolumeName
		if volumes[name] {
			continue
		}
		volumes[name] = true
		siblings, err := r.replicas(ctx, n.Namespace, index.OfVolume(name))
		if err != nil {
			return err
		}
		s.Siblings = append(s.Siblings, siblings...)
	}
	s.Shelter, err = instancemanager.ReadShelter(ctx, r.client, n.Namespace)
	return err
}

// others reads the nodes that seen.Others has, to look at only.
func (r *Reconciler) others(ctx context.Context, n *v1beta2.Node, replicas []v1beta2.Replica) (
	map[string]*v1beta2.Node, error) {
	names := r.withTwins(n)
	for i := range replicas {
		names = append(names, replicas[i].Spec.NodeID)
	}
	out := map[string]*v1beta2.Node{}
	for _, name := range names {
		if name == n.Name || out[name] != nil {
			continue
		}
		other := &v1beta2.Node{}
		err := r.client.Get(ctx, client.ObjectKey{Namespace: n.Namespace, Name: name}, other, client.UnsafeDisableDeepCopy)
		switch {
		case err == nil:
			out[name] = other
		case !apierrors.IsNotFound(err):
			return nil, fmt.Errorf("read node %s: %w", name, err)
		}
	}
	return out, nil
}

func (r *Reconciler) replicas(ctx context.Context, namespace string, which client.ListOption) ([]v1beta2.Replica,
	error) {
	var list v1beta2.ReplicaList
	if err := r.client.List(ctx, &list, client.InNamespace(namespace), which, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list replicas: %w", err)
	}
	return list.Items, nil
}
