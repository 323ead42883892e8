package offline

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/chain"
	"ankole.storage/dataplane/disk"
)

const (
	metaSuffix     = ".meta"
	checksumSuffix = ".checksum"
	sumsSuffix     = ".sums"
	volumeMeta     = "volume.meta"
	// maxChecksumBytes bounds a checksum file: a few fields of JSON.
	maxChecksumBytes = 64 << 10
)

// former gathers what is wrong with a directory's form: what can be told without reading images.
type former struct {
	d     *Directory
	s     *chain.Survey
	live  []string
	found []Problem
}

func (f *former) add(level Severity, object, format string, args ...any) {
	f.found = append(f.found, Problem{level, object, fmt.Sprintf(format, args...)})
}

// formProblems checks names, metadata, chain and sidecars.
func (d *Directory) formProblems(s *chain.Survey, live []string) []Problem {
	f := &former{d: d, s: s, live: live}
	if len(imagesOf(s.Names)) == 0 && s.Volume == nil && errors.Is(s.VolumeError, disk.ErrNotFound) {
		return nil
	}
	if info, err := d.fs.Statfs(d.Path); err == nil && info.ExtentSizeHint != 0 {
		f.add(Error, d.Path, "the directory has an extent size hint of %d bytes, which hides snapshots behind "+
			"preallocated space; remove it with: xfs_io -c 'extsize 0' %s",
			info.ExtentSizeHint, d.Path)
	}
	f.volume()
	if s.Changed != nil {
		f.add(Warning, d.Path, "an engine refuses the directory: %v", s.Changed)
	}
	if s.Volume != nil && s.Volume.Incomplete {
		return f.found // it holds nothing that could be wrong
	}
	f.chain()
	f.images()
	f.sidecars()
	for _, name := range s.Strays {
		f.add(Note, name, "left by an operation that did not finish; the next engine removes it")
	}
	return f.found
}

func (f *former) volume() {
	v := f.s.Volume
	if v == nil {
		if errors.Is(f.s.VolumeError, disk.ErrNotFound) {
			f.add(Error, volumeMeta, "missing or empty, as a crash of an engine that does not sync it leaves it; an "+
				"engine that is told the volume's size makes it anew, and so do hash and export with --size%s",
				f.d.sizeHint(f.s.Names))
		} else {
			f.add(Error, volumeMeta,
				"%v; restore it from a backup, or write it anew after the model in docs/design/format-replica.md", f.s.VolumeError)
		}
		return
	}
	if head, ok := f.s.Layers[v.Head]; ok && head.Parent != v.Parent && !v.Incomplete {
		f.add(Warning, volumeMeta, "names the parent %q, the head's metadata %q; the latter counts", v.Parent, head.Parent)
	}
	if v.BackingFile != "" && f.d.opts.BackingFile == "" {
		if _, err := f.d.fs.Stat(v.BackingFile); err != nil {
			f.add(Warning, v.BackingFile, "the backing file is not here; name a copy with --backing-file to read the content")
		}
	}
}

func (f *former) chain() {
	for file, err := range sorted(f.s.LayerErrors) {
		f.add(Error, file+metaSuffix, "%v; another replica of the volume has the same file", err)
	}
	if f.s.Volume == nil {
		return
	}
	if _, err := f.s.LiveChain(f.s.Volume.Head); err != nil {
		f.add(Error, f.s.Volume.Head, "%v; what is above the break is readable only with the layers below it", err)
	}
	for file, m := range sorted(f.s.Layers) {
		if _, ok := f.s.Layers[m.Parent]; m.Parent != "" && !ok && !slices.Contains(f.live, file) &&
			f.s.LayerErrors[m.Parent] == nil {
			f.add(Warning, file, "its parent %s is missing; the branch cannot be read", m.Parent)
		}
	}
}

// weight of damage to a file: losing a part of the live chain is an error.
func (f *former) weight(file string) Severity {
	if slices.Contains(f.live, file) || f.s.Volume != nil && f.s.Volume.Head == file {
		return Error
	}
	for _, m := range f.s.Layers {
		if m.Parent == file {
			return Error
		}
	}
	return Warning
}

