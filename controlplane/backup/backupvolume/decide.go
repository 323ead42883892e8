package backupvolume

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/backup/store"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/object/naming"
)

// againAfter is the pause after an errand that has failed.
const againAfter = time.Minute

// named is an order for one object: another one of its name is not it.
func named(v *v1beta2.BackupVolume, order string) string { return string(v.UID) + " " + order }

// decide is the second table of docs/design/backups.md.
func decide(now time.Time, v *v1beta2.BackupVolume, s seen) loop.Decision {
	p := &pass{now: now, v: v, s: s}
	if v.Status.OwnerID == "" {
		v.Status.OwnerID = s.Owner
	}
	if v.DeletionTimestamp != nil {
		return p.giveUp()
	}
	d := p.look()
	if d.Do != nil {
		return d
	}
	verify := p.verify()
	if verify.After == 0 || d.After > 0 && d.After < verify.After {
		verify.After = d.After
	}
	return verify
}

// look reads what the store has of the volume, if that is asked for.
func (p *pass) look() loop.Decision {
	v, s, now := p.v, p.s, p.now
	if s.Errand.Runs() {
		return loop.Decision{} // its end wakes
	}
	if s.Errand.Is(named(v, orderLook)) {
		if d := p.take(); d.Do != nil {
			return d
		}
	}
	asked, last := v.Spec.SyncRequestedAt, v.Status.LastSyncedAt
	if s.Target == nil || s.Target.Spec.BackupTargetURL == "" || !last.IsZero() && asked.Time.Before(last.Time) {
		return loop.Decision{}
	}
	left := time.Duration(0)
	switch e := s.Errand; {
	case !e.Is(named(v, orderLook)):
	case e.Err != nil:
		left = e.Ended.Add(againAfter).Sub(now)
	default:
		left = e.Began.Add(time.Second).Sub(now) // requests have whole seconds
	}
	if left > 0 {
		return loop.Decision{After: left}
	}
	return loop.Decision{Do: loop.Call{What: "read backup volume " + v.Name, Order: orderLook}}
}

// pass is one judgement of a backup volume.
type pass struct {
	now time.Time
	v   *v1beta2.BackupVolume
	s   seen
}

func (p *pass) told(key, text string) {
	p.v.Status.Messages = map[string]string{}
	if text != "" {
		p.v.Status.Messages[key] = text
	}
}

// take makes of a look what follows from it, once: lastSyncedAt is written when all of it is done.
func (p *pass) take() loop.Decision {
	e, st := p.s.Errand, &p.v.Status
	began := metav1.NewTime(e.Began.Truncate(time.Second))
	if e.Err != nil {
		p.told(v1beta2.BackupMessageError, store.Refusal(e.Err))
		return loop.Decision{}
	}
	if st.LastSyncedAt.Equal(&began) {
		return loop.Decision{}
	}
	info := e.Result.Volume
	p.told("", "")
	st.Size, st.Labels, st.CreatedAt, st.DataStored = info.Size, info.Labels, info.Created, info.DataStored
	st.LastBackupName, st.LastBackupAt, st.StorageClassName = info.LastBackupName, info.LastBackupAt, info.StorageClassname
	st.BackingImageName, st.BackingImageChecksum = info.BackingImageName, info.BackingImageChecksum
	change := p.forget(e.Result.Backups, began)
	for _, name := range e.Result.Backups {
		if change == nil {
			change = p.follow(name, began)
		}
	}
	if change == nil {
		st.LastSyncedAt = began
		st.LastModificationTime = metav1.NewTime(e.Result.Modified.Truncate(time.Second))
	}
	return loop.Decision{Do: change}
}

// follow makes the object of a backup that the store has, or has it looked at again if it was in
// progress there.
func (p *pass) follow(name string, began metav1.Time) loop.Change {
	i := slices.IndexFunc(p.s.Backups, func(b v1beta2.Backup) bool { return b.Name == name })
	switch {
	case i < 0 && (p.s.Taken[name] || naming.CheckName(name) != nil):
		p.told(v1beta2.BackupMessageInfo, "backup "+name+" is not shown: the name is taken, or no object can have it")
		return nil
	case i < 0:
		return loop.Create{Object: &v1beta2.Backup{ObjectMeta: metav1.ObjectMeta{Namespace: p.v.Namespace, Name: name,
			Finalizers: []string{v1beta2.Finalizer},
			Labels: map[string]string{naming.LabelBackupVolume: p.v.Spec.VolumeName,
				naming.LabelBackupTarget: p.v.Spec.BackupTargetName},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: v1beta2.GroupVersion.String(), Kind: "BackupVolume",
				Name: p.v.Name, UID: p.v.UID}}},
			Spec: v1beta2.BackupSpec{BackupBlockSize: v1beta2.BackupBlockSizeInvalid, Labels: map[string]string{},
				BackupMode: v1beta2.BackupModeIncremental}}}
	}
	b := &p.s.Backups[i]
	if b.Spec.SnapshotName != "" || b.Status.State != v1beta2.BackupStateInProgress || b.DeletionTimestamp != nil ||
		!b.Spec.SyncRequestedAt.Time.Before(began.Time) {
		return nil
	}
	c := b.DeepCopy()
	c.Spec.SyncRequestedAt = began
	return loop.Update{Object: c}
}

// forget deletes the objects of backups that the store has no more, and nothing in the store.
// Backups of this cluster that are not complete are not in the store yet, or never will be.
func (p *pass) forget(names []string, began metav1.Time) loop.Change {
	return store.Drop(p.s.Backups, func(b *v1beta2.Backup) bool {
		ours := b.Spec.SnapshotName != "" && b.Status.State != v1beta2.BackupStateCompleted
		younger := !b.Status.LastSyncedAt.IsZero() && !b.Status.LastSyncedAt.Time.Before(began.Time)
		return !ours && !younger && !slices.Contains(names, b.Name)
	})
}

// giveUp removes what the store has of the volume, then the objects of its backups, and lets the
// object go.
//
// Crash window: what is removed from the store is removed again, which is no error.
func (p *pass) giveUp() loop.Decision {
	v, e := p.v, p.s.Errand
	stays := v.Labels[naming.LabelDeleteObjectOnly] != "" || p.s.Target == nil
	removed := e.Is(named(v, orderRemove)) && e.Err == nil
	switch {
	case stays || removed:
	case p.s.Target.Spec.BackupTargetURL == "":
		p.told(v1beta2.BackupMessageError, "backup target "+p.s.Target.Name+" has no URL: nothing can be removed there")
		return loop.Decision{After: againAfter}
	case e.Runs():
		return loop.Decision{}
	case e.Is(named(v, orderRemove)) && p.now.Before(e.Ended.Add(againAfter)):
		p.told(v1beta2.BackupMessageError, store.Refusal(e.Err))
		return loop.Decision{After: e.Ended.Add(againAfter).Sub(p.now)}
	default:
		return loop.Decision{Do: loop.Call{Order: orderRemove, What: "remove the backups of volume " + v.Spec.VolumeName +
			" from backup target " + v.Spec.BackupTargetName}}
	}
	if len(p.s.Backups) > 0 {
		return loop.Decision{Do: store.Drop(p.s.Backups, func(*v1beta2.Backup) bool { return true })}
	}
	c := v.DeepCopy()
	if !controllerutil.RemoveFinalizer(c, v1beta2.Finalizer) {
		return loop.Decision{}
	}
	return loop.Decision{Do: loop.Update{Object: c}, Events: []loop.Event{{Reason: naming.EventDelete,
		Message: "Backup volume " + v.Name + " was deleted"}}}
}
