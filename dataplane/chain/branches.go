package chain

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"ankole.storage/dataplane/disk"
)

// A revert leaves the newer snapshots as a branch: files that the live chain does not go through. A
// rebuild brings them over file by file, so they can be opened beside the live chain, with numbers
// of their own.

// branchFiles lists the snapshots off the live chain, parents before children, in an order that
// follows from names and parents alone.
func (o *openFiles) branchFiles() []string {
	var out []string
	for file := range o.meta.disks {
		if !isHeadFile(file) && o.layerIndex(file) == 0 {
			out = append(out, file)
		}
	}
	depth := func(file string) (n int) {
		for d := o.meta.disks[file]; d != nil && d.Parent != "" && n <= len(o.meta.disks); d = o.meta.disks[d.Parent] {
			n++
		}
		return n
	}
	slices.Sort(out)
	slices.SortStableFunc(out, func(a, b string) int { return depth(a) - depth(b) })
	return out
}

// OpenBranches opens the snapshots off the live chain for a rebuild, for writing if this chain is
// its target, and describes them in the order of their numbers. They stay open until the chain is
// closed or the set of files changes. No I/O on them may be under way.
func (o *openFiles) OpenBranches() ([]LayerInfo, Change, error) {
	list, err := o.openBranches()
	return list, o.changed(), err
}

// OpenBranches is Files.OpenBranches with its Change applied.
func (c *Chain) OpenBranches() ([]LayerInfo, error) {
	list, ch, err := c.Files.openFiles.OpenBranches()
	c.Apply(ch)
	return list, err
}

func (o *openFiles) openBranches() ([]LayerInfo, error) {
	if err := o.readable(); err != nil {
		return nil, err
	}
	if err := o.closeBranches(); err != nil {
		return nil, err
	}
	var out []LayerInfo
	for _, name := range o.branchFiles() {
		mode, err := o.layerMode(name)
		if err != nil {
			return nil, errors.Join(err, o.closeBranches())
		}
		f, err := o.fs.Open(o.path(name), mode)
		if isNotFound(err) {
			err = fmt.Errorf("%w: snapshot %s is missing", ErrCorrupt, name)
		}
		var info disk.Info
		if err == nil {
			o.branches = append(o.branches, layer{name: name, file: f, readOnly: mode&disk.ReadOnly != 0})
			info, err = f.Stat()
		}
		if err == nil {
			o.branches[len(o.branches)-1].whiteouts, err = o.whiteoutFiles.open(name, mode)
		}
		if err == nil && mode&disk.ReadOnly == 0 {
			err = o.whiteoutFiles.clearDamagedPages(o.branches[len(o.branches)-1].whiteouts)
		}
		if err != nil {
			return nil, errors.Join(err, o.closeBranches())
		}
		l := &o.branches[len(o.branches)-1]
		l.size = min(info.Size/blockSize*blockSize, o.meta.vm.Size)
		d := *o.meta.disks[name]
		d.Labels, d.extra, d.whiteouts = maps.Clone(d.Labels), nil, ""
		out = append(out, LayerInfo{File: name, Handle: f.Handle(), Size: l.size, Meta: d})
	}
	return out, nil
}

func (o *openFiles) closeBranches() error {
	var err error
	for _, l := range o.branches {
		err = errors.Join(err, l.close())
	}
	o.branches = nil
	return err
}

// Branches is how many snapshots off the live chain are open.
func (b *Blocks) Branches() int { return len(b.branches) }

// Branch returns the handle, the size and the file of the i-th of them. It does not block or
// allocate.
func (b *Blocks) Branch(i int) (handle int32, size int64, file disk.File) {
	l := &b.branches[i]
	return l.file.Handle(), l.size, l.file
}

// reshapeBranches gives a rebuild target the snapshots off the live chain that it is to have,
// parents first: what it has of that name keeps its content, whatever place it had.
func (r *reshaping) reshapeBranches() error {
	for i := range r.to.Branches {
		l := &r.to.Branches[i]
		err := error(nil)
		if _, there := r.meta.disks[l.File]; there {
			err = r.keepLayer(l, false)
		} else {
			err = r.freshLayer(l)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
