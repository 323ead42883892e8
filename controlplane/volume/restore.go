package volume

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/backup/store"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/recurringjob"
	"ankole.storage/controlplane/setting"
	"ankole.storage/controlplane/volume/dataloss"
	"ankole.storage/controlplane/volume/restore"
)

// restoring fills a volume from a backup. It is the part of a pass that restore stands for.
type restoring struct{ *pass }

// gatherBackups reads what the volume's backup target has of it.
func (r *Reconciler) gatherBackups(ctx context.Context, v *v1beta2.Volume, s *seen) error {
	var b v1beta2.BackupVolume
	key := client.ObjectKey{Namespace: v.Namespace,
		Name: naming.BackupVolumeName(backedVolume(v), v.Spec.BackupTargetName)}
	switch err := r.client.Get(ctx, key, &b, client.UnsafeDisableDeepCopy); {
	case err == nil:
		s.BackupVolume = &b
	case !apierrors.IsNotFound(err):
		return fmt.Errorf("get backup volume %s: %w", key.Name, err)
	}
	if !restore.TakesJobs(v, s.Settings.Bool(setting.RestoreVolumeRecurringJobs)) {
		return nil
	}
	var of v1beta2.Backup
	_, key.Name = store.Named(v.Spec.FromBackup)
	if err := r.client.Get(ctx, key, &of, client.UnsafeDisableDeepCopy); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("get backup %s: %w", key.Name, err)
	}
	var jobs v1beta2.RecurringJobList
	if err := r.client.List(ctx, &jobs, client.InNamespace(v.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list recurring jobs: %w", err)
	}
	s.BackedJobs, s.Jobs = of.Status.Labels[naming.LabelVolumeRecurringJobInfo], jobs.Items
	return nil
}

// restoreJobs has the recurring jobs back that the volume followed which was backed up, before its
// content is restored: the jobs that are missing, one after the other, and then the labels.
func (p restoring) restoreJobs() loop.Change {
	if p.v.Status.RestoreInitiated || p.s.BackedJobs == "" {
		return nil
	}
	missing, labels, err := recurringjob.Restored(p.s.BackedJobs, p.s.Jobs,
		p.s.Settings.Int(setting.RecurringJobMaxRetention))
	if err != nil {
		p.tell(true, naming.EventFailedRestore, "volume %s does not get the recurring jobs of backup %s: %v", p.v.Name,
			p.v.Spec.FromBackup, err)
		return nil
	}
	if len(missing) > 0 {
		missing[0].Namespace = p.v.Namespace
		return loop.Create{Object: missing[0]}
	}
	c := p.v.DeepCopy()
	for key, value := range labels {
		metav1.SetMetaDataLabel(&c.ObjectMeta, key, value)
	}
	if maps.Equal(c.Labels, p.v.Labels) {
		return nil
	}
	return loop.Update{Object: c}
}

// backedVolume is the name in the store whose backups a volume shows: its own, and of a standby
// volume the one that it follows.
func backedVolume(v *v1beta2.Volume) string {
	if v.Spec.Standby || v.Status.IsStandby {
		name, _ := store.Named(v.Spec.FromBackup)
		return name
	}
	return v.Name
}

// newestBackup is what of a backup volume its volume, and standby volumes, look at.
func newestBackup(b *v1beta2.BackupVolume) [3]string {
	return [3]string{b.Status.LastBackupName, b.Status.LastBackupAt, b.Status.Size}
}

// onBackupVolume wakes the volume that is backed up there, and those that follow it.
func (r *Reconciler) onBackupVolume(b *v1beta2.BackupVolume) []string {
	return append(r.names(nil, func(v *v1beta2.Volume) bool {
		return v.Name != b.Spec.VolumeName && backedVolume(v) == b.Spec.VolumeName
	}), b.Spec.VolumeName)
}

// noteBackups tells of the newest backup.
func (p restoring) noteBackups() {
	st := &p.v.Status
	var now restore.Newest
	if b := p.s.BackupVolume; b != nil && b.DeletionTimestamp == nil {
		now = restore.Newest{Backup: b.Status.LastBackupName, At: b.Status.LastBackupAt}
	}
	if st.IsStandby {
		now = p.seenByStandby(now)
	}
	st.LastBackup, st.LastBackupAt = now.Backup, now.At
}

