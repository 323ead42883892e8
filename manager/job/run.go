// Package job is one run of a recurring job: the program that the Pods of its CronJob run.
//
// A run works through the Snapshot and Backup objects of the volumes that follow the job, as a user
// would: objects are deleted and created, and their controllers see to the engines. So nothing is
// lost when a run is killed; what it has ordered is done all the same, and what it makes has the
// name that the run's Pod and the volume give, so that a run that is repeated makes nothing twice.
// File systems are trimmed through the REST API, since only the leading manager reaches every
// engine.
//
// A detached volume is attached by the orders themselves. The run's own ticket holds it attached
// from the first order to the last; it yields to workloads. See package recurringjob for what
// becomes of it when the run is killed.
//
// planFor, unfit, spent, outlived and unchanged are pure; docs/guide/recurring-jobs.md has their
// tables.
package job

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/google/uuid"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/conflict"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/recurringjob"
	"ankole.storage/controlplane/setting"
	"ankole.storage/controlplane/setting/stored"
)

// Config of a run.
type Config struct {
	// Job is the name of the RecurringJob, Namespace that of all objects.
	Job, Namespace string
	// Pod is the name of the Pod that this process runs in.
	Pod string
	// Client reads and writes past every cache.
	Client client.Client
	// Trim has the file system that is mounted from a volume trimmed.
	Trim func(ctx context.Context, volume string) error

	// Limits; 0 is the default.
	AttachLimit, TakeLimit time.Duration
	// TurnLimit is how long a volume that is waited for keeps its turn.
	TurnLimit time.Duration
	// Every is the first pause between two looks at what is waited for; later ones are longer.
	Every time.Duration
}

const (
	// attachLimit is how long a volume may take to be attached, takeLimit a snapshot to be taken:
	// both far above what they need unless something is in the way.
	attachLimit = 5 * time.Minute
	takeLimit   = 10 * time.Minute
	// backupLimit is far above what a backup takes that has begun: its controller ends one that is
	// lost.
	backupLimit = 7 * 24 * time.Hour
	// turnLimit is how long others wait for a volume that something is in the way of: longer than it
	// takes to attach one and to take its snapshot where nothing is.
	turnLimit = time.Minute
	// every is the first pause between two looks: most of what is waited for takes less than a second.
	every = 200 * time.Millisecond
)

func orDefault(d *time.Duration, value time.Duration) {
	if *d == 0 {
		*d = value
	}
}

// run is a run under way.
type run struct {
	Config
	job    *v1beta2.RecurringJob
	values setting.Values
}

// Run does what a job is for, once. It fails if that failed for any volume, and may then be
// repeated.
func Run(ctx context.Context, cfg Config) error {
	orDefault(&cfg.AttachLimit, attachLimit)
	orDefault(&cfg.TakeLimit, takeLimit)
	orDefault(&cfg.TurnLimit, turnLimit)
	orDefault(&cfg.Every, every)
	r := &run{Config: cfg}
	switch err := r.begin(ctx); {
	case apierrors.IsNotFound(err):
		slog.Info("the recurring job is deleted, nothing is done", "job", cfg.Job)
		return nil
	case err != nil:
		return fmt.Errorf("begin recurring job %s: %w", cfg.Job, err)
	}
	task := r.job.Spec.Task
	if task == v1beta2.RecurringJobTaskSystemBackup {
		slog.Warn("system backups are not there yet, nothing is done", "job", cfg.Job, "task", task)
		return nil
	}
	volumes, err := r.volumes(ctx)
	if err != nil {
		return err
	}
	slog.Info("recurring job runs", "job", cfg.Job, "task", task, "volumes", len(volumes),
		"run", r.job.Status.ExecutionCount)
	return r.each(ctx, volumes)
}

// begin reads the job and counts the run.
func (r *run) begin(ctx context.Context) (err error) {
	return conflict.Retry(func() error {
		var j v1beta2.RecurringJob
		if err := r.Client.Get(ctx, client.ObjectKey{Namespace: r.Namespace, Name: r.Job}, &j); err != nil {
			return err
		}
		j.Status.ExecutionCount++
		r.job = &j
		if r.values, err = stored.Read(ctx, r.Client, r.Namespace); err != nil {
			return err
		}
		return r.Client.Status().Update(ctx, &j)
	})
}

