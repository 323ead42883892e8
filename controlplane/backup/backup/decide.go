package backup

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/backup/store"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/process/engineclient"
	"ankole.storage/controlplane/volume/snapshot"
)

const (
	// againAfter is the pause after an errand that has failed.
	againAfter = 10 * time.Second
	// removeAgainAfter is that after a removal, which looks through all blocks of the volume.
	removeAgainAfter = time.Minute
	// cleanupWithin is how long after its end a backup has its snapshot deleted: the setting says
	// nothing about those of before.
	cleanupWithin = time.Minute
	// mostTries is how often a backup is ordered.
	mostTries = 5
)

// named is an order for one object: another one of its name is not it.
func named(b *v1beta2.Backup, order string) string { return string(b.UID) + " " + order }

// decide is the third table of docs/design/backups.md.
func decide(now time.Time, b *v1beta2.Backup, s seen) loop.Decision {
	p := &pass{now: now, b: b, s: s}
	if b.Status.OwnerID == "" {
		b.Status.OwnerID = s.Owner
	}
	b.Status.BackupTargetName = b.Labels[naming.LabelBackupTarget]
	if b.DeletionTimestamp != nil {
		return p.giveUp()
	}
	p.noteVerified()
	if b.Spec.SnapshotName == "" {
		return p.mirror()
	}
	switch b.Status.State {
	case v1beta2.BackupStateNew:
		b.Status.State, b.Status.SnapshotName = v1beta2.BackupStatePending, b.Spec.SnapshotName
		b.Status.VolumeName = b.Labels[naming.LabelBackupVolume]
		return loop.Decision{}
	case v1beta2.BackupStatePending:
		return p.order()
	case v1beta2.BackupStateInProgress:
		return p.follow()
	case v1beta2.BackupStateCompleted:
		return p.completed()
	}
	return p.failed()
}

// pass is one judgement of a backup.
type pass struct {
	now time.Time
	b   *v1beta2.Backup
	s   seen
}

// told says what is waited for.
func (p *pass) told(why string) {
	p.b.Status.Messages = map[string]string{}
	if why != "" {
		p.b.Status.Messages[v1beta2.BackupMessageInfo] = why
	}
}

func (p *pass) wait(why string) loop.Decision {
	p.told(why)
	return loop.Decision{}
}

// fail ends a backup of this cluster.
func (p *pass) fail(why string) loop.Decision {
	st := &p.b.Status
	st.State, st.Error, st.LastSyncedAt = v1beta2.BackupStateError, why, metav1.NewTime(p.now.Truncate(time.Second))
	st.Messages = map[string]string{v1beta2.BackupMessageError: why}
	return loop.Decision{Events: []loop.Event{{Warning: true, Reason: string(v1beta2.BackupStateError),
		Message: "Backup " + p.b.Name + " of snapshot " + p.b.Spec.SnapshotName + " has failed: " + why}}}
}

func (p *pass) ticket(wanted bool) loop.Decision {
	if p.s.Volume == nil {
		return loop.Decision{}
	}
	return snapshot.Ticket(p.s.Attachment, p.s.Volume, v1beta2.AttacherTypeBackup, p.b.Name, p.s.At, wanted)
}

// attached says whether the volume is attached for this backup too.
func (p *pass) attached() bool {
	id := naming.AttachmentTicketID(string(v1beta2.AttacherTypeBackup), p.b.Name)
	return p.s.Attachment != nil && p.s.Attachment.Status.AttachmentTicketStatuses[id].Satisfied
}

// progress is what the engine says of the backup, if it was told to make this one.
func (p *pass) progress() (v1beta2.EngineBackupStatus, bool) {
	if p.s.Engine == nil {
		return v1beta2.EngineBackupStatus{}, false
	}
	st, ok := p.s.Engine.Status.BackupStatus[p.b.Name]
	return st, ok && st.SnapshotName == p.b.Spec.SnapshotName
}

