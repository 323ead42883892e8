package controller

import (
	"context"
	"fmt"
	"path"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/csi/request"
	"ankole.storage/rest/client"
	"ankole.storage/rest/resource"
)

// Types of attachment tickets.
const (
	attacherCSI  = string(lh.AttacherTypeCSI)
	attacherUser = string(lh.AttacherTypeLonghornAPI)
)

// ticketID names the ticket of a volume on a node as Kubernetes names its own VolumeAttachment, so
// that tickets of an installation that was taken over are the same.
func ticketID(volume, node string) string { return naming.CSIAttachment(volume, node) }

// ControllerPublishVolume implements the controller service: it files an attachment ticket and
// waits until the volume has its device on the node.
func (c *Server) ControllerPublishVolume(ctx context.Context, r *spec.ControllerPublishVolumeRequest) (
	*spec.ControllerPublishVolumeResponse, error) {
	name, node := r.GetVolumeId(), r.GetNodeId()
	if name == "" || node == "" {
		return nil, request.Refuse("a volume id and a node id are needed")
	}
	u, err := request.UsageOf(r.GetVolumeCapability())
	if err != nil {
		return nil, err
	}
	ctx, end, err := c.begin(ctx, name, "ControllerPublishVolume")
	if err != nil {
		return nil, err
	}
	defer end()
	v, err := c.volume(ctx, name)
	if err != nil {
		return nil, err
	}
	if _, err := c.manager.Node(ctx, node); err != nil {
		return nil, request.FromManager(err, codes.Internal, "reading node "+node)
	}
	if u.Mode == request.ModeMany && !v.Migratable {
		return nil, request.Refuse("volume %s is not migratable: it can be on one node only", name)
	}
	for id, t := range v.VolumeAttachment.Attachments {
		if t.AttachmentType == attacherCSI && t.NodeID != node && u.Mode != request.ModeMany {
			return nil, status.Errorf(codes.FailedPrecondition, "volume %s is published on node %s; unpublish it there first: "+
				"Kubernetes does that when no Pod uses it there any more, and if that node is gone for good, after: "+
				"kubectl delete volumeattachments.storage.k8s.io %s; where there is no such object, within two minutes, or "+
				"by: ankole volume detach %s --force", name, t.NodeID, id, name)
		}
	}
	known := hasContent(v)
	endpoint, err := c.attach(ctx, name, node)
	if err != nil {
		return nil, err
	}
	if !path.IsAbs(endpoint) { // a URL: the volume is served without a device
		return nil, status.Errorf(codes.FailedPrecondition, "volume %s has no block device on node %s but %s: the instance "+
			"manager there needs root, FUSE and loop devices; these say what is missing: ankole node describe %s (condition "+
			"KernelModulesLoaded), ankole engine logs %s", name, node, endpoint, node, name)
	}
	given := map[string]string{request.ContextDevice: endpoint}
	if known != "" {
		given[request.ContextContent] = known
	}
	if v.Encrypted {
		given[request.ContextEncrypted] = "true"
	}
	return &spec.ControllerPublishVolumeResponse{PublishContext: given}, nil
}

// hasContent says why a volume has content, empty if nothing shows that. The node formats no such
// volume, whatever its device reads as.
func hasContent(v *resource.Volume) string {
	ran := v.Conditions[lh.VolumeConditionHasContent]
	switch {
	case v.DataSource != "":
		return "it is a copy of " + v.DataSource
	case v.FromBackup != "":
		return "it was restored from " + v.FromBackup
	case v.BackingImage != "":
		return "it stands on backing image " + v.BackingImage
	case ran.Status == "True":
		return ran.Message
	}
	return ""
}

