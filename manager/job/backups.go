package job

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/setting"
)

// backUp makes a backup of a volume: a snapshot, the backup of it, and then what the job does not
// retain is given up. A task that finds no new data makes none, unless it is forced or full.
func (r *run) backUp(ctx context.Context, v *v1beta2.Volume) error {
	if err := r.targetReady(ctx, v); err != nil {
		return err
	}
	snapshots, backups, err := r.backed(ctx, v)
	if err != nil {
		return err
	}
	mine := r.snapshotOf(v)
	cleanup := r.values.Bool(setting.AutoCleanupRecurringJobBackupSnapshot)
	left := r.remove(ctx, v.Name, spent(time.Now(), r.job, cleanup, mine, baseOf(backups), snapshots))
	forced := r.job.Spec.Task == v1beta2.RecurringJobTaskBackupForceCreate
	if left != nil && (!forced || ctx.Err() != nil) {
		return left
	}
	release, err := r.hold(ctx, v)
	if err != nil {
		return errors.Join(left, err)
	}
	defer release()
	if err := r.take(ctx, v.Name, mine); err != nil {
		return errors.Join(left, err)
	}
	full := r.full()
	if !forced && !full {
		same, err := r.nothingNew(ctx, v, mine)
		if err != nil {
			return err
		}
		if same {
			slog.Info("no backup is made: nothing was written since the last one", "job", r.Job, "volume", v.Name)
			return errors.Join(r.remove(ctx, v.Name, []string{mine}), r.retain(ctx, v, backups))
		}
	}
	if err := r.makeBackup(ctx, v, mine, full); err != nil {
		return errors.Join(left, err)
	}
	// The snapshot of the newest backup stays: the next one sends what was written after it.
	if snapshots, backups, err = r.backed(ctx, v); err != nil {
		return errors.Join(left, err)
	}
	return errors.Join(left, r.retain(ctx, v, backups),
		r.remove(ctx, v.Name, spent(time.Now(), r.job, cleanup, mine, mine, snapshots)))
}

// targetReady refuses before a snapshot is taken what would be refused after it.
func (r *run) targetReady(ctx context.Context, v *v1beta2.Volume) error {
	var t v1beta2.BackupTarget
	name := v.Spec.BackupTargetName
	if err := r.Client.Get(ctx, client.ObjectKey{Namespace: r.Namespace, Name: name}, &t); err != nil {
		return fmt.Errorf("read backup target %q: %w", name, err)
	}
	switch {
	case t.Spec.BackupTargetURL == "":
		return fmt.Errorf("backup target %s has no URL: set it first", name)
	case !t.Status.Available:
		return fmt.Errorf("backup target %s is not available: %s", name,
			v1beta2.FindCondition(t.Status.Conditions, v1beta2.BackupTargetConditionUnavailable).Message)
	}
	return nil
}

// full says whether this run makes full backups: every so many, as parameter full-backup-interval
// says.
func (r *run) full() bool {
	n, err := strconv.Atoi(r.job.Spec.Parameters[v1beta2.RecurringJobParameterFullBackupInterval])
	return err == nil && n > 0 && r.job.Status.ExecutionCount%n == 0
}

// backed reads what there is of a volume: its snapshots, and its backups on its target.
func (r *run) backed(ctx context.Context, v *v1beta2.Volume) ([]v1beta2.Snapshot, []v1beta2.Backup, error) {
	snapshots, err := r.snapshots(ctx, v.Name)
	if err != nil {
		return nil, nil, err
	}
	var all v1beta2.BackupList
	if err := r.Client.List(ctx, &all, client.InNamespace(r.Namespace),
		client.MatchingLabels(backupLabels(v))); err != nil {
		return nil, nil, fmt.Errorf("list backups of volume %s: %w", v.Name, err)
	}
	return snapshots, all.Items, nil
}

func backupLabels(v *v1beta2.Volume) map[string]string {
	return map[string]string{naming.LabelBackupVolume: v.Name, naming.LabelBackupTarget: v.Spec.BackupTargetName}
}

// nothingNew says whether the newest backup holds what a snapshot holds that has none of its own.
func (r *run) nothingNew(ctx context.Context, v *v1beta2.Volume, snapshot string) (bool, error) {
	snapshots, backups, err := r.backed(ctx, v)
	if err != nil {
		return false, err
	}
	return baseOf(backups) != snapshot && unchanged(snapshot, newestBackup(backups), snapshots), nil
}

