package chain_test

import (
	"encoding/json"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"ankole.storage/disk"
)

// An independent reader of replica directories, written from the format's description alone and sharing no code with
// package chain: what it reads is what any other engine would.

type rawVolume struct {
	Size            *int64
	Head            *string
	Dirty           *bool
	Rebuilding      *bool
	Error           *string
	Parent          *string
	SectorSize      *int64
	BackingFilePath *string
}

type rawDisk struct {
	Name        *string
	Parent      *string
	Removed     *bool
	UserCreated *bool
	Created     *string
	Labels      map[string]string
}

// rawReplica is a directory as the independent reader sees it.
type rawReplica struct {
	fs    disk.Meta
	dir   string
	vol   rawVolume
	disks map[string]rawDisk
	// chain is the live chain, bottom first.
	chain []string
}

var rawHead = regexp.MustCompile(`^volume-head-\d{3}\.img$`)

// readRaw checks the directory against the format and returns it. It accepts strays only if told so: after a crash
// they are legal until the next open.
func readRaw(fs disk.Meta, dir string, strays bool) (*rawReplica, error) {
	r := &rawReplica{fs: fs, dir: dir, disks: map[string]rawDisk{}}
	if err := r.json("volume.meta", &r.vol); err != nil {
		return nil, err
	}
	v := r.vol
	if v.Size == nil || v.Head == nil || v.Dirty == nil || v.Rebuilding == nil || v.Error == nil || v.Parent == nil ||
		v.SectorSize == nil || v.BackingFilePath == nil {
		return nil, fmt.Errorf("volume.meta lacks a key: %+v", v)
	}
	if *v.SectorSize != 512 || *v.Size%4096 != 0 || !rawHead.MatchString(*v.Head) {
		return nil, fmt.Errorf("volume.meta has Size %d, SectorSize %d, Head %q", *v.Size, *v.SectorSize, *v.Head)
	}
	names, err := fs.List(dir)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if strings.HasSuffix(name, ".meta") && name != "volume.meta" {
			var d rawDisk
			if err := r.json(name, &d); err != nil {
				return nil, err
			}
			r.disks[strings.TrimSuffix(name, ".meta")] = d
		}
		if strays {
			continue
		}
		if strings.HasSuffix(name, ".tmp") || strings.HasPrefix(name, "volume-head-") && !strings.HasPrefix(name, *v.Head) {
			return nil, fmt.Errorf("stray file %s", name)
		}
	}
	for name := *v.Head; name != ""; {
		d, ok := r.disks[name]
		if !ok || d.Parent == nil {
			return nil, fmt.Errorf("%s.meta is missing or has no Parent", name)
		}
		r.chain = append(r.chain, name)
		if len(r.chain) > 250 {
			return nil, fmt.Errorf("chain is longer than 250")
		}
		name = *d.Parent
	}
	if got := r.disks[*v.Head].Parent; *got != *v.Parent {
		return nil, fmt.Errorf("volume.meta has Parent %q, the head's .meta %q", *v.Parent, *got)
	}
	slices.Reverse(r.chain)
	return r, r.checkFiles()
}

func (r *rawReplica) json(name string, v any) error {
	data, err := r.fs.ReadFile(path.Join(r.dir, name), 1<<20)
	if err != nil {
		return err
	}
	if strings.Count(string(data), "\n") != 1 || !strings.HasSuffix(string(data), "\n") {
		return fmt.Errorf("%s is not one line: %q", name, data)
	}
	if err := json.Unmarshal(data, v); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

func (r *rawReplica) checkFiles() error {
	inodes := map[uint64]string{}
	for _, name := range r.chain {
		info, err := r.fs.Stat(path.Join(r.dir, name))
		if err != nil {
			return err
		}
		// A purge that was interrupted at its last step leaves a removed layer and the one above it as one file.
		if other := inodes[info.Inode]; other != "" && (other != *r.disks[name].Parent || !*r.disks[other].Removed) {
			return fmt.Errorf("%s and %s of the chain are one file", name, other)
		}
		inodes[info.Inode] = name
		if info.Size > *r.vol.Size || name == *r.vol.Head && info.Size != *r.vol.Size {
			return fmt.Errorf("%s has %d bytes in a volume of %d", name, info.Size, *r.vol.Size)
		}
	}
	return nil
}

// content reads what a reader sees at the layer file of the chain or of another branch.
func (r *rawReplica) content(at string) ([]byte, error) {
	var stack []string // top first
	for name := at; name != ""; name = *r.disks[name].Parent {
		stack = append(stack, name)
	}
	info, err := r.fs.Stat(path.Join(r.dir, at))
	if err != nil {
		return nil, err
	}
	out := make([]byte, info.Size)
	for _, name := range slices.Backward(stack) {
		if err := r.overlay(out, name); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// overlay puts one layer's allocated sectors on top of out.
func (r *rawReplica) overlay(out []byte, name string) error {
	f, err := r.fs.Open(path.Join(r.dir, name), disk.ReadOnly)
	if err != nil {
		return err
	}
	defer f.Close()
	for off, more := int64(0), true; more; {
		var extents []disk.Extent
		if extents, more, err = f.Extents(off, nil); err != nil {
			return err
		}
		for _, e := range extents {
			off = e.Off + e.Len
			first, last := e.Off/4096*4096, min((e.Off+e.Len+4095)/4096*4096, int64(len(out)))
			if first >= last {
				continue
			}
			if n, err := f.ReadAt(out[first:last], first); err != nil && int64(n) < last-first {
				clear(out[first+int64(n) : last])
			}
		}
	}
	return nil
}
