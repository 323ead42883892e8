package offline

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"ankole.storage/dataplane/chain"
	"ankole.storage/dataplane/disk"
	"ankole.storage/dataplane/disk/osdisk"
)

// Head is how the head, which has no snapshot name, is called.
const Head = chain.HeadName

// chunk is how much is read at a time: enough for a disk to stream, little enough to stop soon.
const chunk = 1 << 20

// Options say what a directory does not say itself.
type Options struct {
	// BackingFile is below the bottom layer, where the path in volume.meta does not exist here.
	BackingFile string
	// SizeBytes and Head replace what a lost volume.meta said: the volume's size and the head's
	// file name.
	SizeBytes int64
	Head      string
}

// Directory is a replica directory that nobody else writes to while it is held.
type Directory struct {
	// Path is the directory as the caller named it.
	Path string
	fs   disk.Meta
	opts Options
	lock *os.File
}

// Progress is told how much of a long operation is done.
type Progress func(doneBytes, totalBytes int64)

// Open holds a directory against engines and looks at nothing yet. disk.ErrInUse if somebody uses
// it, disk.ErrNotFound if there is none.
func Open(dir string, o Options) (*Directory, error) {
	dir = filepath.Clean(dir)
	lock, err := hold(dir)
	if err != nil {
		return nil, err
	}
	return &Directory{Path: dir, fs: osdisk.New(nil), opts: o, lock: lock}, nil
}

// Close lets engines in again.
func (d *Directory) Close() error {
	if d.lock == nil {
		return nil
	}
	err := d.lock.Close()
	d.lock = nil
	return err
}

func (d *Directory) file(name string) string { return d.Path + "/" + name }

// chainOptions are those of a read-only open.
func (d *Directory) chainOptions() chain.Options {
	return chain.Options{ReadOnly: true, AsItIs: true, BackingFile: d.opts.BackingFile, Size: d.opts.SizeBytes,
		RecoverHead: d.opts.Head, Log: slog.New(slog.DiscardHandler)}
}

// open opens the chain for reading and gives failures the next step.
func (d *Directory) open() (*chain.Chain, error) {
	s, err := chain.ReadSurvey(d.fs, d.Path)
	if err != nil {
		return nil, err
	}
	if err := d.checkRecorded(s); err != nil {
		return nil, err
	}
	c, err := chain.Open(d.fs, d.Path, d.chainOptions())
	if err != nil {
		return nil, fmt.Errorf("%w\nsee what is wrong with: ankole replica inspect %s", err, d.Path)
	}
	return c, nil
}

// checkRecorded refuses what would give no content, or not the volume's, and says what would help.
func (d *Directory) checkRecorded(s *chain.Survey) error {
	switch {
	case s.Volume == nil && errors.Is(s.VolumeError, disk.ErrNotFound) && len(imagesOf(s.Names)) == 0:
		return fmt.Errorf(
			"%w: %s holds no replica: it has neither volume.meta nor images; name a directory below <disk>/replicas",
			disk.ErrNotFound, d.Path)
	case s.Volume == nil && errors.Is(s.VolumeError, disk.ErrNotFound) && d.opts.SizeBytes == 0:
		return fmt.Errorf("%w: volume.meta of %s is missing or empty; give the volume's size in bytes with --size%s, "+
			"and the head with --head if there are several",
			disk.ErrNotFound, d.Path, d.sizeHint(s.Names))
	case s.Volume != nil && s.Volume.Incomplete:
		return fmt.Errorf("%w: %s was being emptied or filled when it was left, and holds nothing that could be read; "+
			"use another replica of the volume",
			chain.ErrCorrupt, d.Path)
	case s.Volume != nil && s.Volume.BackingFile != "" && d.opts.BackingFile == "":
		if _, err := d.fs.Stat(s.Volume.BackingFile); err != nil {
			return fmt.Errorf(
				"%w: the volume lies on the backing file %s, which is not here; name a copy with --backing-file FILE",
				disk.ErrNotFound, s.Volume.BackingFile)
		}
	}
	return nil
}

// sizeHint tells the largest image's size: the volume's, unless that was expanded just then.
func (d *Directory) sizeHint(names []string) string {
	var most int64
	for _, name := range imagesOf(names) {
		if info, err := d.fs.Stat(d.file(name)); err == nil {
			most = max(most, info.Size)
		}
	}
	if most == 0 {
		return ""
	}
	return fmt.Sprintf(" (the largest image has %d)", most)
}

// imagesOf picks the layers' images.
func imagesOf(names []string) []string {
	var out []string
	for _, name := range names {
		if _, ok := chain.LayerName(name); ok {
			out = append(out, name)
		}
	}
	return out
}

