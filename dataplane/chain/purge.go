package chain

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"ankole.storage/dataplane/disk"
)

// Removing snapshots takes two phases: marking them, and purging, which merges the marked ones into
// their children or drops them. A purge goes step by step, so that I/O and other metadata
// operations go on in between:
//
//	p, err := c.NewPurge()
//	for step, more := p.Next(); more; step, more = p.Next() {
//		for done := false; !done; {
//			err = p.Note(sidecars, &step)
//			// beside I/O, in bounded pieces
//			done, err = p.Work(&step, blocks.DurableWhiteouts(step.Whiteouts()))
//		}
//		change, err := p.Finish(sidecars, &step)    // with I/O held back, short
//	}
//
// A step that fails for lack of room, or for a sector that the disk cannot read or write, is left
// out (Fail), and the others are done.
//
// What a reader sees at the head and at every snapshot that is not marked never changes on the way,
// whenever a crash happens; marked snapshots lose their content. A purge that was interrupted is
// simply begun again.

// PurgeAction says what a step does to its source.
type PurgeAction string

// Actions, by the names other engines use for them.
const (
	// PurgeRemove drops a snapshot without children.
	PurgeRemove PurgeAction = "remove"
	// PurgeCoalesce copies the only child into the source, whose file then takes the child's place.
	PurgeCoalesce PurgeAction = "coalesce"
	// PurgePrune gives back the space of what the head, the only child, hides. The snapshot stays.
	PurgePrune PurgeAction = "prune"
)

// PurgeStep is one step of a purge. Source and Target are file names.
type PurgeStep struct {
	Action         PurgeAction
	Source, Target string
	// next is where Work goes on; page is the page of whiteouts at which a prune does.
	next, page int64
	// noted: the next piece was announced. begun: c.merge is of this step.
	noted, begun bool
	// A merge measures first what it takes: so far to measured, need bytes.
	measured, need int64
	// failed is why a merge is given up: its next pieces give back what it took.
	failed error
}

// Purge is a purge in progress.
type Purge struct {
	c *removal
	// pruned are snapshots this purge has pruned already.
	pruned map[string]bool
	// failed are steps that were given up, by their sources, and why.
	failed    map[string]error
	processed int
}

// One Work call copies so much at most, so that it ends soon, or punches so much: a file system
// gives back 65536 blocks in a tenth of a second if each is an extent of its own, and each piece
// costs two syncs.
const (
	purgePiece = 8 << 20
	prunePiece = 256 << 20
)

// NewPurge begins a purge: snapshots the system made are marked removed first. No other purge may
// be in progress.
func (c *removal) NewPurge() (*Purge, error) {
	if err := c.usable(); err != nil {
		return nil, err
	}
	if c.meta.vm.Rebuilding {
		return nil, fmt.Errorf("%w: chain %s is being rebuilt; purge it afterwards", ErrInvalid, c.dir)
	}
	if err := c.merges.end(); err != nil {
		return nil, err
	}
	var names, metas []string
	for _, file := range slices.Sorted(maps.Keys(c.meta.disks)) {
		if d := c.meta.disks[file]; !d.Removed && !d.UserCreated && !isHeadFile(file) {
			names, metas = append(names, displayName(file)), append(metas, file+metaSuffix)
		}
	}
	if err := c.meta.mark(metas...); err != nil { // one copy for all of them
		return nil, err
	}
	for _, name := range names {
		if err := c.meta.MarkRemoved(name); err != nil {
			return nil, err
		}
	}
	return &Purge{c: c, pruned: map[string]bool{}, failed: map[string]error{}}, nil
}

// Progress is how far the purge has come, in percent.
func (p *Purge) Progress() int {
	left := 0
	for file, d := range p.c.meta.disks {
		if d.Removed && !p.pruned[file] && p.c.readers.pins[file] == 0 && len(p.c.meta.children(file)) < 2 {
			left++
		}
	}
	if left+p.processed == 0 {
		return 100
	}
	return 100 * p.processed / (left + p.processed)
}

