package backup

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/conflict"
	"ankole.storage/rest/resource"
	"ankole.storage/rest/serve"
)

// syncPause is how soon after each other looks at a store can be asked for.
const syncPause = 10 * time.Second

// askSync stamps an object's request for a look; too soon is refused.
func askSync(at *metav1.Time, what, name string) error {
	if time.Since(at.Time) < syncPause {
		return fmt.Errorf("cannot synchronize %s %s in %d seconds: it was asked for just now", what, name,
			int(syncPause.Seconds()))
	}
	*at = metav1.Now()
	return nil
}

// syncTarget has the controller look at a target.
func syncTarget(ctx context.Context, o *serve.Objects, name string) error {
	return conflict.Retry(func() error {
		var t lh.BackupTarget
		if err := o.Get(ctx, name, &t); err != nil {
			return err
		}
		if err := askSync(&t.Spec.SyncRequestedAt, "backup target", name); err != nil {
			return err
		}
		return o.Client.Update(ctx, &t)
	})
}

// syncVolume has the controller look at a backup volume.
func syncVolume(ctx context.Context, o *serve.Objects, name string) error {
	return conflict.Retry(func() error {
		var v lh.BackupVolume
		if err := o.Get(ctx, name, &v); err != nil {
			return err
		}
		if err := askSync(&v.Spec.SyncRequestedAt, "backup volume", name); err != nil {
			return err
		}
		return o.Client.Update(ctx, &v)
	})
}

func syncBackupTarget(q *serve.Request) (any, error) {
	var in resource.SyncBackupResource
	if err := q.Decode(&in); err != nil {
		return nil, err
	}
	name := q.Params["name"]
	if in.SyncBackupTarget {
		if err := syncTarget(q.Context(), q.Objects, name); err != nil {
			return nil, fmt.Errorf("unable to synchronize backup target %s: %w", name, err)
		}
	}
	return backupTargets.Named(q, name)
}

func syncBackupVolume(q *serve.Request) (any, error) {
	var in resource.SyncBackupResource
	if err := q.Decode(&in); err != nil {
		return nil, err
	}
	name := q.Params["name"]
	if in.SyncBackupVolume {
		if err := syncVolume(q.Context(), q.Objects, name); err != nil {
			return nil, fmt.Errorf("unable to synchronize backup volume %s: %w", name, err)
		}
	}
	return backupVolumes.Named(q, name)
}

// syncBackupTargets has the controller look at every target.
func syncBackupTargets(q *serve.Request) (any, error) {
	var all lh.BackupTargetList
	asked := func(in resource.SyncBackupResource) bool { return in.SyncAllBackupTargets }
	if err := syncAll(q, asked, &all, syncTarget); err != nil {
		return nil, err
	}
	return backupTargets.All(q)
}

// syncBackupVolumes is the same of every backup volume.
func syncBackupVolumes(q *serve.Request) (any, error) {
	var all lh.BackupVolumeList
	asked := func(in resource.SyncBackupResource) bool { return in.SyncAllBackupVolumes }
	if err := syncAll(q, asked, &all, syncVolume); err != nil {
		return nil, err
	}
	return backupVolumes.All(q)
}

// syncAll asks for a look at every object of a list, if the request's body asks for that. One that
// fails does not stop the others.
func syncAll(q *serve.Request, asked func(resource.SyncBackupResource) bool, all client.ObjectList,
	sync func(ctx context.Context, o *serve.Objects, name string) error) error {
	var in resource.SyncBackupResource
	if err := q.Decode(&in); err != nil {
		return err
	}
	if !asked(in) {
		return nil
	}
	if err := q.Objects.List(q.Context(), all); err != nil {
		return fmt.Errorf("listing what is to be synchronized: %w", err)
	}
	return meta.EachListItem(all, func(o runtime.Object) error {
		name := o.(client.Object).GetName()
		if err := sync(q.Context(), q.Objects, name); err != nil {
			slog.Info("not synchronized", "kind", fmt.Sprintf("%T", o), "name", name, "err", err)
		}
		return nil
	})
}

// deleteBackupVolume deletes all backups of a volume, in the store too; it is answered before that.
func deleteBackupVolume(q *serve.Request) (any, error) {
	v := &lh.BackupVolume{ObjectMeta: metav1.ObjectMeta{Name: q.Params["name"], Namespace: q.Objects.Namespace}}
	if err := q.Objects.Client.Delete(q.Context(), v); err != nil {
		return nil, fmt.Errorf("unable to delete backup volume %s: %w", v.Name, err)
	}
	return nil, nil
}

