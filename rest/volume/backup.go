package volume

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/wait"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/admission"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/rest/resource"
	"ankole.storage/rest/serve"
)

// reservedLabels are labels of backups that the system sets.
var reservedLabels = map[string]bool{naming.LabelKubernetesStatus: true, "ranchervm-base-image": true}

// backUpSnapshot orders a backup of a snapshot. It is answered at once; the volume's backupStatus
// has the progress.
func backUpSnapshot(q *serve.Request) (any, error) {
	var in resource.SnapshotInput
	if err := q.Decode(&in); err != nil {
		return nil, err
	}
	name := q.Params["name"]
	if err := backUp(q.Context(), q.Objects, name, in); err != nil {
		return nil, fmt.Errorf("failed to create backup of snapshot %s for volume %s: %w", in.Name, name, err)
	}
	return show(q, name)
}

// objectSoon is how long the object of a snapshot may take that an engine has just taken: clients
// order a backup in the same breath.
const objectSoon = 3 * time.Second

// snapshotOf reads the object of a snapshot, and waits a moment for one that is not there.
func snapshotOf(ctx context.Context, o *serve.Objects, name string, into *lh.Snapshot) error {
	var last error
	look := func(ctx context.Context) (bool, error) {
		last = o.Get(ctx, name, into)
		return !apierrors.IsNotFound(last), nil
	}
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, objectSoon, true, look)
	if last == nil {
		last = err
	}
	return last
}

func backUp(ctx context.Context, o *serve.Objects, volume string, in resource.SnapshotInput) error {
	if in.Name == "" {
		return errors.New("empty snapshot name is not allowed")
	}
	for key, value := range in.Labels {
		if problems := validation.IsQualifiedName(key); len(problems) > 0 || value == "" || reservedLabels[key] {
			return fmt.Errorf("label %q: a key is a qualified name that is not the system's, and a value is not empty", key)
		}
	}
	var v lh.Volume
	if err := o.Get(ctx, volume, &v); err != nil {
		return err
	}
	if err := maySnapshot(&v); err != nil {
		return err
	}
	f := admission.BackupFacts{Volume: &v, Snapshot: &lh.Snapshot{}, Target: &lh.BackupTarget{}}
	err := snapshotOf(ctx, o, in.Name, f.Snapshot)
	if apierrors.IsNotFound(err) || err == nil && f.Snapshot.Spec.Volume != volume {
		return fmt.Errorf("cannot find snapshot '%s' for volume '%s'", in.Name, volume)
	} else if err != nil {
		return err
	}
	if err := o.Get(ctx, v.Spec.BackupTargetName, f.Target); apierrors.IsNotFound(err) {
		// Not found is the target, and not what the request names.
		return fmt.Errorf("volume %s has its backups in backup target %q, which does not exist", volume, v.Spec.BackupTargetName)
	} else if err != nil {
		return err
	}
	b := &lh.Backup{ObjectMeta: metav1.ObjectMeta{Namespace: o.Namespace, Name: naming.RandomBackupName(),
		Labels: map[string]string{naming.LabelBackupVolume: v.Name, naming.LabelBackupTarget: v.Spec.BackupTargetName}},
		Spec: lh.BackupSpec{SnapshotName: in.Name, Labels: in.Labels, BackupMode: lh.BackupMode(in.BackupMode),
			BackupBlockSize: v.Spec.BackupBlockSize}}
	if b.Spec.BackupMode == "" {
		b.Spec.BackupMode = lh.BackupModeIncremental
	}
	if err := admission.CheckBackup(nil, b, f); err != nil {
		return err
	}
	return o.Create(ctx, b)
}