// valid tells whether the chain still has the shape a step was planned for.
func (p *Purge) valid(s *PurgeStep) error {
	d := p.c.meta.disks[s.Source]
	children := p.c.meta.children(s.Source)
	want := []string{s.Target}
	if s.Target == "" {
		want = nil
	}
	if d == nil || !d.Removed || p.c.readers.pins[s.Source] > 0 || !slices.Equal(children, want) ||
		(s.Action == PurgePrune) != (s.Target == p.c.meta.vm.Head) {
		return fmt.Errorf("%w: the chain has changed since the purge of %s was planned; ask for the next step",
			ErrInvalid, s.Source)
	}
	return nil
}

// Note durably says, in what absent members miss, which files the next piece of a step changes. It
// comes before each piece: no record may be written in between, since an entry that is made then
// does not know of the piece.
func (p *Purge) Note(side *Sidecars, s *PurgeStep) error {
	if err := errors.Join(p.c.usable(), side.usable()); err != nil {
		return err
	}
	if err := p.valid(s); err != nil {
		return err
	}
	s.noted = true
	switch s.Action {
	case PurgeCoalesce:
		return side.layersChange(s.Source, s.Target)
	case PurgePrune:
		return side.layersChange(s.Source)
	}
	return nil
}

// Work does a bounded piece of a step and tells whether that was all. durable are the whiteouts of
// the head that step.Whiteouts asks for. It may run beside I/O, but not beside another metadata
// operation on the files.
func (p *Purge) Work(s *PurgeStep, durable DurableWhiteouts) (done bool, err error) {
	if err := p.c.usable(); err != nil {
		return false, err
	}
	if err := p.valid(s); err != nil {
		return false, err
	}
	if !s.noted {
		panic("chain: a piece of a purge was not announced")
	}
	s.noted = false
	switch s.Action {
	case PurgeCoalesce:
		return p.c.merges.work(s)
	case PurgePrune:
		return p.c.prune(s, durable)
	}
	return true, p.c.meta.mark(s.Source, s.Source+metaSuffix)
}

// Finish makes the step's result take effect. It needs I/O to be held back; handles of the chain
// change.
func (p *Purge) Finish(side *Sidecars, s *PurgeStep) (Change, error) {
	if err := errors.Join(p.c.usable(), side.usable()); err != nil {
		return Change{}, err
	}
	if err := p.valid(s); err != nil {
		return Change{}, err
	}
	p.processed++
	ch, err := p.finish(side, s)
	if err == nil {
		p.Retry()
	}
	return ch, err
}

func (p *Purge) finish(side *Sidecars, s *PurgeStep) (Change, error) {
	switch s.Action {
	case PurgeCoalesce:
		ch, err := p.c.replaceChild(side, s.Source, s.Target)
		if err == nil {
			delete(p.pruned, s.Target) // the head hides more of it now
		}
		return ch, err
	case PurgePrune:
		p.pruned[s.Source] = true
		p.c.merges.settled(s.Source)
		return Change{}, nil
	}
	err := p.c.removeLeaf(side, s.Source)
	return p.c.openFiles.changed(), err
}

// openPair opens the two files of a step, the first for writing, and makes it as long as the
// second.
func (c *merges) openPair(write, read string) (w, r disk.File, err error) {
	if w, err = c.fs.Open(c.path(write), disk.Direct); err != nil {
		return nil, nil, err
	}
	if r, err = c.fs.Open(c.path(read), disk.Direct|disk.ReadOnly); err != nil {
		_ = w.Close()
		return nil, nil, err
	}
	return w, r, nil
}

// matchSize extends the source to the child's size. A source that is longer is not of this chain.
func matchSize(source, child disk.File) error {
	s, err := source.Stat()
	if err != nil {
		return err
	}
	k, err := child.Stat()
	if err != nil {
		return err
	}
	if s.Size > k.Size {
		return fmt.Errorf("%w: %s has %d bytes and cannot become %s of %d", ErrCorrupt, source.Path(), s.Size,
			child.Path(), k.Size)
	}
	if s.Size < k.Size {
		return source.Truncate(k.Size)
	}
	return nil
}

// Whiteouts is the page from which on Work wants to know the head's whiteouts.
func (s *PurgeStep) Whiteouts() int64 { return s.page }

// pruned says of a prune that the head's blocks are done, and its whiteouts are not.
const pruned = -1

