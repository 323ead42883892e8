// Package memdisk implements disk.Meta in memory, with everything a crash can do to a disk.
//
// Names and data live twice: as programs see them, and as the medium has them. Crash returns the
// file system that a machine would find after losing power now: synced data and names are there; of
// everything else a seeded choice of pieces is, torn at 512-byte sectors; space allocated by an
// interrupted write may be there as an unwritten extent that reads as zeroes; a file's times may be
// those from when it got its name. CrashAfter stops the world before the n-th change, so a test can
// walk through every step of an operation; Inject makes chosen operations fail, and SetCapacity
// fills the disk.
//
// A simulated loop reaches file contents through File by handle.
package memdisk

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"ankole.storage/dataplane/disk"
)

// ErrCrashed is what every operation returns after the point set by CrashAfter.
var ErrCrashed = errors.New("memdisk: machine has crashed")

// firstHandle keeps handles apart from file descriptors in traces.
const firstHandle = 1000

// FS is a file system. Its root directory is "/" and exists.
type FS struct {
	mu      sync.Mutex
	root    *node
	files   map[int32]*file
	next    int32
	inode   uint64
	ticks   int64
	changes int64
	// injected counts the operations that a rule has applied to.
	injected int64
	// budget is how many changes may still happen; negative is without bound.
	budget   int64
	rules    []*Rule
	capacity int64 // pages; 0 is without bound
	used     int64 // pages
	spare    pool
}

var _ disk.Meta = (*FS)(nil)

// node is a file or a directory.
type node struct {
	inode  uint64
	links  int
	opened int
	mtime  int64
	ctime  int64
	// durable are the times that a crash cannot take back.
	durable times
	dir     *directory
	data    *content
	// bad pages cannot be read until they are written.
	bad map[int64]bool
	// stuck pages cannot be written until they are somewhere else.
	stuck map[int64]bool
}

// times are when a file was written to and changed.
type times struct{ mtime, ctime int64 }

// directory holds names twice and, between the two, what happened since the last sync.
type directory struct {
	entries map[string]*node
	durable map[string]*node
	log     []nameChange
	locked  bool
}

// nameChange is one atomic change of a directory's names: every name gets the node beside it, nil
// takes it away.
type nameChange map[string]*node

// New returns an empty file system.
func New() *FS {
	fs := &FS{files: map[int32]*file{}, next: firstHandle, budget: -1}
	fs.root = fs.newNode(true)
	fs.root.links = 1
	return fs
}

func (fs *FS) newNode(dir bool) *node {
	fs.inode++
	n := &node{inode: fs.inode}
	if dir {
		n.dir = &directory{entries: map[string]*node{}, durable: map[string]*node{}}
	} else {
		n.data = newContent(&fs.spare)
	}
	fs.touch(n, true)
	return n
}

func (fs *FS) touch(n *node, content bool) {
	fs.ticks++
	n.ctime = fs.ticks
	if content {
		n.mtime = fs.ticks
	}
}

// walk returns what a path names.
func (fs *FS) walk(name string) (*node, error) {
	n := fs.root
	for _, part := range strings.Split(path.Clean("/"+name), "/") {
		if part == "" {
			continue
		}
		if n.dir == nil {
			return nil, disk.ErrNotFound
		}
		if n = n.dir.entries[part]; n == nil {
			return nil, disk.ErrNotFound
		}
	}
	return n, nil
}

// parent returns the directory that holds a path's last name.
func (fs *FS) parent(name string) (*directory, string, error) {
	dir, base := path.Split(path.Clean("/" + name))
	n, err := fs.walk(dir)
	if err != nil {
		return nil, "", err
	}
	if n.dir == nil || base == "" {
		return nil, "", disk.ErrNotFound
	}
	return n.dir, base, nil
}

// apply makes a change of names visible, and durable at the next sync of the directory.
func (d *directory) apply(fs *FS, c nameChange) {
	var gone []*node
	for _, base := range slices.Sorted(maps.Keys(c)) { // sorted: times must not depend on the map's order
		n := c[base]
		if old := d.entries[base]; old != nil {
			old.links--
			gone = append(gone, old)
			fs.touch(old, false)
		}
		if n != nil {
			n.links++
			fs.touch(n, false)
		}
	}
	for base, n := range c {
		if n == nil {
			delete(d.entries, base)
		} else {
			d.entries[base] = n
		}
	}
	for _, old := range gone {
		fs.release(old)
	}
	d.log = append(d.log, c)
}

// release frees the space of a node that nothing refers to any more.
func (fs *FS) release(n *node) {
	if n.data != nil && n.links == 0 && n.opened == 0 {
		fs.used -= n.data.count
	}
}

func place(op, name string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s %s: %w", op, name, err)
}

// Create implements disk.Meta.
func (fs *FS) Create(name string, mode disk.Mode) (disk.File, error) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	return fs.create(name, mode)
}

func (fs *FS) create(name string, mode disk.Mode) (*file, error) {
	if err := fs.change(OpCreate, name); err != nil {
		return nil, err
	}
	d, base, err := fs.parent(name)
	if err != nil {
		return nil, place("create", name, err)
	}
	if d.entries[base] != nil {
		return nil, place("create", name, disk.ErrExists)
	}
	n := fs.newNode(false)
	d.apply(fs, nameChange{base: n})
	return fs.openNode(n, name, mode), nil
}

func (fs *FS) openNode(n *node, name string, mode disk.Mode) *file {
	f := &file{fs: fs, n: n, name: name, mode: mode, handle: fs.next}
	fs.files[f.handle] = f
	fs.next++
	n.opened++
	return f
}