// attach returns the endpoint of the volume on the node once it can be used there.
func (c *Server) attach(ctx context.Context, name, node string) (endpoint string, err error) {
	id := ticketID(name, node)
	ordered := false // by this call
	held := obstacle{since: time.Now()}
	// withdrawals is what the first look found. If there are more when the ticket is filed, this call
	// was overtaken, and its ticket would stay.
	var withdrawals *int64
	what := fmt.Sprintf("attaching volume %s to node %s", name, node)
	err = request.Await(ctx, what, func() (bool, string, error) {
		v, err := c.volume(ctx, name)
		if err != nil {
			return false, "", err
		}
		if withdrawals == nil {
			withdrawals = &v.VolumeAttachment.Withdrawals
		}
		t, filed := v.VolumeAttachment.Attachments[id]
		endpoint = endpointOn(v, node)
		switch {
		case v.Robustness == faulted:
			return false, "", status.Error(codes.FailedPrecondition, faultedText(v))
		case filed && t.Satisfied && endpoint != "":
			return true, "", nil
		case filed:
			why, underWay := ticketReason(v, t)
			return false, why, held.answer(what, why, underWay)
		case ordered:
			return false, "", status.Errorf(codes.Aborted, "the attachment of volume %s to node %s was withdrawn by another "+
				"call; retry", name, node)
		case !v.Ready:
			why := "the volume is not ready: " + v.NotReadyMessage
			return false, why, held.answer(what, why, false)
		}
		_, err = c.manager.AttachVolume(ctx, name, resource.AttachInput{HostID: node, AttachedBy: "csi",
			AttacherType: attacherCSI, AttachmentID: id, Withdrawals: withdrawals})
		if client.IsConflict(err) {
			return false, "", status.Errorf(codes.Aborted, "volume %s was detached by another call meanwhile; retry if it "+
				"shall be attached to node %s", name, node)
		}
		if err != nil {
			return false, "", request.FromManager(err, codes.FailedPrecondition, "attaching volume "+name)
		}
		ordered = true
		request.Step("ticket-filed")
		return false, "the ticket is filed", nil
	})
	return endpoint, err
}

// faultedText says of a volume that no replica can serve what is known and what to do.
func faultedText(v *resource.Volume) string {
	text := "volume " + v.Name + " is faulted: no replica can serve it"
	if start := v.Conditions["Start"]; start.Status == "False" && start.Message != "" {
		text += "; " + start.Message
	}
	return text + "; see which are missing with: ankole volume describe " + v.Name + "; bring their nodes and disks " +
		"back, then: ankole volume salvage " + v.Name
}

// ticketReason says why a ticket is not satisfied yet; underWay if nothing is known to hold it up.
func ticketReason(v *resource.Volume, t resource.Attachment) (why string, underWay bool) {
	for _, c := range t.Conditions {
		if c.ConditionType == lh.AttachmentConditionSatisfied && c.Status != "True" && c.Message != "" {
			return c.Message, c.Reason == lh.AttachmentReasonUnderWay
		}
	}
	return "the volume is " + v.State, true
}

// obstaclePatience is how long a call waits for what may take any time: the attacher does only so
// many calls at once, and those for other nodes must not wait behind those for one that takes no
// volume. The ticket stays, and the attacher comes again.
const obstaclePatience = 12 * time.Second

// obstacle is what a call waits for, and since when there has been something.
type obstacle struct{ since time.Time }

// answer ends a call that has had an obstacle for too long.
func (o *obstacle) answer(what, why string, underWay bool) error {
	if underWay {
		o.since = time.Now()
	}
	if time.Since(o.since) < obstaclePatience {
		return nil
	}
	return status.Errorf(codes.DeadlineExceeded, "%s: not yet (%s); it goes on, retry", what, why)
}

// endpointOn is where the volume can be used on a node, empty for nowhere.
func endpointOn(v *resource.Volume, node string) string {
	for _, e := range v.Controllers {
		if e.HostID == node && e.Running && e.Endpoint != "" {
			return e.Endpoint
		}
	}
	return ""
}

