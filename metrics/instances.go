package metrics

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/process/engine"
)

var instanceStates = []lh.InstanceState{lh.InstanceStateRunning, lh.InstanceStateStopped, lh.InstanceStateError,
	lh.InstanceStateStarting, lh.InstanceStateStopping, lh.InstanceStateUnknown}

// stateOfInstance is the state shown: an object nobody handled yet has no process.
func stateOfInstance(s lh.InstanceState) lh.InstanceState { return cmp.Or(s, lh.InstanceStateStopped) }

// gatherEngines reports engines, their replicas' modes and their rebuilds.
func (g *gathering) gatherEngines() {
	for i := range g.engines.Items {
		e := &g.engines.Items[i]
		node, volume := g.owner(e.Status.OwnerID, e.Spec.NodeID), e.Spec.VolumeName
		g.add("longhorn_engine_info", 1, e.Name, volume, node, string(dataEngine(e.Spec.DataEngine)),
			string(e.Spec.Frontend), cmp.Or(e.Status.CurrentImage, e.Spec.Image))
		oneOf(g.Figures, "longhorn_engine_state", stateOfInstance(e.Status.CurrentState), instanceStates,
			e.Name, volume, node)
		for _, replica := range slices.Sorted(maps.Keys(e.Status.ReplicaModeMap)) {
			g.add("longhorn_engine_replica_mode", 1, e.Name, volume, replica, string(e.Status.ReplicaModeMap[replica]))
		}
		for _, c := range e.Status.Conditions {
			if c.Type == engine.ConditionIOReady {
				g.add("ankole_engine_suspended", one(c.Status == lh.ConditionFalse), node, e.Name, volume)
			}
		}
		g.gatherRebuilds(e, node)
		g.gatherState(e, node)
	}
}

// gatherRebuilds reports the rebuilds that an Engine object tells of.
func (g *gathering) gatherRebuilds(e *lh.Engine, node string) {
	claim := g.claims[e.Spec.VolumeName]
	for _, to := range slices.Sorted(maps.Keys(e.Status.RebuildStatus)) {
		r := e.Status.RebuildStatus[to]
		if !r.IsRebuilding && r.State != lh.ProcessStateComplete {
			continue
		}
		from := cmp.Or(strings.Join(r.FromReplicaAddressList, ","), r.FromReplicaAddress)
		g.Rebuilds = append(g.Rebuilds, Rebuild{Percent: r.Progress, Running: r.IsRebuilding,
			Labels: []string{node, e.Name, from, to, claim[0], claim[1]}})
	}
}

// gatherState reports what only the engine's stream tells.
func (g *gathering) gatherState(e *lh.Engine, node string) {
	state := g.stateOf(e)
	if state == nil {
		return
	}
	for _, r := range state.Replicas {
		if r.Rebuild == nil || !r.Rebuild.Running {
			continue
		}
		labels := []string{node, e.Name, e.Spec.VolumeName, r.Address}
		g.add("ankole_rebuild_done_bytes", float64(r.Rebuild.DoneBytes), labels...)
		g.add("ankole_rebuild_total_bytes", float64(r.Rebuild.TotalBytes), labels...)
	}
	if state.UpgradePause > 0 {
		g.add("ankole_upgrade_pause_seconds", state.UpgradePause.Seconds(), node, e.Name, e.Spec.VolumeName)
	}
}

// gatherReplicas reports replicas.
func (g *gathering) gatherReplicas() {
	for i := range g.replicas.Items {
		r := &g.replicas.Items[i]
		node := g.owner(r.Status.OwnerID, r.Spec.NodeID)
		g.add("longhorn_replica_info", 1, r.Name, r.Spec.VolumeName, node, r.Spec.DiskPath,
			string(dataEngine(r.Spec.DataEngine)))
		oneOf(g.Figures, "longhorn_replica_state", stateOfInstance(r.Status.CurrentState), instanceStates, r.Name,
			r.Spec.VolumeName, node)
	}
}

func dataEngine(d lh.DataEngineType) lh.DataEngineType { return cmp.Or(d, lh.DataEngineTypeV1) }
