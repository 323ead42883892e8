package chain

import (
	"errors"
	"fmt"
	"slices"

	"ankole.storage/dataplane/disk"
)

// Shape is what a rebuild target's files are to become: the chain of Spec, with what can be kept of
// the present one.
type Shape struct {
	Spec
	// HeadBecomes is the snapshot file that the present head turns into, as a rotation would; ""
	// where it stays the head. NewHead gives the present head up instead.
	HeadBecomes string
	NewHead     bool
	// Branches are the snapshots off the live chain, parents first; what the target has of these
	// names is kept.
	Branches []LayerSpec
	// Untouched are snapshot files that the rebuild will not write to: their checksums stay, and
	// nobody can write to them before the next Reshape.
	Untouched []string
	// Compared are snapshots, and HeadName for the head, that the rebuild may write to anywhere: an
	// attempt that follows it does not know what they were.
	Compared []string
}

// Kept returns the snapshots of the live chain that a target of these layers keeps: those of the
// same name, if they are in the same order. It must not run beside a metadata operation.
func (o *openFiles) Kept(layers []LayerSpec) []string {
	var kept []string
	at := -1
	for _, l := range o.LayerList() {
		i := slices.IndexFunc(layers, func(s LayerSpec) bool { return s.File == l.File })
		switch {
		case l.Head || i < 0:
		case i <= at:
			return nil
		default:
			at = i
			kept = append(kept, l.File)
		}
	}
	return kept
}

// Reshape makes the directory of an open chain a rebuild target of shape s and opens it again: it
// keeps the snapshots it has, on the live chain and off it, makes those it lacks as empty sparse
// files, turns the head into a snapshot where asked to, and removes all other files. The content of
// what is kept is not looked at. Only where names are in another order than before everything is
// made anew.
//
// The record must have been made void before (VoidForRebuild), since a crash on the way leaves some
// mixture of the two shapes, which opens and is Rebuilding. I/O is held back. old is closed in any
// case; beside an error the chain returned is as it was or somewhere on the way, nil if it cannot
// be opened.
func Reshape(old *Files, side *Sidecars, s Shape) (*Chain, error) {
	opts := old.opts
	opts.BackingFile = s.BackingFile
	anew := !old.closed && old.conflicts(&s)
	failed := old.reshape(side, &s, anew)
	unlinked := old.removal.unlinked
	old.removal.unlinked = nil
	err := errors.Join(old.close(side.broken), side.Close())
	if failed == nil && err == nil && anew {
		failed = CreateSkeleton(old.fs, old.dir, s.all(), opts)
	}
	if err != nil {
		return nil, errors.Join(failed, err, unlinked.close())
	}
	c, err := Open(old.fs, old.dir, opts)
	if err != nil {
		return nil, errors.Join(failed, err, unlinked.close())
	}
	c.removal.unlinked = unlinked
	if failed == nil {
		failed = c.provideWhiteouts(&s)
	}
	return c, failed
}

// provideWhiteouts gives the layers that the source has whiteouts in a file for them.
func (c *Chain) provideWhiteouts(s *Shape) error {
	for _, l := range s.all().Layers {
		if !l.Whiteouts || c.meta.HasWhiteouts(l.File) {
			continue
		}
		w, err := c.whiteoutFiles.add(l.File)
		if err != nil {
			return err
		}
		if i := c.Files.openFiles.layerIndex(l.File); i != 0 {
			c.Files.openFiles.layers[i].whiteouts = w
		} else if err := w.close(); err != nil { // OpenBranches opens it
			return err
		}
	}
	c.Apply(c.openFiles.changed())
	return nil
}

// all is the specification with the branches.
func (s *Shape) all() Spec {
	spec := s.Spec
	spec.Layers = slices.Concat(s.Layers, s.Branches)
	return spec
}

// names reports whether the shape has a snapshot of this file.
func (s *Shape) names(file string) bool {
	return slices.ContainsFunc(s.all().Layers, func(l LayerSpec) bool { return l.File == file })
}

// Validate is Spec.Validate for live chain and branches.
func (s *Shape) Validate() error {
	spec := s.all()
	return spec.Validate()
}

// conflicts reports that the live chain has a layer of the shape which cannot be kept.
func (c *Files) conflicts(s *Shape) bool {
	kept := c.openFiles.Kept(s.Layers)
	return slices.ContainsFunc(s.Layers, func(l LayerSpec) bool {
		return c.openFiles.layerIndex(l.File) != 0 && !slices.Contains(kept, l.File)
	})
}

// reshape does what Reshape says, but for a directory to be made anew: that one is only marked.
func (c *Files) reshape(side *Sidecars, s *Shape, anew bool) error {
	if err := c.usable(); err != nil {
		return err
	}
	s.Rebuilding = true
	if err := s.Validate(); err != nil {
		return err
	}
	if s.HeadBecomes != "" && !slices.ContainsFunc(s.Layers, func(l LayerSpec) bool { return l.File == s.HeadBecomes }) {
		return fmt.Errorf("%w: the head cannot become %q, which is not part of the chain to make", ErrInvalid, s.HeadBecomes)
	}
	if err := c.syncFile(c.openFiles.head().file); err != nil {
		return err
	}
	if err := c.meta.setRebuilding(); err != nil || anew {
		return err
	}
	if err := c.removal.finishSameFiles(side); err != nil {
		return err
	}
	kept := c.openFiles.Kept(s.Layers)
	for i := range s.Layers {
		l := &s.Layers[i]
		var err error
		switch {
		case slices.Contains(kept, l.File):
			err = c.keepLayer(l, slices.Contains(s.Untouched, l.File))
		case l.File != s.HeadBecomes:
			err = c.freshLayer(l)
		}
		if err != nil {
			return err
		}
	}
	if err := c.reshapeBranches(s); err != nil {
		return err
	}
	return c.reshapeHead(side, s)
}

