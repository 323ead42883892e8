// Package store keeps the files of backing images on one disk: it makes them, publishes them in one
// step, finds them at a start, compares them with their records, takes those of data sources over
// and removes them.
//
// A file gets its name when it is whole, checked and durable, and its record is durable before
// that. So whatever a crash leaves is either a file with its record, or something that Scan and
// Create remove.
package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path"
	"unsafe"

	"ankole.storage/dataplane/backingimage"
	"ankole.storage/dataplane/backingimage/content"
	"ankole.storage/dataplane/disk"
)

// ErrDamaged: a file is not what its record says, or not what was expected.
var ErrDamaged = errors.New("damaged")

// Disk is the directory of one disk. Its methods may be called from several goroutines, for
// different files.
type Disk struct {
	fs   disk.Meta
	root string
	uuid string
	log  *slog.Logger
}

// New returns the disk whose directory is root. uuid, unless it is empty, is what its configuration
// must say.
func New(fs disk.Meta, root, uuid string, log *slog.Logger) *Disk {
	return &Disk{fs: fs, root: root, uuid: uuid, log: log}
}

// Root is the directory.
func (d *Disk) Root() string { return d.root }

// maxConfig bounds the configuration of a disk, in bytes.
const maxConfig = 64 << 10

// Check says whether the disk is the one it is meant to be: where another one, or none, is mounted,
// files would go to it.
func (d *Disk) Check() error {
	if d.uuid == "" {
		return nil
	}
	name := path.Join(d.root, backingimage.DiskConfig)
	text, err := d.fs.ReadFile(name, maxConfig)
	if err != nil {
		return fmt.Errorf("disk %s is not mounted at %s: %w", d.uuid, d.root, err)
	}
	var config struct {
		DiskUUID string `json:"diskUUID"`
	}
	if err := json.Unmarshal(text, &config); err != nil {
		return fmt.Errorf("disk %s: %s cannot be read: %w", d.uuid, name, err)
	}
	if config.DiskUUID != d.uuid {
		return fmt.Errorf("disk %s is not mounted at %s, but disk %s", d.uuid, d.root, config.DiskUUID)
	}
	return nil
}

// Found is a complete file that was there at a start.
type Found struct {
	ID     backingimage.ID
	Record backingimage.Record
	// Proven: the record is of the file as it is.
	Proven bool
}

// Scan finds the files of images, and removes what crashes have left of others. What it does not
// know stays.
func (d *Disk) Scan() ([]Found, error) {
	if err := d.Check(); err != nil {
		return nil, err
	}
	folder := path.Join(d.root, backingimage.Folder)
	names, err := d.fs.List(folder)
	if errors.Is(err, disk.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var found []Found
	for _, name := range names {
		id, err := backingimage.ParseID(name)
		if err != nil {
			d.log.Warn("left alone, for it is not the directory of a backing image", "path", path.Join(folder, name))
			continue
		}
		f, ok, err := d.look(id, backingimage.InManager(d.root, id))
		if err != nil {
			return nil, err
		}
		if ok {
			found = append(found, f)
		}
	}
	return found, nil
}

// Look finds the file of one image at one place, and removes what a crash has left if it is not
// complete.
func (d *Disk) Look(id backingimage.ID, p backingimage.Paths) (Found, bool, error) {
	if err := d.Check(); err != nil {
		return Found{}, false, err
	}
	return d.look(id, p)
}

func (d *Disk) look(id backingimage.ID, p backingimage.Paths) (Found, bool, error) {
	f, ok, err := d.find(id, p)
	switch {
	case err != nil:
		return f, false, err
	case !ok:
		return f, false, d.Erase(p)
	}
	return f, true, d.removeAll(p.Dir, p.Tmp)
}

// find is look for a place that may be another process's: it removes nothing.
func (d *Disk) find(id backingimage.ID, p backingimage.Paths) (Found, bool, error) {
	info, err := d.fs.Stat(p.File)
	if errors.Is(err, disk.ErrNotFound) {
		return Found{}, false, nil
	}
	if err != nil {
		return Found{}, false, err
	}
	f := Found{ID: id}
	if f.Record, err = d.record(p); err != nil {
		d.log.Warn("the record of a backing image says nothing; its checksum is computed", "path", p.Record, "err", err)
	}
	f.Proven = err == nil && f.Record.Describes(info.Size, info.MTime)
	f.Record.RealSize = info.Allocated
	return f, true, nil
}

func (d *Disk) record(p backingimage.Paths) (backingimage.Record, error) {
	text, err := d.fs.ReadFile(p.Record, backingimage.MaxRecord)
	if err != nil {
		return backingimage.Record{}, err
	}
	return backingimage.ParseRecord(text)
}

// Erase removes all that there is of a file, the file itself first: what is left after a crash is
// then no file. Nothing there is no error.
func (d *Disk) Erase(p backingimage.Paths) error {
	err := d.removeAll(p.Dir, p.File, p.Record, p.Record+".tmp", p.Tmp)
	if err != nil || path.Dir(p.Dir) != path.Join(d.root, backingimage.Folder) {
		return err // the directory is not the image's own
	}
	if err := d.fs.Remove(p.Dir); errors.Is(err, disk.ErrExists) {
		d.log.Warn("the directory of a backing image stays, for something else is in it", "path", p.Dir)
		return nil
	} else if errors.Is(err, disk.ErrNotFound) {
		return nil
	} else if err != nil {
		return err
	}
	return d.fs.SyncDir(path.Dir(p.Dir))
}

// removeAll removes files of one directory.
func (d *Disk) removeAll(dir string, names ...string) error {
	gone := false
	for _, name := range names {
		switch err := d.fs.Remove(name); {
		case err == nil:
			gone = true
		case !errors.Is(err, disk.ErrNotFound):
			return err
		}
	}
	if !gone {
		return nil
	}
	return d.fs.SyncDir(dir)
}

// makeDir makes the directory of a file, durably.
func (d *Disk) makeDir(dir string) error {
	if dir == d.root {
		return nil
	}
	if info, err := d.fs.Stat(dir); err == nil && info.Dir {
		return nil
	}
	parent := path.Dir(dir)
	if err := d.makeDir(parent); err != nil {
		return err
	}
	if err := d.fs.Mkdir(dir); err != nil && !errors.Is(err, disk.ErrExists) {
		return err
	}
	return d.fs.SyncDir(parent)
}

// Open opens a complete file to be read, with its record as far as there is one.
func (d *Disk) Open(p backingimage.Paths) (disk.File, backingimage.Record, error) {
	if err := d.Check(); err != nil {
		return nil, backingimage.Record{}, err
	}
	r, err := d.record(p)
	if err != nil && !errors.Is(err, disk.ErrNotFound) {
		d.log.Warn("the record of a backing image says nothing", "path", p.Record, "err", err)
	}
	f, err := d.fs.Open(p.File, disk.ReadOnly|disk.Direct)
	return f, r, err
}

// chunk is how much is read and written at once, in bytes.
const chunk = 1 << 20

// alignment is that of buffers and ranges for direct I/O.
const alignment = 4096

// buffer is memory of chunk bytes for direct I/O.
func buffer() []byte {
	p := make([]byte, chunk+alignment)
	at := int(-uintptr(unsafe.Pointer(&p[0])) % alignment)
	return p[at : at+chunk : at+chunk]
}

// describe looks at the beginning of a file.
func describe(f disk.File) (content.Info, error) {
	head := buffer()[:alignment]
	n, err := readFull(f, head, 0)
	if err != nil {
		return content.Info{}, err
	}
	return content.Describe(head[:min(n, content.HeadSize)])
}