// makeBackup orders a backup of a snapshot and waits for its end. A run that is repeated finds its
// own again; one that has failed keeps its name, and the reason, until it goes by itself.
func (r *run) makeBackup(ctx context.Context, v *v1beta2.Volume, snapshot string, full bool) error {
	b := &v1beta2.Backup{ObjectMeta: metav1.ObjectMeta{Namespace: r.Namespace, Labels: backupLabels(v)},
		Spec: v1beta2.BackupSpec{SnapshotName: snapshot, Labels: r.labels(), BackupMode: v1beta2.BackupModeIncremental}}
	if full {
		b.Spec.BackupMode = v1beta2.BackupModeFull
	}
	for n := 0; ; n++ {
		b.Name = r.nameOf(v, n)
		have := &v1beta2.Backup{}
		switch err := r.Client.Get(ctx, client.ObjectKey{Namespace: r.Namespace, Name: b.Name}, have); {
		case err == nil && have.Status.State == v1beta2.BackupStateError:
			continue
		case client.IgnoreNotFound(err) != nil:
			return fmt.Errorf("read backup %s: %w", b.Name, err)
		}
		break
	}
	if err := r.Client.Create(ctx, b); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("order backup %s of snapshot %s: %w", b.Name, snapshot, err)
	}
	return r.awaitBackup(ctx, v.Name, b.Name)
}

// awaitBackup waits for the end of a backup. One that does not begin in time is not wanted any
// more; one that has begun ends, for its controller looks after it.
func (r *run) awaitBackup(ctx context.Context, volume, name string) error {
	b := &v1beta2.Backup{ObjectMeta: metav1.ObjectMeta{Namespace: r.Namespace, Name: name}}
	look := func(done func(v1beta2.BackupState) bool) func(context.Context) (bool, string, error) {
		return func(ctx context.Context) (bool, string, error) {
			if err := r.Client.Get(ctx, client.ObjectKeyFromObject(b), b); err != nil {
				return false, "", fmt.Errorf("read backup %s: %w", name, err)
			}
			return done(b.Status.State), cmp.Or(b.Status.Messages[v1beta2.BackupMessageError],
				b.Status.Messages[v1beta2.BackupMessageInfo]), nil
		}
	}
	err := r.await(ctx, r.TakeLimit, "begin backup "+name, look(func(s v1beta2.BackupState) bool {
		return s != v1beta2.BackupStateNew && s != v1beta2.BackupStatePending
	}))
	if err != nil {
		if ctx.Err() == nil && (b.Status.State == v1beta2.BackupStateNew || b.Status.State == v1beta2.BackupStatePending) {
			err = errors.Join(err, client.IgnoreNotFound(r.Client.Delete(ctx, b)))
		}
		return err
	}
	if err := r.await(ctx, backupLimit, "make backup "+name, look(func(s v1beta2.BackupState) bool {
		return s != v1beta2.BackupStateInProgress
	})); err != nil {
		return err
	}
	if b.Status.State != v1beta2.BackupStateCompleted {
		return fmt.Errorf("backup %s is in state %s: %s", name, b.Status.State, cmp.Or(b.Status.Error, "no reason given"))
	}
	slog.Info("backup is complete", "job", r.Job, "volume", volume, "backup", name, "url", b.Status.URL)
	return nil
}

// retain deletes the backups of a volume that the job does not retain, in the store too, without
// waiting for it.
func (r *run) retain(ctx context.Context, v *v1beta2.Volume, backups []v1beta2.Backup) error {
	for _, name := range outlived(time.Now(), r.job, backups) {
		b := &v1beta2.Backup{ObjectMeta: metav1.ObjectMeta{Namespace: r.Namespace, Name: name}}
		if err := client.IgnoreNotFound(r.Client.Delete(ctx, b)); err != nil {
			return fmt.Errorf("delete backup %s: %w", name, err)
		}
		slog.Info("backup is given up", "job", r.Job, "volume", v.Name, "backup", name)
	}
	return nil
}

// labels are those of what the job makes.
func (r *run) labels() map[string]string {
	labels := maps.Clone(r.job.Spec.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	labels[naming.LabelRecurringJob] = r.Job
	return labels
}
