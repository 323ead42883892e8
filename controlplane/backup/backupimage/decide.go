package backupimage

import (
	"errors"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/backup/store"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/process/engineclient"
)

const (
	// askEvery is the pause between questions about the progress.
	askEvery = 2 * time.Second
	// againAfter is the pause after an errand that has failed.
	againAfter = 10 * time.Second
	// removeAgainAfter is that after a removal, which looks through all blocks of images.
	removeAgainAfter = time.Minute
	// mostTries is how often an order may be refused, a manager may leave a question without an
	// answer, and managers may end before a backup is complete.
	mostTries = 5
)

// States of a backup, as a backing image manager tells them.
const (
	managerComplete = "complete"
	managerError    = "error"
)

// named is an order for one object: another one of its name is not it.
func named(b *v1beta2.BackupBackingImage, order string) string { return string(b.UID) + " " + order }

// decide is the fourth table of docs/design/backups.md.
func decide(now time.Time, b *v1beta2.BackupBackingImage, s seen) loop.Decision {
	p := &pass{now: now, b: b, s: s}
	if b.Status.OwnerID == "" {
		b.Status.OwnerID = s.Owner
	}
	b.Status.BackingImage = b.Spec.BackingImage
	if b.DeletionTimestamp != nil {
		return p.giveUp()
	}
	d := p.make()
	if d.Do != nil || b.Status.State != v1beta2.BackupStateCompleted {
		return d
	}
	return p.verify(d)
}

// make has the backup made, or reads the one that the store has.
func (p *pass) make() loop.Decision {
	if !p.b.Spec.UserCreated {
		return p.mirror()
	}
	switch b := p.b; b.Status.State {
	case v1beta2.BackupStateNew:
		b.Status.State = v1beta2.BackupStatePending
	case v1beta2.BackupStatePending:
		return p.order()
	case v1beta2.BackupStateInProgress:
		return p.follow()
	case v1beta2.BackupStateCompleted:
		if p.mends() {
			b.Status.State, b.Status.Progress = v1beta2.BackupStatePending, 0
		}
	}
	return loop.Decision{}
}

