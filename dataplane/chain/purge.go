package chain

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"ankole.storage/disk"
)

// Removing snapshots takes two phases: marking them, and purging, which merges the marked ones into their children
// or drops them. A purge goes step by step, so that I/O and other metadata operations go on in between:
//
//	p, err := c.NewPurge()
//	for step, more := p.Next(); more; step, more = p.Next() {
//		for done := false; !done; {
//			done, err = p.Work(&step)  // beside I/O, in bounded pieces
//		}
//		err = p.Finish(&step)          // with I/O held back, short
//	}
//
// What a reader sees at the head and at every snapshot that is not marked never changes on the way, whenever a crash
// happens; marked snapshots lose their content. A purge that was interrupted is simply begun again.

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
	// next is where Work goes on.
	next int64
}

// Purge is a purge in progress.
type Purge struct {
	c *Chain
	// pruned are snapshots this purge has pruned already.
	pruned    map[string]bool
	processed int
}

// purgePiece is how much one Work call copies or punches at most, so that it ends soon.
const purgePiece = 8 << 20

// NewPurge begins a purge: snapshots the system made are marked removed first. No other purge may be in progress.
func (c *Chain) NewPurge() (*Purge, error) {
	if err := c.usable(); err != nil {
		return nil, err
	}
	if c.rebuilding {
		return nil, fmt.Errorf("%w: chain %s is being rebuilt; purge it afterwards", ErrInvalid, c.dir)
	}
	if err := c.endMerge(); err != nil {
		return nil, err
	}
	for _, file := range slices.Sorted(maps.Keys(c.disks)) {
		d := c.disks[file]
		if d.Removed || d.UserCreated || isHeadFile(file) {
			continue
		}
		if err := c.MarkRemoved(displayName(file)); err != nil {
			return nil, err
		}
	}
	return &Purge{c: c, pruned: map[string]bool{}}, nil
}

// Progress is how far the purge has come, in percent.
func (p *Purge) Progress() int {
	left := 0
	for file, d := range p.c.disks {
		if d.Removed && !p.pruned[file] && p.c.pins[file] == 0 && len(p.c.children(file)) < 2 {
			left++
		}
	}
	if left+p.processed == 0 {
		return 100
	}
	return 100 * p.processed / (left + p.processed)
}

// Next returns the next step, false when nothing is left to do. The snapshot behind the head comes last; one with
// several children is left for when it has fewer, one that is pinned (View.Pin) for the next purge.
func (p *Purge) Next() (PurgeStep, bool) {
	c := p.c
	var last PurgeStep
	for _, file := range slices.Sorted(maps.Keys(c.disks)) {
		if !c.disks[file].Removed || isHeadFile(file) || c.pins[file] > 0 {
			continue
		}
		children := c.children(file)
		switch {
		case len(children) == 0:
			return PurgeStep{Action: PurgeRemove, Source: file}, true
		case len(children) > 1:
		case children[0] != c.vm.Head:
			return PurgeStep{Action: PurgeCoalesce, Source: file, Target: children[0]}, true
		case !p.pruned[file]:
			last = PurgeStep{Action: PurgePrune, Source: file, Target: children[0]}
		}
	}
	return last, last.Action != ""
}

// valid tells whether the chain still has the shape a step was planned for.
func (p *Purge) valid(s *PurgeStep) error {
	d := p.c.disks[s.Source]
	children := p.c.children(s.Source)
	want := []string{s.Target}
	if s.Target == "" {
		want = nil
	}
	if d == nil || !d.Removed || p.c.pins[s.Source] > 0 || !slices.Equal(children, want) || (s.Action == PurgePrune) != (s.Target == p.c.vm.Head) {
		return fmt.Errorf("%w: the chain has changed since the purge of %s was planned; ask for the next step", ErrInvalid, s.Source)
	}
	return nil
}

// Work does a bounded piece of a step and tells whether that was all. It may run beside I/O, but not beside another
// metadata operation.
func (p *Purge) Work(s *PurgeStep) (done bool, err error) {
	if err := p.c.usable(); err != nil {
		return false, err
	}
	if err := p.valid(s); err != nil {
		return false, err
	}
	switch s.Action {
	case PurgeCoalesce:
		return p.c.coalescePiece(s)
	case PurgePrune:
		return p.c.prunePiece(s)
	}
	return true, nil
}

// Finish makes the step's result take effect. It needs I/O to be held back; handles of the chain change.
func (p *Purge) Finish(s *PurgeStep) error {
	if err := p.c.usable(); err != nil {
		return err
	}
	if err := p.valid(s); err != nil {
		return err
	}
	p.processed++
	switch s.Action {
	case PurgeCoalesce:
		return p.c.replaceChild(s.Source, s.Target)
	case PurgePrune:
		p.pruned[s.Source] = true
		return nil
	}
	return p.c.removeLeaf(s.Source)
}

