package offline

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	"golang.org/x/sys/unix"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/chain"
	"ankole.storage/dataplane/disk"
)

// Formats of exported images.
const (
	FormatRaw   = "raw"
	FormatQCOW2 = "qcow2"
)

// Formats lists them.
var Formats = []string{FormatRaw, FormatQCOW2}

// partPattern names an image that is not whole yet, beside the file it will be: as nothing is named
// there, since who exports has said what may be written over.
const partPattern = ".ankole-export-*.part"

// ExportOptions say how an image is written.
type ExportOptions struct {
	// Format is FormatRaw, also for "", or FormatQCOW2, which takes program qemu-img and room for a
	// raw image besides.
	Format string
	// Force replaces a file that is there, and takes content that is known to be damaged as it is.
	Force    bool
	Progress Progress
}

// Exported is what Export did.
type Exported struct {
	Snapshot  string `json:"snapshot"`
	File      string `json:"file"`
	Format    string `json:"format"`
	SizeBytes int64  `json:"sizeBytes"`
	// AllocatedBytes is what the image occupies.
	AllocatedBytes int64 `json:"allocatedBytes"`
}

// Export writes the content as seen at a snapshot, or at Head, to an image file. The file is
// written beside its name and takes it, durably, when it is whole: an interrupted export leaves
// nothing that could be taken for an image.
func (d *Directory) Export(ctx context.Context, snapshot, file string, o ExportOptions) (Exported, error) {
	done := Exported{Snapshot: snapshot, File: file, Format: o.Format}
	if o.Format == "" {
		done.Format = FormatRaw
	}
	write := writeRaw
	switch done.Format {
	case FormatRaw:
	case FormatQCOW2:
		program, err := exec.LookPath("qemu-img")
		if err != nil {
			return done, errors.New("qemu-img, which makes images of format qcow2, is not installed: install package " +
				"qemu-utils (Debian, Ubuntu) or qemu-img (Fedora, SUSE), or export with --format raw")
		}
		write = func(ctx context.Context, f *os.File, c *chain.Chain, progress Progress) error {
			return writeQCOW2(ctx, program, f, c, progress)
		}
	default:
		return done, fmt.Errorf("unknown image format %q; use raw or qcow2", o.Format)
	}
	if err := d.checkTarget(file, o.Force); err != nil {
		return done, err
	}
	at := d.at
	if o.Force {
		at = d.anyAt
	}
	v, err := at(snapshot)
	if err != nil {
		return done, err
	}
	defer v.Close() // read-only: nothing to lose
	done.SizeBytes = v.Size()
	done.AllocatedBytes, err = writeWhole(file, func(f *os.File) error { return write(ctx, f, v, o.Progress) })
	if err != nil {
		return done, fmt.Errorf("export of %s at %s to %s: %w", d.Path, snapshot, file, noSpaceAdvice(err))
	}
	return done, nil
}

func noSpaceAdvice(err error) error {
	if errors.Is(err, unix.ENOSPC) {
		return fmt.Errorf("%w; nothing was left behind: choose a file system with more room", err)
	}
	return err
}

// checkTarget refuses to write over something, or into the directory that is read.
func (d *Directory) checkTarget(file string, force bool) error {
	dir, err := filepath.Abs(filepath.Dir(file))
	if err != nil {
		return err
	}
	if mine, ok := identify(d.Path); ok && d.lock != nil {
		if theirs, ok := identify(dir); ok && theirs == mine {
			return fmt.Errorf("%s would lie in the replica directory itself; choose another place", file)
		}
	}
	info, err := os.Lstat(file)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s is no regular file; name a new file", file)
	case !force:
		return fmt.Errorf("%w: %s; give --force to replace it, or name another file", disk.ErrExists, file)
	}
	return nil
}

