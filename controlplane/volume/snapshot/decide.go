package snapshot

import (
	"fmt"
	"maps"
	"strconv"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/object/naming"
)

// purgeAgainAfter is the pause after a purge that left the snapshot: a clone may hold it, or a
// replica may have failed at it.
const purgeAgainAfter = time.Minute

// askedLook is how often a snapshot is looked at whose engine has not answered yet.
const askedLook = 5 * time.Second

// refusedFor bounds how long a refusal of the engine is believed while the engine looks as it did:
// what it was refused for may be nothing that the engine's object shows.
const refusedFor = 30 * time.Second

// lost is the error of an object whose snapshot the engine has no more; clients know the text.
const lost = "lost track of the corresponding snapshot info inside volume engine"

// decide is the decision table of docs/design/snapshots.md.
func decide(now time.Time, s *v1beta2.Snapshot, g seen) loop.Decision {
	p := &pass{now: now, s: s, g: g}
	if g.Volume == nil || g.Volume.DeletionTimestamp != nil {
		if s.DeletionTimestamp == nil {
			return loop.Decision{} // it goes with its volume
		}
		return p.finish()
	}
	s.Status.OwnerID = g.Volume.Status.OwnerID
	if g.Engine != nil {
		p.listed = g.Engine.Status.SnapshotsError == "" && g.Engine.Status.Snapshots != nil
		p.info, p.found = g.Engine.Status.Snapshots[s.Name]
	}
	switch {
	case s.DeletionTimestamp != nil:
		return p.giveUp()
	case p.found:
		return p.observe()
	case s.Spec.CreateSnapshot && s.Status.CreationTime == "":
		return p.take()
	case p.listed:
		return p.vanished()
	}
	return loop.Decision{}
}

// pass is one judgement of a snapshot.
type pass struct {
	now time.Time
	s   *v1beta2.Snapshot
	g   seen
	// listed: the running engine has told its snapshots. found: this one is among those told last,
	// and is as info says.
	listed, found bool
	info          v1beta2.SnapshotInfo
}

// fill copies what the engine says.
func (p *pass) fill() {
	st := &p.s.Status
	if st.Parent != p.info.Parent {
		st.Checksum, st.ChecksumCalculatedAt = "", "" // a layer below was merged into this one
	}
	st.Parent, st.Children, st.CreationTime = p.info.Parent, p.info.Children, p.info.Created
	st.Labels, st.MarkRemoved, st.UserCreated = p.info.Labels, p.info.Removed, p.info.UserCreated
	st.Size, _ = strconv.ParseInt(p.info.Size, 10, 64) // written as a number by the engine controller
	st.RestoreSize = p.g.Engine.SizeBytes()
	if p.g.Volume != nil {
		st.RestoreSize = p.g.Volume.UserBytes(st.RestoreSize)
	}
	st.ReadyToUse, st.Error, st.Blocked = !p.info.Removed && p.s.DeletionTimestamp == nil, "", false
}

// observe keeps the object of a snapshot that the engine has.
func (p *pass) observe() loop.Decision {
	c := p.s.DeepCopy()
	if controllerutil.AddFinalizer(c, v1beta2.Finalizer) {
		return loop.Decision{Do: loop.Update{Object: c}}
	}
	first, removed := p.s.Status.CreationTime == "", p.info.Removed && !p.s.Status.MarkRemoved
	p.fill()
	switch {
	case first:
		return loop.Decision{Events: []loop.Event{{Reason: naming.EventCreate,
			Message: "Snapshot " + p.s.Name + " of volume " + p.s.Spec.Volume + " was taken"}}}
	case p.g.CopyOver: // it goes as one that a user deletes
		return loop.Decision{Do: loop.Delete{Object: p.s}}
	case removed:
		return loop.Decision{Events: []loop.Event{{Reason: naming.EventUpdate,
			Message: "Snapshot " + p.s.Name + " of volume " + p.s.Spec.Volume + " was marked as removed"}}}
	}
	return p.ticket(false)
}

