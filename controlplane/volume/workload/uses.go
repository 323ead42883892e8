package workload

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/controlplane/object/index"
	"ankole.storage/controlplane/object/live"
	"ankole.storage/controlplane/object/naming"
)

// claim names a PersistentVolumeClaim.
type claim = client.ObjectKey

// claims are those bound to volumes of this system, with the PersistentVolume of each; only the
// volume's unless its name is empty.
func claims(ctx context.Context, r client.Reader, volume string) (map[claim]string, error) {
	bound := map[claim]string{}
	err := live.Pages(ctx, r, func(list *corev1.PersistentVolumeList) {
		for i := range list.Items {
			pv := &list.Items[i]
			csi, ref := pv.Spec.CSI, pv.Spec.ClaimRef
			if csi == nil || csi.Driver != naming.CSIDriver || volume != "" && csi.VolumeHandle != volume || ref == nil {
				continue
			}
			bound[claim{Namespace: ref.Namespace, Name: ref.Name}] = pv.Name
		}
	})
	if err != nil {
		return nil, err
	}
	return bound, nil
}

// uses are the PersistentVolumes that a Pod uses, of those that are bound to claims.
func uses(p *corev1.Pod, bound map[claim]string) (volumes []string) {
	for _, name := range index.ClaimsOf(p) {
		if pv, ok := bound[claim{Namespace: p.Namespace, Name: name}]; ok {
			volumes = append(volumes, pv)
		}
	}
	return volumes
}

// podsWith are the Pods that use one of the claims.
func podsWith(ctx context.Context, r client.Reader, bound map[claim]string, opts ...client.ListOption) (
	pods []*corev1.Pod, err error) {
	err = live.Pages(ctx, r, func(list *corev1.PodList) {
		for i := range list.Items {
			if len(uses(&list.Items[i], bound)) > 0 {
				pods = append(pods, &list.Items[i])
			}
		}
	}, opts...)
	if err != nil {
		return nil, err
	}
	return pods, nil
}
