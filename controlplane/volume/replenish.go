package volume

import (
	"fmt"
	"time"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/schedule"
	"ankole.storage/controlplane/setting"
	"ankole.storage/controlplane/volume/clone"
	"ankole.storage/controlplane/volume/restore"
)

// replenishing has as many replicas as are wanted, where they are wanted. It is the part of a pass
// that replenish stands for.
type replenishing struct{ *pass }

// replenish brings an attached volume back to its number of replicas: a failed replica is rebuilt
// where it is if that is possible, and only when there is none to wait for any longer a new one is
// made. One at a time.
func (p replenishing) replenish() loop.Change {
	if p.v.Status.State != v1beta2.VolumeStateAttached || p.v.Spec.NodeID != p.v.Status.CurrentNodeID || !p.synced() ||
		p.rebuilding() || p.expansionPending() || p.upgradeUnderWay() || clone.Copying(p.v) || restore.Filling(p.v) ||
		p.migrating() ||
		p.s.Settings.Int(setting.ConcurrentReplicaRebuildPerNodeLimit) == 0 {
		return nil
	}
	if count(p.replicas, usable) >= p.v.Spec.NumberOfReplicas {
		if change := p.localize(); change != nil {
			return change
		}
		return p.balance()
	}
	if change := p.reuse(); change != nil {
		return change
	}
	if wait := p.replaceWait(); wait > 0 {
		p.wakeIn(wait + time.Second)
		return nil
	}
	return p.addReplica("", "precheck new replica failed: ", v1beta2.MaxRebuildRetryCount)
}

// synced says whether the engine works with exactly the replicas it should have and none of them is
// in error.
func (p *pass) synced() bool {
	if !p.engineReports() || p.v.Status.Robustness == v1beta2.VolumeRobustnessFaulted {
		return false
	}
	expected := map[string]bool{}
	for _, r := range p.live() {
		if r.Spec.FailedAt == "" && r.Spec.NodeID != "" && r.Spec.Active {
			expected[r.Name] = true
		}
	}
	if len(expected) != len(p.engine.Spec.ReplicaAddressMap) || len(expected) != len(p.engine.Status.ReplicaModeMap) {
		return false
	}
	for name := range expected {
		mode, reported := p.engine.Status.ReplicaModeMap[name]
		if _, wanted := p.engine.Spec.ReplicaAddressMap[name]; !wanted || !reported || mode == v1beta2.ReplicaModeERR {
			return false
		}
	}
	return true
}

// reuse lifts the mark of the failed replica to rebuild; open then starts it and gives it to the
// engine.
func (p replenishing) reuse() loop.Change {
	p.wakeAfterPause()
	name := schedule.Reuse(p.request(schedule.Replica{}))
	for _, r := range p.live() {
		// The process of the failed run must be gone, or it would be taken for the new one.
		stopped := r.Status.CurrentState == v1beta2.InstanceStateStopped && r.Spec.DesireState == v1beta2.InstanceStateStopped
		if r.Name != name || !stopped {
			continue
		}
		p.changeEvents = append(p.changeEvents, loop.Event{
			Reason: naming.EventRebuilding, Message: fmt.Sprintf("Replica %s on node %s is rebuilt from what it has",
				r.Name, r.Spec.NodeID),
		})
		return editReplica(r, func(s *v1beta2.ReplicaSpec) {
			s.FailedAt, s.HealthyAt = "", ""
			s.Image, s.EngineImage = p.engine.Spec.Image, "" // it may have missed an upgrade
		})
	}
	return nil
}

// wakeAfterPause asks for another look when a failed replica may be rebuilt again, which no event
// tells.
func (p replenishing) wakeAfterPause() {
	for _, r := range p.live() {
		if pause := p.rebuildPause(r); reusable(r) && pause > 0 {
			p.wakeIn(pause)
		}
	}
}

// replaceWait is how long to wait for a failed replica before a new one is made.
func (p replenishing) replaceWait() time.Duration {
	if p.v.Status.Robustness != v1beta2.VolumeRobustnessDegraded || count(p.live(), reusable) == 0 {
		return 0
	}
	return p.replenishWait()
}

// replenishWait is what remains of the wait interval since the volume became degraded.
func (p *pass) replenishWait() time.Duration {
	since, err := time.Parse(time.RFC3339, p.v.Status.LastDegradedAt)
	if err != nil {
		return 0
	}
	interval := time.Duration(p.s.Settings.Int(setting.ReplicaReplenishmentWaitInterval)) * time.Second
	return max(0, since.Add(interval).Sub(p.now))
}

// addReplica creates a replica if there is a place for it; otherwise nothing is stored but the
// reason. retries is as for newReplica.
func (p replenishing) addReplica(hardNode, prefix string, retries int) loop.Change {
	for _, r := range p.live() {
		if r.Spec.NodeID == "" && r.Spec.FailedAt == "" && (usable(r) || hardNode != "") {
			return nil // one of the kind waits for a place already
		}
	}
	req := p.request(schedule.Replica{HardNode: hardNode})
	_, why := schedule.Place(req)
	if len(why) > 0 {
		message := why.String()
		if message == string(schedule.ReasonGeneric) {
			message = string(schedule.ReasonDisksUnavailable)
		}
		p.noPlace, p.unplacedLocal = prefix+p.boundText()+message, hardNode != ""
		p.refused = schedule.Describe(schedule.Explain(req))
		p.wakeIn(placeAgainAfter)
		return nil
	}
	p.changeEvents = append(p.changeEvents, loop.Event{Reason: naming.EventCreate,
		Message: "Creating a replica to bring the volume back to its number of replicas"})
	return loop.Create{Object: creating(p).newReplica(hardNode, retries)}
}

// localize gives a best-effort local volume a replica on the node it is attached to. Failing to do
// so never disturbs the volume.
func (p replenishing) localize() loop.Change {
	v := p.v
	if v.Spec.DataLocality != v1beta2.DataLocalityBestEffort || v.Status.Robustness != v1beta2.VolumeRobustnessHealthy ||
		p.engine.Spec.DisableFrontend || v.Spec.Frontend == v1beta2.VolumeFrontendNone || p.localReplica() != nil {
		return nil
	}
	return p.addReplica(v.Spec.NodeID, "", v1beta2.MaxRebuildRetryCount)
}

// localReplica is the replica on the attached node that has not failed, nil if there is none.
func (p *pass) localReplica() *v1beta2.Replica {
	for _, r := range p.live() {
		if r.Spec.NodeID == p.v.Spec.NodeID && r.Spec.NodeID != "" && r.Spec.FailedAt == "" {
			return r
		}
	}
	return nil
}
