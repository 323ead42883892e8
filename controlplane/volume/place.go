package volume

import (
	"strings"
	"time"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/schedule"
	"ankole.storage/controlplane/setting"
	"ankole.storage/controlplane/volume/clone"
)

// placeAgainAfter is when a volume with replicas without a place is looked at again even if nothing
// has changed.
const placeAgainAfter = 30 * time.Second

// placing finds places for replicas, and says where there are none. It is the part of a pass that
// nobody else needs.
type placing struct{ *pass }

// place gives a replica without a place one, per pass, and keeps condition Scheduled.
func (p placing) place() loop.Change {
	for _, r := range p.live() {
		if r.Spec.NodeID != "" || p.deferred() {
			continue
		}
		req := p.request(scheduling(p).scheduleReplica(r))
		where, why := schedule.Place(req)
		if len(why) == 0 {
			return p.assign(r, where, req.Replica.HardNode)
		}
		if replacement(r) {
			return loop.Delete{Object: r} // it was made for a place that is gone; replenish tells why there is none
		}
		if refused := schedule.Describe(schedule.Explain(req)); refused != "" {
			p.refused = refused
		}
		p.unplaced = schedule.Join(p.unplaced, why)
		p.unplacedLocal = p.unplacedLocal || req.Replica.HardNode != ""
	}
	if len(p.unplaced) > 0 {
		p.noPlace = p.unplaced.String()
	}
	if p.noPlace == unusedFailed {
		p.refused = p.whatUnusedFailed()
	}
	if p.lacksPlace() {
		p.wakeIn(placeAgainAfter)
	}
	return nil
}

// replacement says of a replica without a place that it was made in place of another one, and not
// with the volume.
func replacement(r *v1beta2.Replica) bool {
	return r.Spec.RebuildRetryCount >= v1beta2.MaxRebuildRetryCount && r.Spec.FailedAt == "" && !hasData(r) &&
		r.DeletionTimestamp == nil
}

// unusedFailed is all that there is to say of a replica that failed before it had a place.
const unusedFailed = string(schedule.ReasonUnusedFailed)

// whatUnusedFailed names the replicas that failed before they had a place, and what to do.
func (p placing) whatUnusedFailed() string {
	var names []string
	for _, r := range p.live() {
		if r.Spec.NodeID == "" && r.Spec.FailedAt != "" {
			names = append(names, r.Name)
		}
	}
	return strings.Join(names, ", ") + ": failed before having a place; replaced while the volume is attached, or remove " +
		"with: ankole replica delete " + p.v.Name + " " + strings.Join(names, " ")
}

// lacksPlace says whether some replica found no place in this pass that nodes and disks may have
// later.
func (p *pass) lacksPlace() bool { return p.noPlace != "" && p.noPlace != unusedFailed }

// deferred volumes want a replica on the node they are attached to, which is not known yet.
func (p placing) deferred() bool {
	local := p.v.Spec.DataLocality == v1beta2.DataLocalityStrictLocal ||
		p.v.Spec.DataLocality == v1beta2.DataLocalityBestEffort
	return local && p.v.Spec.NodeID == ""
}

// assign writes a replica's place. The directory's name is drawn here and never changes: the
// replica is known to engine and witness by it.
func (p placing) assign(r *v1beta2.Replica, where schedule.Placement, hardNode string) loop.Change {
	c := r.DeepCopy()
	c.Spec.NodeID, c.Spec.DiskID, c.Spec.DiskPath = where.NodeID, where.DiskID, where.DiskPath
	c.Spec.HardNodeAffinity = hardNode
	if c.Spec.DataDirectoryName == "" {
		c.Spec.DataDirectoryName = naming.ReplicaDataDirectory(p.v.Name, p.s.Suffixes[1])
	}
	c.Labels = naming.ReplicaLabels(p.v.Name, where.NodeID, where.DiskID, p.v.Spec.BackingImage)
	return reserving(c)
}

// noteScheduled concludes a pass that wants no change: condition Scheduled turns False only for a
// failure of this pass, and True only when every replica has a place, or when one is enough.
func (p placing) noteScheduled() {
	v := p.v
	replicas := p.live()
	placed := count(replicas, func(r *v1beta2.Replica) bool { return r.Spec.NodeID != "" })
	usablePlaced := count(replicas, func(r *v1beta2.Replica) bool { return r.Spec.NodeID != "" && r.Spec.FailedAt == "" })
	complete := p.noPlace == "" && placed == len(replicas) && placed >= clone.Replicas(v)
	enough := usablePlaced > 0 && v.Spec.NodeID == "" &&
		p.s.Settings.Bool(setting.AllowVolumeCreationWithDegradedAvailability)
	switch {
	case complete || enough:
		p.setCondition(v1beta2.Condition{Type: v1beta2.VolumeConditionScheduled, Status: v1beta2.ConditionTrue})
	case p.noPlace != "":
		p.notScheduled()
	}
}

// notScheduled tells the categories of a failure and, in parentheses, what each node and disk says.
// It keeps the first message of a lasting failure, so that the condition does not flicker between
// reasons; of a local replica's while the categories stay. That a replica has failed unused says
// nothing about places: any other message takes its place, and it takes the place of none.
func (p placing) notScheduled() {
	reason := v1beta2.VolumeReasonReplicaSchedulingFailure
	if p.unplacedLocal {
		reason = v1beta2.VolumeReasonLocalReplicaSchedulingFailure
	}
	have := v1beta2.FindCondition(p.v.Status.Conditions, v1beta2.VolumeConditionScheduled)
	lasts := have.Reason == v1beta2.VolumeReasonReplicaSchedulingFailure && have.Message != "" &&
		categories(have.Message) != unusedFailed ||
		have.Reason == reason && categories(have.Message) == p.noPlace
	if have.Status == v1beta2.ConditionFalse && lasts {
		return
	}
	p.setCondition(v1beta2.Condition{Type: v1beta2.VolumeConditionScheduled, Status: v1beta2.ConditionFalse,
		Reason: reason, Message: p.noPlaceText()})
}

// noPlaceText is why a replica found no place in this pass, with what nodes and disks say.
func (p *pass) noPlaceText() string {
	if p.refused == "" {
		return p.noPlace
	}
	return p.noPlace + " (" + p.refused + ")"
}

// categories are a message of condition Scheduled without what nodes and disks say.
func categories(message string) string {
	before, _, _ := strings.Cut(message, " (")
	return before
}

func (p *pass) setCondition(c v1beta2.Condition) {
	p.v.Status.Conditions, _ = v1beta2.SetCondition(p.v.Status.Conditions, c, p.now)
}

// noteBackingImage keeps condition WaitForBackingImage: some replica is to be started, and its disk
// does not have the image yet.
func (p *pass) noteBackingImage() {
	if p.v.Spec.BackingImage == "" {
		return
	}
	c := v1beta2.Condition{Type: v1beta2.VolumeConditionWaitForBackingImage, Status: v1beta2.ConditionFalse}
	for _, r := range p.live() {
		of := v1beta2.FindCondition(r.Status.Conditions, v1beta2.ReplicaConditionWaitForBackingImage)
		if of.Status == v1beta2.ConditionTrue {
			c.Status, c.Reason, c.Message = v1beta2.ConditionTrue, of.Reason, "replica "+r.Name+": "+of.Message
			break
		}
	}
	p.setCondition(c)
}
