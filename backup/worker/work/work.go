// Package work is what a backup worker does: the other side of package worker. It is apart, because
// the programs that start workers are many, and are to have nothing of the clients of stores.
package work

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/rpc"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"ankole.storage/backup"
	"ankole.storage/backup/budget"
	"ankole.storage/backup/encryption"
	"ankole.storage/backup/object"
	"ankole.storage/backup/target"
	"ankole.storage/backup/worker"
)

const (
	// tellEvery is how often a worker tells that it is there.
	tellEvery = time.Second
	// niceness leaves the processors to users first.
	niceness = 10
	// memoryLimit is where the worker collects garbage more often.
	memoryLimit = 60 << 20
)

// process is this process while it works.
type process struct {
	parent *rpc.Client
	order  worker.Order
	shared worker.Memory
	places chan int   // those of the memory that are free
	mu     sync.Mutex // guards the fields below
	store  *watched   // nil before it is known
	report worker.Report
}

// Main is a worker process, with what it was started with. It returns when the order is carried
// out, or the other process is gone. resolve turns the path of a directory into the one to open.
func Main(ctx context.Context, resolve func(string) string) error {
	conn, shared, err := worker.Inherited()
	if err != nil {
		return err
	}
	debug.SetMemoryLimit(memoryLimit)
	beNice()
	w := &process{parent: rpc.NewClient(conn), shared: shared, places: make(chan int, worker.Pieces)}
	for place := range worker.Pieces {
		w.places <- place
	}
	defer w.parent.Close()
	if err := w.parent.Call("Parent.Order", struct{}{}, &w.order); err != nil {
		return fmt.Errorf("backup worker: %w", err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	told := make(chan struct{})
	go func() {
		defer close(told)
		w.tellAlways(ctx, cancel)
	}()
	end := worker.End{Mark: -1}
	result, err := w.carryOut(ctx, resolve)
	if err == nil {
		end.Result, err = json.Marshal(result)
	}
	if err != nil {
		end.Error = err.Error()
		for i, m := range worker.Marks {
			if errors.Is(err, m) {
				end.Mark = i
			}
		}
		if d := (*backup.DamageError)(nil); errors.As(err, &d) {
			end.Damage = d.Damage
		}
	}
	cancel(nil)
	<-told
	return w.parent.Call("Parent.End", end, &struct{}{})
}

// beNice gives the worker's threads a low priority; later ones have that of the thread that made
// them.
func beNice() {
	threads, err := filepath.Glob("/proc/self/task/*")
	if err != nil {
		return
	}
	for _, t := range threads {
		if id, err := strconv.Atoi(filepath.Base(t)); err == nil {
			_ = unix.Setpriority(unix.PRIO_PROCESS, id, niceness) // without it the work is done all the same
		}
	}
}

var errAlone = errors.New("the process that has started this backup worker is gone")

// tellAlways tells how the work stands until ctx ends. It ends the work when nobody hears it.
func (w *process) tellAlways(ctx context.Context, cancel context.CancelCauseFunc) {
	tick := time.NewTicker(tellEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			w.mu.Lock()
			r, store := w.report, w.store
			w.mu.Unlock()
			if store != nil {
				r.Waits = store.waits()
				store.keepOut(r.Waits > w.order.GiveUp/2)
			}
			if err := w.parent.Call("Parent.Tell", r, &struct{}{}); err != nil {
				cancel(errAlone)
				return
			}
		}
	}
}

// tell changes the report; what is begun is told at once.
func (w *process) tell(change func(*worker.Report)) error {
	w.mu.Lock()
	before := w.report
	change(&w.report)
	now := w.report
	w.mu.Unlock()
	if now.Begun == before.Begun {
		return nil
	}
	return w.parent.Call("Parent.Tell", now, &struct{}{})
}

// carryOut opens the store and does what was ordered.
func (w *process) carryOut(ctx context.Context, resolve func(string) string) (any, error) {
	o := &w.order
	for _, k := range target.ProxyKeys {
		if v := o.Credentials[k]; v != "" {
			if err := os.Setenv(k, v); err != nil {
				return nil, errors.New(k + " of the Secret cannot be used")
			}
		}
	}
	t, err := target.Parse(o.Target)
	if err != nil {
		return nil, err
	}
	keys, err := encryption.Parse(o.Credentials[encryption.Variable], o.Credentials[encryption.OldVariable])
	if err != nil {
		return nil, fmt.Errorf("%s: %w", t, err)
	}
	o.Create.Keys, o.Restore.Keys, o.Verify.Keys = keys, keys, keys
	o.CreateImage.Keys, o.RestoreImage.Keys = keys, keys
	limit, err := budget.Open(budget.Folder(resolve), o.BytesPerSecond) // the mount of a share hides it
	if err != nil {
		return nil, err
	}
	defer limit.Close()
	entered, err := w.enter(ctx, t, resolve)
	if err != nil {
		return nil, err
	}
	store := limit.Limit(entered)
	switch o.Do {
	case worker.Create:
		o.Create.Progress = w.progress
		record, err := backup.Create(ctx, store, &source{w}, o.Create)
		if err != nil {
			return nil, err
		}
		return worker.Created{Incremental: record.Incremental, NewBytes: record.NewBytes,
			RewrittenBytes: record.RewrittenBytes}, nil
	case worker.Restore:
		return w.restore(ctx, store)
	case worker.CreateImage:
		o.CreateImage.Progress = w.progress
		i, err := backup.CreateImage(ctx, store, &source{w}, o.CreateImage)
		return imageInfo(t, i), err
	case worker.RestoreImage:
		o.RestoreImage.Progress = w.progress
		o.RestoreImage.Begin = func(size int64) error {
			return w.tell(func(r *worker.Report) { r.Begun, r.Restoring.SizeBytes = true, size })
		}
		i, err := backup.RestoreImage(ctx, store, &volume{w}, o.RestoreImage)
		return imageInfo(t, i), err
	}
	return browse(ctx, store, t, o)
}

// progress is told with the next report.
func (w *process) progress(done, total int) {
	_ = w.tell(func(r *worker.Report) { r.Done, r.Total = done, total }) // the next report says it
}

func (w *process) restore(ctx context.Context, store object.Store) (any, error) {
	o := w.order.Restore
	o.Begin = func(b backup.Beginning) error {
		return w.tell(func(r *worker.Report) { r.Begun, r.Restoring = true, b })
	}
	o.Progress = w.progress
	return backup.Restore(ctx, store, &volume{w}, o)
}

// source is the snapshot, which the other process reads.
type source struct{ *process }

// SizeBytes implements backup.Source.
func (s *source) SizeBytes() int64 { return s.order.SizeBytes }

// Changed implements backup.Source.
func (s *source) Changed(ctx context.Context, since backup.Base) iter.Seq2[backup.Extent, error] {
	return func(yield func(backup.Extent, error) bool) {
		for offset := int64(0); offset >= 0; {
			var page worker.Extents
			err := s.parent.Call("Parent.Changed", worker.Page{Since: since, Offset: offset}, &page)
			if err == nil && page.NoBase {
				err = backup.ErrNoBase
			}
			if err == nil {
				err = ctx.Err()
			}
			if err != nil {
				yield(backup.Extent{}, err)
				return
			}
			for _, e := range page.Extents {
				if !yield(e, nil) {
					return
				}
			}
			offset = page.Next
		}
		if err := s.tell(func(r *worker.Report) { r.Begun, r.Incremental = true, since.Snapshot != "" }); err != nil {
			yield(backup.Extent{}, err)
		}
	}
}

// ReadAt implements backup.Source.
func (s *source) ReadAt(ctx context.Context, p []byte, offset int64) error {
	return s.inPieces(ctx, p, offset, func(q worker.Piece, part, place []byte) error {
		err := s.parent.Call("Parent.Read", q, &struct{}{})
		if err == nil {
			copy(part, place)
		}
		return err
	})
}

// inPieces calls do for each piece of what p is for, side by side, with its part of p and its place
// in the memory that is shared.
func (w *process) inPieces(ctx context.Context, p []byte, offset int64,
	do func(q worker.Piece, part, place []byte) error) error {
	group, ctx := errgroup.WithContext(ctx)
	for part := range slices.Chunk(p, worker.PieceBytes) {
		q := worker.Piece{Offset: offset, Length: int64(len(part))}
		offset += q.Length
		select {
		case q.Place = <-w.places:
		case <-ctx.Done():
			if err := group.Wait(); err != nil {
				return err
			}
			return context.Cause(ctx)
		}
		group.Go(func() error {
			defer func() { w.places <- q.Place }()
			place, err := w.shared.Place(q.Place, q.Length)
			if err != nil {
				return err
			}
			return do(q, part, place)
		})
	}
	return group.Wait()
}

// volume is what is restored to, which the other process writes.
type volume struct{ *process }

// WriteAt implements io.WriterAt.
func (v *volume) WriteAt(p []byte, offset int64) (int, error) {
	err := v.inPieces(context.Background(), p, offset, func(q worker.Piece, part, place []byte) error {
		copy(place, part)
		return v.parent.Call("Parent.Write", q, &struct{}{})
	})
	if err != nil {
		return 0, err
	}
	return len(p), nil
}

// ZeroAt implements backup.Target.
func (v *volume) ZeroAt(offset, length int64) error {
	return v.parent.Call("Parent.Zero", worker.Range{Offset: offset, Length: length}, &struct{}{})
}
