package replica

import (
	"errors"
	"fmt"
	"slices"

	"ankole.storage/dataplane/chain"
	"ankole.storage/dataplane/wire"
)

// worker is what metadata operations work on: the files of the directory, and what is under way on
// them. Only metadata operations touch it (metaOp.run), away from the loop's thread, one at a time.
// They have nothing of the loop's: what they need to know of it they are given as values, and what
// they find out or change comes back as one. tidy's TestWorkers refuses functions that reach for
// more.
type worker struct {
	directory Directory
	recreate  func(old *chain.Files, side *chain.Sidecars, shape chain.Shape) (*chain.Chain, error)
	member    string
	uuid      chain.UUID

	// files is nil in a standby.
	files *chain.Files
	// views are open for sessions, by session.run.
	views map[uint64]*chain.ViewFiles
	scrub scrubbing
	purge purging
	// restore is a lost file that is being written anew, nil for none.
	restore *chain.Restoring
	// changes are those of the operation that runs.
	changes []chain.Change
}

// sidecarSet has the sidecars, for operations that need them. A mark, for which writes wait, needs
// nothing else, so it does not wait for a piece of a purge or of a checksum.
type sidecarSet struct {
	// side is nil in a standby.
	side *chain.Sidecars
	// wasClosed: see chain.WasClosed.
	wasClosed bool
	// counter: see wire.HelloReply.
	counter int64
}

// newWorker returns what there is to work on, and the loop's part of a directory that is open
// already, nil without one.
func newWorker(cfg *Config, uuid chain.UUID) (*worker, *sidecarSet, *opened) {
	w := &worker{directory: cfg.Directory, recreate: cfg.Recreate, member: cfg.Member, uuid: uuid,
		views: map[uint64]*chain.ViewFiles{}}
	l := &sidecarSet{}
	if cfg.Chain == nil {
		return w, l, nil
	}
	return w, l, w.take(l, cfg.Chain)
}

// worked is what a metadata operation brings back to the loop.
type worked struct {
	value any
	// unsettled is why the head's whiteouts could not be made durable: then nothing else was done.
	unsettled error
	// changes are for the loop's blocks.
	changes []chain.Change
	// unwritable: writes may not be sent to the head. broken: a sync has failed, and nothing that the
	// directory holds is certain any more.
	unwritable, broken bool
	// giveBack frees the space of files that were removed, nil if none was.
	giveBack func() error
	// stale: metadata has changed since it was copied.
	stale bool
}

// perform carries out an operation on files, after the head's whiteouts are settled.
func (w *worker) perform(settle *chain.WhiteoutWrite, run func(w *worker) any) worked {
	w.changes = nil
	if settle != nil {
		if err := settle.Do(); err != nil {
			return worked{unsettled: err}
		}
	}
	res := worked{value: run(w)}
	res.changes, w.changes = w.changes, nil
	if w.files != nil {
		res.unwritable, res.giveBack = !w.files.WriteAllowed(), w.files.Unlinked()
		res.stale, res.broken = w.files.MetaStale(), w.files.Broken()
	}
	return res
}

// perform carries out an operation on sidecars.
func (l *sidecarSet) perform(note func(l *sidecarSet) any) worked {
	value := note(l)
	broken := l.broken()
	return worked{value: value, unwritable: broken, broken: broken}
}

// performBoth carries out an operation on files and sidecars.
func performBoth(w *worker, l *sidecarSet, settle *chain.WhiteoutWrite,
	both func(w *worker, l *sidecarSet) any) worked {
	res := w.perform(settle, func(w *worker) any { return both(w, l) })
	broken := l.broken()
	res.unwritable, res.broken = res.unwritable || broken, res.broken || broken
	return res
}

// broken: a sync of a sidecar has failed.
func (l *sidecarSet) broken() bool { return l.side != nil && l.side.Broken() }

// change keeps what an operation has changed for the loop, and passes its error on.
func (w *worker) change(ch chain.Change, err error) error {
	if ch.Changes() {
		w.changes = append(w.changes, ch)
	}
	return err
}

// held is what the sidecars of an open directory say.
type held struct {
	record    chain.Record
	recorded  bool
	dirty     []uint32
	dirtyAll  bool
	powerLost bool
	wasClosed bool
	counter   int64
}

func (l *sidecarSet) held() held {
	h := held{powerLost: l.side.PowerLost(), wasClosed: l.wasClosed, counter: l.counter}
	h.record, h.recorded = l.side.Record()
	h.dirty, h.dirtyAll = l.dirty()
	return h
}

// opened is a directory that was opened: the files are the worker's already, the blocks are for the
// loop.
type opened struct {
	blocks *chain.Blocks
	held   held
}

// take takes over an opened directory and returns the loop's part.
func (w *worker) take(l *sidecarSet, c *chain.Chain) *opened {
	w.files, w.purge, l.side = c.Files, purging{}, c.Sidecars
	l.wasClosed = c.WasClosed()
	if v, exists, err := c.RevisionCounter(); exists && err == nil {
		l.counter = v
	}
	return &opened{c.Blocks, l.held()}
}

// opening is what activating a session begins with: the directory is taken where it is not open.
func (w *worker) opening(l *sidecarSet) (*opened, error) {
	if w.files != nil {
		return nil, nil
	}
	c, err := w.directory.Acquire()
	if err != nil {
		return nil, err
	}
	return w.take(l, c), nil
}

// release closes the directory if it is open. The next process may get its map.
func (w *worker) release(l *sidecarSet, m chain.Retired) error {
	if w.files == nil {
		return nil
	}
	err := errors.Join(w.closeViews(), w.dropRestore())
	f, side := w.files, l.side
	w.files, w.purge, l.side = nil, purging{}, nil
	return errors.Join(err, w.directory.Release(f, side, m))
}