// take has the engine take a snapshot.
//
// Crash window: the snapshot may be taken and the answer lost; then the engine lists it, or answers
// the next order that it has it (Calls.Take).
func (p *pass) take() loop.Decision {
	v, st := p.g.Volume, &p.s.Status
	st.ReadyToUse, st.Blocked = false, true
	impossible := naming.CheckSnapshotName(p.s.Name)
	switch {
	case impossible != nil: // an object of an older version: new ones are refused
		return p.rest(impossible.Error() + "; delete it")
	case p.g.Tried.Impossible != "" && p.g.Engine != nil && p.g.Tried.Impossible == p.g.Engine.Spec.Image:
		return p.rest(p.g.Tried.Refusal + "; delete it")
	case v.Status.Robustness == v1beta2.VolumeRobustnessFaulted:
		return p.wait("the volume is faulted; salvage it")
	case v.Spec.MigrationNodeID != "":
		return p.wait("cannot operate during migration")
	case upgrading(v):
		return p.wait("waiting for the upgrade of the engine of volume " + v.Name)
	case p.full() != "":
		return p.rest(p.full())
	case p.refused() != "":
		return p.waitRefused()
	case !p.g.Reachable:
		st.Blocked = p.g.Lacks != ""
		return p.awaitEngine()
	}
	st.Blocked = false
	if st.RequestedTime == "" {
		st.RequestedTime = p.now.UTC().Format(time.RFC3339)
	}
	return p.call("take snapshot "+p.s.Name+" of volume "+v.Name, orderTake)
}

func upgrading(v *v1beta2.Volume) bool {
	return v.Status.CurrentImage != "" && v.Spec.Image != "" && v.Status.CurrentImage != v.Spec.Image &&
		v.Status.State == v1beta2.VolumeStateAttached
}

// full says that the volume has as many snapshots as it may have, by the engine's last list: empty
// if it has fewer, or if no limit is known. The engine would refuse another one, so that none needs
// to run for it. Those that are marked as removed do not count.
func (p *pass) full() string {
	e := p.g.Engine
	if e == nil || e.Spec.SnapshotMaxCount == 0 {
		return ""
	}
	count := 0
	for name, s := range e.Status.Snapshots {
		if name != v1beta2.VolumeHeadName && !s.Removed {
			count++
		}
	}
	if count < e.Spec.SnapshotMaxCount {
		return ""
	}
	return fmt.Sprintf("the volume has %d snapshots, and may have %d; delete some, or set a higher limit", count,
		e.Spec.SnapshotMaxCount)
}

// refused is the engine's answer to the last order, if the engine is still what it was and that was
// not long ago.
func (p *pass) refused() string {
	if t := p.g.Tried; t.Refusal != "" && t.Of == outline(p.g.Engine) && p.now.Sub(t.At) < refusedFor {
		return t.Refusal
	}
	return ""
}

// waitRefused tells what the engine was asked for in vain, and asks again later.
func (p *pass) waitRefused() loop.Decision {
	d := p.wait(p.g.Tried.Refusal)
	d.After = refusedFor - p.now.Sub(p.g.Tried.At)
	return d
}

// wait tells what is waited for, with the volume as it is.
func (p *pass) wait(why string) loop.Decision {
	p.s.Status.Error = why
	return loop.Decision{}
}

// awaitEngine has the volume attached, if it can be served, and says so.
func (p *pass) awaitEngine() loop.Decision {
	why := "waiting for the engine of volume " + p.s.Spec.Volume + " to run"
	if p.g.Lacks != "" {
		return p.rest(why + ": " + p.g.Lacks)
	}
	p.s.Status.Error = why
	return p.ticket(true)
}