// noteVerified tells what the latest verification that is over has found of the backup.
func (p *pass) noteVerified() {
	of := p.s.Of
	if of == nil || of.Status.Verification == nil || !of.Status.Verification.Ended() ||
		p.b.Status.State != v1beta2.BackupStateCompleted {
		return
	}
	ver := of.Status.Verification
	at := ver.EndedAt.UTC().Format(time.RFC3339)
	for _, b := range ver.Backups {
		if b.Name != p.b.Name || ver.Error != "" {
			continue
		}
		c := v1beta2.Condition{Type: v1beta2.BackupConditionVerified, Status: v1beta2.ConditionTrue,
			Message: "all that the store has of it was sound at " + at}
		if b.Faults > 0 {
			c.Status, c.Reason = v1beta2.ConditionFalse, v1beta2.BackupReasonDamaged
			c.Message = fmt.Sprintf("%d of its blocks or records were damaged or missing in the store at %s: it cannot be "+
				"restored whole; list them with: ankole backup verify %s", b.Faults, at, b.Name)
		}
		p.b.Status.Conditions, _ = v1beta2.SetCondition(p.b.Status.Conditions, c, p.now)
	}
}

// impossible says why a backup can never be made.
func (p *pass) impossible() string {
	b, s := p.b, p.s
	switch {
	case s.Volume == nil || s.Volume.DeletionTimestamp != nil:
		return "volume " + b.Labels[naming.LabelBackupVolume] + " does not exist any more"
	case s.Target == nil || s.Target.DeletionTimestamp != nil:
		return "backup target " + b.Labels[naming.LabelBackupTarget] + " does not exist any more"
	case s.Snapshot == nil || s.Snapshot.DeletionTimestamp != nil || s.Snapshot.Status.MarkRemoved:
		return "snapshot " + b.Spec.SnapshotName + " does not exist any more"
	}
	return ""
}

// order has the engine make the backup.
//
// Crash window: the engine may have begun and the answer be lost; then it shows the backup, or
// answers the next order that it is at it (Reconciler.create).
func (p *pass) order() loop.Decision {
	b, s := p.b, p.s
	if why := p.impossible(); why != "" {
		return p.fail(why)
	}
	if _, begun := p.progress(); begun {
		return p.begun()
	}
	if e := s.Errand; e.Is(named(b, orderCreate)) {
		final := errors.Is(e.Err, engineclient.ErrInvalid) || errors.Is(e.Err, engineclient.ErrNotFound)
		switch {
		case e.Err == nil:
			return p.begun()
		case final || e.Failures >= mostTries:
			return p.fail(store.Refusal(e.Err))
		case p.now.Before(e.Ended.Add(againAfter)):
			p.told(store.Refusal(e.Err))
			return loop.Decision{After: e.Ended.Add(againAfter).Sub(p.now)}
		}
	}
	switch {
	case s.Errand.Runs():
		return p.wait("waiting for the answer of the engine of volume " + s.Volume.Name)
	case !s.Snapshot.Status.ReadyToUse && s.Snapshot.Status.CreationTime == "":
		return p.wait("waiting for snapshot " + b.Spec.SnapshotName + " to be taken")
	case s.Target.Spec.BackupTargetURL == "" || !s.Target.Status.Available:
		return p.rest("backup target " + s.Target.Name + " is not available")
	case s.Volume.Status.Robustness == v1beta2.VolumeRobustnessFaulted:
		return p.rest("the volume is faulted; salvage it")
	case s.Volume.Spec.MigrationNodeID != "":
		return p.wait("cannot operate during migration")
	case !s.Reachable && s.Lacks != "":
		return p.rest("waiting for the engine of volume " + s.Volume.Name + " to run: " + s.Lacks)
	}
	if !s.Reachable {
		p.told("waiting for the engine of volume " + s.Volume.Name + " to run")
	} else {
		p.told("")
	}
	// The ticket comes first: nobody else may have the volume attached for long.
	if d := p.ticket(true); d.Do != nil || !s.Reachable {
		return d
	}
	// An engine that runs for somebody who has just gone is about to end.
	if !p.attached() {
		return p.wait("waiting for volume " + s.Volume.Name + " to be attached for it")
	}
	return loop.Decision{Do: loop.Call{What: "back up snapshot " + b.Spec.SnapshotName + " as " + b.Name,
		Order: orderCreate}}
}

func (p *pass) begun() loop.Decision {
	p.told("")
	p.b.Status.State = v1beta2.BackupStateInProgress
	return loop.Decision{}
}

// rest tells what is waited for, without need for an engine meanwhile.
func (p *pass) rest(why string) loop.Decision {
	p.told(why)
	return p.ticket(false)
}

