package backup

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

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
