package volume

import (
	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/object/naming"
)

// advancing is the state machine of a volume: attaching, attached, detaching, detached.
type advancing struct{ *pass }

// advance is the state machine. What is wanted (spec.nodeID), where the volume is
// (status.currentNodeID) and the state give either open or close; docs/design/volume.md has the
// table.
func (p advancing) advance() loop.Change {
	v := p.v
	want, have := v.Spec.NodeID, v.Status.CurrentNodeID
	state := v.Status.State
	switch {
	case state == v1beta2.VolumeStateCreating, state == v1beta2.VolumeStateNew:
		return p.closing()
	case want == "":
		return p.closing()
	case have == "" && state == v1beta2.VolumeStateDetached:
		if v.Status.CurrentImage != p.image || v.Status.Robustness == v1beta2.VolumeRobustnessFaulted {
			return nil // upgradeDetached or salvage first
		}
		v.Status.State = v1beta2.VolumeStateAttaching
		waiting(p).noteWait(v1beta2.VolumeReasonReplicasOrdered, orderedText) // in the same write
		return nil
	case have == "" && state == v1beta2.VolumeStateAttaching:
		if p.s.Unclaimed {
			p.wakeIn(0)
			return loop.Call{What: "claim the storage network for volume " + v.Name, Order: claimNetwork{}}
		}
		return p.attaching()
	case have == want && state == v1beta2.VolumeStateAttached:
		if change := migrating(p).migrate(); change != nil {
			return change
		}
		return opening{waiting(p)}.open()
	case migrating(p).switching():
		return migrating(p).switchOver()
	}
	return p.closing()
}

// order has a process run, on the volume's storage network.
func (p *pass) order(s *v1beta2.InstanceSpec) {
	s.DesireState, s.StorageNetwork, s.LogRequested = v1beta2.InstanceStateRunning, p.s.Network, false
}

// closing walks towards detached and stays there.
func (p advancing) closing() loop.Change {
	v := p.v
	change := migrating(p).failMigration()
	if change == nil {
		change = p.close()
	}
	if change == nil && p.closed() {
		v.Status.CurrentMigrationNodeID, v.Status.DeviceID = "", ""
		if v.Status.State != v1beta2.VolumeStateDetached || v.Status.CurrentNodeID != "" {
			if v.Status.CurrentNodeID != "" {
				p.tell(false, naming.EventDetached, "volume %s has been detached", v.Name)
			}
			v.Status.CurrentNodeID = ""
			v.Status.State = v1beta2.VolumeStateDetached
			if v1beta2.IsConditionTrue(v.Status.Conditions, v1beta2.VolumeConditionDeviceKept) {
				p.setCondition(v1beta2.Condition{Type: v1beta2.VolumeConditionDeviceKept, Status: v1beta2.ConditionFalse})
			}
		}
		return nil
	}
	v.Status.State = v1beta2.VolumeStateDetaching
	return change
}

// attaching opens until the engine serves.
func (p advancing) attaching() loop.Change {
	if change := (opening{waiting(p)}).open(); change != nil {
		return change
	}
	v := p.v
	if !p.serving() {
		return nil
	}
	v.Status.CurrentNodeID = v.Spec.NodeID
	v.Status.State = v1beta2.VolumeStateAttached
	p.noteStart(v1beta2.ConditionTrue, "")
	p.tell(false, naming.EventAttached, "volume %s has been attached to %s", v.Name, v.Spec.NodeID)
	return nil
}

// serving says whether users can do I/O: the engine runs on the wanted node, has a replica in sync,
// and its device is up.
func (p *pass) serving() bool {
	if !p.engineReports() || p.engine.Spec.NodeID != p.v.Spec.NodeID {
		return false
	}
	return p.inSyncNow() > 0 && (!advancing{p}.needsDevice() || p.engine.Status.Endpoint != "")
}

func (p advancing) needsDevice() bool {
	return p.v.Spec.Frontend != v1beta2.VolumeFrontendNone && !p.engine.Spec.DisableFrontend
}

// closed says whether no process of the volume runs. States of objects that were never looked at
// count as stopped. A deleted replica stops without an order, and its object may stay for long, as
// its data does.
func (p *pass) closed() bool {
	stopped := func(desired v1beta2.InstanceState, s *v1beta2.InstanceStatus) bool {
		return desired != v1beta2.InstanceStateRunning && s.Off()
	}
	if (migrating{p}).standIn() != nil {
		return false
	}
	if p.engine != nil && !stopped(p.engine.Spec.DesireState, &p.engine.Status.InstanceStatus) {
		return false
	}
	for _, r := range p.replicas {
		desired := r.Spec.DesireState
		if r.DeletionTimestamp != nil && p.copies.Serves(r) == "" {
			desired = v1beta2.InstanceStateStopped
		}
		if !stopped(desired, &r.Status.InstanceStatus) {
			return false
		}
	}
	return true
}

// close stops the engine first and only then the replicas, so that the engine's last writes reach
// them.
//
// Crash windows: each step is found done or not done from specs and states alone.
func (p advancing) close() loop.Change {
	e := p.engine
	waiting(p).doneWaiting()
	if e.Spec.DesireState != v1beta2.InstanceStateStopped || e.Spec.NodeID != "" || len(e.Spec.ReplicaAddressMap) > 0 {
		return p.editEngine(func(s *v1beta2.EngineSpec) {
			s.DesireState, s.NodeID, s.ReplicaAddressMap = v1beta2.InstanceStateStopped, "", map[string]string{}
			s.LogRequested = s.LogRequested || engineEnded(p.engine)
			if upgrading(p).handingOver() {
				upgrading(p).takeBack(s)
			}
		})
	}
	if !e.Status.Off() {
		return nil
	}
	anyData := p.anyData()
	for _, r := range p.live() {
		interrupted := r.Spec.HealthyAt == "" && r.Spec.FailedAt == "" && anyData
		if r.Spec.DesireState == v1beta2.InstanceStateStopped && !interrupted {
			continue
		}
		return editReplica(r, func(s *v1beta2.ReplicaSpec) {
			s.DesireState = v1beta2.InstanceStateStopped
			if !interrupted {
				return
			}
			// A copy that was not finished: the next engine must not take it for one.
			s.FailedAt, s.LastFailedAt = p.stamp(), p.stamp()
			if s.NodeID == "" {
				s.RebuildRetryCount = v1beta2.MaxRebuildRetryCount
			}
		})
	}
	return nil
}