// Purge does a whole purge with I/O held back, for tools. progress, unless nil, is told percentages.
func (c *Chain) Purge(progress func(percent int)) error {
	p, err := c.NewPurge()
	if err != nil {
		return err
	}
	for step, more := p.Next(); more; step, more = p.Next() {
		for done := false; !done; {
			if done, err = p.Work(&step); err != nil {
				return err
			}
		}
		if err := errors.Join(p.Finish(&step), c.unlinked.close()); err != nil {
			return err
		}
		if progress != nil {
			progress(p.Progress())
		}
	}
	return nil
}

// openPair opens the two files of a step, the first for writing, and makes it as long as the second.
func (c *Chain) openPair(write, read string) (w, r disk.File, err error) {
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
		return fmt.Errorf("%w: %s has %d bytes and cannot become %s of %d", ErrCorrupt, source.Path(), s.Size, child.Path(), k.Size)
	}
	if s.Size < k.Size {
		return source.Truncate(k.Size)
	}
	return nil
}

// prunePiece punches out of the snapshot what the head hides. Only what is certainly durable in the head counts: a
// block whose write a crash may undo must still be found below.
func (c *Chain) prunePiece(s *PurgeStep) (done bool, err error) {
	extents, more, err := c.head().file.Extents(s.next, nil)
	if err != nil {
		return false, err
	}
	if err := c.syncFile(c.head().file); err != nil {
		return false, err
	}
	if err := c.layersChange(s.Source); err != nil {
		return false, err
	}
	if s.next == 0 {
		if err := c.voidChecksum(s.Source); err != nil {
			return false, err
		}
	}
	f, err := c.fs.Open(c.path(s.Source), disk.Direct)
	if err != nil {
		return false, err
	}
	defer f.Close() // synced below
	for _, e := range extents {
		s.next = e.Off + e.Len
		first, end := (e.Off+blockSize-1)/blockSize*blockSize, (e.Off+e.Len)/blockSize*blockSize
		if e.Unwritten || first >= end {
			continue
		}
		if err := f.Punch(first, end-first); err != nil {
			return false, err
		}
	}
	// A hole that a crash could fill again must not be taken for one: where the next open finds nothing below the
	// head, zeroing punches the head.
	return !more, c.syncFile(f)
}

// replaceChild gives the source's file, into which the child was copied, the child's place. The child's metadata
// commits; before that both names may be the same file, which reads the same.
func (c *Chain) replaceChild(source, child string) error {
	if err := c.layersChange(source, child); err != nil {
		return err
	}
	if err := c.voidChecksum(child); err != nil {
		return err
	}
	tmp := c.path(child + tmpSuffix)
	if err := removeIfThere(c.fs, tmp); err != nil {
		return err
	}
	if err := c.fs.Link(c.path(source), tmp); err != nil {
		return err
	}
	c.keepUnlinked(child)
	if err := c.fs.Rename(tmp, c.path(child)); err != nil {
		return err
	}
	// If an interrupted purge had come this far, both names were one file already, and renaming did nothing.
	if err := removeIfThere(c.fs, tmp); err != nil {
		return err
	}
	// The merged file must have the child's name for good before the child no longer refers to the source.
	if err := c.syncDir(); err != nil {
		return err
	}
	d := *c.disks[child]
	d.Parent = c.disks[source].Parent
	if err := c.writeDiskMeta(child, &d); err != nil {
		return c.breaks(err) // the open handle is of a file that has lost its name
	}
	c.disks[child] = &d
	if i := c.layerIndex(source); i != 0 {
		c.mergeLayers(i)
	}
	if err := c.nameSums(source, child); err != nil {
		return err
	}
	return c.removeLeaf(source)
}

// mergeLayers makes layer i, which holds the content of the one above it too, take that one's place.
func (c *Chain) mergeLayers(i int) {
	merged, above := &c.layers[i], c.layers[i+1]
	merged.name, merged.size = above.name, above.size
	_ = above.file.Close() // read only
	c.layers = slices.Delete(c.layers, i+1, i+2)
	c.m.merge(byte(i))
}

// removeLeaf removes a layer that no other refers to and that is not open. Metadata goes after the image, durably: an
// image without any would never be looked at again, while metadata without an image is cleared by the next open.
func (c *Chain) removeLeaf(file string) error {
	if err := c.closeBranches(); err != nil { // its space would stay taken
		return err
	}
	if err := c.layerGoes(file); err != nil {
		return err
	}
	for _, name := range []string{file + checksumSuffix, file + sumsSuffix} {
		if err := removeIfThere(c.fs, c.path(name)); err != nil {
			return err
		}
	}
	if err := c.unlink(file); err != nil {
		return err
	}
	if err := c.syncDir(); err != nil {
		return err
	}
	if err := removeIfThere(c.fs, c.path(file+metaSuffix)); err != nil {
		return err
	}
	delete(c.disks, file)
	return c.syncDir()
}
