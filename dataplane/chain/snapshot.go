package chain

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"ankole.storage/dataplane/disk"
)

// expansionLabel is how other engines recognise the snapshots that expansions make.
const expansionLabel = "replica-expansion"

// Usage is what snapshot limits are about.
type Usage struct {
	// Count is the number of snapshots in every branch that are not marked removed.
	Count int
	// Total is the number of all disks: the head, the backing file, removed ones and other branches
	// included.
	Total int
	// SizeBytes is what the live chain's snapshots that are not marked removed occupy, HeadBytes
	// what the head does.
	SizeBytes, HeadBytes int64
}

// Usage counts what SnapshotMaxCount and SnapshotMaxSize limit.
func (c *Files) Usage() (Usage, error) {
	u := Usage{Total: len(c.meta.disks)}
	if c.openFiles.backing {
		u.Total++
	}
	for file, d := range c.meta.disks {
		if file != c.meta.vm.Head && !d.Removed {
			u.Count++
		}
	}
	for i := c.openFiles.bottomIndex(); i < len(c.openFiles.layers); i++ {
		info, err := c.openFiles.layers[i].file.Stat()
		if err != nil {
			return u, err
		}
		switch {
		case i == len(c.openFiles.layers)-1:
			u.HeadBytes = info.Allocated
		case !c.meta.disks[c.openFiles.layers[i].name].Removed:
			u.SizeBytes += info.Allocated
		}
	}
	return u, nil
}

func (c *Files) checkLimits() error {
	u, err := c.Usage()
	if err != nil {
		return err
	}
	switch {
	case u.Count >= c.opts.SnapshotMaxCount:
		return fmt.Errorf("%w: %d snapshots, the maximum is %d; delete some", ErrLimit, u.Count, c.opts.SnapshotMaxCount)
	case u.Total >= maxChain:
		return fmt.Errorf("%w: %d disks in the directory, the maximum is %d; purge removed snapshots", ErrLimit,
			u.Total, maxChain)
	case c.opts.SnapshotMaxSize != 0 && u.HeadBytes > c.opts.SnapshotMaxSize-u.SizeBytes:
		return fmt.Errorf("%w: snapshots would occupy %d bytes, the maximum is %d; delete some", ErrLimit,
			u.SizeBytes+u.HeadBytes, c.opts.SnapshotMaxSize)
	}
	return nil
}

// Snapshot freezes the head as a snapshot and puts an empty head on top. Everything written before
// is durable in the snapshot when it returns nil. created is RFC 3339, UTC. Errors: ErrInvalid,
// ErrExists, ErrLimit, ErrNoSpace; after them the chain is as it was.
func (c *Files) Snapshot(s *Sidecars, name string, userCreated bool, created string, labels map[string]string) (Change,
	error) {
	if err := errors.Join(s.usable(), c.CheckSnapshot(name)); err != nil {
		return Change{}, err
	}
	if err := c.openFiles.provideHeadWhiteouts(); err != nil {
		return Change{}, err
	}
	snap := &DiskMeta{UserCreated: userCreated, Created: created, Labels: maps.Clone(labels)}
	return c.rotate(s, snapshotFile(name), snap, c.meta.vm.Size, created)
}

// provideHeadWhiteouts gives the head of a rebuild target a file for whiteouts: when it is a layer
// the rebuild sets in it those that the source's layer has.
func (o *openFiles) provideHeadWhiteouts() error {
	if !o.meta.vm.Rebuilding || o.head().whiteouts != nil {
		return nil
	}
	w, err := o.whiteoutFiles.add(o.head().name)
	if err == nil {
		o.head().whiteouts = w
	}
	return err
}

// Snapshot is Files.Snapshot with its Change applied.
func (c *Chain) Snapshot(name string, userCreated bool, created string, labels map[string]string) error {
	if err := c.settle(); err != nil {
		return err
	}
	ch, err := c.Files.Snapshot(c.Sidecars, name, userCreated, created, labels)
	c.Apply(ch)
	return err
}

