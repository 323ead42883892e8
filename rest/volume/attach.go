package volume

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/condition"
	"ankole.storage/controlplane/object/conflict"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/rest/resource"
	"ankole.storage/rest/serve"
)

const (
	// attachmentPeriod and attachmentTimeout bound the wait for the attachment object of a volume
	// that was created a moment ago; its controller makes it within milliseconds.
	attachmentPeriod  = 50 * time.Millisecond
	attachmentTimeout = 5 * time.Second
)

// withdrawalsAnnotation of a VolumeAttachment is the number of withdrawals, in decimal.
const withdrawalsAnnotation = "ankole.storage/withdrawals"

// withdrawals is how often clients have withdrawn a ticket of the volume, or found it not there.
func withdrawals(a *lh.VolumeAttachment) int64 {
	n, _ := strconv.ParseInt(a.Annotations[withdrawalsAnnotation], 10, 64) // none, or not ours: 0
	return n
}

func attachVolume(q *serve.Request) (any, error) {
	name := q.Params["name"]
	var in resource.AttachInput
	if err := q.Decode(&in); err != nil {
		return nil, err
	}
	if err := fileTicket(q.Context(), q.Objects, name, in); err != nil {
		return nil, fmt.Errorf("unable to attach volume %s to %s: %w", name, in.HostID, err)
	}
	return show(q, name)
}

// attach checks that the volume can go to the node and files a ticket for it. The controllers do
// the rest.
func fileTicket(ctx context.Context, o *serve.Objects, name string, in resource.AttachInput) error {
	if in.HostID == "" {
		return errors.New("no node given: set hostId to the name of a node")
	}
	p, err := readVolume(ctx, o, name)
	if err != nil {
		return err
	}
	var node lh.Node
	if err := o.Get(ctx, in.HostID, &node); err != nil {
		return err
	}
	var images lh.EngineImageList
	if err := o.List(ctx, &images); err != nil {
		return fmt.Errorf("listing engine images: %w", err)
	}
	var nodes lh.NodeList
	if err := o.List(ctx, &nodes); err != nil {
		return fmt.Errorf("listing nodes: %w", err)
	}
	if err := checkAttach(p, &node, images.Items, nodes.Items); err != nil {
		return err
	}
	ticket := lh.AttachmentTicket{ID: in.AttachmentID, Type: lh.AttacherType(in.AttacherType), NodeID: in.HostID,
		Parameters: map[string]string{
			lh.AttachmentParameterDisableFrontend: strconv.FormatBool(in.DisableFrontend),
			lh.AttachmentParameterLastAttachedBy:  in.AttachedBy,
		}}
	if ticket.Type == "" {
		ticket.Type = lh.AttacherTypeLonghornAPI
	}
	return updateTickets(ctx, o, name, true, func(a *lh.VolumeAttachment) (bool, error) {
		old, exists := a.Spec.AttachmentTickets[ticket.ID]
		if exists && old.NodeID != ticket.NodeID {
			return false, fmt.Errorf("the volume is already attached to node %s by the same attachment ticket; detach "+
				"it there first", old.NodeID)
		}
		if exists &&
			old.Parameters[lh.AttachmentParameterDisableFrontend] == ticket.Parameters[lh.AttachmentParameterDisableFrontend] {
			return false, nil
		}
		// A caller that was held up must not file what was withdrawn since.
		if now := withdrawals(a); in.Withdrawals != nil && *in.Withdrawals != now {
			return false, serve.Refuse(http.StatusConflict, fmt.Errorf("tickets of the volume were withdrawn %d times, not %d: "+
				"read it again", now, *in.Withdrawals))
		}
		t := ticket
		t.Generation = nextGeneration(a, old, exists, t.ID)
		if a.Spec.AttachmentTickets == nil {
			a.Spec.AttachmentTickets = map[string]lh.AttachmentTicket{}
		}
		a.Spec.AttachmentTickets[t.ID] = t
		return true, nil
	})
}

