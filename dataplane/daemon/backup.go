package daemon

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	enginev1 "ankole.storage/api/rpc/engine/v1"
	"ankole.storage/backup"
	"ankole.storage/backup/encryption"
	"ankole.storage/backup/format"
	backuptarget "ankole.storage/backup/target"
	"ankole.storage/backup/worker"
)

const (
	// keptComplete and keptFailed are how many backups that have ended are still told of.
	keptComplete, keptFailed = 5, 10
	// dataPercent is the progress when all blocks are in the store; the rest is the record.
	dataPercent = 95
	// readerTime is how long replicas let a backup in that begins now.
	readerTime = 30 * 24 * time.Hour
	// leaveWait is how long the process waits at its end for workers that it has killed.
	leaveWait = time.Second
)

// States of a backup.
const (
	backupRuns, backupComplete, backupFailed = "in_progress", "complete", "error"
)

// backups are the backups of an engine process, and its restore.
type backups struct {
	p      *engineProcess
	ctx    context.Context
	cancel context.CancelCauseFunc
	work   sync.WaitGroup

	mu   sync.Mutex
	jobs map[string]*enginev1.Backup
	// ended are names, the oldest first.
	ended []string
	// restore is the URL of the backup that is restored, or was last; restoring: now. damage names the
	// ranges of it that the store did not have, and that are zero.
	restore, damage string
	restoring       bool
}

var errNegativeBandwidth = errors.New("the bandwidth of backups is negative; 0 means no bound")

var errEngineEnds = errors.New("the engine has ended; ask again, and what is in the store is not sent again")

func (b *backups) init(p *engineProcess) {
	b.p, b.jobs = p, map[string]*enginev1.Backup{}
	b.ctx, b.cancel = context.WithCancelCause(context.Background())
}

// end ends all workers, and waits for those that end.
func (b *backups) end() {
	b.cancel(errEngineEnds)
	done := make(chan struct{})
	go func() {
		b.work.Wait()
		close(done)
	}()
	wait := time.NewTimer(leaveWait)
	defer wait.Stop()
	select {
	case <-done:
	case <-wait.C:
	}
}

// show adds what is known to a state.
func (b *backups) show(m *enginev1.State) {
	b.mu.Lock()
	defer b.mu.Unlock()
	m.RestoreUrl, m.RestoreDamage, m.Backups = b.restore, b.damage, map[string]*enginev1.Backup{}
	for name, j := range b.jobs {
		m.Backups[name] = proto.CloneOf(j)
	}
}

// change changes a backup and tells watchers.
func (b *backups) change(name string, f func(*enginev1.Backup)) {
	b.mu.Lock()
	if j := b.jobs[name]; j != nil {
		f(j)
	}
	b.mu.Unlock()
	b.p.state.set(func(*published) {})
}

// add notes a backup that begins.
func (b *backups) add(j *enginev1.Backup) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if o := b.jobs[j.Name]; o != nil && o.State == backupRuns {
		return status.Errorf(codes.AlreadyExists, "backup %s of volume %s is already in progress", j.Name, b.p.cfg.VolumeName)
	}
	b.ended = slices.DeleteFunc(b.ended, func(n string) bool { return n == j.Name })
	b.jobs[j.Name] = j
	return nil
}

// finished notes how a backup has ended, and forgets old ones.
func (b *backups) finished(name string, err error) {
	b.change(name, func(j *enginev1.Backup) {
		j.State, j.Progress = backupComplete, 100
		if err != nil {
			j.State, j.Error, j.Progress = backupFailed, bounded(err.Error()), min(j.Progress, dataPercent)
		}
		b.ended = append(b.ended, name)
		for state, most := range map[string]int{backupComplete: keptComplete, backupFailed: keptFailed} {
			of := func(n string) bool { return b.jobs[n].State == state }
			n := 0
			for _, o := range b.ended {
				if of(o) {
					n++
				}
			}
			for ; n > most; n-- {
				i := slices.IndexFunc(b.ended, of)
				delete(b.jobs, b.ended[i])
				b.ended = slices.Delete(b.ended, i, i+1)
			}
		}
	})
}

