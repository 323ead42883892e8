package volume

import (
	"time"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/setting"
)

// salvaging brings a faulted volume back. It is the part of a pass that salvage stands for.
type salvaging struct{ *pass }

// salvage brings a faulted and detached volume back. It takes no risk: the marks of failure are
// lifted and the volume may be attached again, but the next engine is given every copy and starts
// only if it finds enough of the recorded members; what goes further is for a person to say. So it
// waits until at least half of the recorded members are on nodes that are up and not known to be
// damaged, or the copies that a person has decided to go on with. A person's order, who lifts the
// mark of a replica, waits for nothing.
func (p salvaging) salvage() loop.Change {
	v := p.v
	if v.Status.Robustness != v1beta2.VolumeRobustnessFaulted || v.Status.State != v1beta2.VolumeStateDetached ||
		!p.closed() {
		return nil
	}
	wait := p.s.Run.RetryAt.Sub(p.now)
	automatic := (p.s.Settings.Bool(setting.AutoSalvage) && !v.Spec.Standby && p.enoughReachable()) ||
		accepting(p).chosenReachable()
	if automatic && wait <= 0 {
		for _, r := range p.live() {
			if p.salvageable(r) {
				// Crash window: marks lifted one by one; the first is enough for the volume to go on.
				return editReplica(r, func(s *v1beta2.ReplicaSpec) { s.FailedAt = "" })
			}
		}
	}
	ready := count(p.live(), func(r *v1beta2.Replica) bool {
		return r.Spec.FailedAt == "" && r.Spec.NodeID != "" && (hasData(r) || !p.anyData()) && p.reachable(r)
	})
	if ready == 0 {
		if automatic && wait > 0 {
			p.wakeIn(wait)
		}
		return nil // woken by nodes and instance managers, and by a person's order
	}
	v.Status.Robustness = v1beta2.VolumeRobustnessUnknown
	p.requestRemount("it has been salvaged")
	if automatic && wait <= 0 {
		v.Status.LastAutoSalvagedAt = p.stamp()
		p.tell(true, naming.EventAutoSalvaged, "volume %s is tried again with every replica within reach", v.Name)
	}
	return nil
}

// followDevice notes which block device users of the volume have. One that ends while the volume is
// attached (with the Pod of its instance manager, or by an administrator's hand) takes what is
// mounted from it along, however soon the engine has another one: those users have to mount again.
func (p salvaging) followDevice() {
	st, id := &p.v.Status, p.engine.Status.DeviceID
	if id == "" && p.engine.Status.Endpoint != "" {
		st.DeviceID = "" // it is up, and of a program that tells no ID: whether it is another one is not known
	}
	if id == "" || id == st.DeviceID {
		return
	}
	replaced := st.DeviceID != "" && st.CurrentNodeID == p.engine.Spec.NodeID
	st.DeviceID = id
	if !replaced {
		return // it is being attached, or has migrated, or comes from an engine that told no ID
	}
	p.requestRemount("its block device is another one")
	p.tell(true, naming.EventDetachedUnexpectedly, "the block device of volume %s on node %s has ended and is there anew: "+
		"what was mounted from the former one gives errors until it is mounted again", p.v.Name, st.CurrentNodeID)
}

// requestRemount has the volume's users mount it again.
func (p salvaging) requestRemount(why string) {
	p.v.Status.RemountRequestedAt = p.stamp()
	p.tell(false, naming.EventRemount, "volume %s is to be mounted again: %s", p.v.Name, why)
}

// salvageable replicas are marked as failed, within reach, and hold data, unless nobody does (a
// volume that never started).
func (p salvaging) salvageable(r *v1beta2.Replica) bool {
	return r.Spec.FailedAt != "" && r.Spec.NodeID != "" && r.Spec.Active && p.reachable(r) &&
		(r.Spec.HealthyAt != "" || p.isMember(r) || accepting(p).chosen(r) || !p.anyData())
}

// reachable says whether a replica's process could be started on its node now.
func (p *pass) reachable(r *v1beta2.Replica) bool {
	im := p.managerFor(r)
	return im != nil && im.Status.CurrentState == v1beta2.InstanceManagerStateRunning && !p.nodeDown(r.Spec.NodeID)
}

// enoughReachable: an engine needs answers from half of the recorded members, rounded up; without a
// record, any replica may do. A copy that is known to be damaged answers nothing before somebody
// has put it right.
func (p salvaging) enoughReachable() bool {
	members, recorded := p.members()
	need := 1
	if recorded {
		need = max(1, (len(members)+1)/2)
	}
	return count(p.live(), func(r *v1beta2.Replica) bool {
		return r.Spec.NodeID != "" && p.reachable(r) && !damaged(r) && (!recorded || p.isMember(r))
	}) >= need
}

// rebuildPause is how much longer a replica whose last rebuild failed is left alone: 10 s, doubled
// with each failure.
func (p *pass) rebuildPause(r *v1beta2.Replica) time.Duration {
	if r.Spec.FailedAt == "" || r.Spec.HealthyAt != "" || r.Spec.RebuildRetryCount == 0 {
		return 0
	}
	failedAt, err := time.Parse(time.RFC3339, r.Spec.FailedAt)
	if err != nil {
		return 0
	}
	pause := min(rebuildPauseFirst<<min(r.Spec.RebuildRetryCount-1, v1beta2.MaxRebuildRetryCount), rebuildPauseMost)
	return max(0, failedAt.Add(pause).Sub(p.now))
}

const (
	rebuildPauseFirst = 10 * time.Second
	rebuildPauseMost  = 5 * time.Minute
)
