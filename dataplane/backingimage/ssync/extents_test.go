package ssync

import (
	"testing"

	"pgregory.net/rapid"

	"ankole.storage/dataplane/disk"
)

// mapped is a file by its extents, which come a few at a time.
type mapped struct {
	File
	size    int64
	extents []disk.Extent
}

func (m mapped) Extents(off int64, out []disk.Extent) ([]disk.Extent, bool, error) {
	for _, e := range m.extents {
		if e.Off+e.Len <= off {
			continue
		}
		if len(out) == 2 {
			return out, true, nil
		}
		out = append(out, e)
	}
	return out, false, nil
}

// TestRanges: whatever the extents, what is sent is in order, in blocks, and has all of what is
// written; what is a whole block of nothing is not sent.
func TestRanges(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		m := mapped{size: rapid.Int64Range(1, 40).Draw(rt, "sectors") * 512}
		written := map[int64]bool{} // by block
		for at := int64(0); at < m.size; {
			at += rapid.Int64Range(0, 12).Draw(rt, "gap") * 512
			n := min(rapid.Int64Range(1, 12).Draw(rt, "length")*512, m.size-at)
			if n <= 0 {
				break
			}
			e := disk.Extent{Off: at, Len: n, Unwritten: rapid.Bool().Draw(rt, "unwritten")}
			m.extents = append(m.extents, e)
			for b := at / alignment; !e.Unwritten && b*alignment < at+n; b++ {
				written[b] = true
			}
			at += n
		}
		last := int64(-1)
		err := extents(m, m.size, func(begin, end int64) error {
			if begin%alignment != 0 || end%alignment != 0 && end != m.size || begin >= end || begin <= last || end > m.size {
				rt.Fatalf("range %d to %d after %d of %+v", begin, end, last, m)
			}
			last = end
			for b := begin / alignment; b*alignment < end; b++ {
				if !written[b] {
					rt.Fatalf("block %d is sent, and is empty in %+v", b, m)
				}
				delete(written, b)
			}
			return nil
		})
		if err != nil || len(written) > 0 {
			rt.Fatalf("blocks %v are not sent of %+v, %v", written, m, err)
		}
	})
}
