package chain

import (
	"bytes"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"ankole.storage/dataplane/disk"
)

// Spec describes a replica directory to make.
type Spec struct {
	// Size is the volume's size in bytes, a positive multiple of 4096.
	Size       int64
	VolumeUUID UUID
	// Self is the replica's own name in the member record.
	Self        string
	BackingFile string
	// Encrypted: a LUKS header begins the volume. It is noted, and read by nobody here.
	Encrypted bool
	// Created is the head's creation time, RFC 3339, UTC.
	Created string
	// Layers are the snapshots to make as empty sparse files, parents before children; used for
	// rebuild targets.
	Layers []LayerSpec
	// HeadParent is the snapshot file below the head, "" for none.
	HeadParent string
	// HeadLabels are the head's, see SetImportMark.
	HeadLabels map[string]string
	// Rebuilding marks the directory as an incomplete rebuild target until FinishRebuild.
	Rebuilding bool
}

// LayerSpec describes one snapshot file of a Spec.
type LayerSpec struct {
	// File is the image's file name, volume-snap-<name>.img.
	File string
	// Size is the apparent size in bytes.
	Size int64
	Meta DiskMeta
	// Whiteouts: the source's layer has some, so Reshape makes a file for them.
	Whiteouts bool
}

// Create makes a replica directory; everything is durable when it returns nil. volume.meta comes
// last, so a crash leaves either a whole directory or one that counts as not there and can be
// created again. A directory that holds a replica already is left alone, without an error; so is
// one that only lost its volume.meta, which Open recovers.
func Create(fs disk.Meta, dir string, spec Spec, opts Options) error {
	if err := opts.setDefaults(); err != nil {
		return err
	}
	if err := spec.validate(); err != nil {
		return err
	}
	if err := makeDirectory(fs, dir); err != nil {
		return fmt.Errorf("create replica directory %s: %w", dir, err)
	}
	lock, err := fs.Lock(dir)
	if err != nil {
		return fmt.Errorf("create replica directory %s: %w", dir, err)
	}
	defer lock.Close() // releases the lock; nothing to lose
	empty, err := holdsNothing(fs, dir)
	if err == nil && empty {
		err = populate(fs, dir, &spec, &opts)
	}
	if err != nil {
		return fmt.Errorf("create replica directory %s: %w", dir, err)
	}
	return nil
}

// CreateSkeleton makes a directory into an empty copy of another replica's chain, as a rebuild
// target: every snapshot as a sparse file with its metadata, an empty head, Rebuilding set. What a
// replica that was there before held is given up: its metadata is first durably marked as
// incomplete, and a crash before the end leaves StateInitial.
func CreateSkeleton(fs disk.Meta, dir string, spec Spec, opts Options) error {
	if err := opts.setDefaults(); err != nil {
		return err
	}
	spec.Rebuilding = true
	if err := spec.validate(); err != nil {
		return err
	}
	if err := makeDirectory(fs, dir); err != nil {
		return fmt.Errorf("create rebuild target %s: %w", dir, err)
	}
	lock, err := fs.Lock(dir)
	if err != nil {
		return fmt.Errorf("create rebuild target %s: %w", dir, err)
	}
	defer lock.Close() // releases the lock; nothing to lose
	if err = markIncomplete(fs, dir, spec.Size); err == nil {
		err = populate(fs, dir, &spec, &opts)
	}
	if err != nil {
		return fmt.Errorf("create rebuild target %s: %w", dir, err)
	}
	return nil
}

// Validate tells whether a directory can be made to the specification; ErrInvalid or ErrLimit if
// not.
func (s *Spec) Validate() error { return s.validate() }

func (s *Spec) validate() error {
	if err := validateSize(s.Size); err != nil {
		return err
	}
	if len(s.Self) > MaxNameLength {
		return fmt.Errorf("%w: replica name of %d bytes", ErrInvalid, len(s.Self))
	}
	if len(s.Layers) >= maxChain {
		return fmt.Errorf("%w: %d snapshots; at most %d fit below a head", ErrLimit, len(s.Layers), maxChain-1)
	}
	var seen []string
	for _, l := range s.Layers {
		if _, ok := snapshotName(l.File); !ok || slices.Contains(seen, l.File) {
			return fmt.Errorf("%w: layer %q is not a snapshot file or is named twice", ErrInvalid, l.File)
		}
		if l.Size < 0 || l.Size > s.Size {
			return fmt.Errorf("%w: layer %s of %d bytes in a volume of %d", ErrInvalid, l.File, l.Size, s.Size)
		}
		if l.Meta.Parent != "" && !slices.Contains(seen, l.Meta.Parent) {
			return fmt.Errorf("%w: parent %q of layer %s does not precede it", ErrInvalid, l.Meta.Parent, l.File)
		}
		seen = append(seen, l.File)
	}
	if s.HeadParent != "" && !slices.Contains(seen, s.HeadParent) {
		return fmt.Errorf("%w: the head's parent %q is not among the layers", ErrInvalid, s.HeadParent)
	}
	return nil
}

// makeDirectory makes dir if it is missing, durably.
func makeDirectory(fs disk.Meta, dir string) error {
	// A directory inherits the hint of the one it is made in.
	if err := checkFileSystem(fs, path.Dir(dir)); err != nil {
		return err
	}
	err := fs.Mkdir(dir)
	if err != nil && !errors.Is(err, disk.ErrExists) {
		return err
	}
	// Also when it exists: whoever made it may have crashed before this.
	return fs.SyncDir(path.Dir(dir))
}

