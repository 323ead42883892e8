package workload

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/controlplane/naming"
)

// page is how many objects are read at a time.
const page = 500

// claim names a PersistentVolumeClaim.
type claim = client.ObjectKey

// each calls fn for the items of all pages of a list.
func each[L client.ObjectList](ctx context.Context, r client.Reader, list L, fn func(L),
	opts ...client.ListOption) error {
	for token := ""; ; {
		if err := r.List(ctx, list, append(opts, client.Limit(page), client.Continue(token))...); err != nil {
			return err
		}
		fn(list)
		if token = list.GetContinue(); token == "" {
			return nil
		}
	}
}

// claims are those bound to volumes of this system, with the PersistentVolume of each; only the
// volume's unless its name is empty.
func claims(ctx context.Context, r client.Reader, volume string) (map[claim]string, error) {
	bound := map[claim]string{}
	err := each(ctx, r, &corev1.PersistentVolumeList{}, func(list *corev1.PersistentVolumeList) {
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
		return nil, fmt.Errorf("list PersistentVolumes: %w", err)
	}
	return bound, nil
}

// uses are the PersistentVolumes that a Pod uses, of those that are bound to claims.
func uses(p *corev1.Pod, bound map[claim]string) (volumes []string) {
	for _, v := range p.Spec.Volumes {
		name := ""
		switch {
		case v.PersistentVolumeClaim != nil:
			name = v.PersistentVolumeClaim.ClaimName
		case v.Ephemeral != nil:
			name = p.Name + "-" + v.Name // as Kubernetes names the claim that it makes for the Pod
		}
		if pv, ok := bound[claim{Namespace: p.Namespace, Name: name}]; ok && name != "" {
			volumes = append(volumes, pv)
		}
	}
	return volumes
}

// podsWith are the Pods that use one of the claims.
func podsWith(ctx context.Context, r client.Reader, bound map[claim]string, opts ...client.ListOption) (
	pods []*corev1.Pod, err error) {
	err = each(ctx, r, &corev1.PodList{}, func(list *corev1.PodList) {
		for i := range list.Items {
			if len(uses(&list.Items[i], bound)) > 0 {
				pods = append(pods, list.Items[i].DeepCopy())
			}
		}
	}, opts...)
	if err != nil {
		return nil, fmt.Errorf("list Pods: %w", err)
	}
	return pods, nil
}