// ControllerUnpublishVolume implements the controller service: it withdraws the ticket of a node,
// or all of them without a node, and waits until the volume has left it.
func (c *Server) ControllerUnpublishVolume(ctx context.Context, r *spec.ControllerUnpublishVolumeRequest) (
	*spec.ControllerUnpublishVolumeResponse, error) {
	name, node := r.GetVolumeId(), r.GetNodeId()
	if err := request.CheckID(name); err != nil {
		if status.Code(err) == codes.NotFound {
			return &spec.ControllerUnpublishVolumeResponse{}, nil
		}
		return nil, err
	}
	ctx, end, err := c.begin(ctx, name, "ControllerUnpublishVolume")
	if err != nil {
		return nil, err
	}
	defer end()
	w := withdrawal{c: c, volume: name, node: node, meant: map[string]int64{}}
	what := fmt.Sprintf("detaching volume %s from node %s", name, node)
	if err := request.Await(ctx, what, func() (bool, string, error) { return w.look(ctx) }); err != nil {
		return nil, err
	}
	return &spec.ControllerUnpublishVolumeResponse{}, nil
}

// withdrawal is a ControllerUnpublishVolume call under way.
type withdrawal struct {
	c            *Server
	volume, node string
	// meant are the tickets that are withdrawn, by id their generations. One that was filed later is
	// another call's: this one may have been overtaken, by a driver on another node.
	meant map[string]int64
	// counted: the manager knows of this call, though it has found no ticket.
	counted bool
}

// look withdraws what is left and says whether the volume has left the node.
func (w *withdrawal) look(ctx context.Context) (bool, string, error) {
	v, err := w.c.manager.Volume(ctx, w.volume)
	if client.IsNotFound(err) {
		return true, "", nil
	}
	if err != nil {
		return false, "", request.FromManager(err, codes.Internal, "reading volume "+w.volume)
	}
	left := true
	for id, t := range v.VolumeAttachment.Attachments {
		if t.AttachmentType != attacherCSI || w.node != "" && t.NodeID != w.node {
			continue
		}
		left = false
		meant, seen := w.meant[id]
		if seen && meant != t.Generation {
			return false, "", status.Errorf(codes.Aborted, "volume %s was attached to node %s again meanwhile; retry if it "+
				"shall leave", w.volume, t.NodeID)
		}
		w.meant[id] = t.Generation
		_, err := w.c.manager.DetachVolume(ctx, w.volume, resource.DetachInput{AttachmentID: id, HostID: t.NodeID,
			Generation: &t.Generation})
		if err != nil && !client.IsNotFound(err) {
			return false, "", request.FromManager(err, codes.FailedPrecondition, "detaching volume "+w.volume)
		}
		request.Step("ticket-withdrawn")
	}
	if err := w.withdrawNone(ctx, v); err != nil {
		return false, "", err
	}
	return left && gone(v, w.node), "the volume is " + v.State, nil
}

// withdrawNone has the manager count a withdrawal where no ticket was found: a call that was
// overtaken by this one, and is about to file its ticket, is refused then.
func (w *withdrawal) withdrawNone(ctx context.Context, v *resource.Volume) error {
	if w.counted || len(w.meant) > 0 || v.Standby {
		return nil
	}
	var none int64 // the generation of no ticket
	_, err := w.c.manager.DetachVolume(ctx, w.volume, resource.DetachInput{AttachmentID: ticketID(w.volume, w.node),
		HostID: w.node, Generation: &none})
	if err != nil && !client.IsNotFound(err) {
		return request.FromManager(err, codes.FailedPrecondition, "detaching volume "+w.volume)
	}
	w.counted = true
	return nil
}

// gone reports whether a volume without a ticket of ours has left the node (empty: all nodes).
// Somebody else's ticket may keep it there: a person's, or a snapshot's that is being taken.
func gone(v *resource.Volume, node string) bool {
	for _, t := range v.VolumeAttachment.Attachments {
		if node == "" || t.NodeID == node {
			return true
		}
	}
	for _, e := range v.Controllers {
		if e.Running && (node == "" && v.State != stateDetached || e.HostID == node) {
			return false
		}
	}
	return true
}