// holdsNothing tells whether a directory may be filled: it has no volume.meta, or one that says the
// directory is incomplete, and in the first case no layer with data in it. Layers of a Create that
// did not finish hold nothing.
func holdsNothing(fs disk.Meta, dir string) (bool, error) {
	data, _, err := readCopy(fs, dir).readFile(fs, dir, volumeMetaName)
	if err != nil && !isNotFound(err) {
		return false, err
	}
	if err == nil && len(data) > 0 {
		vm, err := parseVolumeMeta(data)
		return err == nil && vm.AnkoleIncomplete, err
	}
	missing := isNotFound(err)
	names, err := fs.List(dir)
	if err != nil {
		return false, err
	}
	if !missing && slices.Contains(names, memberName) {
		return false, lostMeta(dir) // see notOurs; of a Create that did not finish it is missing
	}
	for _, name := range names {
		if !isLayerFile(name) {
			continue
		}
		info, err := fs.Stat(dir + "/" + name)
		if err != nil || info.Allocated > 0 {
			return false, err
		}
	}
	return true, nil
}

// populate fills a directory whose volume.meta is missing, empty or marked incomplete, and replaces
// that at the end. First that is made durable: a process that was killed may have left it in the
// system's memory only, above a replica that is still on the disk.
func populate(fs disk.Meta, dir string, s *Spec, opts *Options) error {
	if err := fs.SyncDir(dir); err != nil {
		return err
	}
	stamp, err := newStamp(opts.Rand)
	if err != nil {
		return err
	}
	if err := wipe(fs, dir); err != nil {
		return err
	}
	for i := range s.Layers {
		if err := createLayer(fs, dir, s.Layers[i].File, s.Layers[i].Size, &s.Layers[i].Meta); err != nil {
			return err
		}
	}
	head := headFile(0)
	if err := createLayer(fs, dir, head, s.Size,
		&DiskMeta{Name: head, Parent: s.HeadParent, Created: s.Created, Labels: s.HeadLabels}); err != nil {
		return err
	}
	r := Record{VolumeUUID: s.VolumeUUID, Self: s.Self}
	member, dirty, err := createSidecars(fs, dir, stamp, &r, []Region{}, Boot{})
	if err != nil {
		return err
	}
	absent, err := createAbsent(fs, dir, stamp, s.Size)
	if err != nil {
		return errors.Join(err, member.file.Close(), dirty.file.Close())
	}
	if err := errors.Join(member.file.Close(), dirty.file.Close(), absent.file.Close()); err != nil {
		return err
	}
	if err := fs.SyncDir(dir); err != nil {
		return err
	}
	vm := volumeMeta{Size: s.Size, Head: head, Rebuilding: s.Rebuilding, Parent: s.HeadParent, SectorSize: metaSectorSize,
		BackingFilePath: s.BackingFile, Encrypted: &s.Encrypted, AnkoleStamp: stamp.String(), AnkoleHead: head}
	return fs.WriteFileAtomic(dir+"/"+volumeMetaName, vm.encode())
}

// createLayer makes a sparse image and its metadata, durable but for the image's name.
func createLayer(fs disk.Meta, dir, file string, size int64, d *DiskMeta) error {
	if err := createImage(fs, dir+"/"+file, size); err != nil {
		return fmt.Errorf("%w: %w", err, disk.ErrUnchanged)
	}
	return fs.WriteFileAtomic(dir+"/"+file+metaSuffix, d.encode())
}

func createImage(fs disk.Meta, path string, size int64) error {
	f, err := fs.Create(path, disk.Direct)
	if err != nil {
		return err
	}
	if err = f.Truncate(size); err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// markIncomplete durably turns whatever volume.meta says into "holds nothing", so that no crash on
// the way leaves something that could be taken for a replica. To engines that do not know our key
// it is an unfinished rebuild target.
func markIncomplete(fs disk.Meta, dir string, size int64) error {
	vm := volumeMeta{Size: size, Head: headFile(0), Rebuilding: true, SectorSize: metaSectorSize, AnkoleIncomplete: true}
	err := fs.WriteFileAtomic(dir+"/"+volumeMetaName, vm.encode())
	if errors.Is(err, disk.ErrNoSpace) {
		return markInPlace(fs, dir, vm.encode(), err)
	}
	return err
}

// metaSector is how much of a file a crash leaves either as it was or as it was written.
const metaSector = 512

// markInPlace is markIncomplete where there is no room for another file, not even to give space
// back: it writes over the beginning of the present volume.meta. What is left of that behind it is
// not read.
func markInPlace(fs disk.Meta, dir string, data []byte, full error) error {
	// A crash may leave the file with its old time: there must be no copy of its old content.
	if err := removeIfThere(fs, dir+"/"+copyName); err != nil {
		return err
	}
	if err := fs.SyncDir(dir); err != nil { // the file that has the name must be the one that a crash leaves
		return err
	}
	f, err := fs.Open(dir+"/"+volumeMetaName, 0)
	if isNotFound(err) {
		return full
	}
	if err != nil {
		return err
	}
	p := append(data, bytes.Repeat([]byte{'\n'}, metaSector-len(data))...)
	_, err = f.WriteAt(p, 0)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// wipe removes every file of the format but volume.meta from a directory.
func wipe(fs disk.Meta, dir string) error {
	names, err := fs.List(dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		if !ownedName(name) || name == volumeMetaName {
			continue
		}
		if err := removeIfThere(fs, dir+"/"+name); err != nil {
			return err
		}
	}
	return fs.SyncDir(dir)
}

// ownedName tells whether a name is one of the format's.
func ownedName(name string) bool {
	for _, p := range []string{headPrefix, snapPrefix, volumeMetaName, revisionName, "ankole.", deltaPrefix} {
		if strings.HasPrefix(name, p) {
			return true
		}
	}
	return false
}