// nextGeneration numbers a ticket so that the status of an older one with the same id is not taken
// for its own, nor it for an older one whose status has been cleaned up: the object counts its own
// changes, and is changed by each ticket.
func nextGeneration(a *lh.VolumeAttachment, old lh.AttachmentTicket, exists bool, id string) int64 {
	next := a.Generation
	if exists {
		return max(next, old.Generation+1)
	}
	if s, ok := a.Status.AttachmentTicketStatuses[id]; ok {
		return max(next, s.Generation+1)
	}
	return next
}

// checkAttach says why a volume cannot go to a node.
func checkAttach(p volumeParts, node *lh.Node, images []lh.EngineImage, nodes []lh.Node) error {
	v := p.volume
	if v.DeletionTimestamp != nil {
		return errDeleting
	}
	if ready := lh.FindCondition(node.Status.Conditions, lh.NodeConditionReady); ready.Status != lh.ConditionTrue {
		return fmt.Errorf("node %s is not ready (%s %s); choose another node or bring it back", node.Name, ready.Reason,
			ready.Message)
	}
	if lh.IsConditionTrue(v.Status.Conditions, lh.VolumeConditionRestore) {
		return errors.New("the volume is restoring data; wait until the restore is complete")
	}
	if v.Status.RestoreRequired {
		return errors.New("the volume is waiting to be restored from a backup")
	}
	local := wantsLocal(v)
	placed := []string{}
	for _, r := range p.replicas {
		if r.Spec.NodeID != "" {
			placed = append(placed, r.Spec.NodeID)
		}
	}
	if len(placed) == 0 && !local {
		scheduled := lh.FindCondition(v.Status.Conditions, lh.VolumeConditionScheduled)
		return fmt.Errorf("no replica of the volume is scheduled: %s",
			cmp.Or(scheduled.Message, "the scheduler has not placed one yet, retry in a moment"))
	}
	if err := checkCopies(placed, nodes); err != nil {
		return err
	}
	return checkImage(v, node.Name, placed, images)
}

// checkCopies says which nodes are missed when no node with a replica is there.
func checkCopies(placed []string, nodes []lh.Node) error {
	var away []string
	for _, at := range placed {
		i := slices.IndexFunc(nodes, func(n lh.Node) bool { return n.Name == at })
		switch {
		case i < 0:
			away = append(away, at+" (gone)")
		case condition.NodeDown(&nodes[i]):
			ready := lh.FindCondition(nodes[i].Status.Conditions, lh.NodeConditionReady)
			away = append(away, at+" ("+ready.Reason+")")
		default:
			return nil
		}
	}
	if len(away) == 0 {
		return nil
	}
	slices.Sort(away)
	return fmt.Errorf("no node with a replica of the volume is up: %s; bring one back",
		strings.Join(slices.Compact(away), ", "))
}

// checkImage says where the volume's engine image is missing: it must be on the engine's node and
// on one with a replica.
func checkImage(v *lh.Volume, node string, replicaNodes []string, images []lh.EngineImage) error {
	want := naming.EngineImageName(v.Spec.Image)
	for _, image := range images {
		if image.Name != want && image.Spec.Image != v.Spec.Image {
			continue
		}
		if !image.Status.NodeDeploymentMap[node] {
			return fmt.Errorf("engine image %s is not deployed on node %s", v.Spec.Image, node)
		}
		for _, n := range replicaNodes {
			if image.Status.NodeDeploymentMap[n] {
				return nil
			}
		}
		if len(replicaNodes) == 0 {
			return nil
		}
		return fmt.Errorf("engine image %s is not deployed on any node with a replica of the volume", v.Spec.Image)
	}
	return fmt.Errorf("engine image %q does not exist", v.Spec.Image)
}

func detachVolume(q *serve.Request) (any, error) {
	name := q.Params["name"]
	in, err := detachInput(q)
	if err != nil {
		return nil, err
	}
	if err := withdraw(q.Context(), q.Objects, name, in); err != nil {
		return nil, fmt.Errorf("unable to detach volume %s: %w", name, err)
	}
	return show(q, name)
}