// reshape makes the directory a rebuild target of a shape, under a record that is void. o is nil
// beside an error if the directory is as it was, and lost says that it cannot be opened any more.
func (w *worker) reshape(l *sidecarSet, rec *chain.Record, headBecomes string, shape *chain.Shape) (o *opened,
	lost bool,
	err error) {
	if err := w.files.VoidForRebuild(l.side, *rec, headBecomes, w.fresh(shape)); err != nil {
		return nil, false, err
	}
	failed := w.closeViews()
	c, err := w.recreate(w.files, l.side, *shape)
	if c == nil {
		w.files, l.side = nil, nil
		return nil, true, errors.Join(failed, err)
	}
	if now, ok := c.Record(); err == nil && (!ok || now.Promised != rec.Promised) {
		// Everything was made anew: the promise has to be repeated.
		if err = c.WriteRecord(*rec); err == nil {
			err = c.WriteDirty([]chain.Region{})
		}
	}
	if err == nil {
		_, err = c.OpenBranches()
	}
	return w.take(l, c), false, errors.Join(failed, err)
}

// fresh names what a shape makes anew, and what is written to wherever it differs, as branches are.
func (w *worker) fresh(shape *chain.Shape) []string {
	var names []string
	kept := map[string]bool{shape.HeadBecomes: true}
	for _, file := range w.files.Kept(shape.Layers) {
		kept[file] = true
	}
	for _, l := range shape.Layers {
		if name := snapshotName(l.File); !kept[l.File] || slices.Contains(shape.Compared, name) {
			names = append(names, name)
		}
	}
	for _, l := range shape.Branches {
		names = append(names, snapshotName(l.File))
	}
	if shape.NewHead || shape.HeadBecomes != "" || slices.Contains(shape.Compared, chain.HeadName) {
		names = append(names, chain.HeadName)
	}
	return names
}

// promise makes an epoch durable, while nothing is in flight.
func (w *worker) promise(l *sidecarSet, m *wire.HelloMessage) (res promiseResult) {
	if res.opened, res.err = w.opening(l); res.err != nil {
		return res
	}
	rec, ok := l.side.Record()
	if !ok {
		rec = chain.Record{VolumeUUID: w.uuid, Self: w.member}
	}
	switch {
	case promisedToNewer(&rec, m):
		// Another engine's promise was on its way to the disk when this one asked.
		res.older = true
	case m.Epoch != rec.Promised || rec.Engine != m.Engine:
		rec.Promised, rec.Engine = m.Epoch, m.Engine
		res.err = w.files.WriteRecord(l.side, rec)
	}
	res.held = l.held()
	return res
}

// openView opens a snapshot for a session that has none open.
func (w *worker) openView(id uint64, snapshot string) (*chain.Blocks, error) {
	if w.files == nil {
		return nil, errStandby
	}
	if w.views[id] != nil {
		return nil, fmt.Errorf("%w: another snapshot is open here; close it first", chain.ErrInvalid) // it may be in use
	}
	v, blocks, err := w.files.OpenView(snapshot)
	if err == nil {
		w.views[id] = v
	}
	return blocks, err
}

// openReader opens and pins a snapshot.
func (w *worker) openReader(id uint64, snapshot string) readerView {
	blocks, err := w.openView(id, snapshot)
	if err == nil {
		if err = w.views[id].Sound(); err != nil { // a scrub judges what it reads, a reader takes it as it is
			blocks.Free()
			return readerView{err: errors.Join(err, w.closeView(id))}
		}
		w.views[id].Pin()
	}
	return readerView{view: blocks, err: err}
}

// closeView closes the view of a session, if it has one.
func (w *worker) closeView(id uint64) error {
	v := w.views[id]
	if v == nil {
		return nil
	}
	delete(w.views, id)
	return v.Close()
}

// closeViews gives back everything that is open on the files. Nothing may be in flight.
func (w *worker) closeViews() error {
	err := w.scrub.close()
	for id := range w.views {
		err = errors.Join(err, w.closeView(id))
	}
	return err
}

// check tells whether a change would be refused.
func (w *worker) check(m *wire.ControlRequest) error {
	switch {
	case m.Snapshot != nil:
		return w.files.CheckSnapshot(m.Snapshot.Name)
	case m.Revert != nil:
		return w.files.CheckRevert(m.Revert.Name)
	case m.Expand != nil:
		return w.files.CheckExpand(m.Expand.Size)
	}
	return nil
}

// copyMeta copies the metadata files of whatever directory is open when its turn comes.
func (w *worker) copyMeta() any {
	if w.files == nil {
		return result{}
	}
	return result{err: w.files.CopyMeta()}
}

// removeSnapshot marks a snapshot as removed, and removes it if that is asked for.
func (r *Replica) removeSnapshot(s *session, h *wire.Header, m wire.RemoveSnapshot) {
	if !m.Now {
		r.blocking(s, h, func(w *worker) error { return w.removeSnapshot(m.Name) })
		return
	}
	r.changing(s, h, func(w *worker, l *sidecarSet) error {
		if err := w.removeSnapshot(m.Name); err != nil {
			return err
		}
		return w.change(w.files.DropLeaf(l.side, m.Name))
	})
}

// removeSnapshot marks a snapshot as removed.
func (w *worker) removeSnapshot(name string) error {
	if name == chain.HeadName {
		return fmt.Errorf("%w: the head is no snapshot and cannot be removed", chain.ErrInvalid)
	}
	return w.files.MarkRemoved(name)
}
