// Package concern says which changes of other objects concern volumes, and remembers which volumes
// wait for some, so that what a change costs does not grow with the number of volumes.
package concern

import (
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/api/equality"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/condition"
)

// Noted are volumes of which something is known from the last look at them. They live in memory
// only: a new leader looks at every volume once. Use NewNoted. It may be used by several
// goroutines.
type Noted struct {
	mu      sync.Mutex
	volumes map[string]bool
}

// NewNoted returns a memory without any.
func NewNoted() *Noted { return &Noted{volumes: map[string]bool{}} }

// Note remembers a volume of which it holds, and forgets one of which it does not.
func (n *Noted) Note(volume string, holds bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if holds {
		n.volumes[volume] = true
	} else {
		delete(n.volumes, volume)
	}
}

// Has says whether it holds of a volume.
func (n *Noted) Has(volume string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.volumes[volume]
}

// Names are the volumes of which it holds, in no order.
func (n *Noted) Names() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Collect(maps.Keys(n.volumes))
}

// TicketsChanged says whether an attachment has changed in more than what it tells of its tickets.
func TicketsChanged(before, after *v1beta2.VolumeAttachment) bool {
	return before.UID != after.UID || (before.DeletionTimestamp == nil) != (after.DeletionTimestamp == nil) ||
		!equality.Semantic.DeepEqual(before.Spec, after.Spec)
}

// DeploymentChanged says whether an image is on other nodes, or has become ready or ceased to be.
func DeploymentChanged(before, after *v1beta2.EngineImage) bool {
	ready := func(ei *v1beta2.EngineImage) bool {
		return v1beta2.IsConditionTrue(ei.Status.Conditions, v1beta2.EngineImageConditionReady)
	}
	return ready(before) != ready(after) || before.Status.Version != after.Status.Version ||
		!maps.Equal(before.Status.NodeDeploymentMap, after.Status.NodeDeploymentMap)
}

// Rests says of a volume by its object alone that no change of nodes, instance managers, images or
// settings concerns it, unless work of it waits: it is detached with every replica placed, or
// attached and healthy, and has the image that it should.
func Rests(v *v1beta2.Volume) bool {
	if v.Spec.Image != v.Status.CurrentImage {
		return false
	}
	switch v.Status.State {
	case v1beta2.VolumeStateDetached:
		return v.Spec.NodeID == "" && v.Status.Robustness != v1beta2.VolumeRobustnessFaulted &&
			v1beta2.IsConditionTrue(v.Status.Conditions, v1beta2.VolumeConditionScheduled)
	case v1beta2.VolumeStateAttached:
		return v.Status.Robustness == v1beta2.VolumeRobustnessHealthy &&
			v.Spec.DataLocality != v1beta2.DataLocalityBestEffort
	}
	return false
}

// SelectorsChanged says whether a backing image asks for other nodes or disks.
func SelectorsChanged(before, after *v1beta2.BackingImage) bool {
	return !slices.Equal(before.Spec.NodeSelector, after.Spec.NodeSelector) ||
		!slices.Equal(before.Spec.DiskSelector, after.Spec.DiskSelector)
}

// NodeChanged says whether a node has changed in more than the figures about its disks.
func NodeChanged(before, after *v1beta2.Node) bool {
	ready := func(n *v1beta2.Node) v1beta2.Condition {
		return v1beta2.FindCondition(n.Status.Conditions, v1beta2.NodeConditionReady)
	}
	return before.UID != after.UID || (before.DeletionTimestamp == nil) != (after.DeletionTimestamp == nil) ||
		ready(before) != ready(after) || condition.NodeSchedulable(before) != condition.NodeSchedulable(after) ||
		before.Status.Zone != after.Status.Zone || before.Status.Region != after.Status.Region ||
		!equality.Semantic.DeepEqual(before.Spec, after.Spec) || !maps.Equal(usableDisks(before), usableDisks(after))
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
