package engine

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/process/engineclient"
	"ankole.storage/controlplane/setting"
)

// pace is what an engine is to keep to in rebuilds.
type pace struct {
	// Steps may go on at once; 0 while the engine's object does not say. BytesPerSecond is what is
	// sent at most, 0 without a bound.
	Steps          int
	BytesPerSecond int64
}

// mebi is the unit of setting replica-rebuilding-bandwidth-limit.
const mebi = 1 << 20

// paceOf is what the volume has of its own, or else the setting says.
func paceOf(e *v1beta2.Engine, settings setting.Values) pace {
	limit := e.Spec.ReplicaRebuildingBandwidthLimit
	if limit == 0 {
		limit = int64(settings.Int(setting.ReplicaRebuildingBandwidthLimit))
	}
	return pace{Steps: e.Spec.RebuildConcurrentSyncLimit, BytesPerSecond: limit * mebi}
}

// String names it among what an engine may refuse.
func (p pace) String() string {
	return fmt.Sprintf("concurrency %d, %d bytes per second", p.Steps, p.BytesPerSecond)
}

// paceRebuilds tells the engine how many steps of a rebuild may go on at once, and how much it may
// send. An engine that does not say what it keeps to is not told: it is an older one, or runs where
// nobody can tell it.
func paceRebuilds(e *v1beta2.Engine, s seen) loop.Decision {
	wanted, have := s.Pace, s.State.Options
	if wanted.Steps == 0 || have.RebuildConcurrency == nil || s.Refused[wanted.String()] != "" ||
		*have.RebuildConcurrency == wanted.Steps &&
			(have.RebuildBandwidth == nil || *have.RebuildBandwidth == wanted.BytesPerSecond) {
		return loop.Decision{}
	}
	return loop.Decision{
		Do: loop.Call{What: fmt.Sprintf("set the pace of rebuilds of engine %s to %s", e.Name, wanted),
			Order: orderPace},
	}
}

// setPace has an answer remembered that would come again.
func (r *Reconciler) setPace(ctx context.Context, e *v1beta2.Engine, p pace) error {
	err := r.engines.OptionsSet(ctx, target(e), engineclient.Options{RebuildConcurrency: &p.Steps,
		RebuildBandwidth: &p.BytesPerSecond})
	r.monitor.Refused(e.Name, p.String(), err)
	return err
}

// onSetting wakes all engines where the bound of their rebuilds may be another one.
func (r *Reconciler) onSetting(s *v1beta2.Setting) []string {
	if s.Name != setting.ReplicaRebuildingBandwidthLimit {
		return nil
	}
	var list v1beta2.EngineList
	if err := r.client.List(context.Background(), &list, client.InNamespace(r.cfg.Namespace),
		client.UnsafeDisableDeepCopy); err != nil {
		return nil // the cache does not fail; an engine's own change wakes it too
	}
	out := make([]string, len(list.Items))
	for i := range list.Items {
		out[i] = list.Items[i].Name
	}
	return out
}
