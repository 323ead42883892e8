package rest

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
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/admission"
	"ankole.storage/controlplane/object/conflict"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/rest/resource"
)

// reservedLabels are labels of backups that the system sets.
var reservedLabels = map[string]bool{naming.LabelKubernetesStatus: true, "ranchervm-base-image": true}

// backUpSnapshot orders a backup of a snapshot. It is answered at once; the volume's backupStatus
// has the progress.
func backUpSnapshot(q *request) (any, error) {
	var in resource.SnapshotInput
	if err := q.decode(&in); err != nil {
		return nil, err
	}
	name := q.params["name"]
	if err := q.server.backUp(q.Context(), name, in); err != nil {
		return nil, fmt.Errorf("failed to create backup of snapshot %s for volume %s: %w", in.Name, name, err)
	}
	return q.volume(name)
}

func (s *Server) backUp(ctx context.Context, volume string, in resource.SnapshotInput) error {
	if in.Name == "" {
		return errors.New("empty snapshot name is not allowed")
	}
	for key, value := range in.Labels {
		if problems := validation.IsQualifiedName(key); len(problems) > 0 || value == "" || reservedLabels[key] {
			return fmt.Errorf("label %q: a key is a qualified name that is not the system's, and a value is not empty", key)
		}
	}
	var v lh.Volume
	if err := s.get(ctx, volume, &v); err != nil {
		return err
	}
	if err := maySnapshot(&v); err != nil {
		return err
	}
	f := admission.BackupFacts{Volume: &v, Snapshot: &lh.Snapshot{}, Target: &lh.BackupTarget{}}
	err := s.get(ctx, in.Name, f.Snapshot)
	if apierrors.IsNotFound(err) || err == nil && f.Snapshot.Spec.Volume != volume {
		return fmt.Errorf("cannot find snapshot '%s' for volume '%s'", in.Name, volume)
	} else if err != nil {
		return err
	}
	if err := s.get(ctx, v.Spec.BackupTargetName, f.Target); apierrors.IsNotFound(err) {
		// Not found is the target, and not what the request names.
		return fmt.Errorf("volume %s has its backups in backup target %q, which does not exist", volume, v.Spec.BackupTargetName)
	} else if err != nil {
		return err
	}
	b := &lh.Backup{ObjectMeta: metav1.ObjectMeta{Namespace: s.cfg.Namespace, Name: naming.RandomBackupName(),
		Labels: map[string]string{naming.LabelBackupVolume: v.Name, naming.LabelBackupTarget: v.Spec.BackupTargetName}},
		Spec: lh.BackupSpec{SnapshotName: in.Name, Labels: in.Labels, BackupMode: lh.BackupMode(in.BackupMode),
			BackupBlockSize: v.Spec.BackupBlockSize}}
	if b.Spec.BackupMode == "" {
		b.Spec.BackupMode = lh.BackupModeIncremental
	}
	if err := admission.CheckBackup(nil, b, f); err != nil {
		return err
	}
	return s.create(ctx, b)
}

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
func (s *Server) syncTarget(ctx context.Context, name string) error {
	return conflict.Retry(func() error {
		var t lh.BackupTarget
		if err := s.get(ctx, name, &t); err != nil {
			return err
		}
		if err := askSync(&t.Spec.SyncRequestedAt, "backup target", name); err != nil {
			return err
		}
		return s.cfg.Client.Update(ctx, &t)
	})
}

// syncVolume has the controller look at a backup volume.
func (s *Server) syncVolume(ctx context.Context, name string) error {
	return conflict.Retry(func() error {
		var v lh.BackupVolume
		if err := s.get(ctx, name, &v); err != nil {
			return err
		}
		if err := askSync(&v.Spec.SyncRequestedAt, "backup volume", name); err != nil {
			return err
		}
		return s.cfg.Client.Update(ctx, &v)
	})
}

func syncBackupTarget(q *request) (any, error) {
	var in resource.SyncBackupResource
	if err := q.decode(&in); err != nil {
		return nil, err
	}
	name := q.params["name"]
	if in.SyncBackupTarget {
		if err := q.server.syncTarget(q.Context(), name); err != nil {
			return nil, fmt.Errorf("unable to synchronize backup target %s: %w", name, err)
		}
	}
	return backupTargets.named(q, name)
}

func syncBackupVolume(q *request) (any, error) {
	var in resource.SyncBackupResource
	if err := q.decode(&in); err != nil {
		return nil, err
	}
	name := q.params["name"]
	if in.SyncBackupVolume {
		if err := q.server.syncVolume(q.Context(), name); err != nil {
			return nil, fmt.Errorf("unable to synchronize backup volume %s: %w", name, err)
		}
	}
	return backupVolumes.named(q, name)
}

