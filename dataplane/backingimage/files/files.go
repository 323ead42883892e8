// Package files runs the state machines of a disk's backing images: it makes files, reads those
// that it finds, lends them to readers and removes them, as package backingimage decides. How a
// file is made is a Maker of the caller.
package files

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"ankole.storage/dataplane/backingimage"
	"ankole.storage/dataplane/backingimage/store"
	"ankole.storage/dataplane/disk"
)

// MaxSends is how many files are sent to other disks at the same time.
const MaxSends = 3

// Errors, beside those of package backingimage.
var (
	// ErrBusy: as many files are sent as may be.
	ErrBusy = errors.New("busy")
	// ErrConflict: the order contradicts an earlier one.
	ErrConflict = errors.New("conflict")
)

// Maker makes a file, and returns its record when it has its name. After an error nothing of it is
// left. The context ends when the file is not wanted any more.
type Maker func(ctx context.Context, run Run) (backingimage.Record, error)

// Run is how a maker tells how far it is.
type Run struct {
	set *Set
	e   *entry
}

// Waits tells what a run that has not begun waits for.
func (r Run) Waits(reason string) {
	r.set.mu.Lock()
	defer r.set.mu.Unlock()
	if r.e.file.State == backingimage.Pending && r.e.file.Message != reason {
		r.e.file.Message = reason
		r.set.notify()
	}
}

// Begun tells that the run has its turn.
func (r Run) Begun() { r.tell(backingimage.Begun{}) }

// Received tells how many bytes are there; total is 0 if it is not known.
func (r Run) Received(done, total int64) {
	r.tell(backingimage.Received{Done: done, Total: max(total, 0)})
}

func (r Run) tell(e backingimage.Event) {
	r.set.mu.Lock()
	defer r.set.mu.Unlock()
	_ = r.set.tell(r.e, e) // a run may say these at any time
}

// Image is what is known of one file.
type Image struct {
	ID     backingimage.ID
	File   backingimage.File
	Record backingimage.Record
	// Path is that of the file; Expected is the checksum of the order, Sender where the file is
	// copied from.
	Path, Expected, Sender string
}

// Places gives the paths of a file on a disk.
type Places func(root string, id backingimage.ID) backingimage.Paths

// Set is the files of one disk. It is safe for concurrent use.
type Set struct {
	disk   *store.Disk
	places Places
	source bool
	log    *slog.Logger

	ctx    context.Context
	cancel context.CancelFunc
	work   sync.WaitGroup
	// reading has one file at a time be read for its checksum.
	reading chan struct{}

	mu      sync.Mutex
	files   map[backingimage.ID]*entry
	sends   int
	changed chan struct{}
}

type entry struct {
	Image
	file    backingimage.File
	make    Maker
	cancel  context.CancelFunc
	readers map[*context.CancelFunc]struct{}
	// gone is closed when the file is removed, or has not been after all.
	gone chan struct{}
}

// New returns the files of a manager, or with source those of a data source.
func New(d *store.Disk, source bool, log *slog.Logger) *Set {
	s := &Set{disk: d, places: backingimage.InManager, source: source, log: log, reading: make(chan struct{}, 1),
		files: map[backingimage.ID]*entry{}, changed: make(chan struct{})}
	if source {
		s.places = backingimage.InSource
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// Close ends all that is under way, and waits for it.
func (s *Set) Close() {
	s.mu.Lock()
	s.cancel()
	s.mu.Unlock()
	s.work.Wait()
}

// Take takes in a file that was found on the disk.
func (s *Set) Take(f store.Found) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		return s.ctx.Err()
	}
	e := s.entry(f.ID)
	e.Record, e.make = f.Record, s.verify(f.ID)
	found := backingimage.Found{}
	if f.Proven {
		found.Checksum = f.Record.CurrentChecksum
	}
	return s.tell(e, found)
}

// verify is the maker of a file that is there.
func (s *Set) verify(id backingimage.ID) Maker {
	return func(ctx context.Context, run Run) (backingimage.Record, error) {
		select {
		case s.reading <- struct{}{}:
			defer func() { <-s.reading }()
		case <-ctx.Done():
			return backingimage.Record{}, ctx.Err()
		}
		return s.disk.Verify(id, s.places(s.disk.Root(), id), "", func(done int64) error {
			run.Received(done, 0)
			return ctx.Err()
		})
	}
}

