package claim

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/index"
)

// Standing reads what stands for a volume in Kubernetes, past the cache, by the names that this
// controller has noted, which go with the volume: its PersistentVolume, and the claim that is bound
// to that. Either is nil if it is not there, or made anew by its name for something else.
func Standing(ctx context.Context, live client.Reader, v *v1beta2.Volume) (*corev1.PersistentVolume,
	*corev1.PersistentVolumeClaim, error) {
	name := v.Status.KubernetesStatus.PVName
	if name == "" {
		return nil, nil, nil
	}
	var pv corev1.PersistentVolume
	switch err := live.Get(ctx, client.ObjectKey{Name: name}, &pv); {
	case apierrors.IsNotFound(err):
		return nil, nil, nil
	case err != nil:
		return nil, nil, fmt.Errorf("get PersistentVolume %s of volume %s: %w", name, v.Name, err)
	}
	if of := index.VolumeOf(&pv); len(of) != 1 || of[0] != v.Name {
		return nil, nil, nil // made anew by its name
	}
	ref := pv.Spec.ClaimRef
	if ref == nil {
		return &pv, nil, nil
	}
	var c corev1.PersistentVolumeClaim
	switch err := live.Get(ctx, client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}, &c); {
	case err == nil && c.UID == ref.UID && c.Spec.VolumeName == pv.Name:
		return &pv, &c, nil
	case err != nil && !apierrors.IsNotFound(err):
		return nil, nil, fmt.Errorf("get claim %s/%s of volume %s: %w", ref.Namespace, ref.Name, v.Name, err)
	}
	return &pv, nil, nil
}
