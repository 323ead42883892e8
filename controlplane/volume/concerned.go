package volume

import (
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/api/equality"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/condition"
	"ankole.storage/controlplane/process/instance"
)

// This file says which changes of other objects concern a volume, so that what a change costs does
// not grow with the number of volumes.

// noted are volumes of which something is known from the last look at them. They live in memory
// only: a new leader looks at every volume once.
type noted struct {
	mu      sync.Mutex
	volumes map[string]bool
}

func newNoted() *noted { return &noted{volumes: map[string]bool{}} }

func (n *noted) note(volume string, holds bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if holds {
		n.volumes[volume] = true
	} else {
		delete(n.volumes, volume)
	}
}

func (n *noted) has(volume string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.volumes[volume]
}

func (n *noted) names() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Collect(maps.Keys(n.volumes))
}

// ticketsChanged says whether an attachment has changed in more than what it tells of its tickets.
func ticketsChanged(before, after *v1beta2.VolumeAttachment) bool {
	return before.UID != after.UID || (before.DeletionTimestamp == nil) != (after.DeletionTimestamp == nil) ||
		!equality.Semantic.DeepEqual(before.Spec, after.Spec)
}

// managerChanged says whether an instance manager has changed in more than its processes.
func managerChanged(before, after *v1beta2.InstanceManager) bool {
	_, _, all := instance.Concerned(before, after)
	return all
}

// deploymentChanged says whether an image is on other nodes, or has become ready or ceased to be.
func deploymentChanged(before, after *v1beta2.EngineImage) bool {
	ready := func(ei *v1beta2.EngineImage) bool {
		return v1beta2.IsConditionTrue(ei.Status.Conditions, v1beta2.EngineImageConditionReady)
	}
	return ready(before) != ready(after) || before.Status.Version != after.Status.Version ||
		!maps.Equal(before.Status.NodeDeploymentMap, after.Status.NodeDeploymentMap)
}

// onNodeUpdate wakes every volume that is not settled when a node can be used otherwise than
// before. Of its room, which changes with each replica that comes and goes, only those hear that
// lack some.
func (r *Reconciler) onNodeUpdate(before, after *v1beta2.Node) []string {
	if nodeChanged(before, after) {
		return r.unsettled()
	}
	return r.unplaced.names()
}

// nodeChanged says whether a node has changed in more than the figures about its disks.
func nodeChanged(before, after *v1beta2.Node) bool {
	ready := func(n *v1beta2.Node) v1beta2.Condition {
		return v1beta2.FindCondition(n.Status.Conditions, v1beta2.NodeConditionReady)
	}
	return before.UID != after.UID || (before.DeletionTimestamp == nil) != (after.DeletionTimestamp == nil) ||
		ready(before) != ready(after) || schedulable(before) != schedulable(after) ||
		before.Status.Zone != after.Status.Zone || before.Status.Region != after.Status.Region ||
		!equality.Semantic.DeepEqual(before.Spec, after.Spec) || !maps.Equal(usableDisks(before), usableDisks(after))
}

func schedulable(n *v1beta2.Node) bool {
	return v1beta2.IsConditionTrue(n.Status.Conditions, v1beta2.NodeConditionSchedulable)
}

// usableDisk is what of a disk's status does not change with its content.
type usableDisk struct {
	uuid                         string
	ready, schedulable, pressure bool
}

func usableDisks(n *v1beta2.Node) map[string]usableDisk {
	out := make(map[string]usableDisk, len(n.Status.DiskStatus))
	for name, d := range n.Status.DiskStatus {
		u := usableDisk{uuid: d.DiskUUID, ready: condition.DiskReady(d)}
		u.schedulable, u.pressure = condition.DiskSchedulable(d)
		out[name] = u
	}
	return out
}