// BackupCreate implements enginev1.EngineServer.
func (s *service) BackupCreate(ctx context.Context, r *enginev1.BackupCreateRequest) (*enginev1.Backup, error) {
	b := &s.p.backups
	order, err := b.createOrder(r)
	if err != nil {
		return nil, err
	}
	t, err := backuptarget.Parse(r.Target)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	o := backuptarget.Object{Target: t, Volume: s.p.cfg.VolumeName, Backup: order.Create.Backup}
	if err := b.add(&enginev1.Backup{Name: o.Backup, Url: o.URL(), Snapshot: r.Snapshot, State: backupRuns}); err != nil {
		return nil, err
	}
	v, err := b.openSnapshot(ctx, r.Snapshot)
	if err != nil {
		b.finished(o.Backup, err)
		return nil, statusOf(err)
	}
	b.change(o.Backup, func(j *enginev1.Backup) { j.FromAddress = "tcp://" + v.opened.From })
	order.SizeBytes = v.opened.Size
	if at, err := time.Parse(time.RFC3339, v.opened.Created); err == nil {
		order.Create.SnapshotCreated = at
	}
	begun, ended := make(chan struct{}), make(chan error, 1)
	b.work.Go(func() {
		err := b.create(order, v, sync.OnceFunc(func() { close(begun) }))
		b.finished(o.Backup, err)
		ended <- err
	})
	select {
	case <-begun:
	case err = <-ended:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if err != nil {
		return nil, backupStatus(err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return proto.CloneOf(b.jobs[o.Backup]), nil
}

// createOrder is what a worker is told.
func (b *backups) createOrder(r *enginev1.BackupCreateRequest) (worker.Order, error) {
	o := backup.CreateOptions{Volume: b.p.cfg.VolumeName, Backup: r.Name, Snapshot: r.Snapshot, Labels: r.Labels,
		Parameters: maps.Clone(r.Parameters), Full: r.Parameters[format.ModeParameter] == format.ModeFull,
		Compression: format.Compression(r.CompressionMethod), Workers: int(r.ConcurrentLimit),
		BackingImage: r.BackingImageName, BackingImageChecksum: r.BackingImageChecksum, StorageClass: r.StorageClassName}
	if o.Backup == "" {
		var random [8]byte
		_, _ = rand.Read(random[:]) // it never fails
		o.Backup = "backup-" + hex.EncodeToString(random[:])
	}
	refused := func(err error) (worker.Order, error) {
		return worker.Order{}, status.Error(codes.InvalidArgument, bounded(err.Error()))
	}
	if err := format.CheckName(o.Backup); err != nil {
		return refused(fmt.Errorf("backup %w", err))
	}
	var err error
	if o.BlockBytes, err = format.ParseBlockBytes(r.Parameters[format.BlockSizeParameter]); err != nil {
		return refused(err)
	}
	if r.NodeBandwidth < 0 {
		return refused(errNegativeBandwidth)
	}
	return worker.Order{Do: worker.Create, Target: r.Target, Credentials: r.Credentials, Create: o,
		BytesPerSecond: r.NodeBandwidth}, nil
}

// create has a worker make a backup. begun is called when it is known what there is to do.
func (b *backups) create(order worker.Order, v *snapshotVolume, begun func()) error {
	defer v.close()
	name := order.Create.Backup
	result, err := worker.Run(b.ctx, worker.Job{Env: workerEnvironment(), Order: order,
		Volume: v, Report: func(_ context.Context, r worker.Report) error {
			percent := int32(0)
			if r.Total > 0 {
				percent = int32(int64(dataPercent) * int64(r.Done) / int64(r.Total))
			}
			b.change(name, func(j *enginev1.Backup) {
				j.Progress, j.Incremental = max(j.Progress, percent), r.Incremental
			})
			if r.Begun {
				begun()
			}
			return nil
		}})
	var made worker.Created
	if err == nil {
		err = json.Unmarshal(result, &made)
	}
	b.change(name, func(j *enginev1.Backup) { j.Incremental = j.Incremental || made.Incremental })
	b.p.cfg.Log.Info("backup has ended", "backup", name, "error", err, "incremental", made.Incremental, "bytes",
		made.NewBytes+made.RewrittenBytes)
	return err
}

// workerEnvironment is this process's without what belongs to the volume.
func workerEnvironment() []string {
	return slices.DeleteFunc(os.Environ(), func(e string) bool {
		return strings.HasPrefix(e, "ANKOLE_VOLUME_") || strings.HasPrefix(e, "ANKOLE_TLS_DIR=")
	})
}

// backupStatus maps errors of backups to codes.
func backupStatus(err error) error {
	for _, rule := range []struct {
		code  codes.Code
		marks []error
	}{
		{codes.NotFound, []error{backup.ErrNotFound}},
		{codes.AlreadyExists, []error{backup.ErrExists, errRestored}},
		{codes.InvalidArgument, []error{backuptarget.ErrURL}},
		{codes.FailedPrecondition, []error{backup.ErrInProgress, format.ErrCorrupt, encryption.ErrNoKey}},
		{codes.Unavailable, []error{worker.ErrHeld, worker.ErrGivenUp, errEngineEnds}},
	} {
		for _, m := range rule.marks {
			if errors.Is(err, m) {
				return status.Error(rule.code, bounded(err.Error()))
			}
		}
	}
	return statusOf(err)
}

// storeName tells stores apart in marks of volumes.
func storeName(t *backuptarget.Target) string {
	sum := sha256.Sum256([]byte(t.String()))
	return hex.EncodeToString(sum[:16])
}
