package daemon

import (
	"context"
	"encoding/json"
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

// openSnapshot begins to read a snapshot. Whoever gets it closes it, also when ctx has ended since:
// that of a call ends with its answer.
func (b *backups) openSnapshot(ctx context.Context, name string) (*snapshotVolume, error) {
	got := make(chan engine.OpenedSnapshot, 1)
	err := b.p.ask(ctx, func(reply func(error)) any {
		return engine.OpenSnapshot{Snapshot: name, Expires: time.Now().Add(readerTime).Unix(),
			Reply: func(o engine.OpenedSnapshot, err error) {
				got <- o
				reply(err)
			}}
	})
	if err != nil && ctx.Err() != nil {
		b.work.Go(func() { // it may be opened still, for nobody
			select {
			case o := <-got:
				(&snapshotVolume{b.p, o}).close()
			case <-b.ctx.Done():
			}
		})
	}
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
	if err == nil && r.NodeBandwidth < 0 {
		err = errNegativeBandwidth
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
	b.restoring, b.restore, b.damage = true, o.URL(), ""
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

// restoreFrom has a worker restore a backup: the difference to the one that the volume holds, or
// all of it where there is none, or it is not in the store any more. begun is closed when the
// volume is marked for it.
func (b *backups) restoreFrom(o backuptarget.Object, r *enginev1.BackupRestoreRequest, begun chan<- struct{}) error {
	held, created, err := b.held(b.ctx, o)
	switch {
	case err != nil:
		return err
	case held == o.Backup:
		return fmt.Errorf("%w %s", errRestored, o.Backup)
	}
	t := &restoring{b: b, of: o, from: held, name: r.Name, begun: begun}
	order := worker.Order{Do: worker.Restore, Target: o.Target.URL(), Credentials: r.Credentials,
		BytesPerSecond: r.NodeBandwidth,
		Restore: backup.RestoreOptions{Volume: o.Volume, Backup: o.Backup, From: held, FromCreated: created,
			Workers: int(r.ConcurrentLimit), AcceptDamage: r.AcceptDamage}}
	if err = t.run(order); errors.Is(err, backup.ErrNoBase) {
		b.p.cfg.Log.Info("the backup that the volume holds is no base", "backup", held, "error", err)
		t.from, order.Restore.From = "", ""
		err = t.run(order)
	}
	b.p.cfg.Log.Info("restore has ended", "backup", o.Backup, "of", o.Volume, "from", t.from, "error", err)
	return err
}

// held is the backup that the volume holds, and when that was made; "" for none.
func (b *backups) held(ctx context.Context, o backuptarget.Object) (string, time.Time, error) {
	type answer struct{ backup, created string }
	got := make(chan answer, 1)
	err := b.p.ask(ctx, func(reply func(error)) any {
		return engine.HeldBackup{Volume: o.Volume, Store: storeName(o.Target),
			Reply: func(backup, created string, err error) {
				got <- answer{backup, created}
				reply(err)
			}}
	})
	if err != nil {
		return "", time.Time{}, err
	}
	a := <-got
	at, err := time.Parse(time.RFC3339, a.created)
	if err != nil && a.backup != o.Backup { // an engine before this rule has restored it
		a.backup = ""
	}
	return a.backup, at, nil
}

// restoring is a restore that a worker carries out.
type restoring struct {
	b          *backups
	of         backuptarget.Object
	from, name string
	began      bool
	begun      chan<- struct{}
}

func (t *restoring) run(order worker.Order) error {
	result, err := worker.Run(t.b.ctx, worker.Job{Env: workerEnvironment(), Order: order,
		Volume: &restoredVolume{t.b.p}, Report: func(ctx context.Context, report worker.Report) error {
			if report.Begun && !t.began {
				if err := t.begin(ctx, report); err != nil {
					return err
				}
				t.began = true
				close(t.begun)
			}
			if l := t.b.p.current(); t.began && l != nil {
				l.loop.Post(engine.RestoreProgress{Done: int64(report.Done), Total: int64(report.Total)})
			}
			return nil
		}})
	if err == nil {
		err = t.noteDamage(result)
	}
	if t.began {
		// Also where this process ends: the core is there for a moment.
		err = t.b.p.ask(context.Background(), func(reply func(error)) any {
			return engine.EndRestore{Reason: err, Reply: reply}
		})
	}
	return err
}

// noteDamage keeps what became zero, before the restore is told to be complete.
func (t *restoring) noteDamage(result []byte) error {
	var done backup.Restored
	if err := json.Unmarshal(result, &done); err != nil {
		return fmt.Errorf("the backup worker's result cannot be read: %w", err)
	}
	t.b.mu.Lock()
	defer t.b.mu.Unlock()
	t.b.damage = backup.RangesOf(done.Damage)
	return nil
}

func (t *restoring) begin(ctx context.Context, report worker.Report) error {
	if t.name == "" {
		t.name = uuid.NewString()
	}
	return t.b.p.ask(ctx, func(reply func(error)) any {
		r := report.Restoring
		return engine.BeginRestore{Backup: t.of.Backup, BackupCreated: r.Created.UTC().Format(time.RFC3339),
			From: t.from, Volume: t.of.Volume, Store: storeName(t.of.Target), Size: r.SizeBytes, Image: r.Image, Name: t.name,
			Created: now(), Reply: func(whole bool, err error) {
				if whole {
					err = fmt.Errorf("%w %s", errRestored, t.of.Backup)
				}
				reply(err)
			}}
	})
}