// follow copies what the engine says. An engine that says nothing of the backup is asked: its
// object may lag behind. What no engine knows of any more is complete if the store has it, else it
// failed.
func (p *pass) follow() loop.Decision {
	b, s, st := p.b, p.s, &p.b.Status
	have, known := p.progress()
	if e := s.Errand; !known && e.Is(named(b, orderFollow)) && e.Err == nil && p.now.Before(e.Ended.Add(againAfter)) {
		q := e.Result.Progress
		known, have = q.Snapshot == b.Spec.SnapshotName, v1beta2.EngineBackupStatus{Progress: q.Percent, BackupURL: q.URL,
			Error: q.Error, SnapshotName: q.Snapshot, State: q.State, ReplicaAddress: q.From}
	}
	if known {
		st.Progress, st.ReplicaAddress, st.URL = have.Progress, have.ReplicaAddress, have.BackupURL
		switch have.State {
		case v1beta2.ProcessStateError:
			return p.fail(have.Error)
		case v1beta2.ProcessStateComplete:
			return p.inspect("")
		}
		p.told(p.outOfReach())
		d := p.ticket(true)
		if _, told := p.progress(); !told {
			d.After = againAfter // nobody wakes us
		}
		return d
	}
	e := s.Errand
	gone := s.Engine == nil || s.Engine.Status.CurrentState != v1beta2.InstanceStateUnknown && !s.Reachable ||
		e.Is(named(b, orderFollow)) && errors.Is(e.Err, engineclient.ErrNotFound) ||
		e.Order == named(b, orderInspect)
	switch {
	case gone:
		return p.inspect("the engine of volume " + b.Labels[naming.LabelBackupVolume] +
			" has ended; make another backup, and what is in the store is not sent again")
	case !s.Reachable || e.Runs():
		p.told(p.outOfReach())
		return loop.Decision{}
	case e.Is(named(b, orderFollow)) && e.Err != nil && p.now.Before(e.Ended.Add(againAfter)):
		return loop.Decision{After: e.Ended.Add(againAfter).Sub(p.now)}
	}
	return loop.Decision{Do: loop.Call{What: "ask for the progress of backup " + b.Name, Order: orderFollow}}
}

// outOfReach says that nobody knows what has become of the engine, "" if that is known. It may be
// at it still, so the backup has not failed.
func (p *pass) outOfReach() string {
	e := p.s.Engine
	if e == nil || e.Status.CurrentState != v1beta2.InstanceStateUnknown {
		return ""
	}
	return "the instance manager on node " + e.Spec.NodeID + ", where the engine of volume " + e.Spec.VolumeName +
		" makes the backup, does not answer: the backup goes on or ends when it does, or when the volume is detached"
}

// inspect reads the backup in the store, and completes it with that. lost says why it has failed if
// the store does not have it; empty: it has it.
func (p *pass) inspect(lost string) loop.Decision {
	b, s, e := p.b, p.s, p.s.Errand
	switch {
	case s.Target == nil || s.Target.Spec.BackupTargetURL == "":
		return p.fail("backup target " + b.Labels[naming.LabelBackupTarget] + " does not exist any more")
	case e.Runs():
		return loop.Decision{}
	case !e.Is(named(b, orderInspect)):
		return loop.Decision{Do: loop.Call{What: "read backup " + b.Name + " in the store", Order: orderInspect}}
	case e.Err == nil && e.Result.Info.Created != "":
		return p.complete(e.Result.Info)
	case lost != "" && (e.Err == nil || errors.Is(e.Err, engineclient.ErrNotFound)):
		return p.fail(lost)
	case errors.Is(e.Err, engineclient.ErrNotFound) && store.Elsewhere(b.Status.URL, s.Target.Spec.BackupTargetURL):
		return p.fail("backup target " + s.Target.Name + " has another URL than when the backup began, whose store has it")
	case p.now.Before(e.Ended.Add(againAfter)):
		p.told(store.Refusal(e.Err))
		return loop.Decision{After: e.Ended.Add(againAfter).Sub(p.now)}
	}
	return loop.Decision{Do: loop.Call{What: "read backup " + b.Name + " in the store", Order: orderInspect}}
}

// complete fills the object with what the store says.
func (p *pass) complete(i *engineclient.Backup) loop.Decision {
	p.told("")
	st := &p.b.Status
	for key, text := range i.Messages {
		st.Messages[key] = text
	}
	st.State, st.Progress, st.Error = v1beta2.BackupStateCompleted, 100, ""
	st.BackupCreatedAt, st.CompressionMethod, st.Labels, st.URL = i.Created, i.CompressionMethod, i.Labels, i.URL
	st.NewlyUploadDataSize, st.ReUploadedDataSize, st.Size = i.NewlyUploadedDataSize, i.ReUploadedDataSize, i.Size
	st.SnapshotName, st.SnapshotCreatedAt = i.SnapshotName, i.SnapshotCreated
	st.VolumeName, st.VolumeSize, st.VolumeCreated = i.VolumeName, i.VolumeSize, i.VolumeCreated
	st.VolumeBackingImageName = i.VolumeBackingImageName
	st.LastSyncedAt = metav1.NewTime(p.now.Truncate(time.Second))
	return loop.Decision{Events: []loop.Event{{Reason: naming.EventCreate,
		Message: "Backup " + p.b.Name + " of volume " + i.VolumeName + " is complete"}}}
}

