package volume

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/process/engineupgrade"
	"ankole.storage/controlplane/volume/copies"
)

// This file brings an attached volume to another engine image while it is in use: a second process
// on each replica directory (a duplicate, spec.active false), then a hand-over from engine to
// engine, then the duplicates take the place of the replicas. docs/design/upgrade.md, "Control
// plane", has states, invariants and the decision table.

// ConditionEngineUpgrade of a Volume is our addition: Unknown while another engine image is wanted
// and the upgrade has not begun (the message says why), True while it is under way, False after it.
// Its transition time is the clock of upgradeWithin.
const (
	ConditionEngineUpgrade  = "EngineUpgrade"
	ReasonUpgradeWaits      = "Waiting"
	ReasonUpgradeRuns       = "InProgress"
	ReasonUpgradeRolledBack = "RolledBack"
)

const (
	// upgradeWithin is how long a live upgrade may last before it is given up.
	upgradeWithin = 5 * time.Minute
	// upgradePause is the time from a hand-over that has failed to the next one.
	upgradePause = 15 * time.Second
)

// upgrading brings a volume to another engine image: in use, at rest, or by itself. It is the part
// of a pass that nobody else needs.
type upgrading struct{ *pass }

// duplicates are the replicas that are not in use, and not deleted.
func (p upgrading) duplicates() []*v1beta2.Replica {
	return slices.DeleteFunc(slices.Clone(p.replicas), func(r *v1beta2.Replica) bool {
		return r.Spec.Active || r.DeletionTimestamp != nil
	})
}

// twin is the other object of a replica's directory that ok holds of, nil if there is none.
func (p upgrading) twin(r *v1beta2.Replica, ok func(*v1beta2.Replica) bool) *v1beta2.Replica {
	for _, o := range p.replicas {
		if copies.SameDirectory(r, o) && ok(o) {
			return o
		}
	}
	return nil
}

// twinRuns says whether another process may have a replica's directory.
func (p upgrading) twinRuns(r *v1beta2.Replica) bool {
	return p.twin(r, func(o *v1beta2.Replica) bool {
		return !o.Status.Off() && !p.nodeDown(o.Spec.NodeID)
	}) != nil
}

// handingOver says whether the engine is told to hand the volume over.
func (p upgrading) handingOver() bool { return len(p.engine.Spec.UpgradedReplicaAddressMap) > 0 }

// upgradeUnderWay says whether a live upgrade has begun.
func (p *pass) upgradeUnderWay() bool {
	return upgrading{p}.handingOver() || len(upgrading{p}.duplicates()) > 0
}

// upgrade makes one step of a live upgrade, of going back from one, or of beginning one.
func (p upgrading) upgrade() loop.Change {
	if p.handingOver() {
		return p.awaitHandOver()
	}
	if change := p.switchReplicas(); change != nil {
		return change
	}
	if change := p.catchUp(); change != nil {
		return change
	}
	p.noteImage()
	v := p.v
	serves := v.Status.State == v1beta2.VolumeStateAttached && v.Spec.NodeID == v.Status.CurrentNodeID &&
		p.engineReports() && p.inSyncNow() > 0
	if v.Status.CurrentImage == p.image || !serves {
		return p.endUpgrade()
	}
	have := v1beta2.FindCondition(v.Status.Conditions, ConditionEngineUpgrade)
	if p.upgradeIsLate(have) {
		why := p.engine.Status.LastUpgradeError
		if why == "" {
			why = have.Message
		}
		return p.rollBack("it took longer than " + upgradeWithin.String() + ": " + why)
	}
	if !p.upgradeUnderWay() {
		why := p.facts().Live(p.image)
		if why == "" && (!p.synced() || p.rebuilding()) {
			why = "a replica is not in sync"
		}
		switch {
		case why == "":
		case have.Status == v1beta2.ConditionTrue: // its time goes on
			p.noteUpgrade(v1beta2.ConditionTrue, ReasonUpgradeRuns, "the upgrade to "+p.image+" was interrupted: "+why)
			return p.endUpgrade()
		default:
			p.noteUpgrade(v1beta2.ConditionUnknown, ReasonUpgradeWaits, "waits for an upgrade to "+p.image+": "+why)
			return p.endUpgrade()
		}
	}
	p.noteUpgrade(v1beta2.ConditionTrue, ReasonUpgradeRuns, "the engine is being upgraded to "+p.image)
	return p.prepareHandOver()
}

// facts are what the rules of upgrades look at.
func (p upgrading) facts() engineupgrade.Facts {
	return engineupgrade.Facts{Volume: p.v, Engines: p.s.Engines, Replicas: p.s.Replicas, Images: p.s.Images,
		Settings: p.s.Settings}
}

func (p upgrading) noteUpgrade(status v1beta2.ConditionStatus, reason, message string) {
	p.setCondition(v1beta2.Condition{Type: ConditionEngineUpgrade, Status: status, Reason: reason, Message: message})
}

