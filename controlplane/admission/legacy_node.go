//go:build !nolegacy

package admission

import (
	"context"
	"math"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/setting"
)

// LegacyCPUFacts is what the settings say about instance managers of types engine and replica.
type LegacyCPUFacts struct {
	// LegacyEnginePercent and LegacyReplicaPercent are the settings guaranteed-engine-manager-cpu
	// and guaranteed-replica-manager-cpu.
	LegacyEnginePercent, LegacyReplicaPercent int
	// MigratedMillis is what setting guaranteed-engine-cpu still has to hand over to the nodes.
	MigratedMillis int
}

// legacyCPURequests are the requests of a node for the older types.
func legacyCPURequests(n *v1beta2.Node) []int {
	return []int{n.Spec.EngineManagerCPURequest, n.Spec.ReplicaManagerCPURequest}
}

func (w world) legacyCPUFacts(ctx context.Context, f *NodeFacts) error {
	values, err := w.settings(ctx)
	if err != nil {
		return err
	}
	f.LegacyEnginePercent = values.Int(setting.GuaranteedEngineManagerCPU)
	f.MigratedMillis = setting.EngineCPUMillis(values.String(setting.GuaranteedEngineCPU))
	f.LegacyReplicaPercent = values.Int(setting.GuaranteedReplicaManagerCPU)
	return nil
}

// migrated says that a request, which differs from the old one, takes the value of setting
// guaranteed-engine-cpu over. It was in force before, so there is no limit.
func (f NodeFacts) migrated(old, request int) bool { return old == 0 && request == f.MigratedMillis }

// checkLegacyCPURequests judges the requests for instance managers of types engine and replica:
// together below 40 % of the allocatable CPU; the one that is 0 counts with its setting. Stored
// values stay until changed.
func checkLegacyCPURequests(old, n *v1beta2.Node, f NodeFacts) error {
	engine, replica := n.Spec.EngineManagerCPURequest, n.Spec.ReplicaManagerCPURequest
	stays := func(old, request int) bool { return request == old || f.migrated(old, request) }
	if stays(old.Spec.EngineManagerCPURequest, engine) && stays(old.Spec.ReplicaManagerCPURequest, replica) ||
		engine == 0 && replica == 0 {
		return nil
	}
	percent := func(millis, setting int) float64 {
		if millis == 0 {
			return float64(setting)
		}
		return math.Round(float64(millis) * 100 / float64(f.AllocatableMillis))
	}
	e, r := percent(engine, f.LegacyEnginePercent), percent(replica, f.LegacyReplicaPercent)
	if e+r >= maxCPUPercent {
		return invalid("CPU requests of node %s for engine managers (%.0f%%) and replica managers (%.0f%%) together "+
			"should be smaller than %d%% of the allocatable CPU",
			n.Name, e, r, maxCPUPercent)
	}
	return nil
}
