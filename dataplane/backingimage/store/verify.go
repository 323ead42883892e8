package store

import (
	"errors"
	"fmt"
	"io"
	"path"
	"time"

	"ankole.storage/dataplane/backingimage"
	"ankole.storage/dataplane/disk"
)

// readFull reads as many bytes as there are.
func readFull(f disk.File, p []byte, off int64) (int, error) {
	n, err := f.ReadAt(p, off)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return n, err
}

// checksum reads a whole file. progress is as PublishRead has it.
func checksum(f disk.File, progress func(done int64) error) (sum string, size int64, err error) {
	h := newHasher()
	for {
		n, err := readFull(f, h.room(), size)
		if err != nil {
			return "", size, err
		}
		if err := h.add(n, nil); err != nil {
			return "", size, err
		}
		size += int64(n)
		if progress != nil {
			if err := progress(size); err != nil {
				return "", size, err
			}
		}
		if n < chunk {
			return h.text(), size, nil
		}
	}
}

// Verify reads a complete file, compares it with its record and with expected, each as far as there
// is one, and writes the record of what it has read. A file that differs is ErrDamaged, and stays
// as it is. progress is as PublishRead has it.
func (d *Disk) Verify(id backingimage.ID, p backingimage.Paths, expected string,
	progress func(done int64) error) (backingimage.Record, error) {
	f, old, err := d.Open(p)
	if err != nil {
		return old, err
	}
	defer f.Close() // read only
	before, err := f.Stat()
	if err != nil {
		return old, err
	}
	sum, size, err := checksum(f, progress)
	if err != nil {
		return old, err
	}
	for _, want := range []string{expected, old.ExpectedChecksum, old.CurrentChecksum} {
		if want != "" && want != sum {
			return old, fmt.Errorf("%w: %s has SHA-512 %s, and not %s: it has changed on the disk; delete it and have it copied "+
				"from another disk", ErrDamaged, p.File, sum, want)
		}
	}
	info, err := describe(f)
	if err != nil {
		return old, err
	}
	virtual, err := info.DiskSize(size)
	if err != nil {
		return old, err
	}
	if after, err := f.Stat(); err != nil || after.Size != size || !after.MTime.Equal(before.MTime) {
		return old, errors.Join(fmt.Errorf("%w: %s is being written to", ErrDamaged, p.File), err)
	}
	r := backingimage.Record{FilePath: p.File, UUID: id.UUID, Size: size, VirtualSize: virtual, RealSize: before.Allocated,
		ExpectedChecksum: old.ExpectedChecksum, CurrentChecksum: sum,
		ModificationTime: backingimage.ModificationTime(before.MTime)}
	return r, d.fs.WriteFileAtomic(p.Record, r.Encode())
}

// LastRead is when a complete file was made, or read by Verify and found to be whole.
func (d *Disk) LastRead(p backingimage.Paths) (time.Time, error) {
	info, err := d.fs.Stat(p.Record)
	return info.MTime, err
}

// TakeOver gives a file of a data source its place in a manager's directory; no byte is copied. The
// file of the source may be gone if an earlier attempt has got far enough. A file whose record is
// not of it, or of another checksum than expected, is refused, and stays where it is.
func (d *Disk) TakeOver(id backingimage.ID, expected string, progress func(done int64) error) (backingimage.Record,
	error) {
	from, to := backingimage.InSource(d.root, id), backingimage.InManager(d.root, id)
	found, ok, err := d.Look(id, to)
	if err != nil {
		return found.Record, err
	}
	if !ok {
		if found, ok, err = d.find(id, from); err != nil {
			return found.Record, err
		}
		if !ok {
			return found.Record, fmt.Errorf("%s: %w: the data source has made no such file", from.File, disk.ErrNotFound)
		}
		if found.Record, err = d.proven(found, from, expected, progress); err != nil {
			return found.Record, err
		}
		found.Record.FilePath = to.File
		if err := d.link(from, to, found.Record); err != nil {
			return found.Record, errors.Join(err, d.Erase(to))
		}
	} else if found.Record, err = d.proven(found, to, expected, progress); err != nil {
		return found.Record, err
	}
	return found.Record, d.Erase(from)
}

// proven returns the record of a file as it is, which takes to read it where the record is not of
// it.
func (d *Disk) proven(found Found, p backingimage.Paths, expected string,
	progress func(int64) error) (backingimage.Record, error) {
	if !found.Proven {
		return d.Verify(found.ID, p, expected, progress)
	}
	if expected != "" && found.Record.CurrentChecksum != expected {
		return found.Record, fmt.Errorf("%w: %s has SHA-512 %s, and not %s as expected", ErrDamaged, p.File,
			found.Record.CurrentChecksum, expected)
	}
	return found.Record, nil
}

// link gives the file a second name before it loses the first: a crash between the two leaves both,
// never none.
func (d *Disk) link(from, to backingimage.Paths, r backingimage.Record) error {
	if err := d.makeDir(to.Dir); err != nil {
		return err
	}
	if err := d.fs.WriteFileAtomic(to.Record, r.Encode()); err != nil {
		return noSpace(err)
	}
	if err := d.fs.Link(from.File, to.File); err != nil {
		return noSpace(err)
	}
	return d.fs.SyncDir(path.Dir(to.File))
}