func (p restoring) seenByStandby(now restore.Newest) restore.Newest {
	failed, _ := restore.Failed(p.v)
	held := ""
	if p.engine != nil {
		held = p.engine.Status.LastRestoredBackup
	}
	before := restore.Newest{Backup: p.v.Status.LastBackup, At: p.v.Status.LastBackupAt}
	if held != "" && dataloss.AcceptsOlder(p.v) && (failed || before.Backup == held) {
		if before.Backup != held {
			p.tell(true, naming.EventFailedRestore, "volume %s is activated without backup %s, which could not be restored, "+
				"since a person has accepted that: it has what backup %s held", p.v.Name, before.Backup, held)
		}
		return restore.Newest{Backup: held}
	}
	seen := restore.Seen(before, now, failed, held)
	if now.Backup == "" && seen != before {
		p.tell(true, naming.EventFailedRestore, "backup target %s of volume %s has no backup %s any more: the volume goes "+
			"back to %s, which it was filled from last", p.v.Spec.BackupTargetName, p.v.Name, before.Backup, seen.Backup)
	}
	return seen
}

// restore follows the filling of the volume from a backup, and has the engine begin it.
func (p restoring) restore() loop.Change {
	v := p.v
	if !restore.Needed(v) {
		return nil
	}
	if change := p.restoreJobs(); change != nil {
		return change
	}
	v.Status.RestoreInitiated, v.Status.RestoreRequired = true, true
	failed, next := restore.Failed(v)
	again := failed && v.Status.State == v1beta2.VolumeStateDetached && !p.now.Before(next)
	if failed && !again {
		return nil
	}
	volume, from := store.Named(v.Spec.FromBackup)
	if again {
		p.noteFilling(from)
	}
	if !p.serving() {
		return nil
	}
	asked := p.engine.Spec.RequestedBackupRestore
	backup := restore.Next(v, from, asked, p.runsRestore())
	if p.holds(asked) || asked == "" {
		if change, wait := p.growAsBackedUp(); change != nil || wait {
			return change
		}
	}
	if asked != backup || p.engine.Spec.BackupVolume != volume {
		if v.Status.IsStandby && p.rebuilding() {
			return nil // the engine takes one after the other
		}
		p.noteFilling(backup)
		return p.editEngine(func(s *v1beta2.EngineSpec) { s.RequestedBackupRestore, s.BackupVolume = backup, volume })
	}
	p.followRestore(backup)
	return nil
}

func (p restoring) noteFilling(backup string) {
	p.setCondition(v1beta2.Condition{Type: v1beta2.VolumeConditionRestore, Status: v1beta2.ConditionTrue,
		Reason: v1beta2.VolumeReasonRestoreInProgress, Message: "volume " + p.v.Name + " is being filled from backup " +
			backup})
}

// runsRestore says whether the engine is at the backup that it was asked for.
func (p restoring) runsRestore() bool {
	for _, r := range p.engine.Status.RestoreStatus {
		if r.IsRestoring {
			return true
		}
	}
	return false
}

// holds says whether every replica that takes part has a backup.
func (p restoring) holds(backup string) bool {
	for _, r := range p.engine.Status.RestoreStatus {
		if r.State != v1beta2.ProcessStateComplete || r.LastRestored != backup {
			return false
		}
	}
	return len(p.engine.Status.RestoreStatus) > 0
}

// growAsBackedUp gives a standby volume the size of the one that it follows; wait: it is growing.
func (p restoring) growAsBackedUp() (change loop.Change, wait bool) {
	v := p.v
	if !v.Status.IsStandby || p.s.BackupVolume == nil {
		return nil, false
	}
	size, err := strconv.ParseInt(p.s.BackupVolume.Status.Size, 10, 64)
	if err == nil && size > v.DeviceBytes() {
		c := v.DeepCopy()
		c.Spec.Size = v.UserBytes(size)
		return loop.Update{Object: c}, true
	}
	return nil, v.Status.ExpansionRequired
}