// prune punches out of the snapshot what the head hides, by its blocks and then by its whiteouts.
// Only what is certainly durable in the head counts: a block whose write a crash may undo must
// still be found below.
func (c *removal) prune(s *PurgeStep, durable DurableWhiteouts) (done bool, err error) {
	if err := c.checksums.void(s.Source); err != nil { // for each piece: somebody may have computed it since the last one
		return false, err
	}
	f, err := c.fs.Open(c.path(s.Source), disk.Direct)
	if err != nil {
		return false, err
	}
	defer f.Close() // synced below
	if s.next == pruned {
		done, err = s.pruneHidden(f, durable)
	} else {
		err = c.pruneHeld(s, f)
	}
	// A hole that a crash could fill again must not be taken for one, also if another has failed:
	// where the next open finds nothing below the head, zeroing punches the head.
	err = errors.Join(err, c.syncFile(f))
	return done && err == nil, err
}

// pruneHeld does it for blocks that the head holds.
func (c *removal) pruneHeld(s *PurgeStep, f disk.File) error {
	extents, more, err := c.openFiles.head().file.Extents(s.next, nil)
	if err != nil {
		return err
	}
	if err := c.syncFile(c.openFiles.head().file); err != nil {
		return err
	}
	all, err := s.punchUnder(f, extents, more)
	if all {
		s.next = pruned
	}
	return err
}

// punchUnder makes holes of a file where extents of the layer above it, from s.next on, cover whole
// blocks, and moves s.next on. It does a piece of so much at most; all tells that nothing is left.
func (s *PurgeStep) punchUnder(f disk.File, extents []disk.Extent, more bool) (all bool, err error) {
	for left := int64(prunePiece); len(extents) > 0 && left > 0; extents = extents[1:] {
		e := extents[0]
		if e.Len > left {
			e.Len, more = left, true
		}
		left -= e.Len
		s.next = e.Off + e.Len
		first, end := (e.Off+blockSize-1)/blockSize*blockSize, (e.Off+e.Len)/blockSize*blockSize
		if e.Unwritten || first >= end {
			continue
		}
		if err := f.Punch(first, end-first); err != nil {
			return false, err
		}
	}
	return !more && len(extents) == 0, nil
}

// pruneHidden does it for a page of the head's whiteouts.
func (s *PurgeStep) pruneHidden(f disk.File, durable DurableWhiteouts) (done bool, err error) {
	if durable.Page < s.page {
		return true, nil
	}
	info, err := f.Stat()
	if err != nil {
		return false, err
	}
	s.page = durable.Page + 1
	return false, durable.punch(f, info.Size)
}

// punch makes holes of what the whiteouts cover in a file of a size.
func (d *DurableWhiteouts) punch(f disk.File, size int64) (err error) {
	d.bits.runs(func(first, last int64) {
		off, end := d.Page*whiteoutSpan+first*blockSize, min(d.Page*whiteoutSpan+last*blockSize, size)
		if err == nil && off < end {
			err = f.Punch(off, end-off)
		}
	})
	return err
}

// replaceChild gives the source's file, into which the child was copied, the child's place. The
// child's metadata commits; before that both names may be the same file, which reads the same.
func (c *removal) replaceChild(s *Sidecars, source, child string) (Change, error) {
	if m := c.merges.now; m == nil || m.source != source || m.child != child || !m.complete {
		return Change{}, fmt.Errorf("%w: %s or %s was changed after they were merged; ask for the next step",
			ErrInvalid, source, child)
	}
	if err := s.layersChange(source, child); err != nil {
		return Change{}, err
	}
	if err := c.checksums.void(child); err != nil {
		return Change{}, err
	}
	if err := c.nameWhiteouts(source); err != nil {
		return c.openFiles.changed(), err
	}
	if err := c.renameMerged(source, child); err != nil {
		return c.openFiles.changed(), err
	}
	if err := c.commitReplacement(source, child); err != nil {
		return Change{}, c.breaks(err) // the open handle is of a file that has lost its name
	}
	merged := c.openFiles.layerIndex(source)
	if merged != 0 {
		if err := c.openFiles.mergeLayers(merged); err != nil {
			return Change{}, err
		}
	}
	err := c.merges.nameSums(source, child)
	if err == nil {
		err = c.removeLeaf(s, source)
	}
	c.merges.settled(child)
	ch := c.openFiles.changed()
	ch.merged = byte(merged)
	return ch, err
}

