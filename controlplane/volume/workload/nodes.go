package workload

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/object/condition"
	"ankole.storage/controlplane/object/firstseen"
	"ankole.storage/controlplane/object/live"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/setting"
	"ankole.storage/controlplane/setting/stored"
)

// nodeLook is how often a node that is down is looked at without a reason. Kubernetes evicting one
// of its Pods is a reason.
const nodeLook = 30 * time.Second

// nodes deletes Pods that hang on nodes that are down.
type nodes struct {
	namespace string
	client    client.Client
	live      client.Reader
	now       func() time.Time
	// deleted is when this process has first seen that Pods of a node were deleted.
	deleted *firstseen.Stamps
}

func (r *nodes) controller() loop.Controller[*v1beta2.Node, nodeSeen] {
	return loop.Controller[*v1beta2.Node, nodeSeen]{
		Name:   naming.EventSource("kubernetes-pod"),
		New:    func() *v1beta2.Node { return &v1beta2.Node{} },
		Gather: r.gather,
		Carry: func(ctx context.Context, _ *v1beta2.Node, _ nodeSeen, order any) error {
			return order.(deletion).carry(ctx, r.client)
		},
		Decide: decideNode,
		Watches: []loop.Watch{
			loop.Watching(&v1beta2.Setting{}, r.onSetting),
			loop.WatchingChanges(&corev1.Pod{}, evicted, nodeOf).Elsewhere(),
		},
	}
}

// evicted tells whether a Pod was deleted or is gone: it may hang then, or leave its volume behind.
func evicted(before, after *corev1.Pod) bool {
	return before.DeletionTimestamp.IsZero() != after.DeletionTimestamp.IsZero()
}

func nodeOf(p *corev1.Pod) []string {
	if p.Spec.NodeName == "" || p.DeletionTimestamp.IsZero() {
		return nil
	}
	return []string{p.Spec.NodeName}
}

// onSetting wakes all nodes where the policy has changed.
func (r *nodes) onSetting(s *v1beta2.Setting) []string {
	if s.Name != setting.NodeDownPodDeletionPolicy {
		return nil
	}
	var list v1beta2.NodeList
	if err := r.client.List(context.Background(), &list, client.InNamespace(r.namespace),
		client.UnsafeDisableDeepCopy); err != nil {
		return nil // the cache does not fail; the node's own change wakes it too
	}
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names
}

// nodeSeen is what decide looks at besides the node.
type nodeSeen struct {
	// Policy is the setting's value. Where it leaves Pods alone, or the node is not down, nothing
	// else is set.
	Policy string
	Down   bool
	// Claims are those bound to volumes of this system, with their PersistentVolumes.
	Claims map[claim]string
	// Pods of the node that use one of them. DeletedAt is when this process has first seen that they
	// were deleted, by UID.
	Pods      []*corev1.Pod
	DeletedAt map[string]time.Time
	// Attachments of these PersistentVolumes to the node, as Kubernetes has them.
	Attachments []*storagev1.VolumeAttachment
}

func (r *nodes) gather(ctx context.Context, n *v1beta2.Node) (nodeSeen, error) {
	var g nodeSeen
	values, err := stored.Read(ctx, r.client, r.namespace)
	if err != nil {
		return g, err
	}
	g.Policy, g.Down = values.String(setting.NodeDownPodDeletionPolicy), condition.NodeDown(n)
	if !g.Down || len(deletable(g.Policy)) == 0 {
		return g, nil
	}
	if g.Claims, err = claims(ctx, r.live, ""); err != nil || len(g.Claims) == 0 {
		return g, err
	}
	if g.Pods, err = podsWith(ctx, r.live, g.Claims, client.MatchingFields{"spec.nodeName": n.Name}); err != nil {
		return g, err
	}
	stamps := map[string]string{}
	for _, p := range g.Pods {
		if p.DeletionTimestamp != nil {
			stamps[string(p.UID)] = p.DeletionTimestamp.String()
		}
	}
	g.DeletedAt = r.deleted.Each(r.now(), n.Name, stamps)
	volumes := map[string]bool{}
	for _, pv := range g.Claims {
		volumes[pv] = true
	}
	err = live.Pages(ctx, r.live, func(list *storagev1.VolumeAttachmentList) {
		for i := range list.Items {
			a := &list.Items[i]
			pv := a.Spec.Source.PersistentVolumeName
			if a.Spec.Attacher == naming.CSIDriver && a.Spec.NodeName == n.Name && pv != nil && volumes[*pv] {
				g.Attachments = append(g.Attachments, a)
			}
		}
	})
	return g, err
}

// deletable are the kinds of controllers whose Pods a policy deletes.
func deletable(policy string) []string {
	switch policy {
	case "delete-statefulset-pod":
		return []string{"StatefulSet"}
	case "delete-deployment-pod":
		return []string{"ReplicaSet"}
	case "delete-both-statefulset-and-deployment-pod":
		return []string{"StatefulSet", "ReplicaSet"}
	}
	return nil
}

func decideNode(now time.Time, n *v1beta2.Node, g nodeSeen) loop.Decision {
	kinds := deletable(g.Policy)
	if !g.Down || len(kinds) == 0 {
		return loop.Decision{}
	}
	used, next := map[string]bool{}, nodeLook
	for _, p := range g.Pods {
		c := metav1.GetControllerOf(p)
		ours := c != nil && slices.Contains(kinds, c.Kind)
		left := g.graceLeft(now, p)
		if ours && p.DeletionTimestamp != nil {
			next = min(next, max(left, 0)+time.Millisecond)
		}
		if ours && p.DeletionTimestamp != nil && left <= 0 {
			none := int64(0)
			return loop.Decision{After: time.Second, FailureReason: naming.EventFailedDeleting,
				Do: loop.Call{What: fmt.Sprintf("delete Pod %s/%s by force", p.Namespace, p.Name), Order: deletion{p, &none}},
				Events: []loop.Event{{Reason: naming.EventDelete, Message: fmt.Sprintf(
					"Deleted Pod %s/%s of %s %s by force: it hung on this node, which is down, and setting %s is %s",
					p.Namespace, p.Name, c.Kind, c.Name, setting.NodeDownPodDeletionPolicy, g.Policy)}}}
		}
		for _, pv := range uses(p, g.Claims) {
			used[pv] = true
		}
	}
	for _, a := range g.Attachments {
		pv := *a.Spec.Source.PersistentVolumeName
		if used[pv] || a.DeletionTimestamp != nil {
			continue
		}
		return loop.Decision{After: time.Second, FailureReason: naming.EventFailedDeleting,
			Do: loop.Call{What: "delete VolumeAttachment " + a.Name, Order: deletion{a, nil}},
			Events: []loop.Event{{Reason: naming.EventDelete, Message: fmt.Sprintf(
				"Deleted the VolumeAttachment of PersistentVolume %s: no Pod of this node, which is down, uses it any more", pv)}}}
	}
	return loop.Decision{After: next}
}

// graceLeft is how much longer a Pod that was deleted may take to end; nobody ends one that takes
// longer. The time of deletion is that at which its grace period ends, by the API server's clock.
func (g nodeSeen) graceLeft(now time.Time, p *corev1.Pod) time.Duration {
	grace := time.Duration(0)
	if s := p.DeletionGracePeriodSeconds; s != nil {
		grace = time.Duration(*s) * time.Second
	}
	return g.DeletedAt[string(p.UID)].Add(grace).Sub(now)
}
