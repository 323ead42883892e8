package volume

import (
	"context"
	"fmt"

	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/naming"
)

// Versions before VolumeAttachment objects wrote spec.nodeID themselves. A volume that such a
// version has left attached gets an attachment object with the tickets that keep it where it is:
// without one it would be detached under its users.

// gatherPublished reads which nodes Kubernetes has the volume attached to, where the volume is
// attached and has no attachment object.
func (r *Reconciler) gatherPublished(ctx context.Context, v *v1beta2.Volume, s *seen) error {
	if s.Attachment != nil {
		return nil
	}
	for _, node := range attachedTo(v) {
		var published storagev1.VolumeAttachment
		key := client.ObjectKey{Name: naming.CSIAttachment(v.Name, node)}
		switch err := r.live.Get(ctx, key, &published); {
		case err == nil:
			s.Published = append(s.Published, node)
		case !apierrors.IsNotFound(err):
			return fmt.Errorf("get Kubernetes' attachment of volume %s to node %s: %w", v.Name, node, err)
		}
	}
	return nil
}

// attachedTo are the nodes that an attached volume is ordered to.
func attachedTo(v *v1beta2.Volume) (nodes []string) {
	if v.Spec.NodeID == "" {
		return nil
	}
	nodes = append(nodes, v.Spec.NodeID)
	if v.Spec.MigrationNodeID != "" {
		nodes = append(nodes, v.Spec.MigrationNodeID)
	}
	return nodes
}

// heldTickets are the tickets of a volume that is attached and has no attachment object: of CSI
// where Kubernetes says that it is attached, under the id with which the driver takes it away; else
// that of a user, under the id with which the UI does.
func (p *pass) heldTickets() map[string]v1beta2.AttachmentTicket {
	v, out := p.v, map[string]v1beta2.AttachmentTicket{}
	frontend := v1beta2.AttachmentParameterFalse
	if v.Spec.DisableFrontend {
		frontend = v1beta2.AttachmentParameterTrue
	}
	add := func(id, node string, kind v1beta2.AttacherType) {
		out[id] = v1beta2.AttachmentTicket{ID: id, Type: kind, NodeID: node, Parameters: map[string]string{
			v1beta2.AttachmentParameterDisableFrontend: frontend,
			v1beta2.AttachmentParameterLastAttachedBy:  v.Spec.LastAttachedBy,
		}}
	}
	for _, node := range p.s.Published {
		add(naming.CSIAttachment(v.Name, node), node, v1beta2.AttacherTypeCSI)
	}
	switch {
	case v.Spec.NodeID == "" || len(out) > 0 && !p.sharedByManager():
	case p.sharedByManager():
		add(naming.AttachmentTicketID(string(v1beta2.AttacherTypeShareManager), v.Name), v.Spec.NodeID,
			v1beta2.AttacherTypeShareManager)
	default:
		add("", v.Spec.NodeID, v1beta2.AttacherTypeLonghornAPI)
	}
	return out
}

// sharedByManager tells whether Pods reach the volume through its share manager, whose ticket alone
// attaches it.
func (p *pass) sharedByManager() bool {
	return p.v.Spec.AccessMode == v1beta2.AccessModeReadWriteMany && !p.v.Spec.Migratable
}
