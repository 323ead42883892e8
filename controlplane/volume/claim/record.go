package claim

import (
	"context"
	"encoding/json"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/backup/store"
	"ankole.storage/controlplane/object/naming"
)

// Record is what a backup of a volume keeps of whose it is, the value of label KubernetesStatus;
// empty where nobody is known.
func Record(v *v1beta2.Volume) string {
	k := &v.Status.KubernetesStatus
	if k.PVName == "" && k.PVCName == "" {
		return ""
	}
	out, err := json.Marshal(k)
	if err != nil {
		panic(err) // structs of the API always marshal
	}
	return string(out)
}

// gatherBackup reads whose the volume was of whose backup this one is made, while nobody is known
// of this one.
func (r *Reconciler) gatherBackup(ctx context.Context, v *v1beta2.Volume) (*v1beta2.KubernetesStatus, error) {
	if v.Spec.FromBackup == "" || known(&v.Status.KubernetesStatus) {
		return nil, nil
	}
	_, name := store.Named(v.Spec.FromBackup)
	var b v1beta2.Backup
	if err := r.client.Get(ctx, client.ObjectKey{Namespace: v.Namespace, Name: name}, &b,
		client.UnsafeDisableDeepCopy); err != nil {
		if client.IgnoreNotFound(err) == nil {
			return nil, nil
		}
		return nil, fmt.Errorf("get backup %s: %w", name, err)
	}
	k := &v1beta2.KubernetesStatus{}
	if json.Unmarshal([]byte(b.Status.Labels[naming.LabelKubernetesStatus]), k) != nil {
		return nil, nil // another program has written what it likes
	}
	return k, nil
}

func known(k *v1beta2.KubernetesStatus) bool { return k.PVCName != "" || len(k.WorkloadsStatus) > 0 }

// inherit takes over whose a volume was, as history: this one is made of a backup of it.
func inherit(k, of *v1beta2.KubernetesStatus, at string) {
	if of == nil || known(k) || !known(of) {
		return
	}
	k.Namespace, k.PVCName, k.LastPVCRefAt = of.Namespace, of.PVCName, of.LastPVCRefAt
	k.WorkloadsStatus, k.LastPodRefAt = of.WorkloadsStatus, of.LastPodRefAt
	if k.PVCName != "" && k.LastPVCRefAt == "" {
		k.LastPVCRefAt = at
	}
	if len(k.WorkloadsStatus) > 0 && k.LastPodRefAt == "" {
		k.LastPodRefAt = at
	}
}