// upgradeIsLate says whether an upgrade is to be given up: one that is under way for too long, or,
// while automatic upgrades compete for the slot that it takes, one that has not begun.
func (p upgrading) upgradeIsLate(have v1beta2.Condition) bool {
	limited := have.Status == v1beta2.ConditionUnknown && p.facts().Limit() > 0
	if p.s.UpgradeSince.IsZero() || have.Status != v1beta2.ConditionTrue && !limited {
		return false
	}
	left := p.s.UpgradeSince.Add(upgradeWithin).Sub(p.now)
	if left > 0 {
		p.wakeIn(left)
	}
	return left <= 0
}

// rollBack gives an upgrade up: the wish for it is taken back.
func (p upgrading) rollBack(why string) loop.Change {
	c := p.v.DeepCopy()
	c.Spec.Image, c.Spec.EngineImage = c.Status.CurrentImage, ""
	if c.Annotations == nil {
		c.Annotations = map[string]string{}
	}
	c.Annotations[naming.AnnotationUpgradeRolledBack] = p.stamp()
	p.changeEvents = append(p.changeEvents, loop.Event{Warning: true, Reason: naming.EventUpgrade,
		Message: fmt.Sprintf("The upgrade to engine image %s was given up, the volume stays with %s: %s", p.image,
			p.v.Status.CurrentImage, why)})
	return loop.Update{Object: c}
}

// prepareHandOver has a duplicate of the wanted image run beside each replica in sync, and then
// tells the engine to hand over to an engine with those.
func (p upgrading) prepareHandOver() loop.Change {
	next := map[string]string{}
	ready := true
	for _, r := range p.live() {
		if p.mode(r) != v1beta2.ReplicaModeRW || p.engine.Spec.ReplicaAddressMap[r.Name] == "" {
			continue
		}
		d := p.twin(r, func(o *v1beta2.Replica) bool { return !o.Spec.Active && o.DeletionTimestamp == nil })
		if d == nil || d.Spec.Image != p.image {
			if d != nil {
				return loop.Delete{Object: d} // of a former wish
			}
			return p.newDuplicate(r)
		}
		address, change := p.runDuplicate(d)
		if change != nil {
			return change
		}
		next[d.Name], ready = address, ready && address != ""
	}
	for _, d := range p.duplicates() {
		if _, ok := next[d.Name]; !ok {
			return loop.Delete{Object: d} // its replica is not in sync any more
		}
	}
	if !ready || len(next) == 0 || p.rebuilding() || p.engine.Status.IsExpanding || p.pausing() {
		return nil
	}
	// Crash window: none; one write tells image, replicas and attempt.
	return p.editEngine(func(s *v1beta2.EngineSpec) {
		s.Image, s.EngineImage, s.UpgradedReplicaAddressMap = p.image, "", next
		s.UpgradeAttempt = max(s.UpgradeAttempt, p.engine.Status.FailedUpgradeAttempt) + 1
	})
}

// pausing says whether the last hand-over has failed a short while ago.
func (p upgrading) pausing() bool {
	failed, err := time.Parse(time.RFC3339, p.engine.Status.LastUpgradeFailedAt)
	left := failed.Add(upgradePause).Sub(p.now)
	if err != nil || left <= 0 {
		return false
	}
	p.wakeIn(left)
	return true
}

// newDuplicate describes a second process on a replica's directory, of the wanted image.
func (p upgrading) newDuplicate(r *v1beta2.Replica) loop.Change {
	name := naming.ReplicaName(p.v.Name, p.s.Suffixes[0])
	d := &v1beta2.Replica{ObjectMeta: creating(p).meta(name, true), Spec: *r.Spec.DeepCopy()}
	maps.Copy(d.Labels, r.Labels)
	d.Spec.Active, d.Spec.Image, d.Spec.EngineImage = false, p.image, ""
	p.order(&d.Spec.InstanceSpec)
	return loop.Create{Object: d}
}

// runDuplicate has the process of a duplicate run and returns its address once it does.
func (p upgrading) runDuplicate(d *v1beta2.Replica) (address string, change loop.Change) {
	wanted := d.Spec.DesireState == v1beta2.InstanceStateRunning
	switch state := d.Status.CurrentState; {
	case wanted && state == v1beta2.InstanceStateRunning:
		return addressOf(d), nil
	case wanted && state == v1beta2.InstanceStateError:
		if wait := p.retryIn(p.s.ReplicaRuns[d.Name]); wait > 0 {
			p.wakeIn(wait)
			return "", nil
		}
		return "", editReplica(d, func(s *v1beta2.ReplicaSpec) { s.DesireState = v1beta2.InstanceStateStopped })
	case !wanted && d.Status.Off():
		return "", editReplica(d, func(s *v1beta2.ReplicaSpec) { p.order(&s.InstanceSpec) })
	}
	return "", nil
}

