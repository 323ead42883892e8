package daemon

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	enginev1 "ankole.storage/api/rpc/engine/v1"
	"ankole.storage/backup"
	backuptarget "ankole.storage/backup/target"
	"ankole.storage/backup/worker"
	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/engine"
	"ankole.storage/dataplane/frontend"
)

// snapshotVolume is a snapshot as a worker reads it.
type snapshotVolume struct {
	p      *engineProcess
	opened engine.OpenedSnapshot
}

// openSnapshot begins to read a snapshot.
func (b *backups) openSnapshot(ctx context.Context, name string) (*snapshotVolume, error) {
	got := make(chan engine.OpenedSnapshot, 1)
	err := b.p.ask(ctx, func(reply func(error)) any {
		return engine.OpenSnapshot{Snapshot: name, Expires: time.Now().Add(readerTime).Unix(),
			Reply: func(o engine.OpenedSnapshot, err error) {
				got <- o
				reply(err)
				if ctx.Err() != nil && err == nil {
					(&snapshotVolume{b.p, o}).close() // nobody waits for it
				}
			}}
	})
	if err != nil {
		return nil, err
	}
	return &snapshotVolume{b.p, <-got}, nil
}

func (v *snapshotVolume) close() {
	if l := v.p.current(); l != nil {
		l.loop.Post(engine.CloseSnapshot{ID: v.opened.ID})
	}
}

// Changed implements worker.Volume.
func (v *snapshotVolume) Changed(ctx context.Context, since backup.Base, offset int64) ([]backup.Extent, int64,
	error) {
	if since.Snapshot != "" && v.opened.Snapshots[since.Snapshot] != since.Created.UTC().Format(time.RFC3339) {
		return nil, 0, backup.ErrNoBase
	}
	type page struct {
		ranges [][2]int64
		next   int64
	}
	got := make(chan page, 1)
	err := v.p.ask(ctx, func(reply func(error)) any {
		return engine.ListSnapshot{ID: v.opened.ID, Since: since.Snapshot, Off: offset,
			Reply: func(ranges [][2]int64, next int64, err error) {
				got <- page{ranges, next}
				reply(err)
			}}
	})
	switch {
	case since.Snapshot != "" && errors.Is(err, engine.ErrNotFound):
		return nil, 0, backup.ErrNoBase
	case err != nil:
		return nil, 0, err
	}
	p := <-got
	extents := make([]backup.Extent, len(p.ranges))
	for i, r := range p.ranges {
		extents[i] = backup.Extent{Offset: r[0], Length: r[1] - r[0]}
	}
	return extents, p.next, nil
}

// ReadAt implements worker.Volume.
func (v *snapshotVolume) ReadAt(ctx context.Context, p []byte, offset int64) error {
	return v.p.ask(ctx, func(reply func(error)) any {
		return engine.ReadSnapshot{ID: v.opened.ID, Off: offset, Data: p, Reply: reply}
	})
}

var errReadOnly = errors.New("a snapshot is not written")

// WriteAt implements worker.Volume.
func (v *snapshotVolume) WriteAt(context.Context, []byte, int64) error { return errReadOnly }

// ZeroAt implements worker.Volume.
func (v *snapshotVolume) ZeroAt(context.Context, int64, int64) error { return errReadOnly }

// restoredVolume is the volume as a worker restores to it.
type restoredVolume struct{ p *engineProcess }

var errWriteOnly = errors.New("a restore reads nothing of the volume")

// Changed implements worker.Volume.
func (v *restoredVolume) Changed(context.Context, backup.Base, int64) ([]backup.Extent, int64, error) {
	return nil, 0, errWriteOnly
}

// ReadAt implements worker.Volume.
func (v *restoredVolume) ReadAt(context.Context, []byte, int64) error { return errWriteOnly }

// WriteAt implements worker.Volume.
func (v *restoredVolume) WriteAt(ctx context.Context, p []byte, offset int64) error {
	return v.do(ctx, frontend.Request{Kind: block.Write, Off: offset, Len: int64(len(p))}, p)
}

