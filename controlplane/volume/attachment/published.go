package attachment

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/object/index"
	"ankole.storage/controlplane/object/naming"
)

// The CSI driver files a ticket when Kubernetes has made a VolumeAttachment of its own, and
// withdraws it before that one goes. Where Kubernetes' object is lost, nobody will: its finalizer
// was taken off by hand, or etcd was restored from an earlier state.

// publishedAfter is for how long Kubernetes' object must be lacking before its ticket is withdrawn.
const publishedAfter = time.Minute

// ofKubernetes says whether a ticket is one that the driver has filed for a VolumeAttachment of
// Kubernetes, which has the ticket's id for its name.
func ofKubernetes(t v1beta2.AttachmentTicket, volume string) bool {
	return t.Type == v1beta2.AttacherTypeCSI && t.NodeID != "" && t.ID == naming.CSIAttachment(volume, t.NodeID)
}

// gatherAbandoned notes which tickets of the driver have no VolumeAttachment of Kubernetes, and
// have had none for long. The cache says when to look; only the API server says that one is not
// there. A cluster that has no CSIDriver of ours is none whose Kubernetes attaches volumes.
func (r *Reconciler) gatherAbandoned(ctx context.Context, now time.Time, a *v1beta2.VolumeAttachment, s *seen) error {
	if s.Volume == nil {
		return nil
	}
	for id, t := range a.Spec.AttachmentTickets {
		t.ID = id
		if !ofKubernetes(t, s.Volume.Name) {
			continue
		}
		subject, key := a.Name+" "+id, client.ObjectKey{Name: id}
		err := r.client.Get(ctx, key, &storagev1.VolumeAttachment{}, client.UnsafeDisableDeepCopy)
		if err == nil {
			r.lacking.At(now, subject, "")
			continue
		}
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("get Kubernetes' VolumeAttachment %s: %w", id, err)
		}
		since := r.lacking.At(now, subject, fmt.Sprint(t.Generation))
		if left := since.Add(publishedAfter).Sub(now); left > 0 {
			s.LookAgain = max(left, time.Millisecond)
			continue
		}
		gone, err := r.unpublished(ctx, key)
		if err != nil {
			return err
		}
		if gone {
			s.Abandoned = append(s.Abandoned, id)
		} else {
			s.LookAgain = publishedAfter
		}
	}
	return nil
}

// unpublished says whether the API server has no such object, but the driver's registration.
func (r *Reconciler) unpublished(ctx context.Context, key client.ObjectKey) (bool, error) {
	err := r.live.Get(ctx, client.ObjectKey{Name: naming.CSIDriver}, &storagev1.CSIDriver{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("get CSIDriver %s: %w", naming.CSIDriver, err)
	}
	err = r.live.Get(ctx, key, &storagev1.VolumeAttachment{})
	if err != nil && !apierrors.IsNotFound(err) {
		return false, fmt.Errorf("get Kubernetes' VolumeAttachment %s: %w", key.Name, err)
	}
	return err != nil, nil
}

// collect withdraws the tickets that nobody else will.
//
// Crash window: between this write and the next look the volume has no ticket there; the next look
// detaches it for that reason.
func collect(a *v1beta2.VolumeAttachment, s seen) (loop.Decision, bool) {
	if len(s.Abandoned) == 0 {
		return loop.Decision{}, false
	}
	slices.Sort(s.Abandoned)
	c := a.DeepCopy()
	maps.DeleteFunc(c.Spec.AttachmentTickets, func(id string, _ v1beta2.AttachmentTicket) bool {
		return slices.Contains(s.Abandoned, id)
	})
	return loop.Decision{Do: loop.Update{Object: c}, Events: []loop.Event{{On: s.Volume, Reason: naming.EventStop,
		Message: fmt.Sprintf("Withdrew ticket %s of volume %s: Kubernetes has had no such VolumeAttachment for %v",
			strings.Join(s.Abandoned, " and "), s.Volume.Name, publishedAfter)}}}, true
}

// onPublished wakes the attachments with a ticket for a VolumeAttachment of Kubernetes that has
// come or gone.
func (r *Reconciler) onPublished(k *storagev1.VolumeAttachment) (names []string) {
	if k.Spec.Attacher != naming.CSIDriver {
		return nil
	}
	var list v1beta2.VolumeAttachmentList
	if err := r.client.List(context.Background(), &list, client.InNamespace(r.cfg.Namespace),
		index.OnNode(k.Spec.NodeName), client.UnsafeDisableDeepCopy); err != nil {
		return nil // the cache does not fail
	}
	for i := range list.Items {
		if _, ok := list.Items[i].Spec.AttachmentTickets[k.Name]; ok {
			names = append(names, list.Items[i].Name)
		}
	}
	return names
}
