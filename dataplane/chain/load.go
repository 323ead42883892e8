package chain

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"ankole.storage/disk"
)

// loadDisks reads the layers' metadata, all branches, and clears what crashes left lying about.
func (c *Chain) loadDisks(names []string) error {
	head, err := c.fs.Stat(c.path(c.vm.Head))
	if isNotFound(err) {
		return fmt.Errorf("%w: head %s is missing", ErrCorrupt, c.vm.Head)
	}
	if err != nil {
		return err
	}
	strays, err := c.findStrays(names, head.Inode)
	if err != nil {
		return err
	}
	for _, name := range names {
		file, ok := strings.CutSuffix(name, metaSuffix)
		if !ok || !isLayerFile(file) || slices.Contains(strays, name) {
			continue
		}
		data, err := c.fs.ReadFile(c.path(name), maxMetaBytes)
		if err != nil {
			return err
		}
		d, err := parseDiskMeta(file, data)
		if err != nil {
			return err
		}
		c.disks[file] = d
	}
	live, err := c.liveChain()
	if err != nil {
		return err
	}
	if err := c.checkStrays(strays, live); err != nil {
		return err
	}
	strays = append(strays, c.dropImageless(names, live)...)
	if !slices.Contains(names, importName) {
		c.settleAbsent()
		return c.removeStrays(strays)
	}
	uncommitted, err := c.findUncommitted(names, live)
	if err != nil {
		return err
	}
	c.settleAbsent()
	// The import's own name tells that a snapshot was not committed, so it must stay for as long as that one is there.
	if err := c.removeStrays(append(strays, uncommitted...)); err != nil {
		return err
	}
	return c.removeStrays([]string{importName})
}

// findUncommitted forgets snapshots outside the live chain that are the same file as the one an import was writing, and
// returns their files.
func (c *Chain) findUncommitted(names, live []string) (strays []string, err error) {
	own, err := c.fs.Stat(c.path(importName))
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if _, ok := snapshotName(name); !ok || slices.Contains(live, name) {
			continue
		}
		info, err := c.fs.Stat(c.path(name))
		if isNotFound(err) {
			continue // a stray that is listed already
		}
		if err != nil {
			return nil, err
		}
		if info.Inode != own.Inode {
			continue
		}
		delete(c.disks, name)
		strays = append(strays, name, name+metaSuffix)
	}
	return strays, nil
}

// findStrays lists the files that no finished operation leaves: temporary files, heads other than volume.meta's, and
// snapshots that are the same file as the head, from a rotation that was not committed.
func (c *Chain) findStrays(names []string, headInode uint64) ([]string, error) {
	var strays []string
	for _, name := range names {
		file := strings.TrimSuffix(strings.TrimSuffix(name, metaSuffix), checksumSuffix)
		_, isSnap := snapshotName(name)
		switch {
		case strings.HasSuffix(name, tmpSuffix), strings.HasSuffix(name, restoreTmpSuffix),
			strings.HasSuffix(name, restoreTmpSuffix+metaSuffix):
			if strings.HasPrefix(name, "volume") || strings.HasPrefix(name, "ankole.") || strings.HasPrefix(name, revisionName) {
				strays = append(strays, name)
			}
		case isHeadFile(file) && file != c.vm.Head:
			strays = append(strays, name)
		case strings.HasSuffix(name, sumsSuffix):
			// Other engines remove a snapshot without knowing this file.
			image := strings.TrimSuffix(name, sumsSuffix)
			if _, ok := snapshotName(image); ok && !slices.Contains(names, image) {
				strays = append(strays, name)
			}
		case isSnap:
			info, err := c.fs.Stat(c.path(name))
			if err != nil {
				return nil, err
			}
			if info.Inode != headInode {
				continue
			}
			for _, n := range []string{name, name + metaSuffix, name + checksumSuffix, name + sumsSuffix} {
				if slices.Contains(names, n) {
					strays = append(strays, n)
				}
			}
		}
	}
	return strays, nil
}