// mirror reads a backup that the store has.
func (p *pass) mirror() loop.Decision {
	b, s, e := p.b, p.s, p.s.Errand
	done := b.Status.State == v1beta2.BackupStateCompleted
	switch {
	case done && e.Is(named(b, orderInspect)) && e.Err == nil:
		return p.blockSize(e.Result.Info)
	case done && b.Spec.SyncRequestedAt.Time.Before(b.Status.LastSyncedAt.Time) &&
		b.Spec.BackupBlockSize != v1beta2.BackupBlockSizeInvalid:
		return loop.Decision{}
	case done && b.Status.Messages[v1beta2.BackupMessageError] != "":
		return loop.Decision{}
	case s.Target == nil || s.Target.Spec.BackupTargetURL == "" || e.Runs():
		return loop.Decision{}
	case !e.Is(named(b, orderInspect)):
	case e.Err == nil && e.Result.Info.Created != "":
		return p.complete(e.Result.Info)
	case e.Err == nil && b.Spec.SyncRequestedAt.Time.Before(e.Began):
		b.Status.State = v1beta2.BackupStateInProgress
		return p.wait("in progress, or interrupted, in another cluster")
	case e.Err != nil && p.now.Before(e.Ended.Add(removeAgainAfter)):
		b.Status.Messages = map[string]string{v1beta2.BackupMessageError: store.Refusal(e.Err)}
		return loop.Decision{After: e.Ended.Add(removeAgainAfter).Sub(p.now)}
	}
	return loop.Decision{Do: loop.Call{What: "read backup " + b.Name + " in the store", Order: orderInspect}}
}

// blockSize notes the size of the blocks in the spec, where clients look for it.
func (p *pass) blockSize(i *engineclient.Backup) loop.Decision {
	n, err := strconv.ParseInt(i.Parameters["backup-block-size"], 10, 64)
	if p.b.Spec.BackupBlockSize != v1beta2.BackupBlockSizeInvalid {
		return loop.Decision{}
	}
	if err != nil || n != v1beta2.BackupBlockSize2Mi && n != v1beta2.BackupBlockSize16Mi {
		p.b.Status.Messages = map[string]string{v1beta2.BackupMessageError: "its blocks cannot be restored: their size"}
		return loop.Decision{}
	}
	c := p.b.DeepCopy()
	c.Spec.BackupBlockSize = n
	if i.Parameters["backup-mode"] == string(v1beta2.BackupModeFull) {
		c.Spec.BackupMode = v1beta2.BackupModeFull
	}
	return loop.Decision{Do: loop.Update{Object: c}}
}

// completed ends what a backup of this cluster has needed, and has its backup volume look.
func (p *pass) completed() loop.Decision {
	if d := p.ticket(false); d.Do != nil {
		return d
	}
	if d := p.askVolume(p.b.Status.LastSyncedAt); d.Do != nil {
		return d
	}
	fresh := p.now.Sub(p.b.Status.LastSyncedAt.Time) < cleanupWithin
	s := p.s.Snapshot
	if fresh && p.s.CleanupWhenCompleted && s != nil && s.DeletionTimestamp == nil && p.s.Volume != nil {
		return loop.Decision{Do: loop.Delete{Object: s}}
	}
	return loop.Decision{}
}

// askVolume has the backup volume look at the store, if nobody has asked it since a time.
func (p *pass) askVolume(since metav1.Time) loop.Decision {
	volume, at := p.b.Labels[naming.LabelBackupVolume], p.b.Labels[naming.LabelBackupTarget]
	switch v := p.s.Of; {
	case p.s.Target == nil || p.s.Target.DeletionTimestamp != nil:
	case v == nil:
		return loop.Decision{Do: loop.Create{Object: &v1beta2.BackupVolume{ObjectMeta: metav1.ObjectMeta{
			Namespace: p.b.Namespace, Name: naming.BackupVolumeName(volume, at), Finalizers: []string{v1beta2.Finalizer},
			Labels: map[string]string{naming.LabelBackupVolume: volume, naming.LabelBackupTarget: at}},
			Spec: v1beta2.BackupVolumeSpec{BackupTargetName: at, VolumeName: volume, SyncRequestedAt: since}}}}
	case v.DeletionTimestamp == nil && v.Spec.SyncRequestedAt.Time.Before(since.Time):
		c := v.DeepCopy()
		c.Spec.SyncRequestedAt = since
		return loop.Decision{Do: loop.Update{Object: c}}
	}
	return loop.Decision{}
}

