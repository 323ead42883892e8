package chain

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"ankole.storage/dataplane/disk"
)

// opening is the part of Open that reads a directory's metadata, refuses what no crash and no
// engine leaves, and clears what a crash has left. Nothing is removed before nothing can refuse the
// directory any more.
//
// Its own are names and strays; it ends with Open.
type opening struct {
	*directory
	meta          *meta
	whiteoutFiles *whiteoutFiles
	removal       *removal
	opts          *Options
	// names are those in the directory, as they are on the disk.
	names []string
	// strays are files that no finished operation leaves.
	strays []string
}

func newOpening(c *Files) *opening {
	return &opening{directory: c.directory, meta: c.meta, whiteoutFiles: c.whiteoutFiles, removal: c.removal,
		opts: &c.opts}
}

// loadDisks reads the layers' metadata, all branches, and finishes what a purge has begun. It finds
// what crashes left behind.
func (o *opening) loadDisks(s *Sidecars) error {
	head, err := o.fs.Stat(o.path(o.meta.vm.Head))
	if isNotFound(err) {
		return fmt.Errorf("%w: head %s is missing", ErrCorrupt, o.meta.vm.Head)
	}
	if err != nil {
		return err
	}
	if o.strays, err = o.findStrays(head.Inode); err != nil {
		return err
	}
	if err = o.checkHead(head); err != nil {
		return err
	}
	for _, name := range o.names {
		file, ok := strings.CutSuffix(name, metaSuffix)
		if !ok || !isLayerFile(file) || slices.Contains(o.strays, name) {
			continue
		}
		data, err := o.meta.readMeta(name)
		if err != nil {
			return err
		}
		d, err := parseDiskMeta(file, data)
		if err != nil {
			return err
		}
		o.meta.disks[file] = d
	}
	live, err := o.meta.liveChain()
	if err == nil {
		err = o.checkHeadParent(s)
	}
	if err == nil {
		err = o.checkStrays(live)
	}
	if err == nil {
		err = o.removal.finishMerges(s)
	}
	if err == nil {
		live, err = o.meta.liveChain()
	}
	if err != nil {
		return err
	}
	o.dropImageless(live)
	s.recoverAbsent(o.meta)
	if err := o.whiteoutFiles.void(); err != nil {
		return err
	}
	o.whiteoutFiles.missing(o.names)
	o.strays = append(o.strays, o.whiteoutFiles.strays(o.names)...)
	return nil
}

// findStrays lists the files that no finished operation leaves: temporary files, heads other than
// volume.meta's, and snapshots that are the same file as the head, from a rotation that was not
// committed.
func (o *opening) findStrays(headInode uint64) ([]string, error) {
	var strays []string
	for _, name := range o.names {
		file := strings.TrimSuffix(strings.TrimSuffix(name, metaSuffix), checksumSuffix)
		_, isSnap := snapshotName(name)
		switch {
		case strings.HasSuffix(name, tmpSuffix), strings.HasSuffix(name, restoreTmpSuffix),
			strings.HasSuffix(name, restoreTmpSuffix+metaSuffix):
			if strings.HasPrefix(name, "volume") || strings.HasPrefix(name, "ankole.") || strings.HasPrefix(name, revisionName) {
				strays = append(strays, name)
			}
		case isHeadFile(file) && file != o.meta.vm.Head:
			strays = append(strays, name)
		case strings.HasSuffix(name, sumsSuffix):
			// Other engines remove a snapshot without knowing this file.
			image := strings.TrimSuffix(name, sumsSuffix)
			if _, ok := snapshotName(image); ok && !slices.Contains(o.names, image) {
				strays = append(strays, name)
			}
		case isSnap:
			info, err := o.fs.Stat(o.path(name))
			if err != nil {
				return nil, err
			}
			if info.Inode != headInode {
				continue
			}
			for _, n := range []string{name, name + metaSuffix, name + checksumSuffix, name + sumsSuffix} {
				if slices.Contains(o.names, n) {
					strays = append(strays, n)
				}
			}
		}
	}
	return strays, nil
}

// checkStrays refuses to go on where a layer of the live chain is missing, or cleaning up would
// take it away.
func (o *opening) checkStrays(live []string) error {
	for _, name := range live {
		if !slices.Contains(o.names, name) {
			return fmt.Errorf("%w: %s of the chain is missing", ErrCorrupt, name)
		}
		if slices.Contains(o.strays, name) {
			return fmt.Errorf("%w: %s of the chain is the same file as the head", ErrCorrupt, name)
		}
	}
	return nil
}

// dropImageless forgets layers of other branches whose image is missing: nothing can be read from
// them. Strays are the metadata files that an interrupted removal left, or a rotation that was not
// committed: beside the head, with nothing on it. Other engines fail on them.
func (o *opening) dropImageless(live []string) {
	for _, file := range slices.Sorted(maps.Keys(o.meta.disks)) {
		if slices.Contains(o.names, file) || slices.Contains(live, file) {
			continue
		}
		rotated := o.meta.disks[file].Parent == o.meta.disks[o.meta.vm.Head].Parent && len(o.meta.children(file)) == 0
		if o.meta.disks[file].Removed || rotated {
			o.strays = append(o.strays, file+metaSuffix)
		} else {
			o.log.Warn("metadata without an image file ignored", "dir", o.dir, "file", file+metaSuffix)
		}
		delete(o.meta.disks, file)
	}
}

func (o *opening) removeStrays() error {
	if len(o.strays) == 0 || o.readOnly {
		return nil
	}
	if err := o.meta.mark(o.strays...); err != nil { // the copy of a directory that was closed has them
		return err
	}
	for _, name := range o.strays {
		o.log.Info("stray file removed", "dir", o.dir, "file", name)
		if err := removeIfThere(o.fs, o.path(name)); err != nil {
			return err
		}
	}
	return o.syncDir()
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