// Expand grows the volume to the size there is room for, by a rotation whose new head has that
// size. The present size is no change; a smaller one is ErrInvalid. What the layer below an empty
// head says of an import stays true of the snapshot that is made of that head.
func (c *Files) Expand(s *Sidecars, room Room, created string) (Change, error) {
	if err := errors.Join(s.usable(), c.CheckExpand(room.size)); err != nil || room.size == c.meta.vm.Size {
		return Change{}, err
	}
	snap := &DiskMeta{Created: created, Labels: map[string]string{expansionLabel: strconv.FormatInt(room.size, 10)}}
	if err := c.openFiles.passImportOn(snap); err != nil {
		return Change{}, err
	}
	return c.rotate(s, expansionFile(room.size), snap, room.size, created)
}

// expansionFile is the snapshot that an expansion to a size makes.
func expansionFile(size int64) string { return snapshotFile("expand-" + strconv.FormatInt(size, 10)) }

// Expand is Files.Expand to newSize bytes, a multiple of 4096, with its Change applied.
func (c *Chain) Expand(newSize int64, created string) error {
	if err := c.CheckExpand(newSize); err != nil {
		return err // rather than have made room for it
	}
	room, err := c.Reserve(newSize)
	if err == nil {
		err = c.settle()
	}
	if err != nil {
		return err
	}
	ch, err := c.Files.Expand(c.Sidecars, room, created)
	c.Apply(ch)
	return err
}

// rotate turns the head into the layer file snap and puts a new head of the given size on top.
// Files and names are durable before volume.meta commits; until then the old head keeps its name,
// so that a crash finds it, and a layer that is the same file as the head is one that was not
// committed.
func (c *Files) rotate(s *Sidecars, file string, snap *DiskMeta, size int64, created string) (Change, error) {
	if c.meta.disks[file] != nil {
		return Change{}, fmt.Errorf("%w: snapshot %s is already existing", ErrExists, displayName(file))
	}
	names, err := c.fs.List(c.dir)
	if err != nil {
		return Change{}, err
	}
	newHead, err := nextHead(names)
	if err != nil {
		return Change{}, err
	}
	old := c.meta.vm.Head
	snap.Name, snap.Parent, snap.whiteouts = file, c.meta.disks[old].Parent, c.meta.disks[old].whiteouts
	r := &rotation{directory: c.directory, meta: c.meta, openFiles: c.openFiles, snap: snap,
		head: &DiskMeta{Name: newHead, Parent: file, Created: created}, size: size}
	err = r.prepare()
	var top layer
	if err == nil {
		top, err = newLayer(newHead, r.image, size)
	}
	if err == nil {
		err = s.headBecomes(c.meta, file)
	}
	if err == nil {
		err = c.meta.commitHead(newHead, file, size)
	}
	if err != nil {
		r.undo()
		return Change{}, err
	}
	frozen := c.openFiles.headIndex()
	r.take(top)
	s.size = size
	ch := c.openFiles.changed()
	ch.frozen = frozen
	return ch, c.removal.removeOldHead(old, snap.whiteouts)
}

// rotation turns the head into a layer, for as long as that takes: what it makes for the new state
// is its own, under names that the old state does not use, until meta.commitHead.
type rotation struct {
	*directory
	meta      *meta
	openFiles *openFiles
	// snap is what is said of the layer that the head becomes, head of the one on top of it.
	snap, head *DiskMeta
	size       int64
	// image is the new head's, once there is one.
	image disk.File
}

// prepare makes everything the new state needs, durably.
func (r *rotation) prepare() error {
	// What was written so far becomes the snapshot: durable before the rotation takes effect.
	if err := r.syncFile(r.openFiles.head().file); err != nil {
		return err
	}
	file, newHead := r.snap.Name, r.head.Name
	// An image, metadata or checksum of this name that is in no chain was left by an earlier
	// attempt.
	for _, stale := range []string{file, file + metaSuffix, file + checksumSuffix, file + sumsSuffix} {
		if err := removeIfThere(r.fs, r.path(stale)); err != nil {
			return err
		}
	}
	f, err := r.fs.Create(r.path(newHead), disk.Direct)
	if err != nil {
		return err
	}
	r.image = f
	if err := r.image.Truncate(r.size); err != nil {
		return err
	}
	if err := r.syncFile(r.image); err != nil {
		return err
	}
	if err := r.fs.WriteFileAtomic(r.path(newHead+metaSuffix), r.head.encode()); err != nil {
		return r.breaksUnlessFull(err)
	}
	if err := r.fs.Link(r.path(r.meta.vm.Head), r.path(file)); err != nil {
		return err
	}
	// This syncs the directory, and with it every name made above.
	return r.breaksUnlessFull(r.fs.WriteFileAtomic(r.path(file+metaSuffix), r.snap.encode()))
}

