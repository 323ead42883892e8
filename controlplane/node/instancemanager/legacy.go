//go:build !nolegacy

package instancemanager

import (
	"maps"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/process/heard"
	"ankole.storage/controlplane/setting"
)

// legacy tells an instance manager of type engine or replica: made by an older version, kept while
// it has processes that run, never made again.
func legacy(im *v1beta2.InstanceManager) bool {
	return isLegacy(im.Spec.Type)
}

func isLegacy(t v1beta2.InstanceManagerType) bool {
	return t == v1beta2.InstanceManagerTypeEngine || t == v1beta2.InstanceManagerTypeReplica
}

// LegacyCPUPercent are the shares of a node's allocatable CPU for the Pods of the old types.
type LegacyCPUPercent struct {
	Engine, Replica int
}

// legacyPodSettings are the settings baked into Pods of the old types only.
var legacyPodSettings = []string{setting.GuaranteedEngineManagerCPU, setting.GuaranteedReplicaManagerCPU}

func legacyPercent(v setting.Values) LegacyCPUPercent {
	return LegacyCPUPercent{
		Engine:  v.Int(setting.GuaranteedEngineManagerCPU),
		Replica: v.Int(setting.GuaranteedReplicaManagerCPU),
	}
}

// legacyCPU returns the node's own request for one of the old types, the share without one and the
// setting that has it.
func legacyCPU(t v1beta2.InstanceManagerType, n *v1beta2.Node, s PodSettings) (own int, percent float64, name string) {
	var node v1beta2.LegacyNodeSpec
	if n != nil {
		node = n.Spec.LegacyNodeSpec
	}
	if t == v1beta2.InstanceManagerTypeEngine {
		return node.EngineManagerCPURequest, float64(s.LegacyCPUPercent.Engine), setting.GuaranteedEngineManagerCPU
	}
	return node.ReplicaManagerCPURequest, float64(s.LegacyCPUPercent.Replica), setting.GuaranteedReplicaManagerCPU
}

// legacyInstances puts the processes where clients look for them in objects of the old types.
func legacyInstances(status *v1beta2.InstanceManagerStatus, p *heard.Processes) {
	status.InstanceEngines, status.InstanceReplicas = nil, nil
	status.Instances = maps.Clone(p.Engines)
	maps.Copy(status.Instances, p.Replicas)
}

// decideLegacy lets the object go, and with it its Pod, as soon as nothing runs in it. While the
// Pod runs but its processes are not known, nobody can tell. Until then a drain waits for it as for
// one of today.
//
// A replica manager of a node without disks goes all the same: what may run in it has neither an
// object nor data.
func decideLegacy(im *v1beta2.InstanceManager, s seen) loop.Decision {
	if !mayWork(s) {
		return remove(im, s, im)
	}
	if im.Spec.Type == v1beta2.InstanceManagerTypeReplica && withoutDisks(s.Node) && s.onlyOrphans() {
		return loop.Decision{Do: loop.Delete{Object: im}}
	}
	if s.Pod.DeletionTimestamp == nil {
		if u := annotated(s.Pod, s); u != nil {
			return loop.Decision{Do: loop.Update{Object: u}}
		}
	}
	d := decideBudget(im, s)
	if d.After == 0 {
		d.After = followRetry
	}
	return d
}

// withoutDisks tells whether a node has no disk, and had none when its agent looked last.
func withoutDisks(n *v1beta2.Node) bool {
	return n != nil && len(n.Spec.Disks) == 0 && len(n.Status.DiskStatus) == 0
}

// onlyOrphans tells whether every process in the Pod is known, and belongs to nobody.
func (s seen) onlyOrphans() bool {
	return s.Processes != nil && s.UnconfirmedSince.IsZero() && s.Assigned == "" &&
		len(s.Processes.Engines)+len(s.Processes.Replicas) == len(s.Orphaned)
}