func (f *former) images() {
	inodes := map[uint64]string{}
	below := int64(0)
	for _, file := range f.live {
		info, err := f.d.fs.Stat(f.d.file(file))
		if err != nil {
			continue // told below
		}
		if other := inodes[info.Inode]; other != "" && !(f.s.Layers[other].Removed && f.s.Layers[file].Parent == other) {
			f.add(Error, file, "is the same file as %s: one of the two layers is lost", other)
		}
		inodes[info.Inode] = file
		f.size(file, info.Size, below)
		below = info.Size
	}
	for file := range sorted(f.s.Layers) {
		if _, err := f.d.fs.Stat(f.d.file(file)); err != nil {
			level := f.weight(file)
			if f.s.Layers[file].Removed && level != Error {
				level = Note
			}
			f.add(level, file, "the image is missing although its metadata is there (%v)", err)
		}
	}
	for _, name := range imagesOf(f.s.Names) {
		if _, ok := f.s.Layers[name]; ok || f.s.LayerErrors[name] != nil || slices.Contains(f.s.Strays, name) {
			continue
		}
		if f.s.Volume != nil && name != f.s.Volume.Head || f.s.Volume == nil {
			f.add(Warning, name, "has no %s%s: nothing says where in the chain it belongs", name, metaSuffix)
		}
	}
}

// size judges a live layer's length; below is the layer's beneath it.
func (f *former) size(file string, size, below int64) {
	volume := f.s.Volume.SizeBytes
	switch {
	case size%block.Size != 0:
		f.add(Error, file, "has %d bytes, not a multiple of %d: it was cut short, and reads as zeroes from there on",
			size, block.Size)
	case size > volume:
		f.add(Warning, file, "has %d bytes in a volume of %d; what is beyond is not read", size, volume)
	case file == f.s.Volume.Head && size < volume:
		f.add(Warning, file, "has %d bytes in a volume of %d: it was cut short, or an expansion did not finish; the "+
			"rest reads as the layers below", size, volume)
	case size < below:
		f.add(Error, file, "has %d bytes, less than the %d of the layer below it: it was cut short", size, below)
	}
}

func (f *former) sidecars() {
	if f.s.RevisionError != nil {
		f.add(Warning, "revision.counter", "%v; other engines refuse it: write it anew as 0", f.s.RevisionError)
	}
	for _, name := range f.s.Names {
		if file, ok := strings.CutSuffix(name, checksumSuffix); ok && !strings.HasSuffix(name, ".tmp") {
			if _, known := f.s.Layers[file]; !known {
				f.add(Note, name, "belongs to no layer")
			}
		}
	}
	ours := slices.ContainsFunc(f.s.Names, func(n string) bool { return strings.HasPrefix(n, "ankole.") })
	if !ours {
		return
	}
	if f.s.RecordWhy != "" {
		f.add(Warning, "ankole.member", "void: %s", f.s.RecordWhy)
	}
	// A log that says "everything" is valid; only a log that is void is worth a word.
	for file, why := range sorted(f.s.WhiteoutsWhy) {
		f.add(Warning, file, "blocks that were discarded may show old content: %s; rebuild it from another replica", why)
	}
	if f.s.RegionsWhy != "" && f.s.RecordWhy == "" && !strings.Contains(f.s.RegionsWhy, "says that every region") {
		f.add(Warning, "ankole.dirty", "void: %s; the next engine compares everything", f.s.RegionsWhy)
	}
	if !slices.Contains(f.s.Names, "ankole.reserve") && f.s.RecordWhy == "" {
		f.add(Note, "ankole.reserve", "missing: metadata cannot be written when the disk is full")
	}
}

// sorted goes through a map in the order of its keys.
func sorted[V any](m map[string]V) func(yield func(string, V) bool) {
	return func(yield func(string, V) bool) {
		for _, k := range slices.Sorted(maps.Keys(m)) {
			if !yield(k, m[k]) {
				return
			}
		}
	}
}

// checksumRecord is the content of a checksum file.
type checksumRecord struct {
	Method     string `json:"method"`
	Checksum   string `json:"checksum"`
	ChangeTime string `json:"change_time"`
	Corrupted  bool   `json:"silently_corrupted"`
}

func parseChecksum(data []byte) (checksumRecord, error) {
	var r checksumRecord
	if err := json.Unmarshal(data, &r); err != nil {
		return r, err
	}
	if r.Method == "" || r.Checksum == "" {
		return r, errors.New("it names no method or no checksum")
	}
	return r, nil
}