// awaitHandOver waits until the engine has handed the volume over or has failed to. Nothing is
// taken back before that is known: an order that was sent may be carried out later.
func (p upgrading) awaitHandOver() loop.Change {
	e := p.engine
	taken := func() bool {
		for name := range e.Spec.UpgradedReplicaAddressMap {
			if e.Status.ReplicaModeMap[name] == v1beta2.ReplicaModeRW {
				return true
			}
		}
		return false
	}
	ended := e.Status.CurrentState == v1beta2.InstanceStateError || e.Status.CurrentState == v1beta2.InstanceStateStopped
	switch {
	case p.engineReports() && e.Status.CurrentImage == e.Spec.Image && taken():
		// This write is the decision: from here on the duplicates are the volume's replicas.
		return p.editEngine(func(s *v1beta2.EngineSpec) {
			s.ReplicaAddressMap, s.UpgradedReplicaAddressMap = s.UpgradedReplicaAddressMap, map[string]string{}
		})
	case ended && p.image == e.Spec.Image && p.image != p.v.Status.CurrentImage:
		// Its users have waited for another start; the same again would cost them that each time.
		return p.rollBack("the engine has ended while it handed over")
	case e.Status.FailedUpgradeAttempt >= e.Spec.UpgradeAttempt && e.Status.CurrentImage != e.Spec.Image, ended:
		return p.editEngine(p.takeBack)
	}
	return nil
}

// takeBack takes the order to hand over out of an engine's spec.
func (p upgrading) takeBack(s *v1beta2.EngineSpec) {
	s.Image, s.EngineImage = p.v.Status.CurrentImage, ""
	s.UpgradedReplicaAddressMap = map[string]string{}
}

// switchReplicas follows a hand-over: of two objects of one directory the one of the engine's image
// is the one in use, and that is the new image only after awaitHandOver has decided so. The new one
// is put in use first, so that each directory always has one.
func (p upgrading) switchReplicas() loop.Change {
	mine := p.engine.Spec.Image
	for _, r := range p.replicas {
		if r.DeletionTimestamp != nil || r.Spec.Image != mine || r.Spec.Active {
			continue
		}
		if p.twin(r, func(o *v1beta2.Replica) bool { return o.Spec.Active && o.Spec.Image != mine }) != nil {
			return editReplica(r, func(s *v1beta2.ReplicaSpec) { s.Active = true })
		}
	}
	for _, r := range p.replicas {
		if r.Spec.Image == mine || !r.Spec.Active {
			continue
		}
		if p.twin(r, func(o *v1beta2.Replica) bool { return o.Spec.Active && o.Spec.Image == mine }) != nil {
			return editReplica(r, func(s *v1beta2.ReplicaSpec) { s.Active = false })
		}
	}
	return nil
}

// catchUp gives the engine's image to a replica that the volume counts on and that had no process
// when the engine got its image: it would never be started otherwise.
func (p upgrading) catchUp() loop.Change {
	for _, r := range p.live() {
		rests := r.Status.CurrentState == v1beta2.InstanceStateStopped && r.Spec.DesireState == v1beta2.InstanceStateStopped
		if r.Spec.Image == p.engine.Spec.Image || !rests || r.Spec.FailedAt != "" && !p.isMember(r) ||
			p.twin(r, func(*v1beta2.Replica) bool { return true }) != nil {
			continue
		}
		return editReplica(r, func(s *v1beta2.ReplicaSpec) { s.Image, s.EngineImage = p.engine.Spec.Image, "" })
	}
	return nil
}

// noteImage tells which image the volume has: the engine's, once all its replicas have it too.
func (p upgrading) noteImage() {
	v, image := p.v, p.engine.Spec.Image
	attached := v.Status.State == v1beta2.VolumeStateAttached
	mixed := slices.ContainsFunc(p.live(), func(r *v1beta2.Replica) bool {
		return r.Spec.Image != image && (r.Spec.FailedAt == "" || !attached)
	})
	if v.Status.CurrentImage == image || mixed {
		return
	}
	p.tell(false, naming.EventUpgrade, "volume %s was upgraded from engine image %s to %s", v.Name, v.Status.CurrentImage,
		image)
	v.Status.CurrentImage = image
}

// endUpgrade removes what an upgrade leaves: duplicates that no engine uses, and the condition.
func (p upgrading) endUpgrade() loop.Change {
	for _, d := range p.duplicates() {
		if d.Spec.EngineName == p.engine.Name && !(p.engineReports() && p.mode(d) != "") {
			return loop.Delete{Object: d}
		}
	}
	v := p.v
	have := v1beta2.FindCondition(v.Status.Conditions, ConditionEngineUpgrade)
	if v.Status.CurrentImage != p.image || have.LastTransitionTime == "" || have.Status == v1beta2.ConditionFalse {
		return nil
	}
	if at := engineupgrade.RolledBackAt(v); at >= have.LastTransitionTime && at != "" {
		p.noteUpgrade(v1beta2.ConditionFalse, ReasonUpgradeRolledBack, "the upgrade was given up: "+
			p.engine.Status.LastUpgradeError)
	} else {
		p.noteUpgrade(v1beta2.ConditionFalse, "", "")
	}
	return nil
}