// deleteBackup deletes a backup, in the store too; it is answered before that.
func deleteBackup(q *serve.Request) (any, error) {
	var in resource.BackupInput
	if err := q.Decode(&in); err != nil {
		return nil, err
	}
	if in.Name == "" {
		return nil, errors.New("empty backup name is not allowed")
	}
	b := &lh.Backup{ObjectMeta: metav1.ObjectMeta{Name: in.Name, Namespace: q.Objects.Namespace}}
	if err := q.Objects.Client.Delete(q.Context(), b); client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("unable to delete backup %s: %w", in.Name, err)
	}
	return getBackupVolume(q)
}

// mostBandwidth is what an order may name, in MiB per second.
const mostBandwidth = 1 << 20

// getVerification tells of the latest verification of a backup volume.
func getVerification(q *serve.Request) (any, error) {
	var v lh.BackupVolume
	if err := q.Objects.Get(q.Context(), q.Params["name"], &v); err != nil {
		return nil, err
	}
	return verificationView(&v), nil
}

// orderVerification orders one. It is answered at once. One that is asked for and not over yet is
// taken for it, so that it does not begin again.
func orderVerification(q *serve.Request) (any, error) {
	var in resource.VerifyBackupsInput
	if err := q.Decode(&in); err != nil {
		return nil, err
	}
	name := q.Params["name"]
	if in.BandwidthLimit < 0 || in.BandwidthLimit > mostBandwidth {
		return nil, fmt.Errorf("unable to verify backup volume %s: bandwidthLimit %d is not between 0 and %d MiB per second",
			name, in.BandwidthLimit, mostBandwidth)
	}
	var v lh.BackupVolume
	err := conflict.Retry(func() error {
		if err := q.Objects.Get(q.Context(), name, &v); err != nil {
			return err
		}
		if err := verifiable(q.Context(), q.Objects, &v); err != nil {
			return err
		}
		v.Spec.VerifyBandwidthLimit = in.BandwidthLimit
		if state := verificationView(&v).State; state == resource.VerificationNone || state == resource.VerificationDone {
			v.Spec.VerifyRequestedAt = after(v.Spec.VerifyRequestedAt, time.Now())
		}
		return q.Objects.Client.Update(q.Context(), &v)
	})
	if err != nil {
		return nil, fmt.Errorf("unable to verify backup volume %s: %w", name, err)
	}
	return verificationView(&v), nil
}

// after is now in whole seconds, as objects have times, and later than before.
func after(before metav1.Time, now time.Time) metav1.Time {
	now = now.Truncate(time.Second)
	if !now.After(before.Time) {
		now = before.Add(time.Second)
	}
	return metav1.NewTime(now)
}

// verifiable refuses what could not begin.
func verifiable(ctx context.Context, o *serve.Objects, v *lh.BackupVolume) error {
	var t lh.BackupTarget
	err := o.Get(ctx, v.Spec.BackupTargetName, &t)
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("its backup target %q does not exist", v.Spec.BackupTargetName)
	case err != nil:
		return err
	case v.DeletionTimestamp != nil:
		return fmt.Errorf("the backup volume is being deleted")
	case t.Spec.BackupTargetURL == "":
		return fmt.Errorf("backup target %s has no URL: set it first", t.Name)
	case !t.Status.Available:
		return fmt.Errorf("backup target %s is not available: %s", t.Name,
			lh.FindCondition(t.Status.Conditions, lh.BackupTargetConditionUnavailable).Message)
	}
	return nil
}

func verificationView(v *lh.BackupVolume) *resource.BackupVerification {
	out := &resource.BackupVerification{BackupVolume: v.Name, Volume: v.Spec.VolumeName, Target: v.Spec.BackupTargetName,
		State: resource.VerificationNone, RequestedAt: rfc3339(v.Spec.VerifyRequestedAt),
		Backups: []resource.VerifiedBackup{}, Faults: []resource.BackupFault{}}
	ver, asked := v.Status.Verification, v.Spec.VerifyRequestedAt
	switch {
	case !asked.IsZero() && (ver == nil || !ver.RequestedAt.Equal(&asked)):
		out.State = resource.VerificationWaiting
		return out
	case ver == nil:
		return out
	case ver.Ended():
		out.State = resource.VerificationDone
	default:
		out.State = resource.VerificationInProgress
	}
	out.StartedAt, out.EndedAt = rfc3339(ver.StartedAt), rfc3339(ver.EndedAt)
	out.Progress, out.Blocks, out.ReadBytes = ver.Progress, ver.Blocks, ver.ReadBytes
	out.FaultCount, out.Error = ver.FaultCount, ver.Error
	for _, b := range ver.Backups {
		out.Backups = append(out.Backups, resource.VerifiedBackup{Name: b.Name, Faults: b.Faults})
	}
	for _, f := range ver.Faults {
		out.Faults = append(out.Faults, resource.BackupFault{Kind: f.Kind, Object: f.Object, Message: f.Message,
			Backups: append([]string{}, f.Backups...), BackupCount: f.BackupCount})
	}
	return out
}

// rfc3339 is a time as text; empty: there is none.
func rfc3339(t metav1.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}
