package engine

import (
	"context"
	"fmt"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/engineclient"
	"ankole.storage/controlplane/loop"
)

// paceRebuilds tells the engine how many steps of a rebuild may go on at once. An engine that does
// not say how many is not told: it is an older one, or runs where nobody can tell it.
func paceRebuilds(e *v1beta2.Engine, s seen) loop.Decision {
	wanted, have := e.Spec.RebuildConcurrentSyncLimit, s.State.Options.RebuildConcurrency
	if wanted == 0 || have == nil || *have == wanted || s.Refused[concurrencyOf(e)] != "" {
		return loop.Decision{}
	}
	return loop.Decision{
		Do: loop.Call{What: fmt.Sprintf("set the concurrency of rebuilds of engine %s to %d", e.Name, wanted),
			Do: func(ctx context.Context) error { return s.SetConcurrency(ctx, e) }},
	}
}

// concurrencyOf names the concurrency wanted of an engine among what it may refuse.
func concurrencyOf(e *v1beta2.Engine) string {
	return fmt.Sprintf("concurrency %d", e.Spec.RebuildConcurrentSyncLimit)
}

// setConcurrency has an answer remembered that would come again.
func (r *Reconciler) setConcurrency(ctx context.Context, e *v1beta2.Engine) error {
	n := e.Spec.RebuildConcurrentSyncLimit
	err := r.engines.OptionsSet(ctx, target(e), engineclient.Options{RebuildConcurrency: &n})
	r.monitor.Refused(e.Name, concurrencyOf(e), err)
	return err
}
