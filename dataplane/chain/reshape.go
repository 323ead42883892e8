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
	r := &reshaping{directory: old.directory, meta: old.meta, checksums: old.checksums, openFiles: old.openFiles,
		removal: old.removal, side: side, to: &s}
	anew := !old.closed && r.conflicts()
	failed := r.do(anew)
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

// reshaping is the part of Reshape that changes the files of the open directory, up to the commit
// and after it. It leaves what is in memory as it was: the directory is opened again.
type reshaping struct {
	*directory
	meta      *meta
	checksums *checksums
	openFiles *openFiles
	removal   *removal
	side      *Sidecars
	to        *Shape
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
func (r *reshaping) conflicts() bool {
	kept := r.openFiles.Kept(r.to.Layers)
	return slices.ContainsFunc(r.to.Layers, func(l LayerSpec) bool {
		return r.openFiles.layerIndex(l.File) != 0 && !slices.Contains(kept, l.File)
	})
}

// do does what Reshape says, but for a directory to be made anew: that one is only marked.
func (r *reshaping) do(anew bool) error {
	if err := r.usable(); err != nil {
		return err
	}
	r.to.Rebuilding = true
	if err := r.to.Validate(); err != nil {
		return err
	}
	if r.to.HeadBecomes != "" && r.headBecomes() == nil {
		return fmt.Errorf("%w: the head cannot become %q, which is not part of the chain to make", ErrInvalid,
			r.to.HeadBecomes)
	}
	if err := r.syncFile(r.openFiles.head().file); err != nil {
		return err
	}
	if err := r.meta.setRebuilding(); err != nil || anew {
		return err
	}
	if err := r.removal.finishSameFiles(r.side); err != nil {
		return err
	}
	kept := r.openFiles.Kept(r.to.Layers)
	for i := range r.to.Layers {
		l := &r.to.Layers[i]
		var err error
		switch {
		case slices.Contains(kept, l.File):
			err = r.keepLayer(l, slices.Contains(r.to.Untouched, l.File))
		case l.File != r.to.HeadBecomes:
			err = r.freshLayer(l)
		}
		if err != nil {
			return err
		}
	}
	if err := r.reshapeBranches(); err != nil {
		return err
	}
	return r.reshapeHead()
}

// freshLayer makes an empty layer in place of anything of its name, which is in no chain that will
// be read again.
func (r *reshaping) freshLayer(l *LayerSpec) error {
	if err := r.removeFiles(l.File); err != nil {
		return err
	}
	delete(r.meta.disks, l.File)
	return r.breaksUnlessFull(createLayer(r.fs, r.dir, l.File, l.Size, &l.Meta))
}

// keepLayer gives a snapshot that stays its size and metadata.
func (r *reshaping) keepLayer(l *LayerSpec, untouched bool) error {
	f, err := r.fs.Open(r.path(l.File), disk.Direct)
	if err != nil {
		return err
	}
	defer f.Close() // synced below
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !untouched || info.Size != l.Size {
		if err := r.checksums.void(l.File); err != nil {
			return r.breaks(err)
		}
	}
	if err := r.fit(f, l.Size); err != nil {
		return err
	}
	d := l.Meta
	d.extra, d.whiteouts = r.meta.disks[l.File].extra, r.meta.disks[l.File].whiteouts
	return r.meta.writeDiskMeta(l.File, &d)
}

// fit durably gives a file its size. The file itself is asked how long it is: a merge or a reshape
// that was interrupted has left it longer than the volume was.
func (r *reshaping) fit(f disk.File, size int64) error {
	info, err := f.Stat()
	if err != nil || info.Size == size {
		return err
	}
	if err := f.Truncate(size); err != nil {
		return err
	}
	return r.syncFile(f)
}

// reshapeHead gives the head its place, commits, and removes what is left over.
func (r *reshaping) reshapeHead() error {
	old, head := r.meta.vm.Head, r.meta.vm.Head
	if r.to.HeadBecomes != "" || r.to.NewHead {
		names, err := r.fs.List(r.dir)
		if err != nil {
			return err
		}
		if head, err = nextHead(names); err != nil {
			return err
		}
		if err := createLayer(r.fs, r.dir, head, r.to.Size,
			&DiskMeta{Name: head, Parent: r.to.HeadParent, Created: r.to.Created, Labels: r.to.HeadLabels}); err != nil {
			return r.breaksUnlessFull(err)
		}
	} else if err := r.stayHead(); err != nil {
		return err
	}
	if r.to.HeadBecomes != "" {
		if err := r.linkHead(); err != nil {
			return err
		}
	}
	if err := r.syncDir(); err != nil {
		return err
	}
	vm := r.meta.vm
	vm.Head, vm.Parent, vm.Size, vm.BackingFilePath = head, r.to.HeadParent, r.to.Size, r.to.BackingFile
	if vm.AnkoleStamp != "" {
		vm.AnkoleHead = head
	}
	if r.to.NewHead {
		vm.AnkoleGivenUp = append(slices.Clone(vm.AnkoleGivenUp), old)
	}
	if err := r.meta.writeVolumeMeta(&vm); err != nil {
		return err
	}
	if head != old {
		r.removal.keep(old)
		if err := r.removal.removeOldHead(old, ""); err != nil { // the next open removes its whiteouts
			return err
		}
	}
	return r.removeUnnamed()
}

// stayHead adapts the head to the volume's size and to what will be below it.
func (r *reshaping) stayHead() error {
	if err := r.fit(r.openFiles.head().file, r.to.Size); err != nil {
		return err
	}
	d := *r.meta.disks[r.meta.vm.Head]
	d.Parent, d.Created, d.Labels = r.to.HeadParent, r.to.Created, r.to.HeadLabels
	return r.meta.writeDiskMeta(r.meta.vm.Head, &d)
}

// headBecomes is the layer that the present head turns into, nil for none.
func (r *reshaping) headBecomes() *LayerSpec {
	for i := range r.to.Layers {
		if l := &r.to.Layers[i]; l.File == r.to.HeadBecomes {
			return l
		}
	}
	return nil
}

// linkHead gives the present head the name of the snapshot it becomes. Until the commit the two
// names are one file, which the next open recognises.
func (r *reshaping) linkHead() error {
	l := r.headBecomes()
	if err := r.removeFiles(l.File); err != nil {
		return err
	}
	if err := r.fit(r.openFiles.head().file, l.Size); err != nil {
		return err
	}
	if err := r.fs.Link(r.path(r.meta.vm.Head), r.path(l.File)); err != nil {
		return err
	}
	d := l.Meta
	d.whiteouts = r.meta.disks[r.meta.vm.Head].whiteouts
	return r.breaksUnlessFull(r.fs.WriteFileAtomic(r.path(l.File+metaSuffix), d.encode()))
}

// removeFiles removes whatever a snapshot of this name has, its checksums durably: another file is
// to have the name.
func (r *reshaping) removeFiles(file string) error {
	if err := r.checksums.void(file); err != nil {
		return r.breaks(err)
	}
	if err := r.removal.unlink(file); err != nil {
		return err
	}
	return removeIfThere(r.fs, r.path(file+metaSuffix))
}

// removeUnnamed removes the snapshots that are not part of the shape.
func (r *reshaping) removeUnnamed() error {
	names, err := r.fs.List(r.dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		if _, snap := snapshotName(name); !snap || r.to.names(name) {
			continue
		}
		if err := r.removal.removeLeaf(r.side, name); err != nil {
			return err
		}
	}
	return r.syncDir()
}
