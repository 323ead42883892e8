package replica

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/disk"
)

// scattered is a file that has every second block.
type scattered struct {
	disk.File
	size  int64
	calls int
}

// Extents implements disk.File.
func (f *scattered) Extents(off int64, out []disk.Extent) ([]disk.Extent, bool, error) {
	f.calls++
	const stride = 2 * block.Size
	for at := off / stride * stride; at < f.size; at += stride {
		if at+block.Size <= off {
			continue
		}
		if len(out) == disk.ExtentsPerCall {
			return out, true, nil
		}
		out = append(out, disk.Extent{Off: at, Len: block.Size})
	}
	return out, false, nil
}

// A page of a terabyte in pieces costs what a page holds: neither time nor memory for the hundred
// million ranges of the rest.
func TestAPageOfExtentsCostsAPage(t *testing.T) {
	f := &scattered{size: 1 << 40}
	for _, off := range []int64{0, 1 << 39} {
		f.calls = 0
		page, err := pageOfFile(f, off, f.size, maxRanges)
		if err != nil || len(page.Ranges) != maxRanges || page.Ranges[0][0] != off ||
			page.Next != off+maxRanges*2*block.Size {
			t.Fatalf("from %d: %d ranges, next %d, %v", off, len(page.Ranges), page.Next, err)
		}
		if most := maxRanges/disk.ExtentsPerCall + 1; f.calls > most {
			t.Errorf("from %d: %d calls for a page, want at most %d", off, f.calls, most)
		}
	}
}

// listedFile is a file of given extents, of which a call tells few.
type listedFile struct {
	disk.File
	extents []disk.Extent
	perCall int
}

// Extents implements disk.File.
func (f *listedFile) Extents(off int64, out []disk.Extent) ([]disk.Extent, bool, error) {
	for _, e := range f.extents {
		if e.Off+e.Len <= off {
			continue
		}
		if len(out) == f.perCall {
			return out, true, nil
		}
		out = append(out, e)
	}
	return out, false, nil
}

// All pages together have every block of the file that lies in the volume, once and in order,
// however many extents a call tells.
func TestPagesOfExtentsAreTheFile(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const size = 64 * block.Size
		f := &listedFile{perCall: rapid.IntRange(1, 5).Draw(t, "extents per call")}
		var want []int64
		for off := int64(0); off < size+8*block.Size; {
			off += 512 * rapid.Int64Range(0, 40).Draw(t, "gap")
			n := 512 * rapid.Int64Range(1, 40).Draw(t, "length")
			f.extents = append(f.extents, disk.Extent{Off: off, Len: n})
			for b := off / block.Size; b*block.Size < min(off+n, size); b++ {
				want = append(want, b)
			}
			off += n
		}
		want = slices.Compact(want)
		most := rapid.IntRange(1, 6).Draw(t, "ranges per page")
		var got []int64
		for off := int64(0); off >= 0; {
			page, err := pageOfFile(f, off, size, most)
			if err != nil {
				t.Fatal(err)
			}
			if len(page.Ranges) > most {
				t.Fatalf("%d ranges, want at most %d", len(page.Ranges), most)
			}
			for _, r := range page.Ranges {
				for b := r[0] / block.Size; b < r[1]/block.Size; b++ {
					got = append(got, b)
				}
			}
			off = page.Next
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%v, want %v", got, want)
		}
	})
}
