package register

import (
	"strings"
	"testing"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/clock"
)

// history feeds a checker of two sectors with one write or read per line.
type history struct{ c *Checker }

func (h history) begin(at clock.Ticks, w uint64)          { h.c.Begin(at, w, 0, 512, false) }
func (h history) zero(at clock.Ticks, w uint64)           { h.c.Begin(at, w, 0, 512, true) }
func (h history) end(at clock.Ticks, w uint64)            { h.c.End(at, w, 0, 512, false) }
func (h history) fua(at clock.Ticks, w uint64)            { h.c.End(at, w, 0, 512, true) }
func (h history) maybe(at clock.Ticks, w uint64)          { h.c.Maybe(at, w, 0, 512) }
func (h history) write(from, to clock.Ticks, w uint64)    { h.begin(from, w); h.end(to, w) }
func (h history) flush(began clock.Ticks)                 { h.c.Flushed(began) }
func (h history) lose(at clock.Ticks)                     { h.c.PowerLost(at) }
func (h history) read(from, to clock.Ticks, value uint64) { h.c.Read(from, to, 0, sectorOf(value, 0)) }

// image puts the volume on an image whose sectors carry 9.
func (h history) image() { h.c.Image = func(int64) uint64 { return 9 } }

func sectorOf(write uint64, sector int64) []byte {
	p := make([]byte, block.SectorSize)
	if write > 0 {
		Stamp(p, write, sector)
	}
	return p
}

