package node

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/condition"
	"ankole.storage/controlplane/instancemanager"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/naming"
	"ankole.storage/controlplane/schedule"
	"ankole.storage/controlplane/setting"
	"ankole.storage/controlplane/setting/stored"
)

// Reconciler is the leader's part.
type Reconciler struct {
	namespace string
	client    client.Client
}

// New returns the reconciler; SetupWithManager puts it to work.
func New(namespace string) *Reconciler { return &Reconciler{namespace: namespace} }

// SetupWithManager registers the controller.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	r.client = mgr.GetClient()
	return loop.Setup(mgr, r.namespace, loop.Controller[*v1beta2.Node, seen]{
		Name:       naming.EventSource("node"),
		New:        func() *v1beta2.Node { return &v1beta2.Node{} },
		Gather:     r.gather,
		Decide:     decide,
		Conditions: conditions,
		Watches: []loop.Watch{
			loop.Watching(&corev1.Node{}, loop.BySameName[*corev1.Node]()),
			loop.Watching(&corev1.Pod{}, func(p *corev1.Pod) []string {
				if p.Labels[naming.LabelApp] != naming.AppManager {
					return nil
				}
				return []string{p.Spec.NodeName}
			}),
			loop.Watching(&v1beta2.Replica{}, r.onReplica),
			loop.Watching(&v1beta2.InstanceManager{}, loop.ByOwner[*v1beta2.InstanceManager]("Node")),
			loop.Watching(&v1beta2.Setting{}, r.onSetting),
		},
	})
}

// onReplica wakes the node of a replica and the nodes that count it, which differ while it moves.
func (r *Reconciler) onReplica(rep *v1beta2.Replica) []string {
	names := []string{}
	for _, n := range r.all() {
		counts := n.Name == rep.Spec.NodeID
		for _, d := range n.Status.DiskStatus {
			_, counted := d.ScheduledReplica[rep.Name]
			counts = counts || counted || (d.DiskUUID != "" && d.DiskUUID == rep.Spec.DiskID)
		}
		if counts {
			names = append(names, n.Name)
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
	kube := &corev1.Node{}
	switch err := r.client.Get(ctx, client.ObjectKey{Name: n.Name}, kube); {
	case err == nil:
		s.KubeNode = kube
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
		client.MatchingLabels{naming.LabelApp: naming.AppManager})
	if err != nil {
		return nil, fmt.Errorf("list manager Pods: %w", err)
	}
	var found *corev1.Pod
	for i := range pods.Items {
		p := &pods.Items[i]
		if p.Spec.NodeName == n.Name && (found == nil || condition.PodReady(p)) {
			found = p
		}
	}
	return found, nil
}

func (r *Reconciler) defaultManager(ctx context.Context, n *v1beta2.Node, image string) (*v1beta2.InstanceManager,
	error) {
	var im v1beta2.InstanceManager
	err := r.client.Get(ctx, client.ObjectKey{Namespace: n.Namespace, Name: naming.InstanceManagerName(n.Name, image)},
		&im)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the instance manager of node %s: %w", n.Name, err)
	}
	return &im, nil
}

func (r *Reconciler) gatherReplicas(ctx context.Context, n *v1beta2.Node, s *seen) error {
	own := map[string]bool{}
	for _, d := range n.Status.DiskStatus {
		own[d.DiskUUID] = d.DiskUUID != ""
	}
	s.DisksElsewhere = map[string]bool{}
	for _, other := range r.all() {
		if other.Name == n.Name {
			continue
		}
		for _, d := range other.Status.DiskStatus {
			if condition.DiskReady(d) {
				s.DisksElsewhere[d.DiskUUID] = true
			}
		}
	}
	var replicas v1beta2.ReplicaList
	// The items are shared with the cache: decide copies the one it changes.
	if err := r.client.List(ctx, &replicas, client.InNamespace(n.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list replicas: %w", err)
	}
	volumes := map[string]bool{}
	for _, rep := range replicas.Items {
		if rep.Spec.NodeID == n.Name || own[rep.Spec.DiskID] {
			s.Replicas = append(s.Replicas, rep)
			volumes[rep.Spec.VolumeName] = true
		}
	}
	if s.KubeNode != nil && s.KubeNode.Spec.Unschedulable { // only then the drain policy is asked
		for _, rep := range replicas.Items {
			if volumes[rep.Spec.VolumeName] {
				s.Siblings = append(s.Siblings, rep)
			}
		}
		var err error
		if s.Protected, err = instancemanager.ProtectedNodes(ctx, r.client, n.Namespace); err != nil {
			return err
		}
	}
	return nil
}