// pass is one judgement of a backup.
type pass struct {
	now time.Time
	b   *v1beta2.BackupBackingImage
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

// fail ends a backup of this cluster. One that was complete stays that.
func (p *pass) fail(why string) loop.Decision {
	st := &p.b.Status
	st.State, st.Error, st.LastSyncedAt = v1beta2.BackupStateError, why, metav1.NewTime(p.now.Truncate(time.Second))
	if st.BackupCreatedAt != "" {
		st.State, st.Error, st.Progress = v1beta2.BackupStateCompleted, "", 100
		why = "what is damaged in the store was not written again: " + why
	}
	st.Messages = map[string]string{v1beta2.BackupMessageError: why}
	return loop.Decision{Events: []loop.Event{{Warning: true, Reason: string(v1beta2.BackupStateError),
		Message: "Backup " + p.b.Name + " of backing image " + p.b.Spec.BackingImage + " has failed: " + why}}}
}

// again waits after an errand that has failed.
func (p *pass) again(pause time.Duration) loop.Decision {
	return loop.Decision{After: p.s.Errand.Ended.Add(pause).Sub(p.now)}
}

// order has a manager make the backup. Its address is noted first, so that it can be asked.
//
// Crash window: the manager may have begun and the answer be lost; the same order again changes
// nothing, and to another manager it is a second run of one backup.
func (p *pass) order() loop.Decision {
	b, s, e := p.b, p.s, p.s.Errand
	tried := e.Is(named(b, orderCreate))
	switch {
	case s.Image == nil || s.Image.DeletionTimestamp != nil:
		return p.fail("backing image " + b.Spec.BackingImage + " does not exist any more")
	case s.Target == nil || s.Target.DeletionTimestamp != nil:
		return p.fail("backup target " + b.Spec.BackupTargetName + " does not exist any more")
	case e.Runs():
		return p.wait("waiting for the answer of the backing image manager")
	case tried && e.Err == nil:
		p.told("")
		b.Status.State = v1beta2.BackupStateInProgress
		return loop.Decision{}
	case tried && (errors.Is(e.Err, engineclient.ErrInvalid) || e.Failures >= mostTries):
		return p.fail(store.Refusal(e.Err))
	case tried && p.now.Before(e.Ended.Add(againAfter)):
		p.told(store.Refusal(e.Err))
		return p.again(againAfter)
	case s.Target.Spec.BackupTargetURL == "" || !s.Target.Status.Available:
		return p.wait("backup target " + s.Target.Name + " is not available")
	case s.From == "" && s.Unable != "":
		return p.wait("waiting until backing image manager " + s.Unable + " is replaced by one that may mount a share, " +
			"which happens while it makes and sends no file")
	case s.From == "":
		return p.wait("waiting for a disk that has backing image " + b.Spec.BackingImage + " ready")
	}
	p.told("")
	b.Status.ManagerAddress = s.From
	return loop.Decision{Do: loop.Call{What: "back up backing image " + b.Spec.BackingImage, Order: orderCreate}}
}

// follow asks the manager. What it does not know of any more is complete if the store has it, else
// it has failed.
func (p *pass) follow() loop.Decision {
	b, e, st := p.b, p.s.Errand, &p.b.Status
	ask := loop.Call{What: "ask for the progress of backup " + b.Name, Order: orderFollow}
	switch asked := e.Is(named(b, orderFollow)); {
	case e.Order == named(b, orderInspect), p.s.Ended && !e.Runs():
		return p.inspect()
	case e.Runs():
		return loop.Decision{}
	case !asked:
		return loop.Decision{Do: ask}
	case e.Err == nil:
		q := e.Result.Progress
		st.Progress, st.URL = int(q.GetProgress()), q.GetBackupUrl()
		switch q.GetState() {
		case managerError:
			return p.fail(q.GetError())
		case managerComplete:
			return p.inspect()
		}
		if p.now.Before(e.Ended.Add(askEvery)) {
			return p.again(askEvery)
		}
	case errors.Is(e.Err, engineclient.ErrNotFound) || e.Failures >= mostTries:
		return p.inspect()
	case p.now.Before(e.Ended.Add(againAfter)):
		return p.again(againAfter)
	}
	return loop.Decision{Do: ask}
}

// inspect reads the backup in the store, and completes it with that.
func (p *pass) inspect() loop.Decision {
	b, s, e := p.b, p.s, p.s.Errand
	look := loop.Decision{Do: loop.Call{What: "read backup " + b.Name + " in the store", Order: orderInspect}}
	switch {
	case s.Target == nil || s.Target.Spec.BackupTargetURL == "":
		return p.fail("backup target " + b.Spec.BackupTargetName + " does not exist any more")
	case e.Runs():
		return loop.Decision{}
	case !e.Is(named(b, orderInspect)):
		return look
	case e.Err == nil && e.Result.Info.Created != "":
		return p.complete(e.Result.Info)
	case e.Err == nil || errors.Is(e.Err, engineclient.ErrNotFound):
		return p.lost()
	case p.now.Before(e.Ended.Add(againAfter)):
		p.told(store.Refusal(e.Err))
		return p.again(againAfter)
	}
	return look
}

// lost orders a backup again whose manager has ended. What is in the store is not sent again.
func (p *pass) lost() loop.Decision {
	const ended = "the backing image manager has ended before the backup was complete"
	st := &p.b.Status
	if p.s.Lost >= mostTries {
		return p.fail(ended + ", " + strconv.Itoa(p.s.Lost+1) + " times")
	}
	p.told(ended + ": it is made again")
	st.State, st.Progress = v1beta2.BackupStatePending, 0 // the address stays: the store may have a part
	return loop.Decision{Do: loop.Call{What: "make backup " + p.b.Name + " again", Order: orderAgain}}
}

// complete fills the object with what the store says.
func (p *pass) complete(i *engineclient.BackupImage) loop.Decision {
	p.told("")
	st := &p.b.Status
	for key, text := range i.Messages {
		st.Messages[key] = text
	}
	st.State, st.Progress, st.Error = v1beta2.BackupStateCompleted, 100, ""
	st.BackupCreatedAt, st.CompressionMethod, st.Labels, st.URL = i.Created, i.CompressionMethod, i.Labels, i.URL
	st.Size, st.Checksum, st.Secret, st.SecretNamespace = i.Size, i.Checksum, i.Secret, i.SecretNamespace
	st.LastSyncedAt = metav1.NewTime(p.now.Truncate(time.Second))
	return loop.Decision{Events: []loop.Event{{Reason: naming.EventCreate,
		Message: "Backup " + p.b.Name + " of backing image " + i.Name + " is complete"}}}
}

// mirror reads a backup that the store has.
func (p *pass) mirror() loop.Decision {
	b, s, e := p.b, p.s, p.s.Errand
	done, asked := b.Status.State == v1beta2.BackupStateCompleted, b.Spec.SyncRequestedAt.Time
	switch {
	case done && asked.Before(b.Status.LastSyncedAt.Time):
		return loop.Decision{}
	case s.Target == nil || s.Target.Spec.BackupTargetURL == "" || e.Runs():
		return loop.Decision{}
	case !e.Is(named(b, orderInspect)):
	case e.Err == nil && e.Result.Info.Created != "" && asked.Before(e.Began):
		return p.complete(e.Result.Info)
	case e.Err == nil && asked.Before(e.Began):
		b.Status.State = v1beta2.BackupStateInProgress
		return p.wait("in progress, or interrupted, in another cluster")
	case e.Err != nil && p.now.Before(e.Ended.Add(removeAgainAfter)):
		b.Status.Messages = map[string]string{v1beta2.BackupMessageError: store.Refusal(e.Err)}
		return p.again(removeAgainAfter)
	}
	return loop.Decision{Do: loop.Call{What: "read backup " + b.Name + " in the store", Order: orderInspect}}
}

// neverOrdered says whether the store can have nothing of the backup: it is not asked then, and may
// be away.
func (p *pass) neverOrdered() bool {
	st := p.b.Status
	return p.b.Spec.UserCreated && (st.State == v1beta2.BackupStateNew || st.State == v1beta2.BackupStatePending) &&
		st.ManagerAddress == "" && st.BackupCreatedAt == ""
}

// giveUp removes the backup from the store, and lets the object go. A run that is under way is
// waited for there, by its lock.
//
// Crash window: what is removed is removed again, which is no error.
func (p *pass) giveUp() loop.Decision {
	b, s, e := p.b, p.s, p.s.Errand
	stays := b.Labels[naming.LabelDeleteObjectOnly] != "" || s.Target == nil || p.neverOrdered()
	removed := e.Is(named(b, orderRemove)) && e.Err == nil
	switch {
	case stays || removed:
	case s.Target.Spec.BackupTargetURL == "":
		return p.wait("backup target " + s.Target.Name + " has no URL: the backup cannot be removed there")
	case e.Runs():
		if e.Order == named(b, orderRemove) {
			b.Status.State = v1beta2.BackupStateDeleting
		}
		return loop.Decision{}
	case e.Is(named(b, orderRemove)) && p.now.Before(e.Ended.Add(removeAgainAfter)):
		why := store.Refusal(e.Err)
		news := b.Status.Error != why
		b.Status.Error, b.Status.Messages = why, map[string]string{v1beta2.BackupMessageError: why}
		d := p.again(removeAgainAfter)
		if news {
			d.Events = []loop.Event{{Warning: true, Reason: naming.EventFailedDeleting, Message: why}}
		}
		return d
	default:
		return loop.Decision{Do: loop.Call{What: "remove backup " + b.Name + " from the store", Order: orderRemove}}
	}
	c := b.DeepCopy()
	if !controllerutil.RemoveFinalizer(c, v1beta2.Finalizer) {
		return loop.Decision{}
	}
	return loop.Decision{Do: loop.Update{Object: c}, Events: []loop.Event{{Reason: naming.EventDelete,
		Message: "Backup " + b.Name + " of backing image " + b.Spec.BackingImage + " was deleted"}}}
}