// freshLayer makes an empty layer in place of anything of its name, which is in no chain that will
// be read again.
func (c *Files) freshLayer(l *LayerSpec) error {
	if err := c.removeFiles(l.File); err != nil {
		return err
	}
	delete(c.meta.disks, l.File)
	return c.breaksUnlessFull(createLayer(c.fs, c.dir, l.File, l.Size, &l.Meta))
}

// keepLayer gives a snapshot that stays its size and metadata.
func (c *Files) keepLayer(l *LayerSpec, untouched bool) error {
	f, err := c.fs.Open(c.path(l.File), disk.Direct)
	if err != nil {
		return err
	}
	defer f.Close() // synced below
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !untouched || info.Size != l.Size {
		if err := c.checksums.void(l.File); err != nil {
			return c.breaks(err)
		}
	}
	if err := c.fit(f, l.Size); err != nil {
		return err
	}
	d := l.Meta
	d.extra, d.whiteouts = c.meta.disks[l.File].extra, c.meta.disks[l.File].whiteouts
	return c.meta.writeDiskMeta(l.File, &d)
}

// fit durably gives a file its size. The file itself is asked how long it is: a merge or a reshape
// that was interrupted has left it longer than the volume was.
func (c *Files) fit(f disk.File, size int64) error {
	info, err := f.Stat()
	if err != nil || info.Size == size {
		return err
	}
	if err := f.Truncate(size); err != nil {
		return err
	}
	return c.syncFile(f)
}

// reshapeHead gives the head its place, commits, and removes what is left over.
func (c *Files) reshapeHead(side *Sidecars, s *Shape) error {
	old, head := c.meta.vm.Head, c.meta.vm.Head
	if s.HeadBecomes != "" || s.NewHead {
		names, err := c.fs.List(c.dir)
		if err != nil {
			return err
		}
		if head, err = nextHead(names); err != nil {
			return err
		}
		if err := createLayer(c.fs, c.dir, head, s.Size,
			&DiskMeta{Name: head, Parent: s.HeadParent, Created: s.Created, Labels: s.HeadLabels}); err != nil {
			return c.breaksUnlessFull(err)
		}
	} else if err := c.stayHead(s); err != nil {
		return err
	}
	if s.HeadBecomes != "" {
		if err := c.linkHead(s); err != nil {
			return err
		}
	}
	if err := c.syncDir(); err != nil {
		return err
	}
	vm := c.meta.vm
	vm.Head, vm.Parent, vm.Size, vm.BackingFilePath = head, s.HeadParent, s.Size, s.BackingFile
	if vm.AnkoleStamp != "" {
		vm.AnkoleHead = head
	}
	if s.NewHead {
		vm.AnkoleGivenUp = append(slices.Clone(vm.AnkoleGivenUp), old)
	}
	if err := c.meta.writeVolumeMeta(&vm); err != nil {
		return err
	}
	if head != old {
		c.removal.keep(old)
		if err := c.removal.removeOldHead(old, ""); err != nil { // the next open removes its whiteouts
			return err
		}
	}
	return c.removeUnnamed(side, s)
}

// stayHead adapts the head to the volume's size and to what will be below it.
func (c *Files) stayHead(s *Shape) error {
	if err := c.fit(c.openFiles.head().file, s.Size); err != nil {
		return err
	}
	d := *c.meta.disks[c.meta.vm.Head]
	d.Parent, d.Created, d.Labels = s.HeadParent, s.Created, s.HeadLabels
	return c.meta.writeDiskMeta(c.meta.vm.Head, &d)
}

// linkHead gives the present head the name of the snapshot it becomes. Until the commit the two
// names are one file, which the next open recognises.
func (c *Files) linkHead(s *Shape) error {
	l := &s.Layers[slices.IndexFunc(s.Layers, func(l LayerSpec) bool { return l.File == s.HeadBecomes })]
	if err := c.removeFiles(l.File); err != nil {
		return err
	}
	if err := c.fit(c.openFiles.head().file, l.Size); err != nil {
		return err
	}
	if err := c.fs.Link(c.path(c.meta.vm.Head), c.path(l.File)); err != nil {
		return err
	}
	d := l.Meta
	d.whiteouts = c.meta.disks[c.meta.vm.Head].whiteouts
	return c.breaksUnlessFull(c.fs.WriteFileAtomic(c.path(l.File+metaSuffix), d.encode()))
}

// removeFiles removes whatever a snapshot of this name has, its checksums durably: another file is
// to have the name.
func (c *Files) removeFiles(file string) error {
	if err := c.checksums.void(file); err != nil {
		return c.breaks(err)
	}
	if err := c.removal.unlink(file); err != nil {
		return err
	}
	return removeIfThere(c.fs, c.path(file+metaSuffix))
}

// removeUnnamed removes the snapshots that are not part of the shape.
func (c *Files) removeUnnamed(side *Sidecars, s *Shape) error {
	names, err := c.fs.List(c.dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		if _, snap := snapshotName(name); !snap || s.names(name) {
			continue
		}
		if err := c.removal.removeLeaf(side, name); err != nil {
			return err
		}
	}
	return c.syncDir()
}
