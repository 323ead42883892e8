package chainref

import (
	"fmt"
	"hash/crc64"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"ankole.storage/dataplane/disk"
)

// Content reads what a reader sees at an image of the chain or of another branch.
func (r *Replica) Content(image string) ([]byte, error) {
	var stack []string // top first
	for name := image; name != ""; name = r.Layers[name].Parent {
		stack = append(stack, name)
	}
	out := make([]byte, r.Layers[image].Size)
	for _, name := range slices.Backward(stack) {
		if err := Hide(r.fs, r.dir, r.key, r.Layers[name].Whiteouts, out); err != nil {
			return nil, err
		}
		if err := r.overlay(out, name); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// overlay puts one layer's allocated sectors on top of out: an extent is data whatever is in it.
func (r *Replica) overlay(out []byte, name string) error {
	f, err := r.fs.Open(path.Join(r.dir, name), disk.ReadOnly)
	if err != nil {
		return err
	}
	defer f.Close() // only read
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

var checksum = regexp.MustCompile(`^[0-9a-f]{16}$`)

// checkChecksums wants every .checksum file well-formed, and right where its change time is the
// image's.
func (r *Replica) checkChecksums(names []string) error {
	for _, name := range names {
		image, ok := strings.CutSuffix(name, ".checksum")
		if !ok || !slices.Contains(names, image) {
			continue
		}
		f, err := r.object(name)
		if err != nil {
			return err
		}
		var method, sum, changed, hashed string
		var corrupted bool
		f.take("method", &method, true)
		f.take("checksum", &sum, true)
		f.take("change_time", &changed, true)
		f.take("last_hashed_at", &hashed, false)
		f.take("silently_corrupted", &corrupted, true)
		if err := f.done(); err != nil {
			return err
		}
		if _, err := time.Parse(time.RFC3339, hashed); hashed != "" && err != nil {
			return fmt.Errorf("%s: last_hashed_at %q", name, hashed)
		}
		if method != "crc64" || !checksum.MatchString(sum) {
			return fmt.Errorf("%s: method %q, checksum %q", name, method, sum)
		}
		info, err := r.fs.Stat(path.Join(r.dir, image))
		if err != nil {
			return err
		}
		if corrupted || info.CTime.In(time.UTC).String() != changed {
			continue // says nothing about the file
		}
		data, err := r.fs.ReadFile(path.Join(r.dir, image), info.Size)
		if err != nil {
			return err
		}
		if got := fmt.Sprintf("%016x", crc64.Checksum(data, crc64.MakeTable(crc64.ISO))); got != sum {
			return fmt.Errorf("%s says %s, the file has %s", name, sum, got)
		}
	}
	return nil
}
