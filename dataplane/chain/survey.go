package chain

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"ankole.storage/dataplane/chain/twoslot"
	"ankole.storage/dataplane/disk"
)

// Survey is what the files of a directory say, read as far as they can be read: for tools that
// explain a directory which Open would refuse.
type Survey struct {
	// Names are all names in the directory, sorted.
	Names []string
	// Volume is volume.meta, nil where it is missing, empty or unreadable; VolumeError says which.
	Volume      *VolumeFacts
	VolumeError error
	// Changed says what was changed since the directory was closed, nil where nothing is known of it.
	Changed error
	// Layers are the layers' metadata by image file, LayerErrors why some could not be read.
	Layers      map[string]DiskMeta
	LayerErrors map[string]error
	// Strays are files that no finished operation leaves; Open for writing removes them.
	Strays []string
	// WhiteoutsWhy says by layer why what it hides of the layers below it is not known.
	WhiteoutsWhy map[string]string
	// Record is the member record; RecordWhy says why it is not known, "" where it is.
	Record    Record
	RecordWhy string
	// Regions is the dirty log; RegionsWhy says why every region must be taken for dirty, "" where
	// Regions is known.
	Regions    []Region
	RegionsWhy string
	// Revision is revision.counter, nil where it is missing or unreadable; RevisionError says the
	// latter.
	Revision      *int64
	RevisionError error
}

// VolumeFacts is the content of volume.meta.
type VolumeFacts struct {
	SizeBytes                                int64
	Head, Parent, Error, BackingFile         string
	Dirty, Rebuilding, Encrypted, Incomplete bool
	// Stamp binds the sidecars, "" for none; OwnHead is the head in which an unwritten extent can
	// only be an interrupted write.
	Stamp, OwnHead string
}

// ReadSurvey looks at a directory without locking or changing it. An error means that the directory
// cannot be listed.
func ReadSurvey(fs disk.Meta, dir string) (*Survey, error) {
	names, err := fs.List(dir)
	if err != nil {
		return nil, err
	}
	s := &Survey{Names: names, Layers: map[string]DiskMeta{}, LayerErrors: map[string]error{}}
	c := lookAround(fs, dir)
	c.meta.copies.held = readCopy(fs, dir)
	s.readVolume(c)
	s.readLayers(c)
	s.readWhiteouts(c)
	s.readSidecars(c)
	if v, exists, err := c.revision.RevisionCounter(); err != nil {
		s.RevisionError = err
	} else if exists {
		s.Revision = &v
	}
	return s, nil
}

func (s *Survey) readVolume(c *Files) {
	data, err := c.meta.readMeta(volumeMetaName)
	if err == nil && len(data) == 0 {
		err = fmt.Errorf("%w: %s is empty", disk.ErrNotFound, volumeMetaName)
	}
	var vm *volumeMeta
	if err == nil {
		vm, err = parseVolumeMeta(data)
	}
	if err != nil {
		s.VolumeError = err
		return
	}
	c.meta.vm = *vm
	s.Changed = c.meta.checkSeal(s.Names)
	s.Volume = &VolumeFacts{SizeBytes: vm.Size, Head: vm.Head, Parent: vm.Parent, Error: vm.Error,
		BackingFile: vm.BackingFilePath,
		Dirty:       vm.Dirty, Rebuilding: vm.Rebuilding, Encrypted: vm.Encrypted != nil && *vm.Encrypted,
		Incomplete: vm.AnkoleIncomplete, Stamp: vm.AnkoleStamp, OwnHead: vm.AnkoleHead}
}

func (s *Survey) readLayers(c *Files) {
	if s.Volume != nil {
		if head, err := c.fs.Stat(c.path(c.meta.vm.Head)); err == nil {
			o := newOpening(c)
			o.names = s.Names
			s.Strays, _ = o.findStrays(head.Inode) // what cannot be looked at is told by its own error below
		}
	}
	for _, name := range s.Names {
		file, ok := strings.CutSuffix(name, metaSuffix)
		if !ok || !isLayerFile(file) || slices.Contains(s.Strays, name) {
			continue
		}
		var d *DiskMeta
		data, err := c.meta.readMeta(name)
		if err == nil {
			d, err = parseDiskMeta(file, data)
		}
		if err != nil {
			s.LayerErrors[file] = err
			continue
		}
		s.Layers[file] = *d
	}
}