// syncBackupTargets has the controller look at every target.
func syncBackupTargets(q *request) (any, error) {
	var all lh.BackupTargetList
	asked := func(in resource.SyncBackupResource) bool { return in.SyncAllBackupTargets }
	if err := q.syncAll(asked, &all, q.server.syncTarget); err != nil {
		return nil, err
	}
	return backupTargets.all(q)
}

// syncBackupVolumes is the same of every backup volume.
func syncBackupVolumes(q *request) (any, error) {
	var all lh.BackupVolumeList
	asked := func(in resource.SyncBackupResource) bool { return in.SyncAllBackupVolumes }
	if err := q.syncAll(asked, &all, q.server.syncVolume); err != nil {
		return nil, err
	}
	return backupVolumes.all(q)
}

// syncAll asks for a look at every object of a list, if the request's body asks for that. One that
// fails does not stop the others.
func (q *request) syncAll(asked func(resource.SyncBackupResource) bool, all client.ObjectList,
	sync func(ctx context.Context, name string) error) error {
	var in resource.SyncBackupResource
	if err := q.decode(&in); err != nil {
		return err
	}
	if !asked(in) {
		return nil
	}
	if err := q.server.list(q.Context(), all); err != nil {
		return fmt.Errorf("listing what is to be synchronized: %w", err)
	}
	return meta.EachListItem(all, func(o runtime.Object) error {
		name := o.(client.Object).GetName()
		if err := sync(q.Context(), name); err != nil {
			slog.Info("not synchronized", "kind", fmt.Sprintf("%T", o), "name", name, "err", err)
		}
		return nil
	})
}

// deleteBackupVolume deletes all backups of a volume, in the store too; it is answered before that.
func deleteBackupVolume(q *request) (any, error) {
	v := &lh.BackupVolume{ObjectMeta: metav1.ObjectMeta{Name: q.params["name"], Namespace: q.server.cfg.Namespace}}
	if err := q.server.cfg.Client.Delete(q.Context(), v); err != nil {
		return nil, fmt.Errorf("unable to delete backup volume %s: %w", v.Name, err)
	}
	return nil, nil
}

// deleteBackup deletes a backup, in the store too; it is answered before that.
func deleteBackup(q *request) (any, error) {
	var in resource.BackupInput
	if err := q.decode(&in); err != nil {
		return nil, err
	}
	if in.Name == "" {
		return nil, errors.New("empty backup name is not allowed")
	}
	b := &lh.Backup{ObjectMeta: metav1.ObjectMeta{Name: in.Name, Namespace: q.server.cfg.Namespace}}
	if err := q.server.cfg.Client.Delete(q.Context(), b); client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("unable to delete backup %s: %w", in.Name, err)
	}
	return getBackupVolume(q)
}

// mostBandwidth is what an order may name, in MiB per second.
const mostBandwidth = 1 << 20

// getVerification tells of the latest verification of a backup volume.
func getVerification(q *request) (any, error) {
	var v lh.BackupVolume
	if err := q.server.get(q.Context(), q.params["name"], &v); err != nil {
		return nil, err
	}
	return verificationView(&v), nil
}

// orderVerification orders one. It is answered at once. One that is asked for and not over yet is
// taken for it, so that it does not begin again.
func orderVerification(q *request) (any, error) {
	var in resource.VerifyBackupsInput
	if err := q.decode(&in); err != nil {
		return nil, err
	}
	name := q.params["name"]
	if in.BandwidthLimit < 0 || in.BandwidthLimit > mostBandwidth {
		return nil, fmt.Errorf("unable to verify backup volume %s: bandwidthLimit %d is not between 0 and %d MiB per second",
			name, in.BandwidthLimit, mostBandwidth)
	}
	var v lh.BackupVolume
	err := conflict.Retry(func() error {
		if err := q.server.get(q.Context(), name, &v); err != nil {
			return err
		}
		if err := q.server.verifiable(q.Context(), &v); err != nil {
			return err
		}
		v.Spec.VerifyBandwidthLimit = in.BandwidthLimit
		if state := verificationView(&v).State; state == resource.VerificationNone || state == resource.VerificationDone {
			v.Spec.VerifyRequestedAt = after(v.Spec.VerifyRequestedAt, time.Now())
		}
		return q.server.cfg.Client.Update(q.Context(), &v)
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
func (s *Server) verifiable(ctx context.Context, v *lh.BackupVolume) error {
	var t lh.BackupTarget
	err := s.get(ctx, v.Spec.BackupTargetName, &t)
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
