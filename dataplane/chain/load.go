package chain

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"ankole.storage/dataplane/disk"
)

// loadDisks reads the layers' metadata, all branches, and finishes what a purge has begun. It
// returns what crashes left behind, to be removed when nothing can refuse the directory any
// more.
func (c *Files) loadDisks(s *Sidecars, names []string) (strays []string, err error) {
	head, err := c.fs.Stat(c.path(c.meta.vm.Head))
	if isNotFound(err) {
		return nil, fmt.Errorf("%w: head %s is missing", ErrCorrupt, c.meta.vm.Head)
	}
	if err != nil {
		return nil, err
	}
	if strays, err = c.findStrays(names, head.Inode); err != nil {
		return nil, err
	}
	if err = c.checkHead(head, names, strays); err != nil {
		return nil, err
	}
	for _, name := range names {
		file, ok := strings.CutSuffix(name, metaSuffix)
		if !ok || !isLayerFile(file) || slices.Contains(strays, name) {
			continue
		}
		data, err := c.meta.readMeta(name)
		if err != nil {
			return nil, err
		}
		d, err := parseDiskMeta(file, data)
		if err != nil {
			return nil, err
		}
		c.meta.disks[file] = d
	}
	live, err := c.meta.liveChain()
	if err == nil {
		err = c.checkHeadParent(s)
	}
	if err == nil {
		err = c.checkStrays(names, strays, live)
	}
	if err == nil {
		err = c.removal.finishMerges(s)
	}
	if err == nil {
		live, err = c.meta.liveChain()
	}
	if err != nil {
		return nil, err
	}
	strays = append(strays, c.dropImageless(names, live)...)
	s.recoverAbsent(c)
	if err := c.whiteoutFiles.void(); err != nil {
		return nil, err
	}
	c.whiteoutFiles.missing(names)
	return append(strays, c.whiteoutFiles.strays(names)...), nil
}

// findStrays lists the files that no finished operation leaves: temporary files, heads other than
// volume.meta's, and snapshots that are the same file as the head, from a rotation that was not
// committed.
func (c *Files) findStrays(names []string, headInode uint64) ([]string, error) {
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
		case isHeadFile(file) && file != c.meta.vm.Head:
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

// checkStrays refuses to go on where a layer of the live chain is missing, or cleaning up would
// take it away.
func (c *Files) checkStrays(names, strays, live []string) error {
	for _, name := range live {
		if !slices.Contains(names, name) {
			return fmt.Errorf("%w: %s of the chain is missing", ErrCorrupt, name)
		}
		if slices.Contains(strays, name) {
			return fmt.Errorf("%w: %s of the chain is the same file as the head", ErrCorrupt, name)
		}
	}
	return nil
}

// dropImageless forgets layers of other branches whose image is missing: nothing can be read from
// them. It returns the metadata files that an interrupted removal left, or a rotation that was not
// committed: beside the head, with nothing on it. Other engines fail on them.
func (c *Files) dropImageless(names, live []string) (strays []string) {
	for _, file := range slices.Sorted(maps.Keys(c.meta.disks)) {
		if slices.Contains(names, file) || slices.Contains(live, file) {
			continue
		}
		rotated := c.meta.disks[file].Parent == c.meta.disks[c.meta.vm.Head].Parent && len(c.meta.children(file)) == 0
		if c.meta.disks[file].Removed || rotated {
			strays = append(strays, file+metaSuffix)
		} else {
			c.log.Warn("metadata without an image file ignored", "dir", c.dir, "file", file+metaSuffix)
		}
		delete(c.meta.disks, file)
	}
	return strays
}

func (c *Files) removeStrays(strays []string) error {
	if len(strays) == 0 || c.readOnly {
		return nil
	}
	if err := c.meta.mark(strays...); err != nil { // the copy of a directory that was closed has them
		return err
	}
	for _, name := range strays {
		c.log.Info("stray file removed", "dir", c.dir, "file", name)
		if err := removeIfThere(c.fs, c.path(name)); err != nil {
			return err
		}
	}
	return c.syncDir()
}

// chainOf follows parents from file down and returns the files bottom first.
func chainOf(disks map[string]*DiskMeta, file string) ([]string, error) {
	var live []string
	for name := file; name != ""; {
		d := disks[name]
		if d == nil {
			return nil, fmt.Errorf("%w: the chain needs %s%s, which is missing", ErrCorrupt, name, metaSuffix)
		}
		if live = append(live, name); len(live) > maxChain {
			return nil, fmt.Errorf("%w: the chain from %s is longer than %d files or runs in a circle", ErrCorrupt,
				file, maxChain)
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
	data, _, err := readCopy(fs, dir).readFile(fs, dir, volumeMetaName)
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
	info := Info{State: StateClosed, SizeBytes: vm.Size, Head: vm.Head, Parent: vm.Parent, Dirty: vm.Dirty,
		Rebuilding: vm.Rebuilding}
	c := lookAround(fs, dir)
	c.meta.vm = *vm
	s, err := c.openSidecars()
	info.Record, info.RecordValid = s.Record()
	if rerr := s.Close(); err == nil {
		err = rerr
	}
	if err != nil {
		info.State = StateError
	}
	return info, err
}