// followRestore reads what the engine says of the restore. While it says nothing it was not begun,
// or its engine was killed: it is begun again, from the beginning.
func (p restoring) followRestore(backup string) {
	v := p.v
	for _, r := range p.engine.Status.RestoreStatus {
		if r.State == v1beta2.ProcessStateError {
			p.restoreFailed(cmp.Or(r.Error, "no reason given"))
			return
		}
	}
	filling := restore.Filling(v)
	if !p.holds(backup) {
		if filling || len(p.engine.Status.RestoreStatus) > 0 { // else the engine of a volume at rest has just begun
			p.noteFilling(backup)
		}
		return
	}
	if filling {
		p.setCondition(v1beta2.Condition{Type: v1beta2.VolumeConditionRestore, Status: v1beta2.ConditionFalse})
		p.noteRestored(backup)
	}
	if !v.Spec.Standby {
		v.Status.RestoreRequired, v.Status.IsStandby = false, false
	}
}

// noteRestored tells that the volume holds its backup, but for what the store did not have, if a
// person has accepted that.
func (p restoring) noteRestored(backup string) {
	damage := ""
	for _, r := range p.engine.Status.RestoreStatus {
		damage = cmp.Or(damage, r.Damage)
	}
	if damage == "" {
		p.tell(false, naming.EventRestored, "volume %s holds what backup %s held", p.v.Name, backup)
		return
	}
	c := v1beta2.Condition{Type: v1beta2.VolumeConditionBackupDamage, Status: v1beta2.ConditionTrue,
		Message: "zero, and not what backup " + backup + " held, which the store did not have: " + damage}
	p.setCondition(c)
	p.tell(true, naming.EventDamaged, "volume %s was restored with damage accepted: %s", p.v.Name, c.Message)
}

// endDamage takes a person's decision about a damaged backup away that is over: the volume is
// restored, or the person knows what is zero.
func (p restoring) endDamage() loop.Change {
	decision, there := p.v.Annotations[dataloss.DamageAnnotation]
	switch {
	case !there, decision == dataloss.DamageAccepted && restore.Needed(p.v) &&
		(dataloss.AcceptsDamage(p.v) || dataloss.AcceptsOlder(p.v)):
		return nil
	case decision == dataloss.DamageAcknowledged &&
		v1beta2.IsConditionTrue(p.v.Status.Conditions, v1beta2.VolumeConditionBackupDamage):
		p.setCondition(v1beta2.Condition{Type: v1beta2.VolumeConditionBackupDamage, Status: v1beta2.ConditionFalse})
	case decision != dataloss.DamageAccepted && decision != dataloss.DamageAcknowledged || p.v.Spec.Standby:
		p.changeEvents = append(p.changeEvents, loop.Event{Warning: true, Reason: naming.EventDataLossDecisionOver,
			Message: "What was decided about a damaged backup is ignored: " + decision})
	}
	c := p.v.DeepCopy()
	delete(c.Annotations, dataloss.DamageAnnotation)
	return loop.Update{Object: c}
}

// restoreFailed ends an attempt: the volume is detached, and the next one has another process of
// the engine.
func (p restoring) restoreFailed(why string) {
	p.setCondition(v1beta2.Condition{Type: v1beta2.VolumeConditionRestore, Status: v1beta2.ConditionFalse,
		Reason: v1beta2.VolumeReasonRestoreFailure, Message: why})
	_, next := restore.Failed(p.v)
	p.tell(true, naming.EventFailedRestore, "volume %s could not be filled from backup %s: %s; it is tried again at %s",
		p.v.Name, p.v.Spec.FromBackup, why, next.UTC().Format(time.RFC3339))
}

// wantsRestore says whether the volume is to be attached to be filled from a backup.
func (p restoring) wantsRestore() bool {
	if !restore.Needed(p.v) {
		return false
	}
	failed, next := restore.Failed(p.v)
	if failed { // the engine that has failed ends first
		p.wakeIn(next.Sub(p.now))
	}
	return !failed
}