// detachInput is what a client wants detached. Without a JSON object that is the plain ticket: old
// clients send nothing, or anything. An object that cannot be read is refused; it may name another
// ticket.
func detachInput(q *serve.Request) (in resource.DetachInput, err error) {
	body, err := q.ReadBody()
	if err != nil || !bytes.HasPrefix(bytes.TrimSpace(body), []byte("{")) {
		return in, err
	}
	return in, resource.Decode(body, &in)
}

// detach withdraws one ticket, or all of them.
func withdraw(ctx context.Context, o *serve.Objects, name string, in resource.DetachInput) error {
	var v lh.Volume
	if err := o.Get(ctx, name, &v); err != nil {
		return err
	}
	if v.Status.IsStandby {
		return fmt.Errorf("cannot detach standby volume %s", name)
	}
	err := updateTickets(ctx, o, name, false, func(a *lh.VolumeAttachment) (bool, error) {
		before := len(a.Spec.AttachmentTickets)
		// Who names a ticket that is not there ends what may be about to file it.
		_, there := a.Spec.AttachmentTickets[in.AttachmentID]
		counts := in.AttachmentID != "" && !there
		if in.ForceDetach {
			a.Spec.AttachmentTickets = map[string]lh.AttachmentTicket{}
		}
		// A caller that was held up must not withdraw what was filed since.
		if in.Generation == nil || a.Spec.AttachmentTickets[in.AttachmentID].Generation == *in.Generation {
			delete(a.Spec.AttachmentTickets, in.AttachmentID)
		}
		if counts = counts || len(a.Spec.AttachmentTickets) != before; counts {
			metav1.SetMetaDataAnnotation(&a.ObjectMeta, withdrawalsAnnotation, strconv.FormatInt(withdrawals(a)+1, 10))
		}
		return counts, nil
	})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// updateTickets changes the tickets of a volume. change says whether anything is to be written; it
// runs again when somebody else wrote in between.
func updateTickets(ctx context.Context, o *serve.Objects, name string, await bool,
	change func(*lh.VolumeAttachment) (bool, error)) error {
	return conflict.Retry(func() error {
		a, err := attachmentOf(ctx, o, name, await)
		if err != nil {
			return err
		}
		changed, err := change(a)
		if err != nil || !changed {
			return err
		}
		return o.Client.Update(ctx, a)
	})
}

// attachment reads the attachment object of a volume, waiting for it for a bounded time if asked
// to.
func attachmentOf(ctx context.Context, o *serve.Objects, name string, await bool) (*lh.VolumeAttachment, error) {
	var a lh.VolumeAttachment
	err := o.Get(ctx, name, &a)
	if !await || !apierrors.IsNotFound(err) {
		return &a, err
	}
	err = wait.PollUntilContextTimeout(ctx, attachmentPeriod, attachmentTimeout, false,
		func(ctx context.Context) (bool, error) {
			err := o.Get(ctx, name, &a)
			if apierrors.IsNotFound(err) {
				return false, nil
			}
			return err == nil, err
		})
	if errors.Is(err, context.DeadlineExceeded) {
		return nil, errors.New("the volume has no VolumeAttachment object yet; is a manager leading? Retry in a few seconds")
	}
	return &a, err
}

var attachments = serve.Kind[lh.VolumeAttachment, *lh.VolumeAttachment, resource.VolumeAttachment]{
	TypeID: resource.TypeVolumeAttachment, What: "volume attachment", View: attachmentView,
	List: func() (client.ObjectList, *[]lh.VolumeAttachment) {
		all := &lh.VolumeAttachmentList{}
		return all, &all.Items
	},
}

// attachmentView is an attachment as a resource of its own.
func attachmentView(q *serve.Request, a *lh.VolumeAttachment) resource.VolumeAttachment {
	view := attachmentFields(a.Spec.Volume, a)
	view.Withdrawals = 0 // they are for who has read the volume
	view.Resource = q.Envelope(resource.TypeVolumeAttachment, a.Name, resource.WhenAlways)
	return view
}