// writeWhole makes a file appear whole and durable or not at all. It returns what the file
// occupies.
func writeWhole(file string, write func(*os.File) error) (allocated int64, err error) {
	f, err := os.CreateTemp(filepath.Dir(file), partPattern)
	if err != nil {
		return 0, err
	}
	part := f.Name()
	if err = write(f); err == nil {
		err = f.Sync()
	}
	var st unix.Stat_t
	if err == nil {
		err = unix.Fstat(int(f.Fd()), &st)
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(part, file)
	}
	if err != nil {
		return 0, errors.Join(err, os.Remove(part))
	}
	return st.Blocks * 512, syncDir(filepath.Dir(file))
}

func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// eachData calls fn for every piece of the content that some file holds, in order; the rest reads
// as zeroes. No data is read.
func eachData(c *chain.Chain, fn func(off, n int64) error) error {
	const window = 256 << 20 // of the map at a time, so that the plan stays small
	var plan []chain.Extent
	for off := int64(0); off < c.Size(); off += window {
		plan = c.ReadPlan(off, min(window, c.Size()-off), plan[:0])
		for _, e := range plan {
			if e.Handle == chain.NoHandle {
				continue
			}
			if err := fn(e.Off, e.Len); err != nil {
				return err
			}
		}
	}
	return nil
}

// dataBytes is how much of the content some file holds.
func dataBytes(c *chain.Chain) (total int64) {
	_ = eachData(c, func(_, n int64) error { total += n; return nil }) // fn does not fail
	return total
}

// copyData calls write with every piece of data, at most chunk bytes at a time.
func copyData(ctx context.Context, c *chain.Chain, progress Progress, write func(p []byte, off int64) error) error {
	done, total := int64(0), dataBytes(c)
	buf := make([]byte, chunk)
	err := eachData(c, func(off, n int64) error {
		for end := off + n; off < end; {
			if err := ctx.Err(); err != nil {
				return err
			}
			p := buf[:min(chunk, end-off)]
			if _, err := c.ReadAt(p, off); err != nil {
				return err
			}
			if err := write(p, off); err != nil {
				return err
			}
			off, done = off+int64(len(p)), done+int64(len(p))
			if progress != nil {
				progress(done, total)
			}
		}
		return nil
	})
	return err
}

var zeroBlock [block.Size]byte

// writeRaw writes a sparse file of the content's size: what no file holds, and blocks of zeroes,
// are holes.
func writeRaw(ctx context.Context, f *os.File, c *chain.Chain, progress Progress) error {
	if err := f.Truncate(c.Size()); err != nil {
		return err
	}
	return copyData(ctx, c, progress, func(p []byte, off int64) error { return writeSparse(f, p, off) })
}

// writeQCOW2 has qemu-img make the image of a raw one, which lies beside it until then.
func writeQCOW2(ctx context.Context, program string, f *os.File, c *chain.Chain, progress Progress) (err error) {
	raw, err := os.CreateTemp(filepath.Dir(f.Name()), partPattern)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, raw.Close(), os.Remove(raw.Name())) }()
	if err := writeRaw(ctx, raw, c, progress); err != nil {
		return err
	}
	out, err := exec.CommandContext(ctx, program, "convert", "-f", "raw", "-O", "qcow2", raw.Name(),
		f.Name()).CombinedOutput()
	if err != nil {
		return fmt.Errorf("qemu-img convert: %w: %s", errors.Join(ctx.Err(), err), bytes.TrimSpace(out))
	}
	return nil
}

// writeSparse writes p but for its blocks of zeroes.
func writeSparse(w io.WriterAt, p []byte, off int64) error {
	zero := func(i int) bool { b := p[i:min(i+block.Size, len(p))]; return bytes.Equal(b, zeroBlock[:len(b)]) }
	for i := 0; i < len(p); {
		if zero(i) {
			i += block.Size
			continue
		}
		end := i + block.Size
		for end < len(p) && !zero(end) {
			end += block.Size
		}
		end = min(end, len(p))
		if _, err := w.WriteAt(p[i:end], off+int64(i)); err != nil {
			return err
		}
		i = end
	}
	return nil
}
