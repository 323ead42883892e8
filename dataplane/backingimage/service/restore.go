package service

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"

	"ankole.storage/backup"
	"ankole.storage/backup/target"
	"ankole.storage/backup/worker"
	"ankole.storage/dataplane/backingimage"
	"ankole.storage/dataplane/backingimage/files"
	"ankole.storage/dataplane/backingimage/source"
	"ankole.storage/dataplane/backingimage/store"
)

// parameterBackup is the URL of the backup that is restored.
const parameterBackup = "backup-url"

// maxOrder bounds an order, in bytes: credentials have certificates.
const maxOrder = 1 << 20

// readOrder reads an order. What it says is in no error, since it has credentials.
func readOrder(w http.ResponseWriter, q *http.Request, into any) error {
	if err := json.NewDecoder(http.MaxBytesReader(w, q.Body, maxOrder)).Decode(into); err != nil {
		return fmt.Errorf("%w: the order cannot be read", source.ErrRefused)
	}
	return nil
}

// RestoreOrder is what it takes to read a backup. It comes with a request, since no argument of a
// process may have credentials.
type RestoreOrder struct {
	Credentials     map[string]string `json:"credentials"`
	ConcurrentLimit int               `json:"concurrentLimit"`
	// NodeBandwidth is how many bytes per second backups and restores of the node send and read at
	// most, together; 0 is no limit.
	NodeBandwidth int64 `json:"nodeBandwidth"`
}

// checkRestore says what a restore lacks.
func (cfg *SourceConfig) checkRestore() error {
	if _, err := target.ParseImage(cfg.Parameters[parameterBackup]); err != nil {
		return fmt.Errorf("source type %s: parameter %s: %w", TypeRestore, parameterBackup, err)
	}
	return nil
}

// restoreFile is the maker of a file that a store has, once somebody has brought the credentials.
func (s *Source) restoreFile(ctx context.Context, run files.Run) (backingimage.Record, error) {
	from, err := target.ParseImage(s.cfg.Parameters[parameterBackup])
	if err != nil {
		return backingimage.Record{}, err
	}
	run.Waits("the order to restore is waited for")
	var order RestoreOrder
	select {
	case order = <-s.restores:
	case <-ctx.Done():
		return backingimage.Record{}, ctx.Err()
	}
	run.Begun()
	making, err := s.disk.Create(backingimage.InSource(s.disk.Root(), s.cfg.ID), s.cfg.ID.UUID)
	if err != nil {
		return backingimage.Record{}, err
	}
	sum, err := s.restore(ctx, run, from, order, making)
	switch {
	case err != nil:
	case s.cfg.Checksum != "" && sum != "" && sum != s.cfg.Checksum:
		err = fmt.Errorf("%w: the backup is of an image of SHA-512 %s, and not %s as expected", store.ErrDamaged, sum,
			s.cfg.Checksum)
	}
	if err != nil {
		return backingimage.Record{}, errors.Join(fmt.Errorf("backup of backing image %s: %w", from.Name, err),
			making.Abort())
	}
	if s.cfg.Checksum != "" {
		sum = s.cfg.Checksum
	}
	return making.PublishRead(sum, func(int64) error { return ctx.Err() })
}

// restore has a worker write a backup to a file, and returns the checksum that its record has.
func (s *Source) restore(ctx context.Context, run files.Run, from target.Image, order RestoreOrder,
	making *store.Making) (string, error) {
	o := worker.Order{Do: worker.RestoreImage, Target: from.Target.URL(), Credentials: order.Credentials,
		BytesPerSecond: order.NodeBandwidth,
		RestoreImage:   backup.ImageRestoreOptions{Image: from.Name, Workers: order.ConcurrentLimit}}
	to := &fileWriter{making: making}
	result, err := worker.Run(ctx, worker.Job{Command: s.cfg.Worker, Order: o, Volume: to,
		Report: func(_ context.Context, r worker.Report) error {
			if r.Begun && !to.sized.Load() {
				if err := making.Resize(r.Restoring.SizeBytes); err != nil {
					return err
				}
				to.sized.Store(true)
			}
			if r.Total > 0 {
				run.Received(int64(r.Done), int64(r.Total))
			}
			return nil
		}})
	if err != nil {
		return "", err
	}
	var record worker.Image
	if err := json.Unmarshal(result, &record); err != nil {
		return "", fmt.Errorf("the answer of the backup worker: %w", err)
	}
	return record.Checksum, nil
}

// fileWriter is a file that a worker writes.
type fileWriter struct {
	making *store.Making
	// sized: its size is known. The worker tells it before it writes.
	sized atomic.Bool
}

// Changed implements worker.Volume.
func (w *fileWriter) Changed(context.Context, backup.Base, int64) ([]backup.Extent, int64, error) {
	return nil, 0, errors.New("a file that is restored is not read")
}

// ReadAt implements worker.Volume.
func (w *fileWriter) ReadAt(context.Context, []byte, int64) error {
	return errors.New("a file that is restored is not read")
}

// WriteAt implements worker.Volume.
func (w *fileWriter) WriteAt(_ context.Context, p []byte, offset int64) error {
	if !w.sized.Load() {
		return errors.New("the backup worker writes before it tells the size of the image")
	}
	buffer := aligned(int64(len(p)))[:len(p)]
	copy(buffer, p)
	return w.making.WriteAt(buffer, offset)
}

// ZeroAt implements worker.Volume.
func (w *fileWriter) ZeroAt(_ context.Context, offset, length int64) error {
	return w.making.Punch(offset, length)
}

// beginRestore gives the order to restore to who waits for it.
func (s *Source) beginRestore(w http.ResponseWriter, q *http.Request) error {
	if s.cfg.Type != TypeRestore {
		return fmt.Errorf("%w: this image is made by a %s, and not by a restore", source.ErrRefused, s.cfg.Type)
	}
	var order RestoreOrder
	if err := readOrder(w, q, &order); err != nil {
		return err
	}
	select {
	case s.restores <- order:
		return nil
	default:
	}
	state := s.status()
	return fmt.Errorf("%w: no order to restore is waited for: the file is %s %s", files.ErrConflict, state.State,
		state.Message)
}