// Open implements disk.Meta.
func (fs *FS) Open(name string, mode disk.Mode) (disk.File, error) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if err := fs.look(OpOpen, name); err != nil {
		return nil, err
	}
	n, err := fs.walk(name)
	if err != nil {
		return nil, place("open", name, err)
	}
	if n.dir != nil {
		return nil, fmt.Errorf("open %s: is a directory", name)
	}
	return fs.openNode(n, name, mode), nil
}

// Rename implements disk.Meta.
func (fs *FS) Rename(from, to string) error {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	return fs.rename(from, to)
}

func (fs *FS) rename(from, to string) error {
	if err := fs.change(OpRename, to); err != nil {
		return err
	}
	d, a, b, err := fs.pair(from, to)
	if err != nil {
		return place("rename", from, err)
	}
	if d.entries[a] == nil {
		return place("rename", from, disk.ErrNotFound)
	}
	if d.entries[a] != d.entries[b] { // two names of one file: nothing happens, as POSIX wants it
		d.apply(fs, nameChange{a: nil, b: d.entries[a]})
	}
	return nil
}

// pair returns the directory of two names; names of different directories are not needed and
// refused.
func (fs *FS) pair(a, b string) (d *directory, baseA, baseB string, err error) {
	if d, baseA, err = fs.parent(a); err != nil {
		return nil, "", "", err
	}
	other, baseB, err := fs.parent(b)
	if err == nil && other != d {
		err = fmt.Errorf("%w: names in different directories", disk.ErrUnsupported)
	}
	return d, baseA, baseB, err
}

// Exchange implements disk.Meta.
func (fs *FS) Exchange(a, b string) error {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if err := fs.change(OpRename, b); err != nil {
		return err
	}
	d, x, y, err := fs.pair(a, b)
	if err != nil {
		return place("exchange", a, err)
	}
	if d.entries[x] == nil || d.entries[y] == nil {
		return place("exchange", a, disk.ErrNotFound)
	}
	d.apply(fs, nameChange{x: d.entries[y], y: d.entries[x]})
	return nil
}

// Link implements disk.Meta.
func (fs *FS) Link(from, to string) error {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if err := fs.change(OpLink, to); err != nil {
		return err
	}
	n, err := fs.walk(from)
	if err != nil {
		return place("link", from, err)
	}
	d, base, err := fs.parent(to)
	switch {
	case err != nil:
		return place("link", to, err)
	case n.dir != nil:
		return place("link", from, disk.ErrUnsupported)
	case d.entries[base] != nil:
		return place("link", to, disk.ErrExists)
	}
	d.apply(fs, nameChange{base: n})
	return nil
}

// Remove implements disk.Meta.
func (fs *FS) Remove(name string) error {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if err := fs.change(OpRemove, name); err != nil {
		return err
	}
	d, base, err := fs.parent(name)
	if err != nil {
		return place("remove", name, err)
	}
	n := d.entries[base]
	switch {
	case n == nil:
		return place("remove", name, disk.ErrNotFound)
	case n.dir != nil && len(n.dir.entries) > 0:
		return fmt.Errorf("remove %s: %w: directory is not empty", name, disk.ErrExists)
	}
	d.apply(fs, nameChange{base: nil})
	return nil
}

// Mkdir implements disk.Meta.
func (fs *FS) Mkdir(name string) error {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if err := fs.change(OpMkdir, name); err != nil {
		return err
	}
	d, base, err := fs.parent(name)
	if err != nil {
		return place("mkdir", name, err)
	}
	if d.entries[base] != nil {
		return place("mkdir", name, disk.ErrExists)
	}
	d.apply(fs, nameChange{base: fs.newNode(true)})
	return nil
}

// List implements disk.Meta.
func (fs *FS) List(dir string) ([]string, error) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if err := fs.look(OpList, dir); err != nil {
		return nil, err
	}
	n, err := fs.walk(dir)
	if err == nil && n.dir == nil {
		err = disk.ErrNotFound
	}
	if err != nil {
		return nil, place("list", dir, err)
	}
	return slices.Sorted(maps.Keys(n.dir.entries)), nil
}

// Stat implements disk.Meta.
func (fs *FS) Stat(name string) (disk.Info, error) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if err := fs.look(OpStat, name); err != nil {
		return disk.Info{}, err
	}
	n, err := fs.walk(name)
	if err != nil {
		return disk.Info{}, place("stat", name, err)
	}
	return n.info(), nil
}

func (n *node) info() disk.Info {
	i := disk.Info{Inode: n.inode, Dir: n.dir != nil, Mode: 0o600, MTime: time.Unix(0, n.mtime),
		CTime: time.Unix(0, n.ctime)}
	if n.data != nil {
		i.Size, i.Allocated = n.data.size, n.data.count*pageSize
	} else {
		i.Mode = 0o700
	}
	return i
}

// SyncDir implements disk.Meta.
func (fs *FS) SyncDir(dir string) error {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	return fs.syncDir(dir)
}

func (fs *FS) syncDir(dir string) error {
	if err := fs.change(OpSyncDir, dir); err != nil {
		return err
	}
	n, err := fs.walk(dir)
	if err == nil && n.dir == nil {
		err = disk.ErrNotFound
	}
	if err != nil {
		return place("sync directory", dir, err)
	}
	n.dir.durable = maps.Clone(n.dir.entries)
	for _, c := range n.dir.log {
		for _, named := range c {
			if named != nil { // the inode is part of the same transaction
				named.durable = times{named.mtime, named.ctime}
			}
		}
	}
	n.dir.log = nil
	return nil
}
