package memdisk

import (
	"maps"
	"math/rand/v2"
	"slices"
)

// Op names an operation in rules.
type Op string

// Operations. Those from OpCreate on change something and count for CrashAfter.
const (
	OpOpen    Op = "open"
	OpList    Op = "list"
	OpStat    Op = "stat"
	OpRead    Op = "read"
	OpExtents Op = "extents"
	OpLock    Op = "lock"

	OpCreate      Op = "create"
	OpRename      Op = "rename" // and exchange; by the new name
	OpLink        Op = "link"   // by the new name
	OpRemove      Op = "remove"
	OpMkdir       Op = "mkdir"
	OpSyncDir     Op = "syncdir"
	OpWrite       Op = "write"
	OpSync        Op = "sync"
	OpTruncate    Op = "truncate"
	OpPunch       Op = "punch"
	OpPreallocate Op = "preallocate"
)

// SetCapacity bounds the space for file contents to n bytes; 0 lifts the bound.
func (fs *FS) SetCapacity(n int64) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.capacity = n / pageSize
}

// Used returns the bytes allocated to files.
func (fs *FS) Used() int64 {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	return fs.used * pageSize
}

// Changes returns how many changing operations were tried so far.
func (fs *FS) Changes() int64 {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	return fs.changes
}

// CrashAfter lets n more changing operations happen; from the next one on everything fails with
// ErrCrashed. A negative n lifts that.
func (fs *FS) CrashAfter(n int64) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.budget = n
}

// look runs before every operation that changes nothing.
func (fs *FS) look(op Op, name string) error {
	if fs.budget == 0 {
		return ErrCrashed
	}
	return fs.fault(op, name)
}

// change runs before every operation that changes something.
func (fs *FS) change(op Op, name string) error {
	if fs.budget == 0 {
		return ErrCrashed
	}
	if fs.budget > 0 {
		fs.budget--
	}
	fs.changes++
	return fs.fault(op, name)
}

// Crash returns the file system that is found after losing power now, by a choice that seed
// determines. fs itself stays as it is, so several outcomes of one moment can be looked at.
func (fs *FS) Crash(seed uint64) *FS {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	n := &FS{files: map[int32]*file{}, next: firstHandle, budget: -1, inode: fs.inode, ticks: fs.ticks,
		capacity: fs.capacity}
	c := &crash{r: rand.New(rand.NewPCG(seed, 0)), times: rand.New(rand.NewPCG(seed, 1)), copies: map[*node]*node{},
		spare: &n.spare}
	n.root = c.node(fs.root)
	n.root.links = 1
	for _, k := range c.copies {
		if k.data != nil {
			n.used += k.data.count
		}
	}
	return n
}

// crash copies what survives.
type crash struct {
	// times chooses which of a file's times are on the medium: a sync need not write them.
	r, times *rand.Rand
	copies   map[*node]*node
	spare    *pool
}

func (c *crash) node(old *node) *node {
	if n := c.copies[old]; n != nil {
		return n
	}
	n := &node{inode: old.inode, mtime: old.mtime, ctime: old.ctime, bad: maps.Clone(old.bad),
		stuck: maps.Clone(old.stuck)}
	c.copies[old] = n
	if old.data != nil && old.durable.ctime > 0 && c.times.IntN(2) == 0 {
		n.mtime, n.ctime = old.durable.mtime, old.durable.ctime
	}
	n.durable = times{n.mtime, n.ctime}
	if old.data != nil {
		n.data = old.data.afterCrash(c.r, c.spare)
		return n
	}
	n.dir = &directory{entries: map[string]*node{}}
	names := c.names(old.dir)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		k := c.node(names[name])
		k.links++
		n.dir.entries[name] = k
	}
	n.dir.durable = maps.Clone(n.dir.entries)
	return n
}

// names chooses which of a directory's unsynced changes are on the medium: none, all, the first
// few, or any.
func (c *crash) names(d *directory) map[string]*node {
	out := maps.Clone(d.durable)
	how, upTo := c.r.IntN(4), c.r.IntN(len(d.log)+1)
	for i, change := range d.log {
		any := c.r.IntN(2) == 0
		if how == 0 || how == 2 && i >= upTo || how == 3 && !any {
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(change)) {
			if n := change[name]; n != nil {
				out[name] = n
			} else {
				delete(out, name)
			}
		}
	}
	return out
}

// Utime sets the time of a file's last write, in nanoseconds, as utime(2) does.
func (fs *FS) Utime(name string, mtime int64) error {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	n, err := fs.walk(name)
	if err != nil {
		return place("utime", name, err)
	}
	fs.touch(n, false)
	n.mtime = mtime
	return nil
}
