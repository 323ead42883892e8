package engine

import (
	"context"
	"fmt"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/index"
)

// inSync are the arguments that tell an engine which copies hold the same, as a version knew that
// had no records of members: its Replica objects say so. As soon as an engine has served, the
// record does.
func (r *Reconciler) inSync(ctx context.Context, e *v1beta2.Engine) ([]string, error) {
	if m := e.Status.Membership; m != nil && len(m.Members) > 0 {
		return nil, nil
	}
	var replicas v1beta2.ReplicaList
	if err := r.client.List(ctx, &replicas, client.InNamespace(e.Namespace), index.OfVolume(e.Spec.VolumeName),
		client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list replicas of volume %s: %w", e.Spec.VolumeName, err)
	}
	return inSyncOf(replicas.Items), nil
}

// inSyncOf names those that have been in sync and have not failed since.
func inSyncOf(replicas []v1beta2.Replica) (args []string) {
	var members []string
	for i := range replicas {
		if s := &replicas[i].Spec; s.Active && s.HealthyAt != "" && s.FailedAt == "" && s.DataDirectoryName != "" {
			members = append(members, s.DataDirectoryName)
		}
	}
	slices.Sort(members)
	for _, m := range members {
		args = append(args, "--in-sync", m)
	}
	return args
}