// entry returns that of a file, a new one if there is none.
func (s *Set) entry(id backingimage.ID) *entry {
	e := s.files[id]
	if e == nil {
		e = &entry{Image: Image{ID: id, Path: s.places(s.disk.Root(), id).File}, file: backingimage.File{Source: s.source},
			readers: map[*context.CancelFunc]struct{}{}}
		s.files[id] = e
	}
	return e
}

// Order has a file made, unless it is there or under way. began says whether this order is why it
// is made. expected is its checksum, if anybody knows it.
func (s *Set) Order(id backingimage.ID, expected, sender string, maker Maker) (i Image, began bool, err error) {
	if err := errors.Join(id.Check(), backingimage.CheckChecksum(expected)); err != nil {
		return Image{}, false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		return Image{}, false, s.ctx.Err()
	}
	e := s.entry(id)
	if known := cmp.Or(e.file.Checksum, e.Expected); e.file.State != backingimage.Failed && expected != "" &&
		known != "" &&
		known != expected {
		return e.image(), false, fmt.Errorf("%w: image %s has SHA-512 %s, and not %s", ErrConflict, id, known, expected)
	}
	if !e.file.Known() || e.file.State == backingimage.Failed && !e.file.Removing && !e.file.Stored {
		e.make, e.Expected, e.Sender, e.Record = maker, expected, sender, backingimage.Record{}
		began = true
	}
	err = s.tell(e, backingimage.Ordered{})
	return e.image(), began && err == nil, err
}

func (e *entry) image() Image {
	i := e.Image
	i.File = e.file
	return i
}

// tell gives an event to a state machine, and does what follows. The caller holds the lock.
func (s *Set) tell(e *entry, event backingimage.Event) error {
	before := e.file
	after, actions, err := before.On(event)
	if err != nil {
		return err
	}
	e.file = after
	if before.State != after.State {
		s.log.Info("backing image", "image", e.ID.String(), "state", after.State, "before", before.State, "message",
			after.Message)
	}
	for _, a := range actions {
		s.act(e, a)
	}
	if before.Progress() != after.Progress() || before.State != after.State || before.Sending != after.Sending ||
		before.Removing != after.Removing {
		s.notify()
	}
	return nil
}

func (s *Set) notify() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// Changed returns what is closed at the next change.
func (s *Set) Changed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed
}

func (s *Set) act(e *entry, a backingimage.Action) {
	switch a {
	case backingimage.Make, backingimage.Verify:
		ctx, cancel := context.WithCancel(s.ctx)
		e.cancel = cancel
		maker := e.make
		s.work.Go(func() { s.run(ctx, e, maker) })
	case backingimage.Cancel:
		e.cancel()
	case backingimage.CancelSends:
		for cancel := range e.readers {
			(*cancel)()
		}
	case backingimage.Erase:
		s.work.Go(func() { s.erase(e) })
	case backingimage.Forget:
		s.drop(e)
	}
}

func (s *Set) run(ctx context.Context, e *entry, maker Maker) {
	defer e.cancel()
	record, err := maker(ctx, Run{s, e})
	s.mu.Lock()
	defer s.mu.Unlock()
	var event backingimage.Event
	if err == nil {
		e.Record, event = record, backingimage.Made{Checksum: record.CurrentChecksum}
	} else {
		event = backingimage.Broken{Reason: err.Error()}
	}
	if err := s.tell(e, event); err != nil {
		s.log.Error("the end of a run was not expected", "image", e.ID.String(), "err", err)
	}
}