// TestChecker says which histories are right and which are not; every rule of the checker has one
// of each.
func TestChecker(t *testing.T) {
	for _, c := range []struct {
		name string
		want string // part of the violation, "" for none
		play func(h history)
	}{
		{"nothing was written", "", func(h history) { h.read(1, 2, 0) }},
		{"read from nowhere", "nobody has written there", func(h history) { h.read(1, 2, 7) }},
		{"last write", "", func(h history) { h.write(1, 2, 1); h.write(3, 4, 2); h.read(5, 6, 2) }},
		{"stale", "came after it", func(h history) { h.write(1, 2, 1); h.write(3, 4, 2); h.read(5, 6, 1) }},
		{"stale zeroes", "came after it", func(h history) { h.write(1, 2, 1); h.read(5, 6, 0) }},
		{"zeroed", "", func(h history) { h.write(1, 2, 1); h.zero(3, 2); h.end(4, 2); h.read(5, 6, 0) }},
		{"data after zeroing", "came after it", func(h history) {
			h.write(1, 2, 1)
			h.zero(3, 2)
			h.end(4, 2)
			h.read(5, 6, 1)
		}},
		{"overlapping writes go either way", "", func(h history) {
			h.begin(1, 1)
			h.begin(2, 2)
			h.end(3, 2)
			h.end(4, 1)
			h.read(5, 6, 2)
		}},
		{"a read may overlap the write", "", func(h history) {
			h.write(1, 2, 1)
			h.begin(3, 2)
			h.read(4, 6, 1)
			h.end(7, 2)
		}},
		{"seen, then gone", "came after it", func(h history) {
			h.write(1, 2, 1)
			h.begin(3, 2)
			h.read(4, 5, 2)
			h.read(6, 7, 1)
		}},
		{"failed writes may show", "", func(h history) { h.write(1, 2, 1); h.begin(3, 2); h.maybe(4, 2); h.read(5, 6, 2) }},
		{"failed writes may not show", "", func(h history) {
			h.write(1, 2, 1)
			h.begin(3, 2)
			h.maybe(4, 2)
			h.read(5, 6, 1)
		}},
		{"failed writes do not come back", "came after it", func(h history) {
			h.begin(1, 1)
			h.maybe(2, 1)
			h.write(3, 4, 2)
			h.read(5, 6, 1)
		}},
		{"an acknowledgement may be late", "came after it", func(h history) {
			h.write(1, 2, 1)
			h.begin(3, 2)
			h.maybe(4, 2)
			h.end(5, 2)
			h.read(6, 7, 1)
		}},
		{"unflushed data may be lost", "", func(h history) {
			h.write(1, 2, 1)
			h.write(3, 4, 2)
			h.lose(5)
			h.read(6, 7, 1)
		}},
		{"flushed data may not", "overwritten long ago", func(h history) {
			h.write(1, 2, 1)
			h.write(3, 4, 2)
			h.flush(5)
			h.lose(6)
			h.read(7, 8, 1)
		}},
		{"a flush does not cover later writes", "", func(h history) {
			h.write(1, 2, 1)
			h.begin(3, 2)
			h.flush(3)
			h.end(4, 2)
			h.lose(6)
			h.read(7, 8, 1)
		}},
		{"FUA is stable", "overwritten long ago", func(h history) {
			h.write(1, 2, 1)
			h.begin(3, 2)
			h.fua(4, 2)
			h.lose(6)
			h.read(7, 8, 1)
		}},
		{"a read does not pin what was not flushed", "", func(h history) {
			h.write(1, 2, 1)
			h.read(3, 4, 1)
			h.lose(5)
			h.read(6, 7, 0)
		}},
		{"what survived and was read and flushed stays", "overwritten long ago", func(h history) {
			h.write(1, 2, 1)
			h.lose(3)
			h.read(4, 5, 1)
			h.flush(6)
			h.lose(7)
			h.read(8, 9, 0)
		}},
		{"in flight when power was lost", "", func(h history) {
			h.write(1, 2, 1)
			h.begin(3, 2)
			h.lose(4)
			h.end(5, 2)
			h.read(6, 7, 1)
		}},
		{"begun after power was lost", "came after it", func(h history) {
			h.write(1, 2, 1)
			h.lose(3)
			h.write(4, 5, 2)
			h.read(6, 7, 1)
		}},
		{"zeroes of before a write are not those of a write after it that failed", "", func(h history) {
			h.c.Oldest = func() clock.Ticks { return 1 }
			h.begin(2, 1)
			h.fua(3, 1)
			h.zero(4, 2)
			h.read(1, 8, 0)
			h.maybe(9, 2)
			h.read(10, 11, 1)
		}},
		{"zeroes that can only be those of one write are seen", "came after it", func(h history) {
			h.begin(2, 1)
			h.fua(3, 1)
			h.zero(4, 2)
			h.read(5, 8, 0)
			h.maybe(9, 2)
			h.read(10, 11, 1)
		}},
		{"overlapping writes have one order", "came after it", func(h history) {
			h.begin(1, 1)
			h.begin(1, 2)
			h.end(3, 1)
			h.end(3, 2)
			h.read(4, 5, 1)
			h.read(6, 7, 2)
			h.read(8, 9, 1)
		}},
		{"overlapping writes that are under way have one order", "came after it", func(h history) {
			h.begin(1, 1)
			h.begin(1, 2)
			h.read(4, 5, 1)
			h.read(6, 7, 2)
			h.read(8, 9, 1)
		}},
		{"overlapping reads see overlapping writes either way", "", func(h history) {
			h.begin(1, 1)
			h.begin(1, 2)
			h.read(4, 7, 1)
			h.read(6, 9, 2)
			h.read(7, 10, 1)
			h.end(11, 1)
			h.end(11, 2)
			h.read(12, 13, 2)
		}},
		{"what reads saw before the end of a write stays before it", "came after it", func(h history) {
			h.begin(1, 1)
			h.begin(1, 2)
			h.read(3, 4, 2)
			h.end(5, 1)
			h.end(6, 2)
			h.read(7, 8, 1)
			h.read(9, 10, 2)
		}},
		{"a write that began after another was seen comes after it", "came after it", func(h history) {
			h.begin(1, 1)
			h.read(2, 3, 1)
			h.write(4, 5, 2)
			h.end(6, 1)
			h.read(7, 8, 1)
		}},
		{"a failed write that was not there does not come later", "came after it", func(h history) {
			h.write(1, 2, 1)
			h.begin(3, 2)
			h.maybe(4, 2)
			h.read(5, 6, 1)
			h.read(7, 8, 2)
		}},
		{"the order of flushed writes outlasts a loss of power", "came after it", func(h history) {
			h.begin(1, 1)
			h.begin(1, 2)
			h.read(2, 3, 1)
			h.read(4, 5, 2)
			h.end(6, 1)
			h.end(6, 2)
			h.flush(8)
			h.lose(9)
			h.read(10, 11, 1)
		}},
		{"the order of writes that were not flushed does not", "", func(h history) {
			h.begin(1, 1)
			h.begin(1, 2)
			h.read(2, 3, 1)
			h.read(4, 5, 2)
			h.end(6, 1)
			h.end(6, 2)
			h.lose(9)
			h.read(10, 11, 1)
		}},
		{"what was read after a loss of power is not gone later", "came after it", func(h history) {
			h.write(1, 2, 1)
			h.write(3, 4, 2)
			h.lose(5)
			h.read(6, 7, 1)
			h.read(8, 9, 2)
		}},
		{"the image shows", "", func(h history) { h.image(); h.read(1, 2, 9) }},
		{"the image is missing", "nobody has written there", func(h history) { h.image(); h.read(1, 2, 0) }},
		{"the image shows beside a write that may have failed", "", func(h history) {
			h.image()
			h.begin(1, 1)
			h.maybe(2, 1)
			h.read(3, 4, 9)
		}},
		{"the image shows again", "came after it", func(h history) {
			h.image()
			h.zero(1, 1)
			h.end(2, 1)
			h.read(3, 4, 9)
		}},
		{"an old read may return what a flush made old", "", func(h history) {
			h.c.Oldest = func() clock.Ticks { return 3 }
			h.write(1, 2, 1)
			h.write(4, 5, 2)
			h.flush(6)
			h.read(3, 7, 1)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := history{New(1024)}
			c.play(h)
			switch {
			case c.want == "" && h.c.Err != nil:
				t.Error(h.c.Err)
			case c.want != "" && (h.c.Err == nil || !strings.Contains(h.c.Err.Error(), c.want)):
				t.Errorf("violation %v, want %q", h.c.Err, c.want)
			}
		})
	}
}

// TestCheckerSeesMixtures: a sector is written whole, where it belongs, or it is torn.
func TestCheckerSeesMixtures(t *testing.T) {
	for name, data := range map[string][]byte{
		"two writes":     append(sectorOf(1, 0)[:256], sectorOf(2, 0)[256:]...),
		"another sector": sectorOf(1, 1),
		"half zero":      append(sectorOf(1, 0)[:256], make([]byte, 256)...),
	} {
		c := New(1024)
		history{c}.write(1, 2, 1)
		history{c}.begin(1, 2)
		c.Read(3, 4, 0, data)
		if c.Err == nil || c.At != 0 {
			t.Errorf("%s: %v at %d", name, c.Err, c.At)
		}
	}
}
