// Package disk is the seam between the data path and a file system: the rare, blocking work of
// opening, naming, sizing and syncing files. Reads and writes of volume data do not come through
// here; they go through a loop, by the handle of a file opened here.
//
// What a method leaves durable is part of its contract, because the data path's promises are built
// on it. The model is the one of POSIX and of every journalling file system at its worst: data is
// durable after the file's Sync, a name is durable after SyncDir of its directory, and whatever was
// not synced may be there after a crash, in any combination, torn at 512-byte sectors.
//
// Package osdisk implements it on the machine's file systems, package memdisk in memory with
// crashes, and package disktest is the conformance suite both run.
package disk

import (
	"errors"
	"io/fs"
	"time"
)

// Errors that callers tell apart. Every error of an implementation that has one of these causes
// matches it with errors.Is; the message also names the operation, the path and the system's own
// text.
var (
	// ErrNotFound: no such file or directory.
	ErrNotFound = errors.New("not found")
	// ErrExists: the name is taken.
	ErrExists = errors.New("already exists")
	// ErrNoSpace: the file system (or a quota) has no room.
	ErrNoSpace = errors.New("no space left")
	// ErrInUse: somebody else holds the lock.
	ErrInUse = errors.New("in use")
	// ErrUnsupported: the file system cannot do what a replica directory needs.
	ErrUnsupported = errors.New("not supported by this file system")
	// ErrIO: the medium failed. After one on a Sync nothing about the file's unsynced data is known.
	ErrIO = errors.New("i/o error")
	// ErrUnchanged: WriteFileAtomic has failed before it changed anything. What was durable is.
	ErrUnchanged = errors.New("nothing was changed")
)

// ExtentsPerCall is how many extents one Extents call asks the file system for at most.
const ExtentsPerCall = 1024

// Extent is a piece of a file that the file system has allocated.
type Extent struct {
	// Off and Len are in bytes.
	Off, Len int64
	// Unwritten space is allocated but reads as zeroes: preallocated, or a direct write that a
	// crash cut short.
	Unwritten bool
}

// Info describes a file.
type Info struct {
	// Size is the apparent size in bytes, Allocated what it occupies on the medium.
	Size, Allocated int64
	// Inode identifies the file within its file system whatever its name.
	Inode uint64
	Dir   bool
	Mode  fs.FileMode
	// MTime is the last change of content, CTime the last change of content, size or link count.
	MTime, CTime time.Time
}

// FSInfo describes a file system.
type FSInfo struct {
	// Type is its name: "ext4", "xfs", "tmpfs", …, or a hexadecimal magic number.
	Type string
	// SizeBytes is the whole, FreeBytes what an unprivileged writer may still use.
	SizeBytes, FreeBytes int64
	BlockSize            int64
	// ExtentSizeHint is the allocation unit a directory imposes on files created in it, 0 for none.
	// Such files get unwritten extents around every write, which hide the layers below: chain
	// refuses them.
	ExtentSizeHint int64
}

// Mode says how a file is opened.
type Mode uint8

// Modes can be combined.
const (
	// ReadOnly refuses writes.
	ReadOnly Mode = 1 << iota
	// Direct bypasses the page cache: offsets and lengths of every access through the handle must
	// be multiples of 512 (4096 on devices with such sectors) and buffers page-aligned. ReadAt and
	// WriteAt of File align buffers themselves.
	Direct
)

// File is an open file.
type File interface {
	// Handle is the loop handle of the file; in production its descriptor. It is valid until Close.
	Handle() int32
	// Path is the name the file was opened by.
	Path() string
	// ReadAt fills p from off. Short only at the end of the file, then with io.EOF. Nothing becomes
	// durable.
	ReadAt(p []byte, off int64) (int, error)
	// WriteAt writes p at off, growing the file if need be. Nothing is durable until Sync.
	WriteAt(p []byte, off int64) (int, error)
	// Sync makes every completed write, the size, holes and whatever metadata is needed to read
	// them back durable. The file's name is not part of that. A failed Sync must not be retried:
	// the system may have dropped the data.
	Sync() error
	// Truncate sets the size; new space is a hole. Durable after Sync.
	Truncate(size int64) error
	// Punch makes [off, off+n) a hole and keeps the size. Durable after Sync; before that a crash
	// may bring back any part of what was there.
	Punch(off, n int64) error
	// Preallocate reserves space for [off, off+n) as unwritten extents and grows the size to cover
	// it. Existing data stays. Durable after Sync.
	Preallocate(off, n int64) error
	// Extents appends to out the allocated extents in [off, end of file), cut to that range, in
	// order, at most ExtentsPerCall of them; more tells whether others may follow the last one.
	// Completed writes are included whether synced or not. ErrUnsupported where the file system
	// cannot tell.
	Extents(off int64, out []Extent) (_ []Extent, more bool, err error)
	// Stat describes the file as it is now, synced or not.
	Stat() (Info, error)
	// Close gives the handle back. It makes nothing durable.
	Close() error
}

// Lock is a held directory lock.
type Lock interface {
	// Handle is that of the file which is locked. Whoever keeps it open keeps the lock over the end
	// of the process.
	Handle() int32
	// Close releases the lock, whoever has the file open yet; the end of the process does so as well.
	Close() error
}

// Meta is a file system. Paths are slash-separated; "directory of a path" is what precedes the last
// slash.
type Meta interface {
	// Create makes a new, empty file, mode 0600, and fails with ErrExists if the name is taken. The
	// name is durable after SyncDir of its directory, the content after Sync of the file.
	Create(path string, mode Mode) (File, error)
	// Open opens an existing file.
	Open(path string, mode Mode) (File, error)
	// Rename gives a file another name in one step, replacing what had it. Until SyncDir of the
	// directory a crash may undo it, but never leaves the new name without a file if it had one
	// before.
	Rename(from, to string) error
	// Exchange swaps two existing names of one directory in one step. It needs no space. Durable
	// after SyncDir.
	Exchange(a, b string) error
	// Link gives a file a second name; ErrExists if it is taken. Durable after SyncDir.
	Link(from, to string) error
	// Remove takes a name away. Durable after SyncDir; space returns when the last name and handle
	// are gone.
	Remove(path string) error
	// Mkdir makes a directory, mode 0700, and fails with ErrExists if the name is taken. The parent
	// must exist. Durable after SyncDir of the parent.
	Mkdir(path string) error
	// List returns the names in a directory, sorted.
	List(dir string) ([]string, error)
	// Stat describes what a path names.
	Stat(path string) (Info, error)
	// ReadFile returns the content of a file of at most limit bytes; a longer one is an error.
	ReadFile(path string, limit int64) ([]byte, error)
	// WriteFileAtomic replaces the content of path: it creates path+".tmp", writes and syncs it,
	// renames it and syncs the directory. When it returns nil the new content is durable. After an
	// error or a crash the file has either the old or the new content, whole; after ErrUnchanged
	// the old.
	WriteFileAtomic(path string, data []byte) error
	// SyncDir makes every completed creation, rename, link and removal in dir durable. Whoever has
	// the directory's lock needs no descriptor for it.
	SyncDir(dir string) error
	// Lock takes the exclusive lock of a directory without waiting; ErrInUse if another process or
	// Lock has it.
	Lock(dir string) (Lock, error)
	// Statfs describes the file system that holds path.
	Statfs(path string) (FSInfo, error)
}
