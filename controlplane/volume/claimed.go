package volume

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/index"
)

// gatherClaimed reads what stands for a deleted volume in Kubernetes, by the names that the
// controller of claims has noted: they go with the volume.
func (r *Reconciler) gatherClaimed(ctx context.Context, v *v1beta2.Volume, s *seen) error {
	k := &v.Status.KubernetesStatus
	if v.DeletionTimestamp == nil || k.PVName == "" {
		return nil
	}
	var pv corev1.PersistentVolume
	switch err := r.live.Get(ctx, client.ObjectKey{Name: k.PVName}, &pv); {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("get PersistentVolume %s of volume %s: %w", k.PVName, v.Name, err)
	}
	if of := index.VolumeOf(&pv); len(of) != 1 || of[0] != v.Name {
		return nil // made anew by its name
	}
	s.PV = &pv
	ref := pv.Spec.ClaimRef
	if ref == nil {
		return nil
	}
	var claim corev1.PersistentVolumeClaim
	switch err := r.live.Get(ctx, client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}, &claim); {
	case err == nil && claim.UID == ref.UID && claim.Spec.VolumeName == pv.Name:
		s.PVC = &claim
	case err != nil && !apierrors.IsNotFound(err):
		return fmt.Errorf("get claim %s/%s of volume %s: %w", ref.Namespace, ref.Name, v.Name, err)
	}
	return nil
}