// commitReplacement durably takes the source out of the chain: the child is the same file.
func (c *removal) commitReplacement(source, child string) error {
	d, own := *c.meta.disks[child], c.meta.disks[child].whiteouts
	d.Parent, d.whiteouts = c.meta.disks[source].Parent, c.meta.mergedWhiteouts(source, child)
	if err := c.meta.change(child, d); err != nil {
		return err
	}
	return c.whiteoutFiles.drop(own)
}

// renameMerged durably gives the source's file the child's name too. Once that may have happened
// there is no way back: the chain breaks, and the next open goes on from there (finishSameFiles).
func (c *removal) renameMerged(source, child string) error {
	tmp := c.path(child + tmpSuffix)
	if err := errors.Join(c.removeOldHeads(), removeIfThere(c.fs, tmp)); err != nil {
		return err
	}
	if err := c.fs.Link(c.path(source), tmp); err != nil {
		return err
	}
	c.keep(child)
	if err := c.fs.Rename(tmp, c.path(child)); err != nil {
		return c.breaksUnlessFull(err)
	}
	// If an interrupted purge had come this far, both names were one file already, and renaming did
	// nothing.
	if err := removeIfThere(c.fs, tmp); err != nil {
		return c.breaks(err)
	}
	// The merged file must have the child's name for good before the child no longer refers to the
	// source.
	return c.syncDir()
}

// mergeLayers makes layer i, which holds the content of the one above it too, take that one's
// place.
func (o *openFiles) mergeLayers(i int) error {
	merged, above := &o.layers[i], o.layers[i+1]
	merged.name, merged.size = above.name, above.size
	if err := o.reopenWhiteouts(i); err != nil {
		return err
	}
	_ = above.close() // read only
	o.layers = slices.Delete(o.layers, i+1, i+2)
	return nil
}

// reopenWhiteouts opens the whiteouts that the metadata of layer i names now.
func (o *openFiles) reopenWhiteouts(i int) error {
	w, err := o.whiteoutFiles.open(o.layers[i].name, disk.ReadOnly)
	if err != nil {
		return o.breaks(err) // what is hidden is committed already
	}
	_ = o.layers[i].whiteouts.close() // read only
	o.layers[i].whiteouts = w
	return nil
}

// DropLeaf removes a snapshot that is marked removed, if no other stands on it and nobody reads it;
// otherwise it stays for the next purge. I/O is held back.
func (c *removal) DropLeaf(s *Sidecars, name string) (Change, error) {
	if err := errors.Join(c.usable(), s.usable()); err != nil {
		return Change{}, err
	}
	file := snapshotFile(name)
	if d := c.meta.disks[file]; d == nil || !d.Removed || c.readers.pins[file] > 0 || len(c.meta.children(file)) > 0 {
		return Change{}, nil
	}
	err := c.removeLeaf(s, file)
	return c.openFiles.changed(), err
}

// removeLeaf removes a layer that no other refers to and that is not open. Metadata goes after the
// image, durably: an image without any would never be looked at again, while metadata without an
// image is cleared by the next open.
func (c *removal) removeLeaf(s *Sidecars, file string) error {
	if err := c.openFiles.closeBranches(); err != nil { // its space would stay taken
		return err
	}
	if err := errors.Join(s.layerGoes(file), c.meta.mark(file, file+metaSuffix)); err != nil {
		return err
	}
	if err := c.checksums.remove(file); err != nil {
		return err
	}
	if err := c.unlink(file); err != nil {
		return err
	}
	d := c.meta.disks[file]
	delete(c.meta.disks, file) // whether or not the rest goes too
	if err := c.syncDir(); err != nil {
		return err
	}
	if err := removeIfThere(c.fs, c.path(file+metaSuffix)); err != nil {
		return err
	}
	if d != nil {
		if err := c.whiteoutFiles.drop(d.whiteouts); err != nil {
			return err
		}
	}
	c.meta.gone(file)
	return c.syncDir()
}
