package replica

import (
	"context"
	"fmt"
	"maps"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/naming"
)

// backing is the copy of a backing image on a replica's disk.
type backing struct {
	// Path is where it is on the node; empty while it cannot be used.
	Path string
	// Reason and Message say why it cannot, of condition WaitForBackingImage.
	Reason, Message string
}

// backing looks for the copy of the replica's image.
func (r *Reconciler) backing(ctx context.Context, rep *v1beta2.Replica) (backing, error) {
	name := rep.Spec.BackingImage
	if name == "" || rep.Spec.NodeID == "" {
		return backing{}, nil
	}
	var image v1beta2.BackingImage
	err := r.client.Get(ctx, client.ObjectKey{Namespace: rep.Namespace, Name: name}, &image, client.UnsafeDisableDeepCopy)
	if apierrors.IsNotFound(err) {
		return backing{Reason: v1beta2.ReplicaReasonGetBackingImageFailed,
			Message: fmt.Sprintf("backing image %s does not exist: create it again, with the checksum that it had", name)}, nil
	}
	if err != nil {
		return backing{}, fmt.Errorf("get backing image %s: %w", name, err)
	}
	return backingOf(&image, rep), nil
}

// backingOf is the copy on the replica's disk.
func backingOf(image *v1beta2.BackingImage, rep *v1beta2.Replica) backing {
	found, ok := image.Status.DiskFileStatusMap[rep.Spec.DiskID]
	if ok && found.State == v1beta2.BackingImageStateReady && image.Status.UUID != "" {
		return backing{Path: naming.BackingImagePath(rep.Spec.DiskPath, image.Name, image.Status.UUID)}
	}
	b := backing{Reason: v1beta2.ReplicaReasonWaiting,
		Message: fmt.Sprintf("backing image %s is not on disk %s of node %s yet", image.Name, rep.Spec.DiskID,
			rep.Spec.NodeID)}
	if ok {
		b.Message = fmt.Sprintf("backing image %s on disk %s of node %s is %s, %d %%", image.Name, rep.Spec.DiskID,
			rep.Spec.NodeID, found.State, found.Progress)
		if found.Message != "" {
			b.Message += ": " + found.Message
		}
	}
	return b
}

// awaitsImage says whether a replica that is to be started has no image yet, and keeps condition
// WaitForBackingImage. One that runs has the file open, whatever becomes of its name.
func awaitsImage(now time.Time, rep *v1beta2.Replica, s seen) bool {
	if rep.Spec.BackingImage == "" {
		return false
	}
	stopped := rep.Status.CurrentState == v1beta2.InstanceStateStopped || rep.Status.CurrentState == ""
	waits := stopped && !rep.Status.Starting && rep.Spec.NodeID != "" && s.Backing.Path == "" &&
		rep.Spec.DesireState == v1beta2.InstanceStateRunning
	c := v1beta2.Condition{Type: v1beta2.ReplicaConditionWaitForBackingImage, Status: v1beta2.ConditionFalse}
	if waits {
		c.Status, c.Reason, c.Message = v1beta2.ConditionTrue, s.Backing.Reason, s.Backing.Message
	}
	rep.Status.Conditions, _ = v1beta2.SetCondition(rep.Status.Conditions, c, now)
	return waits
}

// copiesChanged says whether an image has changed in what its replicas look at.
func copiesChanged(before, after *v1beta2.BackingImage) bool {
	return before.Status.UUID != after.Status.UUID ||
		!maps.Equal(before.Status.DiskFileStatusMap, after.Status.DiskFileStatusMap)
}

// onImage wakes the replicas of an image that do not run.
func (r *Reconciler) onImage(image *v1beta2.BackingImage) []string {
	return r.names(client.MatchingLabels{naming.LabelBackingImage: image.Name}, func(rep *v1beta2.Replica) bool {
		return rep.Status.CurrentState != v1beta2.InstanceStateRunning
	})
}
