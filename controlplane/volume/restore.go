package volume

import (
	"cmp"
	"context"
	"fmt"
	"maps"
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
	"ankole.storage/controlplane/volume/restore"
)

// gatherBackups reads what the volume's backup target has of it.
func (r *Reconciler) gatherBackups(ctx context.Context, v *v1beta2.Volume, s *seen) error {
	var b v1beta2.BackupVolume
	key := client.ObjectKey{Namespace: v.Namespace, Name: naming.BackupVolumeName(v.Name, v.Spec.BackupTargetName)}
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
func (p *pass) restoreJobs() loop.Change {
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

// newestBackup is what of a backup volume its volume shows.
func newestBackup(b *v1beta2.BackupVolume) [2]string {
	return [2]string{b.Status.LastBackupName, b.Status.LastBackupAt}
}

// noteBackups tells of the newest backup.
func (p *pass) noteBackups() {
	p.v.Status.LastBackup, p.v.Status.LastBackupAt = "", ""
	if b := p.s.BackupVolume; b != nil && b.DeletionTimestamp == nil {
		p.v.Status.LastBackup, p.v.Status.LastBackupAt = b.Status.LastBackupName, b.Status.LastBackupAt
	}
}

// restore follows the filling of the volume from a backup, and has the engine begin it.
func (p *pass) restore() loop.Change {
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
	if again || p.serving() {
		p.setCondition(v1beta2.Condition{Type: v1beta2.VolumeConditionRestore, Status: v1beta2.ConditionTrue,
			Reason: v1beta2.VolumeReasonRestoreInProgress, Message: "volume " + v.Name + " is being filled from " +
				v.Spec.FromBackup})
	}
	if !p.serving() {
		return nil
	}
	volume, backup := store.Named(v.Spec.FromBackup)
	if p.engine.Spec.RequestedBackupRestore != backup || p.engine.Spec.BackupVolume != volume {
		return p.editEngine(func(s *v1beta2.EngineSpec) { s.RequestedBackupRestore, s.BackupVolume = backup, volume })
	}
	p.followRestore(backup)
	return nil
}

// followRestore reads what the engine says of the restore. While it says nothing it was not begun,
// or its engine was killed: it is begun again, from the beginning.
func (p *pass) followRestore(backup string) {
	v, done := p.v, 0
	for _, r := range p.engine.Status.RestoreStatus {
		switch {
		case r.State == v1beta2.ProcessStateError:
			p.restoreFailed(cmp.Or(r.Error, "no reason given"))
			return
		case r.State == v1beta2.ProcessStateComplete && r.LastRestored == backup:
			done++
		}
	}
	if done == 0 || done < len(p.engine.Status.RestoreStatus) {
		return
	}
	v.Status.RestoreRequired = false
	p.setCondition(v1beta2.Condition{Type: v1beta2.VolumeConditionRestore, Status: v1beta2.ConditionFalse})
	p.tell(false, naming.EventRestored, "volume %s holds what backup %s held", v.Name, v.Spec.FromBackup)
}

// restoreFailed ends an attempt: the volume is detached, and the next one has another process of
// the engine.
func (p *pass) restoreFailed(why string) {
	p.setCondition(v1beta2.Condition{Type: v1beta2.VolumeConditionRestore, Status: v1beta2.ConditionFalse,
		Reason: v1beta2.VolumeReasonRestoreFailure, Message: why})
	_, next := restore.Failed(p.v)
	p.tell(true, naming.EventFailedRestore, "volume %s could not be filled from backup %s: %s; it is tried again at %s",
		p.v.Name, p.v.Spec.FromBackup, why, next.UTC().Format(time.RFC3339))
}

// wantsRestore says whether the volume is to be attached to be filled from a backup.
func (p *pass) wantsRestore() bool {
	if !restore.Needed(p.v) {
		return false
	}
	failed, next := restore.Failed(p.v)
	if failed { // the engine that has failed ends first
		p.wakeIn(next.Sub(p.now))
	}
	return !failed
}
