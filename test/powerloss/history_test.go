package powerloss

import (
	"encoding/binary"
	"fmt"
	"math"
	"sync"

	"ankole.storage/test/powerdisk"
)

const (
	sectorSize = 512
	mib        = 1 << 20
	never      = math.MaxInt
)

// op is a write, zeroing or discard of the volume. begin and end are moments of the journal: noted
// before it was sent and after it was acknowledged.
type op struct {
	id         uint64
	zero, fua  bool
	off, n     int64
	begin, end int
}

// flush is a flush that succeeded.
type flush struct{ begin, end int }

// History is everything that was written to a volume, with its place in the journal.
type History struct {
	journal *powerdisk.Journal
	mu      sync.Mutex
	sectors [][]*op // in the order they began; begins with zeroes that were always there
	flushes []flush
	count   int
}

func newHistory(j *powerdisk.Journal, size int64) *History {
	h := &History{journal: j, sectors: make([][]*op, size/sectorSize)}
	zeroes := &op{zero: true, begin: -1, end: -1}
	for i := range h.sectors {
		h.sectors[i] = []*op{zeroes}
	}
	return h
}

// begin notes an operation that is about to be sent.
func (h *History) begin(zero, fua bool, off, n int64) *op {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.count++
	o := &op{id: uint64(h.count), zero: zero, fua: fua, off: off, n: n, begin: h.journal.Note(nil), end: never}
	for s := off / sectorSize; s < (off+n)/sectorSize; s++ {
		h.sectors[s] = append(h.sectors[s], o)
	}
	return o
}

// acknowledged notes its success. One that failed may have happened or not, for ever.
func (h *History) acknowledged(o *op) {
	h.mu.Lock()
	defer h.mu.Unlock()
	o.end = h.journal.Note(nil)
}

// flushed carries out a flush and notes it.
func (h *History) flushed(do func() error) error {
	began := h.journal.Note(nil)
	if err := do(); err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.flushes = append(h.flushes, flush{began, h.journal.Note(nil)})
	return nil
}

// certain returns the moment up to which acknowledged writes were flushed, as known at a moment.
func (h *History) certain(at int) int {
	latest := -1
	for _, f := range h.flushes {
		if f.end < at {
			latest = max(latest, f.begin)
		}
	}
	return latest
}

// Check compares the volume's content after a loss of power at a moment with what may be there: in
// every sector the last write that was flushed, or one that came after it.
func (h *History) Check(at int, content []byte) error {
	certain := h.certain(at)
	for s, ops := range h.sectors[:len(content)/sectorSize] {
		if err := checkSector(ops, at, certain, int64(s), content[s*sectorSize:][:sectorSize]); err != nil {
			return err
		}
	}
	return nil
}

func checkSector(ops []*op, at, certain int, sector int64, p []byte) error {
	id, ok := unstamp(p, sector)
	if !ok {
		return fmt.Errorf("sector %d holds a mixture that nobody wrote: % x…", sector, p[:24])
	}
	var last *op // the latest that is certain
	var found *op
	for _, o := range ops {
		if o.begin >= at {
			break
		}
		if (o.end < certain || o.fua && o.end < at) && (last == nil || o.begin > last.begin) {
			last = o
		}
		if o.zero == (id == 0) && (id == 0 || o.id == id) {
			found = o // of several zeroes the latest allows the most
		}
	}
	if last == nil {
		last = ops[0]
	}
	switch {
	case found == nil:
		return fmt.Errorf("sector %d: holds write %d, which was never made or came later than the loss of power", sector, id)
	case found.end < last.begin:
		return fmt.Errorf("sector %d: holds write %d of moments %d to %d, but write %d (zero %v) of %d to %d came "+
			"later and was flushed",
			sector, id, found.begin, found.end, last.id, last.zero, last.begin, last.end)
	}
	return nil
}

// stamp fills whole sectors with the content of a write.
func stamp(p []byte, sector int64, id uint64) {
	for i := 0; i < len(p); i += sectorSize {
		s := p[i : i+sectorSize]
		x := id*0x9e3779b97f4a7c15 ^ uint64(sector)
		binary.LittleEndian.PutUint64(s, id)
		for k := 8; k < sectorSize; k += 8 {
			x ^= x << 13
			x ^= x >> 7
			x ^= x << 17
			binary.LittleEndian.PutUint64(s[k:], x)
		}
		sector++
	}
}

// unstamp returns the write a sector comes from, 0 for zeroes.
func unstamp(p []byte, sector int64) (uint64, bool) {
	var want [sectorSize]byte
	id := binary.LittleEndian.Uint64(p)
	if id != 0 {
		stamp(want[:], sector, id)
	}
	return id, string(p) == string(want[:])
}