// Sum is the checksum of a volume's content at a snapshot.
type Sum struct {
	Snapshot  string `json:"snapshot"`
	SizeBytes int64  `json:"sizeBytes"`
	SHA256    string `json:"sha256"`
}

// Hash returns the SHA-256 of the whole content as seen at a snapshot, or at Head.
func (d *Directory) Hash(ctx context.Context, snapshot string, progress Progress) (Sum, error) {
	v, err := d.at(snapshot)
	if err != nil {
		return Sum{}, err
	}
	defer v.Close() // read-only: nothing to lose
	h := sha256.New()
	err = eachChunk(ctx, v.Size(), progress, func(off int64, p []byte) error {
		if _, err := v.ReadAt(p, off); err != nil {
			return fmt.Errorf("content of %s at %s: %w", d.Path, snapshot, err)
		}
		_, err := h.Write(p)
		return err
	})
	return Sum{snapshot, v.Size(), fmt.Sprintf("%x", h.Sum(nil))}, err
}

// anyAt opens what the volume was at a snapshot, as far as it is known.
func (d *Directory) anyAt(snapshot string) (*chain.Chain, error) {
	c, err := d.open()
	if err != nil {
		return nil, err
	}
	defer c.Close() // read-only: nothing to lose
	return d.viewOf(c, snapshot)
}

// at opens what the volume was at a snapshot: an error if the directory is known to show other
// content than it should.
func (d *Directory) at(snapshot string) (*chain.Chain, error) {
	c, err := d.open()
	if err != nil {
		return nil, err
	}
	defer c.Close() // read-only: nothing to lose
	v, err := d.viewOf(c, snapshot)
	if err != nil {
		return nil, err
	}
	if err := v.Sound(); err != nil {
		return nil, errors.Join(err, v.Close())
	}
	return v, nil
}

// viewOf is At with the next step in its errors.
func (d *Directory) viewOf(c *chain.Chain, snapshot string) (*chain.Chain, error) {
	v, err := c.At(snapshot)
	if errors.Is(err, disk.ErrNotFound) {
		return nil, fmt.Errorf("%w: there is no snapshot %q in %s; there are: %s", disk.ErrNotFound, snapshot, d.Path,
			strings.Join(snapshotNames(c), ", "))
	}
	return v, err
}

// snapshotNames lists what At takes.
func snapshotNames(c *chain.Chain) []string {
	list, err := c.Snapshots()
	if err != nil {
		return []string{Head}
	}
	var names []string
	for _, s := range list {
		names = append(names, s.Name)
	}
	return names
}

// Snapshots returns the names that Hash and Export take, the live chain's from the oldest to Head
// first, then those of other branches.
func (d *Directory) Snapshots() ([]string, error) {
	c, err := d.open()
	if err != nil {
		return nil, err
	}
	defer c.Close() // read-only: nothing to lose
	return orderedNames(c), nil
}

func orderedNames(c *chain.Chain) []string {
	var names []string
	seen := map[string]bool{}
	for _, l := range c.LayerList() {
		name, _ := chain.LayerName(l.File)
		names, seen[name] = append(names, name), true
	}
	parents := parentsIn(c)
	depth := func(name string) (n int) {
		for ; parents[name] != "" && n <= len(parents); name = parents[name] {
			n++
		}
		return n
	}
	branches := slices.DeleteFunc(snapshotNames(c), func(name string) bool { return seen[name] })
	slices.SortStableFunc(branches, func(a, b string) int { return cmp.Compare(depth(a), depth(b)) })
	return append(names, branches...)
}

// parentsIn are the snapshots that each snapshot, or Head, is based on.
func parentsIn(c *chain.Chain) map[string]string {
	parents := map[string]string{}
	list, err := c.Snapshots()
	if err != nil {
		return parents
	}
	for _, s := range list {
		parents[s.Name] = s.Parent
	}
	return parents
}

// eachChunk calls fn for one piece of [0, size) after the other, with a buffer of the piece's
// length.
func eachChunk(ctx context.Context, size int64, progress Progress, fn func(off int64, p []byte) error) error {
	buf := make([]byte, min(chunk, size))
	for off := int64(0); off < size; off += chunk {
		if err := ctx.Err(); err != nil {
			return err
		}
		if progress != nil {
			progress(off, size)
		}
		if err := fn(off, buf[:min(chunk, size-off)]); err != nil {
			return err
		}
	}
	if progress != nil {
		progress(size, size)
	}
	return nil
}

var _ io.ReaderAt = (*chain.Chain)(nil)
