package engine

import (
	"context"
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/process/engineclient"
	"ankole.storage/controlplane/setting"
)

// crowdedAgainAfter is when an engine whose node runs as many purges as it may is looked at again:
// no event tells that another volume's has ended.
const crowdedAgainAfter = 30 * time.Second

// cleanupSeen is what decides about the purge after a rebuild.
type cleanupSeen struct {
	// Wanted: settings ask for it, and a rebuild has left snapshots of the system. Crowded: as many
	// purges run on the engine's node as may.
	Wanted, Crowded bool
}

// gatherCleanup asks for the other engines only where there is something to clean up.
func (r *Reconciler) gatherCleanup(ctx context.Context, e *v1beta2.Engine, state *engineclient.State,
	settings setting.Values) (cleanupSeen, error) {
	c := cleanupSeen{Wanted: settings.Bool(setting.AutoCleanupSystemGeneratedSnapshot) &&
		!settings.Bool(setting.DisableSnapshotPurge) && r.cfg.Purge != nil && leftByARebuild(state)}
	if !c.Wanted {
		return c, nil
	}
	var engines v1beta2.EngineList
	if err := r.client.List(ctx, &engines, client.InNamespace(e.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return c, fmt.Errorf("list engines: %w", err)
	}
	c.Crowded = e.Crowded(engines.Items, settings.Int(setting.SnapshotHeavyTaskConcurrentLimit))
	return c, nil
}

// leftByARebuild says whether a replica was rebuilt that was never purged since, all are in sync,
// and the system has snapshots that are not marked as removed. A purge, however it ends, shows in
// the state of every replica, so it is asked for once after each rebuild.
func leftByARebuild(state *engineclient.State) bool {
	if state == nil {
		return false
	}
	rebuilt := false
	for _, r := range state.Replicas {
		if r.Mode != engineclient.ModeRW || r.Purge != nil && r.Purge.Running {
			return false
		}
		rebuilt = rebuilt || r.Purge == nil && r.Rebuild != nil && r.Rebuild.State == v1beta2.ProcessStateComplete
	}
	if !rebuilt {
		return false
	}
	for name, s := range state.Snapshots {
		if name != v1beta2.VolumeHeadName && !s.UserCreated && !s.Removed {
			return true
		}
	}
	return false
}

// cleanUp has the engine purge the snapshots that the system made for rebuilds.
func cleanUp(e *v1beta2.Engine, s seen) loop.Decision {
	switch c := &s.Cleanup; {
	case !c.Wanted:
		return loop.Decision{}
	case c.Crowded:
		return loop.Decision{After: crowdedAgainAfter}
	default:
		// Crash window: the answer may be lost; a purge under way is as good.
		return loop.Decision{Do: loop.Call{What: "purge the snapshots of volume " + e.Spec.VolumeName + " after a rebuild",
			Order: orderPurge}}
	}
}