func (s *Survey) readWhiteouts(c *Files) {
	c.meta.disks = map[string]*DiskMeta{}
	for file := range s.Layers {
		d := s.Layers[file]
		c.meta.disks[file] = &d
	}
	s.Strays = append(s.Strays, c.whiteoutFiles.strays(s.Names)...)
	s.WhiteoutsWhy = map[string]string{}
	for file, d := range s.Layers {
		if d.whiteouts == "" {
			continue
		}
		if c.meta.vm.whiteoutKey() == (Stamp{}) {
			s.WhiteoutsWhy[file] = "volume.meta has lost their key: another kind of engine has rewritten it"
			continue
		}
		w, err := c.whiteoutFiles.open(file, disk.ReadOnly)
		if err == nil && w == nil {
			err = fmt.Errorf("%w: %s is missing", disk.ErrNotFound, whiteoutName(d.whiteouts))
		}
		if err == nil {
			err = errors.Join(w.each(0, func(number int64, p *whiteoutsOf) error {
				if p.damaged {
					return fmt.Errorf("%w: page %d of %s is damaged", ErrCorrupt, number, whiteoutName(d.whiteouts))
				}
				return nil
			}), w.close())
		}
		if err != nil {
			s.WhiteoutsWhy[file] = err.Error()
		}
	}
}

func (s *Survey) readSidecars(c *Files) {
	payload, why := c.surveySlots(s.Names, memberName, memberMagic)
	if s.RecordWhy = why; why == "" {
		r, err := decodeRecord(payload)
		if s.Record = r; err != nil {
			s.RecordWhy = err.Error()
		}
	}
	payload, why = c.surveySlots(s.Names, dirtyName, dirtyMagic)
	if s.RegionsWhy = why; why == "" {
		set, known, _, err := decodeRegions(payload)
		switch {
		case err != nil:
			s.RegionsWhy = err.Error()
		case !known:
			s.RegionsWhy = "the log says that every region is dirty"
		}
		s.Regions = set
	}
}

// surveySlots returns a sidecar's newest payload, or why it is void.
func (c *Files) surveySlots(names []string, name, magic string) (payload []byte, why string) {
	if !slices.Contains(names, name) {
		return nil, "there is no " + name + ": no engine of this kind has used the directory"
	}
	stamp := c.meta.vm.stamp()
	if stamp == (Stamp{}) {
		return nil, "volume.meta carries no stamp: another kind of engine has rewritten it, or it was lost"
	}
	data, err := c.fs.ReadFile(c.path(name), 4*slotSize)
	if err != nil {
		return nil, err.Error()
	}
	if p := format(magic).Newest(twoslot.Owner{Key: stamp}, data); p.Valid > 0 {
		return bytes.Clone(p.Payload), ""
	}
	for i := range len(data) / slotSize {
		if o, _, _, ok := format(magic).Decode(data[i*slotSize : (i+1)*slotSize]); ok && o.Key != stamp {
			return nil, fmt.Sprintf("%s carries the stamp %s, volume.meta %s: they do not belong together", name,
				Stamp(o.Key), stamp)
		}
	}
	return nil, "both copies in " + name + " are damaged"
}

// SnapshotFile is the image file of a snapshot, or "" for a name no snapshot can have.
func SnapshotFile(name string) string {
	if file := snapshotFile(name); isLayerFile(file) {
		return file
	}
	return ""
}

// LayerName is what listings call an image file: the snapshot's name, HeadName for a head; ok is
// false for a name that is no layer's.
func LayerName(file string) (name string, ok bool) { return displayName(file), isLayerFile(file) }

// LiveChain follows parents from head down and returns the files bottom first. What could be
// followed is returned with the error where a link is broken.
func (s *Survey) LiveChain(head string) ([]string, error) {
	var live []string
	for name := head; name != ""; {
		d, ok := s.Layers[name]
		if !ok {
			slices.Reverse(live)
			return live, fmt.Errorf("%w: the chain needs %s%s, which is missing or unreadable", ErrCorrupt, name, metaSuffix)
		}
		if slices.Contains(live, name) || len(live) == maxChain {
			slices.Reverse(live)
			return live, fmt.Errorf("%w: the chain from %s is longer than %d files or runs in a circle", ErrCorrupt,
				head, maxChain)
		}
		live, name = append(live, name), d.Parent
	}
	slices.Reverse(live)
	return live, nil
}

// At returns a read-only chain of what the volume was at a snapshot of any branch, or is at the
// head for HeadName. It holds no lock, has files and memory of its own, and is given back by Close.
// ErrNotFound if there is no such snapshot.
func (c *Files) At(snapshot string) (*Chain, error) { return c.at(snapshot) }

// WriteHead writes whole blocks to the head the blocking way, for tools. Durable after Sync.
func (c *Chain) WriteHead(p []byte, off int64) error {
	if err := c.Files.usable(); err != nil {
		return err
	}
	if n := int64(len(p)); off < 0 || n == 0 || (off|n)%blockSize != 0 || off > c.Size() || n > c.Size()-off {
		return fmt.Errorf("%w: write of [%d,+%d) to a head of %d bytes", ErrInvalid, off, n, c.Size())
	}
	if _, err := c.Files.openFiles.head().file.WriteAt(p, off); err != nil {
		return err
	}
	c.MarkWritten(off, int64(len(p)))
	return nil
}
