package engine

import (
	"context"
	"fmt"
	"log/slog"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/volume/dataloss"
)

// lossAccepted are the arguments that tell an engine which copies a person has decided to go on
// with if it cannot start otherwise. Both the decision and the record that it is for are read from
// the API as they are at the start of this process.
func (r *Reconciler) lossAccepted(ctx context.Context, e *v1beta2.Engine) ([]string, error) {
	var v v1beta2.Volume
	key := client.ObjectKey{Namespace: e.Namespace, Name: e.Spec.VolumeName}
	if err := r.client.Get(ctx, key, &v, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("get volume %s: %w", key.Name, err)
	}
	var args []string
	for _, member := range dataloss.InForce(&v, e) {
		args = append(args, "--accept-data-loss", member)
	}
	if len(args) > 0 {
		slog.Warn("an engine may start without acknowledged writes, as a person has decided", "engine", e.Name, "with", args)
	}
	return args, nil
}