// ZeroAt implements worker.Volume.
func (v *restoredVolume) ZeroAt(ctx context.Context, offset, length int64) error {
	return v.do(ctx, frontend.Request{Kind: block.WriteZeroes, Unmap: true, Off: offset, Len: length}, nil)
}

func (v *restoredVolume) do(ctx context.Context, r frontend.Request, data []byte) error {
	return v.p.ask(ctx, func(reply func(error)) any {
		return engine.RestoreIO{Outside: engine.Outside{Request: r, Data: data, Done: func(code block.Code) {
			if code == block.OK {
				reply(nil)
				return
			}
			reply(fmt.Errorf("%d bytes at %d of volume %s: %w", r.Len, r.Off, v.p.cfg.VolumeName, code))
		}}}
	})
}

// errRestored: the volume holds the backup already.
var errRestored = errors.New("already restored backup")

// BackupRestore implements enginev1.EngineServer.
func (s *service) BackupRestore(ctx context.Context, r *enginev1.BackupRestoreRequest) (*enginev1.State, error) {
	o, err := backuptarget.ParseObject(r.Url)
	if err == nil && o.Backup == "" {
		err = fmt.Errorf("%w: %s names no backup", backuptarget.ErrURL, o)
	}
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	b := &s.p.backups
	b.mu.Lock()
	if b.restoring {
		defer b.mu.Unlock()
		return nil, status.Errorf(codes.FailedPrecondition,
			"cannot initiate backup restore as there is one already in progress: backup %s", b.restore)
	}
	b.restoring, b.restore = true, o.URL()
	b.mu.Unlock()
	begun, ended := make(chan struct{}), make(chan error, 1)
	b.work.Go(func() {
		err := b.restoreFrom(o, r, begun)
		b.mu.Lock()
		b.restoring = false
		b.mu.Unlock()
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
	return s.Get(ctx, nil)
}

// restoreFrom has a worker restore a backup. begun is closed when the volume is marked for it.
func (b *backups) restoreFrom(o backuptarget.Object, r *enginev1.BackupRestoreRequest, begun chan<- struct{}) error {
	order := worker.Order{Do: worker.Restore, Target: o.Target.URL(), Credentials: r.Credentials,
		Restore: backup.RestoreOptions{Volume: o.Volume, Backup: o.Backup, Workers: int(r.ConcurrentLimit)}}
	began := false
	_, err := worker.Run(b.ctx, worker.Job{Env: workerEnvironment(), Order: order,
		Volume: &restoredVolume{b.p}, Report: func(ctx context.Context, report worker.Report) error {
			if report.Begun && !began {
				if err := b.beginRestore(ctx, o, r.Name, report.SizeBytes); err != nil {
					return err
				}
				began = true
				close(begun)
			}
			if l := b.p.current(); began && l != nil {
				l.loop.Post(engine.RestoreProgress{Done: int64(report.Done), Total: int64(report.Total)})
			}
			return nil
		}})
	if began {
		// Also where this process ends: the core is there for a moment.
		err = b.p.ask(context.Background(), func(reply func(error)) any {
			return engine.EndRestore{Reason: err, Reply: reply}
		})
	}
	b.p.cfg.Log.Info("restore has ended", "backup", o.Backup, "of", o.Volume, "error", err)
	return err
}

func (b *backups) beginRestore(ctx context.Context, o backuptarget.Object, name string, size int64) error {
	if name == "" {
		name = uuid.NewString()
	}
	return b.p.ask(ctx, func(reply func(error)) any {
		return engine.BeginRestore{Backup: o.Backup, Volume: o.Volume, Store: storeName(o.Target), Size: size, Name: name,
			Created: now(), Reply: func(whole bool, err error) {
				if whole {
					err = fmt.Errorf("%w %s", errRestored, o.Backup)
				}
				reply(err)
			}}
	})
}
