package instancemanager

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/api/longhorn/v1beta2"
)

// refusedRetry is how soon a Pod that the API server refuses is tried again: what refuses it, a
// quota or a limit of the namespace, wakes nobody.
const refusedRetry = 10 * time.Second

// tryNext asks the API server whether it would take the next Pod, before the present one goes or
// when there is none, and returns its words if it would not. A LimitRange, a quota or Pod Security
// may refuse it; nobody knows that before.
func (r *Reconciler) tryNext(ctx context.Context, im *v1beta2.InstanceManager, s seen) (refused string, err error) {
	switch {
	case im.DeletionTimestamp != nil || legacy(im) || im.Spec.Image != s.DefaultImage || s.nodeDown() || s.cordoned():
		return "", nil
	case s.Pod == nil:
		if r.starts.now().Before(s.StartNotBefore) {
			return "", nil
		}
	case s.Pod.DeletionTimestamp != nil || string(s.Pod.UID) == im.Status.ClosedPod || !idle(s) ||
		len(drift(s.Pod, s.Settings, s.cpu(im.Spec.Type))) == 0:
		return "", nil
	}
	err = r.client.Create(ctx, nextPod(im, s), client.DryRunAll)
	switch {
	case err == nil || apierrors.IsAlreadyExists(err): // that is asked last
		return "", nil
	case apierrors.IsForbidden(err) || apierrors.IsInvalid(err):
		return err.Error(), nil
	case apierrors.IsBadRequest(err): // some webhook cannot be asked so
		return "", nil
	}
	return "", fmt.Errorf("try the next Pod of instance manager %s: %w", im.Name, err)
}
