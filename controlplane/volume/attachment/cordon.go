package attachment

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/setting"
	"ankole.storage/controlplane/setting/stored"
)

// manual says whether a person has put the ticket, by the UI or the REST API.
func manual(t v1beta2.AttachmentTicket) bool { return t.Type == v1beta2.AttacherTypeLonghornAPI }

// withdraw takes away the tickets of persons for nodes that are cordoned, if the setting asks for
// it. The volume then leaves the node like one whose user has detached it.
//
// Crash window: between this write and the next look the volume has no ticket there; the next look
// detaches it for that reason.
func withdraw(a *v1beta2.VolumeAttachment, s seen) (loop.Decision, bool) {
	if len(s.Cordoned) == 0 {
		return loop.Decision{}, false
	}
	c := a.DeepCopy()
	maps.DeleteFunc(c.Spec.AttachmentTickets, func(_ string, t v1beta2.AttachmentTicket) bool {
		return manual(t) && s.Cordoned[t.NodeID]
	})
	if len(c.Spec.AttachmentTickets) == len(a.Spec.AttachmentTickets) {
		return loop.Decision{}, false
	}
	nodes := strings.Join(slices.Sorted(maps.Keys(s.Cordoned)), " and ")
	return loop.Decision{Do: loop.Update{Object: c}, Events: []loop.Event{{Reason: naming.EventStop,
		Message: fmt.Sprintf("Withdrew the manual attachment of volume %s: node %s is cordoned and setting %s is true",
			s.Volume.Name, nodes, setting.DetachManuallyAttachedVolumesWhenCordoned)}}}, true
}

// cordonedNodes are the nodes of manual tickets that are cordoned; empty if the setting leaves such
// tickets alone.
func (r *Reconciler) cordonedNodes(ctx context.Context, a *v1beta2.VolumeAttachment) (map[string]bool, error) {
	nodes := map[string]bool{}
	for _, t := range a.Spec.AttachmentTickets {
		if manual(t) && t.NodeID != "" {
			nodes[t.NodeID] = true
		}
	}
	if len(nodes) == 0 {
		return nil, nil
	}
	values, err := stored.Read(ctx, r.client, a.Namespace)
	if err != nil || !values.Bool(setting.DetachManuallyAttachedVolumesWhenCordoned) {
		return nil, err
	}
	for name := range nodes {
		var kube corev1.Node
		err := r.client.Get(ctx, client.ObjectKey{Name: name}, &kube, client.UnsafeDisableDeepCopy)
		if client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("get Kubernetes node %s: %w", name, err)
		}
		if err != nil || !kube.Spec.Unschedulable {
			delete(nodes, name)
		}
	}
	return nodes, nil
}

// onSetting wakes the attachments with a manual ticket.
func (r *Reconciler) onSetting(s *v1beta2.Setting) (names []string) {
	if s.Name != setting.DetachManuallyAttachedVolumesWhenCordoned {
		return nil
	}
	var list v1beta2.VolumeAttachmentList
	if err := r.client.List(context.Background(), &list, client.InNamespace(r.cfg.Namespace),
		client.UnsafeDisableDeepCopy); err != nil {
		return nil // the cache does not fail
	}
	for i := range list.Items {
		a := &list.Items[i]
		if slices.ContainsFunc(slices.Collect(maps.Values(a.Spec.AttachmentTickets)), manual) {
			names = append(names, a.Name)
		}
	}
	return names
}

func unschedulable(n *corev1.Node) bool { return n.Spec.Unschedulable }