// undo removes what an uncommitted rotation made. If the commit's outcome is unknown the chain is
// broken and nothing may be removed: either state is whole on disk.
func (r *rotation) undo() {
	if r.image != nil {
		_ = r.image.Close()
	}
	if r.broken != nil {
		return
	}
	var err error
	file, newHead := r.snap.Name, r.head.Name
	for _, name := range []string{file, file + metaSuffix, newHead, newHead + metaSuffix} {
		err = errors.Join(err, removeIfThere(r.fs, r.path(name)))
	}
	if err != nil {
		r.log.Warn("files of a failed rotation remain; the next open removes them", "dir", r.dir, "error", err)
	}
}

// take takes the committed state over in memory. The old head's handle stays open as the layer's.
func (r *rotation) take(top layer) {
	delete(r.meta.disks, r.openFiles.head().name)
	r.meta.gone(r.snap.Name)
	r.openFiles.head().name = r.snap.Name
	r.meta.disks[r.snap.Name], r.meta.disks[r.head.Name] = r.snap, r.head
	r.openFiles.layers = append(r.openFiles.layers, top)
}

// removeOldHead takes the old head's names away, and that of its whiteouts unless a snapshot has
// them now. A crash before it leaves strays, which Open removes.
func (c *removal) removeOldHead(old, whiteouts string) error {
	names := []string{old, old + metaSuffix, old + checksumSuffix}
	if whiteouts != "" && !c.meta.namesWhiteouts(whiteouts) {
		names = append(names, whiteoutName(whiteouts))
	}
	for _, name := range names {
		if err := removeIfThere(c.fs, c.path(name)); err != nil {
			c.log.Warn("old head remains; the next open removes it", "dir", c.dir, "file", name, "error", err)
			c.oldHeads = append(c.oldHeads, name)
		}
	}
	return c.syncDir()
}

// removeOldHeads durably removes what removeOldHead could not, before a snapshot loses its image:
// under a head's name that would look like data of which nobody knows.
func (c *removal) removeOldHeads() error {
	for _, name := range c.oldHeads {
		if err := removeIfThere(c.fs, c.path(name)); err != nil {
			return err
		}
	}
	if len(c.oldHeads) == 0 {
		return nil
	}
	c.oldHeads = nil
	return c.syncDir()
}

// Snapshot listing.

// SnapshotInfo describes one layer for listings, by snapshot names; the head's is HeadName.
type SnapshotInfo struct {
	Name     string
	Parent   string
	Children []string
	Removed  bool
	// UserCreated tells a user's snapshot from one the system made.
	UserCreated bool
	Created     string
	// SizeBytes is what the layer's file occupies.
	SizeBytes int64
	Labels    map[string]string
}

// Snapshots lists all layers of the directory, every branch and the head included, sorted by name.
func (o *openFiles) Snapshots() ([]SnapshotInfo, error) {
	out := make([]SnapshotInfo, 0, len(o.meta.disks))
	for _, file := range slices.Sorted(maps.Keys(o.meta.disks)) {
		d := o.meta.disks[file]
		info, err := o.statImage(file)
		if err != nil {
			return nil, err
		}
		s := SnapshotInfo{Name: displayName(file), Removed: d.Removed, UserCreated: d.UserCreated, Created: d.Created,
			SizeBytes: info.Allocated, Labels: maps.Clone(d.Labels)}
		if d.Parent != "" {
			s.Parent = displayName(d.Parent)
		}
		for _, child := range o.meta.children(file) {
			s.Children = append(s.Children, displayName(child))
		}
		slices.Sort(s.Children)
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b SnapshotInfo) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// statImage describes an image, also one of the live chain that has lost its name.
func (o *openFiles) statImage(file string) (disk.Info, error) {
	if i := o.layerIndex(file); i != 0 {
		return o.layers[i].file.Stat()
	}
	return o.fs.Stat(o.path(file))
}