// volumes are those that follow the job and can be worked on.
func (r *run) volumes(ctx context.Context) ([]v1beta2.Volume, error) {
	var all v1beta2.VolumeList
	if err := r.Client.List(ctx, &all, client.InNamespace(r.Namespace)); err != nil {
		return nil, fmt.Errorf("list volumes: %w", err)
	}
	var out []v1beta2.Volume
	for i := range all.Items {
		v := &all.Items[i]
		if !recurringjob.Follows(v, r.job) {
			continue
		}
		if r.fits(v) {
			out = append(out, *v)
		}
	}
	return out, nil
}

// fits says whether a volume can be worked on, and why not in the log.
func (r *run) fits(v *v1beta2.Volume) bool {
	why := unfit(v, r.job.Spec.Task, r.values.Bool(setting.AllowRecurringJobWhileVolumeDetached))
	if why != "" {
		slog.Info("left out", "job", r.Job, "volume", v.Name, "because", why)
	}
	return why == ""
}

// each works on the volumes, as many at a time as the job says. One that fails does not stop the
// others, nor does one for which something has to be waited for long: the next one begins beside
// it.
func (r *run) each(ctx context.Context, volumes []v1beta2.Volume) error {
	var mu sync.Mutex
	var failed []error
	var group sync.WaitGroup
	turns := make(chan struct{}, max(r.job.Spec.Concurrency, 1))
	for i := range volumes {
		v := &volumes[i]
		turns <- struct{}{}
		release := sync.OnceFunc(func() { <-turns })
		group.Go(func() {
			defer release()
			if !r.job.Spec.Task.MakesBackups() { // which may take hours, as many at a time as the job says
				late := time.AfterFunc(r.TurnLimit, release)
				defer late.Stop()
			}
			if err := r.volume(ctx, v); err != nil {
				slog.Error("failed", "job", r.Job, "volume", v.Name, "err", err)
				mu.Lock()
				defer mu.Unlock()
				failed = append(failed, fmt.Errorf("volume %s: %w", v.Name, err))
			}
		})
	}
	group.Wait()
	return errors.Join(failed...)
}

// volume works on a volume as it is when its turn comes, which may be hours after the beginning.
func (r *run) volume(ctx context.Context, listed *v1beta2.Volume) error {
	v := &v1beta2.Volume{}
	switch err := r.Client.Get(ctx, client.ObjectKeyFromObject(listed), v); {
	case apierrors.IsNotFound(err) || err == nil && v.UID != listed.UID:
		slog.Info("left out", "job", r.Job, "volume", listed.Name, "because", "it is deleted")
		return nil
	case err != nil:
		return fmt.Errorf("read the volume: %w", err)
	}
	if !r.fits(v) {
		return nil
	}
	switch {
	case r.job.Spec.Task == v1beta2.RecurringJobTaskFilesystemTrim:
		return r.Trim(ctx, v.Name)
	case r.job.Spec.Task.MakesBackups():
		return r.backUp(ctx, v)
	}
	all, err := r.snapshots(ctx, v.Name)
	if err != nil {
		return err
	}
	p := planFor(time.Now(), r.job, r.snapshotOf(v), all)
	if p.empty() {
		return nil
	}
	err = r.remove(ctx, v.Name, p.remove)
	if p.create == "" || err != nil && (r.job.Spec.Task == v1beta2.RecurringJobTaskSnapshot || ctx.Err() != nil) {
		return err
	}
	release, held := r.hold(ctx, v)
	if held != nil {
		return errors.Join(err, held)
	}
	defer release()
	return errors.Join(err, r.take(ctx, v.Name, p.create))
}

// snapshotSpace gives the snapshots of runs their UUIDs.
var snapshotSpace = uuid.MustParse("7f7a4fc5-5a0e-4fd5-9d36-0d8f7d2a1f61")

// snapshotOf is the name of this run's snapshot of a volume.
func (r *run) snapshotOf(v *v1beta2.Volume) string { return r.nameOf(v, 0) }

// nameOf is the name of what this run makes of a volume, at the try of a number.
func (r *run) nameOf(v *v1beta2.Volume, try int) string {
	seed := r.Pod + "/" + string(v.UID)
	if try > 0 {
		seed += "/" + strconv.Itoa(try)
	}
	return naming.RecurringSnapshotName(r.Job, uuid.NewSHA1(snapshotSpace, []byte(seed)).String())
}
