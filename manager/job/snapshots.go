package job

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/setting"
)

// slowest is the longest pause between two looks; what lasts long is looked at less often.
const slowest = 10 * time.Second

// await looks until done says true. why, which done may set, is what the error of a wait that was
// too long says.
func (r *run) await(ctx context.Context, limit time.Duration, what string, done func(ctx context.Context) (ok bool,
	why string, err error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not done after %s", limit))
	defer cancel()
	pause := r.Every
	for {
		ok, why, err := done(ctx)
		if err != nil || ok {
			return err
		}
		select {
		case <-ctx.Done():
			if why == "" {
				why = "what it waits for is not known"
			}
			return fmt.Errorf("%s: %w: %s", what, context.Cause(ctx), why)
		case <-time.After(pause):
		}
		pause = min(pause+pause/4, max(slowest, r.Every))
	}
}

func (r *run) snapshots(ctx context.Context, volume string) ([]v1beta2.Snapshot, error) {
	var all v1beta2.SnapshotList
	if err := r.Client.List(ctx, &all, client.InNamespace(r.Namespace),
		client.MatchingLabels(naming.VolumeLabels(volume))); err != nil {
		return nil, fmt.Errorf("list snapshots of volume %s: %w", volume, err)
	}
	return all.Items, nil
}

// errPurgeDisabled says why no snapshot can be given up.
var errPurgeDisabled = errors.New("setting disable-snapshot-purge is on, so no snapshot is given up")

// remove orders that snapshots are given up. Their controller sees to it, however long the engine
// takes, and whatever it waits for: a replica that is rebuilt, purges of other volumes, a newer
// snapshot.
func (r *run) remove(ctx context.Context, volume string, names []string) error {
	for _, name := range names {
		if r.values.Bool(setting.DisableSnapshotPurge) {
			return errPurgeDisabled
		}
		s := &v1beta2.Snapshot{ObjectMeta: metav1.ObjectMeta{Namespace: r.Namespace, Name: name}}
		if err := client.IgnoreNotFound(r.Client.Delete(ctx, s)); err != nil {
			return fmt.Errorf("delete snapshot %s: %w", name, err)
		}
		slog.Info("snapshot is given up", "job", r.Job, "volume", volume, "snapshot", name)
	}
	return nil
}

// take orders a snapshot and waits until it is there. One that is not in time is not wanted any
// more.
func (r *run) take(ctx context.Context, volume, name string) error {
	s := &v1beta2.Snapshot{
		ObjectMeta: metav1.ObjectMeta{Namespace: r.Namespace, Name: name, Labels: naming.VolumeLabels(volume)},
		Spec:       v1beta2.SnapshotSpec{Volume: volume, CreateSnapshot: true, Labels: r.labels()},
	}
	if err := r.Client.Create(ctx, s); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("order snapshot %s: %w", name, err)
	}
	err := r.await(ctx, r.TakeLimit, "take snapshot "+name, func(ctx context.Context) (bool, string, error) {
		if err := r.Client.Get(ctx, client.ObjectKeyFromObject(s), s); err != nil {
			return false, "", fmt.Errorf("read snapshot %s: %w", name, err)
		}
		return s.Status.CreationTime != "", s.Status.Error, nil
	})
	if err == nil {
		slog.Info("snapshot is taken", "job", r.Job, "volume", volume, "snapshot", name)
		return nil
	}
	if ctx.Err() == nil && s.Status.CreationTime == "" {
		err = errors.Join(err, client.IgnoreNotFound(r.Client.Delete(ctx, s)))
	}
	return err
}