// erase removes everything of an image, also what a data source has left of it.
func (s *Set) erase(e *entry) {
	err := errors.Join(s.disk.Check(), s.disk.Erase(s.places(s.disk.Root(), e.ID)))
	if !s.source {
		err = errors.Join(err, s.disk.Erase(backingimage.InSource(s.disk.Root(), e.ID)))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	event := backingimage.Erased{}
	if err != nil {
		event.Reason = "the file cannot be removed: " + err.Error()
	}
	if err := s.tell(e, event); err != nil {
		s.log.Error("the end of a removal was not expected", "image", e.ID.String(), "err", err)
	}
	if !e.file.Known() {
		s.drop(e)
		return
	}
	close(e.gone)
	e.gone = nil
}

// drop forgets a file, and tells who waits for that.
func (s *Set) drop(e *entry) {
	delete(s.files, e.ID)
	if e.gone != nil {
		close(e.gone)
	}
}

// Remove removes a file, with keep from memory alone, and waits until nothing uses it and it is
// gone. A file that is not known is backingimage.ErrUnknown.
func (s *Set) Remove(ctx context.Context, id backingimage.ID, keep bool) error {
	s.mu.Lock()
	e := s.files[id]
	if err := s.ctx.Err(); err != nil || e == nil {
		s.mu.Unlock()
		return cmp.Or(err, backingimage.ErrUnknown)
	}
	if e.gone == nil {
		e.gone = make(chan struct{})
	}
	gone := e.gone
	err := s.tell(e, backingimage.Removed{Keep: keep})
	s.mu.Unlock()
	if err != nil {
		return err
	}
	select {
	case <-gone:
	case <-ctx.Done():
		return ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.files[id] == e {
		return errors.New(e.file.Message)
	}
	return nil
}

// Get returns a file.
func (s *Set) Get(id backingimage.ID) (Image, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.files[id]; e != nil {
		return e.image(), nil
	}
	return Image{}, fmt.Errorf("backing image %s: %w", id, backingimage.ErrUnknown)
}

// List returns all files, by name.
func (s *Set) List() []Image {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]Image, 0, len(s.files))
	for _, e := range s.files {
		all = append(all, e.image())
	}
	slices.SortFunc(all, func(a, b Image) int { return strings.Compare(a.ID.String(), b.ID.String()) })
	return all
}

// Reader uses a complete file: it ends when the context does, which is when the file is not served
// any more.
type Reader func(ctx context.Context, f disk.File, i Image) error

// Read has a reader use a file, and waits for it.
func (s *Set) Read(ctx context.Context, id backingimage.ID, read Reader) error {
	e, ctx, done, err := s.borrow(ctx, id)
	if err != nil {
		return err
	}
	defer done()
	return s.read(ctx, e, read)
}

// Send is Read for a transfer to another disk, of which there are a few at a time; it does not
// wait.
func (s *Set) Send(id backingimage.ID, send Reader) error {
	s.mu.Lock()
	if s.sends >= MaxSends {
		s.mu.Unlock()
		return fmt.Errorf("%w: %d images are being sent", ErrBusy, MaxSends)
	}
	s.sends++
	s.mu.Unlock()
	returned := func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.sends--
	}
	e, ctx, done, err := s.borrow(s.ctx, id)
	if err != nil {
		returned()
		return err
	}
	go func() {
		defer done()
		defer returned()
		if err := s.read(ctx, e, send); err != nil {
			s.log.Warn("a backing image was not sent", "image", id.String(), "err", err)
		}
	}()
	return nil
}

func (s *Set) read(ctx context.Context, e *entry, read Reader) error {
	f, _, err := s.disk.Open(s.places(s.disk.Root(), e.ID))
	if err != nil {
		return err
	}
	defer f.Close() // read only
	s.mu.Lock()
	i := e.image()
	s.mu.Unlock()
	return read(ctx, f, i)
}

// borrow counts a reader in; done counts it out.
func (s *Set) borrow(ctx context.Context, id backingimage.ID) (e *entry, _ context.Context, done func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		return nil, nil, nil, s.ctx.Err()
	}
	if e = s.files[id]; e == nil {
		return nil, nil, nil, fmt.Errorf("backing image %s: %w", id, backingimage.ErrUnknown)
	}
	if err := s.tell(e, backingimage.SendBegun{}); err != nil {
		return nil, nil, nil, fmt.Errorf("backing image %s: %w", id, err)
	}
	ctx, cancel := context.WithCancel(ctx)
	e.readers[&cancel] = struct{}{}
	stop := context.AfterFunc(s.ctx, cancel)
	s.work.Add(1)
	return e, ctx, func() {
		stop()
		cancel()
		s.mu.Lock()
		defer s.mu.Unlock()
		defer s.work.Done()
		delete(e.readers, &cancel)
		if err := s.tell(e, backingimage.SendEnded{}); err != nil {
			s.log.Error("the end of a transfer was not expected", "image", id.String(), "err", err)
		}
	}, nil
}
