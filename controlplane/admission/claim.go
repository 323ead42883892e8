package admission

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/api/longhorn/v1beta2"
)

// BoundClaim reads the claim that a volume is bound to, nil if there is none, and whether its class
// allows claims to grow.
func BoundClaim(ctx context.Context, r client.Reader, v *v1beta2.Volume) (claim *corev1.PersistentVolumeClaim,
	grows bool, err error) {
	k := &v.Status.KubernetesStatus
	if k.PVCName == "" || k.LastPVCRefAt != "" {
		return nil, false, nil
	}
	claim = &corev1.PersistentVolumeClaim{}
	switch err := r.Get(ctx, client.ObjectKey{Namespace: k.Namespace, Name: k.PVCName}, claim); {
	case apierrors.IsNotFound(err):
		return nil, false, nil
	case err != nil:
		return nil, false, fmt.Errorf("read claim %s/%s of volume %s: %w", k.Namespace, k.PVCName, v.Name, err)
	case claim.Spec.VolumeName != k.PVName || claim.DeletionTimestamp != nil:
		return nil, false, nil
	}
	if classOf(claim) == "" {
		return claim, false, nil
	}
	var class storagev1.StorageClass
	switch err := r.Get(ctx, client.ObjectKey{Name: classOf(claim)}, &class); {
	case apierrors.IsNotFound(err):
		return claim, false, nil
	case err != nil:
		return nil, false, fmt.Errorf("read StorageClass %s of claim %s/%s: %w", classOf(claim), claim.Namespace,
			claim.Name, err)
	}
	return claim, class.AllowVolumeExpansion != nil && *class.AllowVolumeExpansion, nil
}

func classOf(claim *corev1.PersistentVolumeClaim) string {
	if claim.Spec.StorageClassName == nil {
		return ""
	}
	return *claim.Spec.StorageClassName
}