// failed keeps a failed backup for as long as setting failed-backup-ttl says.
func (p *pass) failed() loop.Decision {
	if d := p.ticket(false); d.Do != nil || p.s.TTL == 0 {
		return d
	}
	if left := p.b.Status.LastSyncedAt.Add(p.s.TTL).Sub(p.now); left > 0 {
		return loop.Decision{After: left}
	}
	return loop.Decision{Do: loop.Delete{Object: p.b}}
}

// mayBeOrdered says whether the object leaves open that the engine was given the order: the answer
// may be lost, and so is what a leader that has ended knew.
func (p *pass) mayBeOrdered() bool {
	_, begun := p.progress()
	return p.b.Spec.SnapshotName != "" && p.b.Status.State == v1beta2.BackupStatePending && !begun
}

// neverOrdered says whether the store can have nothing of the backup: it is not asked then, and
// may be away.
func (p *pass) neverOrdered() bool {
	e, engine := p.s.Errand, p.s.Engine
	ended := engine == nil || !p.s.Reachable && engine.Status.CurrentState != v1beta2.InstanceStateUnknown
	return p.b.Spec.SnapshotName != "" && p.b.Status.State == v1beta2.BackupStateNew ||
		p.mayBeOrdered() && (e.Order == "" && ended ||
			e.Is(named(p.b, orderFollow)) && errors.Is(e.Err, engineclient.ErrNotFound))
}

// giveUp removes the backup from the store, and lets the object go.
//
// Crash window: what is removed is removed again, which is no error.
func (p *pass) giveUp() loop.Decision {
	b, s, e := p.b, p.s, p.s.Errand
	if p.mayBeOrdered() && s.Reachable && e.Order == "" {
		return loop.Decision{Do: loop.Call{What: "ask for the progress of backup " + b.Name, Order: orderFollow}}
	}
	if d := p.ticket(false); d.Do != nil {
		return d
	}
	stays := b.Labels[naming.LabelDeleteObjectOnly] != "" || s.Target == nil || p.neverOrdered()
	removed := e.Is(named(b, orderRemove)) && e.Err == nil
	switch {
	case stays || removed:
	case s.Target.Spec.BackupTargetURL == "":
		return p.wait("backup target " + s.Target.Name + " has no URL: the backup cannot be removed there")
	case e.Runs():
		b.Status.State = v1beta2.BackupStateDeleting
		return loop.Decision{}
	case e.Is(named(b, orderRemove)) && p.now.Before(e.Ended.Add(removeAgainAfter)):
		why := store.Refusal(e.Err)
		news := b.Status.Error != why
		b.Status.Error, b.Status.Messages = why, map[string]string{v1beta2.BackupMessageError: why}
		d := loop.Decision{After: e.Ended.Add(removeAgainAfter).Sub(p.now)}
		if news {
			d.Events = []loop.Event{{Warning: true, Reason: naming.EventFailedDeleting, Message: why}}
		}
		return d
	default:
		b.Status.State = v1beta2.BackupStateDeleting
		return loop.Decision{Do: loop.Call{What: "remove backup " + b.Name + " from the store", Order: orderRemove}}
	}
	if removed {
		if d := p.askVolume(metav1.NewTime(e.Began.Truncate(time.Second))); d.Do != nil {
			return d
		}
		if s.CleanupWithBackup && s.Snapshot != nil && s.Snapshot.DeletionTimestamp == nil && s.Volume != nil {
			return loop.Decision{Do: loop.Delete{Object: s.Snapshot}}
		}
	}
	c := b.DeepCopy()
	if !controllerutil.RemoveFinalizer(c, v1beta2.Finalizer) {
		return loop.Decision{}
	}
	return loop.Decision{Do: loop.Update{Object: c}, Events: []loop.Event{{Reason: naming.EventDelete,
		Message: "Backup " + b.Name + " was deleted"}}}
}