// checkStrays refuses to go on where cleaning up would take a layer away.
func (c *Chain) checkStrays(strays, live []string) error {
	for _, name := range live {
		if slices.Contains(strays, name) {
			return fmt.Errorf("%w: %s of the chain is the same file as the head", ErrCorrupt, name)
		}
	}
	return nil
}

// dropImageless forgets layers of other branches whose image is missing: nothing can be read from them. It returns
// the metadata files that an interrupted removal left, or a rotation that was not committed: beside the head, with nothing
// on it. Other engines would stumble over them.
func (c *Chain) dropImageless(names, live []string) (strays []string) {
	for _, file := range slices.Sorted(maps.Keys(c.disks)) {
		if slices.Contains(names, file) || slices.Contains(live, file) {
			continue
		}
		rotated := c.disks[file].Parent == c.disks[c.vm.Head].Parent && len(c.children(file)) == 0
		if c.disks[file].Removed || rotated {
			strays = append(strays, file+metaSuffix)
		} else {
			c.opts.Log.Warn("metadata without an image file ignored", "dir", c.dir, "file", file+metaSuffix)
		}
		delete(c.disks, file)
	}
	return strays
}

func (c *Chain) removeStrays(strays []string) error {
	if len(strays) == 0 || c.opts.ReadOnly {
		return nil
	}
	for _, name := range strays {
		c.opts.Log.Info("stray file removed", "dir", c.dir, "file", name)
		if err := removeIfThere(c.fs, c.path(name)); err != nil {
			return err
		}
	}
	return c.syncDir()
}

// liveChain returns the files from the bottom layer to the head.
func (c *Chain) liveChain() ([]string, error) { return chainOf(c.disks, c.vm.Head) }

// chainOf follows parents from file down and returns the files bottom first.
func chainOf(disks map[string]*DiskMeta, file string) ([]string, error) {
	var live []string
	for name := file; name != ""; {
		d := disks[name]
		if d == nil {
			return nil, fmt.Errorf("%w: the chain needs %s%s, which is missing", ErrCorrupt, name, metaSuffix)
		}
		if live = append(live, name); len(live) > maxChain {
			return nil, fmt.Errorf("%w: the chain from %s is longer than %d files or runs in a circle", ErrCorrupt, file, maxChain)
		}
		name = d.Parent
	}
	slices.Reverse(live)
	return live, nil
}

// Info is what a directory tells without being opened.
type Info struct {
	State      State
	SizeBytes  int64
	Head       string
	Parent     string
	Dirty      bool
	Rebuilding bool
	// Record is the member record; RecordValid is false where it is unknown.
	Record      Record
	RecordValid bool
}

// Inspect reads a directory without locking or changing it. A directory that is missing, empty or
// incomplete is StateInitial;
// unreadable metadata gives StateError and the reason.
func Inspect(fs disk.Meta, dir string) (Info, error) {
	data, err := fs.ReadFile(dir+"/"+volumeMetaName, maxMetaBytes)
	if isNotFound(err) || err == nil && len(data) == 0 {
		return Info{State: StateInitial}, nil
	}
	if err != nil {
		return Info{State: StateError}, err
	}
	vm, err := parseVolumeMeta(data)
	if err != nil {
		return Info{State: StateError}, err
	}
	if vm.AnkoleIncomplete {
		return Info{State: StateInitial}, nil
	}
	info := Info{State: StateClosed, SizeBytes: vm.Size, Head: vm.Head, Parent: vm.Parent, Dirty: vm.Dirty, Rebuilding: vm.Rebuilding}
	c := &Chain{fs: fs, dir: dir, vm: *vm, opts: Options{ReadOnly: true}}
	err = c.openSidecars()
	info.Record, info.RecordValid = c.Record()
	if rerr := c.release(); err == nil {
		err = rerr
	}
	if err != nil {
		info.State = StateError
	}
	return info, err
}