// call gives the engine an order.
func (p *pass) call(what string, o order) loop.Decision {
	// The ticket comes first: nobody else may have the volume attached for long.
	if d := p.ticket(true); d.Do != nil {
		return d
	}
	if p.g.Asked {
		d := p.wait("waiting for an answer of the engine of volume " + p.s.Spec.Volume)
		d.After = askedLook
		return d
	}
	return loop.Decision{Do: loop.Call{What: what, Order: o}}
}

// vanished tells of a snapshot that the engine has no more. An object that nobody has ordered goes:
// first its finalizer, so that its deletion never reaches the engine, should the snapshot be there
// again.
func (p *pass) vanished() loop.Decision {
	s := p.s
	news := s.Status.Error != lost
	s.Status.ReadyToUse, s.Status.Error = false, lost
	if news {
		return loop.Decision{Events: []loop.Event{{Reason: naming.EventDelete,
			Message: "Snapshot " + s.Name + " of volume " + s.Spec.Volume + " is gone: " + lost}}}
	}
	if d := p.ticket(false); d.Do != nil {
		return d
	}
	if s.Spec.CreateSnapshot || s.Status.CreationTime == "" {
		return loop.Decision{}
	}
	c := s.DeepCopy()
	if controllerutil.RemoveFinalizer(c, v1beta2.Finalizer) {
		return loop.Decision{Do: loop.Update{Object: c}}
	}
	return loop.Decision{Do: loop.Delete{Object: s}}
}

// giveUp has the engine give up a snapshot whose object is deleted, and lets the object go when the
// snapshot is gone.
//
// Crash windows: each order may be given again; what is marked stays marked, and a purge that is
// under way is no error.
func (p *pass) giveUp() loop.Decision {
	s, v := p.s, p.g.Volume
	if p.found {
		p.fill()
	}
	s.Status.ReadyToUse, s.Status.Blocked = false, false
	asked := s.Status.RequestedTime != "" && s.Status.CreationTime == ""
	switch {
	case !p.found && (!asked || p.listed && p.absent()):
		return p.finish()
	case !p.found && p.listed && p.g.Reachable:
		return p.look()
	case p.g.ReadBy != "":
		return p.rest("volume " + p.g.ReadBy + " is being filled with it")
	case p.g.PurgeDisabled:
		return p.rest("setting disable-snapshot-purge is on")
	case p.found && p.info.Removed && p.held() != "":
		return p.rest(p.held())
	case v.Status.Robustness == v1beta2.VolumeRobustnessFaulted:
		return p.rest("the volume is faulted; salvage it")
	case v.Spec.MigrationNodeID != "":
		return p.wait("cannot operate during migration")
	case p.refused() != "":
		return p.waitRefused()
	case !p.g.Reachable:
		return p.awaitEngine()
	case !p.found: // whether it was taken is not known
		return p.wait("waiting for the engine's list of snapshots")
	case !p.info.Removed:
		return p.call("remove snapshot "+s.Name+" of volume "+v.Name, orderRemove)
	}
	return p.purge()
}

// absent reports whether the engine, as it is, was asked after the last order and has no such
// snapshot.
func (p *pass) absent() bool {
	return p.g.Tried.Looked && !p.g.Tried.There && p.g.Tried.Of == outline(p.g.Engine)
}

// look asks the engine itself whether a snapshot was taken that was ordered: the list that is known
// may be older than the order.
func (p *pass) look() loop.Decision {
	left := refusedFor - p.now.Sub(p.g.Tried.At)
	if t := p.g.Tried; t.Looked && t.There && t.Of == outline(p.g.Engine) && left > 0 {
		d := p.wait("waiting for the engine's list of snapshots")
		d.After = left
		return d
	}
	return p.call("look for snapshot "+p.s.Name+" of volume "+p.s.Spec.Volume, orderLook)
}

