package files

import (
	"context"
	"errors"
	"time"

	"ankole.storage/dataplane/backingimage"
	"ankole.storage/dataplane/backingimage/store"
	"ankole.storage/dataplane/disk"
)

// Scrubbing is when complete files are read again: what a disk has changed, with the time of the
// file as it was, shows in no other way.
type Scrubbing struct {
	// Every is how long ago a file may have been read last. Look is how often that is looked at.
	Every, Look time.Duration
	// Pause is between two pieces of 1 MiB: the disk is there for volumes.
	Pause time.Duration
}

// Scrub reads files again, one at a time, until the set is closed.
func (s *Set) Scrub(c Scrubbing) {
	s.work.Go(func() {
		look := time.NewTicker(c.Look)
		defer look.Stop()
		for {
			select {
			case <-look.C:
			case <-s.ctx.Done():
				return
			}
			for _, i := range s.List() {
				if s.due(i.ID, time.Now().Add(-c.Every)) {
					s.scrub(i.ID, c.Pause)
				}
			}
		}
	})
}

// due says whether a file was not read since a time.
func (s *Set) due(id backingimage.ID, since time.Time) bool {
	read, err := s.disk.LastRead(s.places(s.disk.Root(), id))
	return err != nil || read.Before(since)
}

// scrub reads a file if it is complete. One that is damaged is not served any more.
func (s *Set) scrub(id backingimage.ID, pause time.Duration) {
	next := time.NewTicker(pause)
	defer next.Stop()
	err := s.Read(s.ctx, id, func(ctx context.Context, _ disk.File, i Image) error {
		_, err := s.disk.Verify(id, s.places(s.disk.Root(), id), i.File.Checksum, func(int64) error {
			select {
			case <-next.C:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
		return err
	})
	if !errors.Is(err, store.ErrDamaged) && !errors.Is(err, disk.ErrIO) {
		return // not complete, or not wanted any more; anything else is tried again
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.files[id]; e != nil {
		_ = s.tell(e, backingimage.Damaged{Reason: err.Error()}) // it may be told at any time
	}
}