// held says why a purge would leave a snapshot that is marked as removed.
func (p *pass) held() string {
	switch {
	case p.info.Children[v1beta2.VolumeHeadName] && len(p.info.Children) == 1:
		return "it is marked as removed, and goes when a newer snapshot has been taken: the volume's head stands on it"
	case len(p.info.Children) > 1:
		return "it is marked as removed, and goes when fewer snapshots stand on it"
	}
	return ""
}

func (p *pass) purge() loop.Decision {
	switch {
	case p.g.Engine.Purging():
		return p.wait("its space is being given back")
	case p.g.Crowded:
		return p.wait("waiting for other purges on node " + p.g.Engine.Spec.NodeID +
			" (setting snapshot-heavy-task-concurrent-limit)")
	}
	left := purgeAgainAfter - p.now.Sub(p.g.Tried.At)
	if t := p.g.Tried; t.Refusal == "" && t.Of == outline(p.g.Engine) && left > 0 {
		p.s.Status.Error = "a purge has left it"
		for _, address := range sortedKeys(p.g.Engine.Status.PurgeStatus) {
			if why := p.g.Engine.Status.PurgeStatus[address].Error; why != "" {
				p.s.Status.Error = "a purge has left it: replica at " + address + ": " + why
			}
		}
		return loop.Decision{After: left}
	}
	return p.call("purge the snapshots of volume "+p.s.Spec.Volume, orderPurge)
}

// rest tells what is waited for, without need for an engine meanwhile.
func (p *pass) rest(why string) loop.Decision {
	p.s.Status.Error = why
	return p.ticket(false)
}

// finish lets a deleted object go.
func (p *pass) finish() loop.Decision {
	if p.g.Volume != nil && p.g.Volume.DeletionTimestamp == nil {
		if d := p.ticket(false); d.Do != nil {
			return d
		}
	}
	c := p.s.DeepCopy()
	if !controllerutil.RemoveFinalizer(c, v1beta2.Finalizer) {
		return loop.Decision{}
	}
	return loop.Decision{Do: loop.Update{Object: c}, Events: []loop.Event{{Reason: naming.EventDelete,
		Message: "Snapshot " + p.s.Name + " of volume " + p.s.Spec.Volume + " was deleted"}}}
}

// ticket puts this object's attachment ticket in, where the volume is or would be, or takes it out.
func (p *pass) ticket(wanted bool) loop.Decision {
	return Ticket(p.g.Attachment, p.g.Volume, v1beta2.AttacherTypeSnapshot, p.s.Name, p.g.At, wanted)
}

// Ticket puts the attachment ticket of an object that works on a volume in, where the volume is or
// would be, or takes it out; nothing to do if it is as wanted.
func Ticket(a *v1beta2.VolumeAttachment, v *v1beta2.Volume, kind v1beta2.AttacherType, object string, at Place,
	wanted bool) loop.Decision {
	if a == nil {
		return loop.Decision{}
	}
	id := naming.AttachmentTicketID(string(kind), object)
	have, there := a.Spec.AttachmentTickets[id]
	node := v.Spec.NodeID
	if node == "" && there && at.Up[have.NodeID] {
		node = have.NodeID
	}
	if node == "" {
		node = at.Node
	}
	if there == wanted && (!wanted || have.NodeID == node) || wanted && node == "" {
		return loop.Decision{}
	}
	c := a.DeepCopy()
	c.Spec.AttachmentTickets = maps.Clone(c.Spec.AttachmentTickets)
	if !wanted {
		delete(c.Spec.AttachmentTickets, id)
		return loop.Decision{Do: loop.Update{Object: c}}
	}
	if c.Spec.AttachmentTickets == nil {
		c.Spec.AttachmentTickets = map[string]v1beta2.AttachmentTicket{}
	}
	c.Spec.AttachmentTickets[id] = v1beta2.AttachmentTicket{ID: id, NodeID: node, Type: kind,
		Parameters: map[string]string{v1beta2.AttachmentParameterDisableFrontend: v1beta2.AttachmentParameterAny}}
	return loop.Decision{Do: loop.Update{Object: c}}
}
