package chain

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/bits"
	"slices"

	"ankole.storage/dataplane/chain/twoslot"
	"ankole.storage/dataplane/disk"
)

// Whiteouts. A block that the head does not hold, and a layer below it does, can be discarded
// without writing zeroes: a whiteout of the head hides what is below. It is a bit in a file beside
// the head's image, which becomes the snapshot's with it.
//
// The file consists of pages, each with the bits of 64 MiB of the volume, in two slots that are
// written by turns: between two syncs always the same one, so that a torn write leaves the page as
// it was when it was last durable. What is durable in one slot is then written to the other one
// too, so that a slot that rots or cannot be read loses nothing. A page takes space from the first
// bit in it on, for both slots at once: afterwards writing it needs none.
// docs/design/format-replica.md has the bytes, package twoslot those around the bits.

// Geometry of a whiteout file.
const (
	// whiteoutBlocks is how many blocks a page covers.
	whiteoutBlocks = 16384
	whiteoutSpan   = whiteoutBlocks * blockSize
	// whiteoutSlot is the unit of writing, what direct I/O can write on any device.
	whiteoutSlot = 4096
	whiteoutPage = 2 * whiteoutSlot
	// whiteoutRead is how many pages are read at once.
	whiteoutRead = 64

	whiteoutMagic = "ANKWHITE"
)

var whiteoutFormat = twoslot.Format{Magic: whiteoutMagic, Size: whiteoutSlot, Pages: true}

// whiteoutID binds a page to its file, and the file to the directory: key is volume.meta's
// AnkoleWhiteouts, which an engine that does not know it drops; file the one in the layer's .meta.
type whiteoutID struct {
	key  Stamp
	file uint64
}

// whiteoutBits has a bit for every block of a page.
type whiteoutBits [whiteoutBlocks / 64]uint64

func (b *whiteoutBits) has(block int64) bool { return b[block/64]>>(block%64)&1 != 0 }

// set changes the bits [first, last) and reports whether one of them was another one before.
func (b *whiteoutBits) set(first, last int64, on bool) (changed bool) {
	for first < last {
		w := first / 64
		end := min(last, (w+1)*64)
		mask := (^uint64(0) >> (64 - (end - first))) << (first % 64)
		old := b[w]
		if on {
			b[w] |= mask
		} else {
			b[w] &^= mask
		}
		changed = changed || b[w] != old
		first = end
	}
	return changed
}

func (b *whiteoutBits) empty() bool { return *b == whiteoutBits{} }

// runs calls fn for every run of set bits.
func (b *whiteoutBits) runs(fn func(first, last int64)) {
	for at := int64(0); at < whiteoutBlocks; {
		word := b[at/64] >> (at % 64)
		if word == 0 {
			at = (at/64 + 1) * 64
			continue
		}
		first := at + int64(bits.TrailingZeros64(word))
		for at = first; at < whiteoutBlocks; {
			n := int64(bits.TrailingZeros64(^(b[at/64] >> (at % 64))))
			if n = min(n, 64-at%64); n == 0 {
				break
			}
			at += n
		}
		fn(first, at)
	}
}

// owner is whose slots a page of the file has.
func (id whiteoutID) owner(page int64) twoslot.Owner {
	return twoslot.Owner{Key: id.key, File: id.file, Page: uint32(page)}
}

// encodeWhiteouts renders a slot of a page.
func encodeWhiteouts(id whiteoutID, number int64, seq uint64, b *whiteoutBits) []byte {
	var p [whiteoutBlocks / 8]byte
	for i, w := range b {
		binary.LittleEndian.PutUint64(p[8*i:], w)
	}
	return whiteoutFormat.Encode(id.owner(number), seq, p[:])
}

// whiteoutsOf is a page as its two slots say.
type whiteoutsOf struct {
	bits whiteoutBits
	// seq is the sequence number of the newest whole slot, 0 for a page that was never written.
	seq uint64
	// twice: both slots have these bits.
	twice bool
	// damaged: both slots were written and neither is whole, which no crash leaves. What the page
	// hid is not known.
	damaged bool
	// unreadable is the disk's error where the page is damaged only as far as nobody could read it.
	unreadable error
}

// known is the error of whoever needs the bits of a page that is damaged.
func (p *whiteoutsOf) known(w *whiteoutFile, number int64) error {
	if !p.damaged {
		return nil
	}
	return fmt.Errorf("%w: page %d of %s is damaged: what it hides is not known", disk.ErrIO, number, w.file.Path())
}

// newestWhiteouts judges the two slots of a page.
func newestWhiteouts(id whiteoutID, number int64, p []byte) whiteoutsOf {
	newest := whiteoutFormat.Newest(id.owner(number), p)
	w := whiteoutsOf{seq: newest.Seq, twice: newest.Twice, damaged: newest.Broken == 2}
	for i := range w.bits {
		if newest.Valid > 0 {
			w.bits[i] = binary.LittleEndian.Uint64(newest.Payload[8*i:])
		}
	}
	return w
}

// whiteoutFile is the open whiteout file of a layer. Reading it may run anywhere; edit and sync are
// its owner's, one at a time.
type whiteoutFile struct {
	file disk.File
	id   whiteoutID
	// unsynced are pages that were written since the last sync, and the bits they have.
	unsynced map[int64]*whiteoutsOf
}

func (w *whiteoutFile) close() error {
	if w == nil {
		return nil
	}
	return w.file.Close()
}

// load reads one page. A slot that cannot be read counts as one that is not whole; if the other one
// says nothing either, the page is damaged.
func (w *whiteoutFile) load(number int64) (whiteoutsOf, error) {
	p := make([]byte, whiteoutPage)
	err := readFull(w.file, p, number*whiteoutPage)
	if err == nil {
		return newestWhiteouts(w.id, number, p), nil
	}
	if !errors.Is(err, disk.ErrIO) {
		return whiteoutsOf{}, err
	}
	var lost error
	for slot := range int64(2) {
		s := p[slot*whiteoutSlot:][:whiteoutSlot]
		err := readFull(w.file, s, number*whiteoutPage+slot*whiteoutSlot)
		if err != nil && !errors.Is(err, disk.ErrIO) {
			return whiteoutsOf{}, err
		}
		if err != nil {
			lost = err
			clear(s)
		}
	}
	now := newestWhiteouts(w.id, number, p)
	if lost != nil && now.seq == 0 {
		now.damaged, now.unreadable = true, lost
	}
	return now, nil
}

// each calls fn for every page that takes space, from the given one on, in order. A nil file has
// none.
func (w *whiteoutFile) each(from int64, fn func(number int64, p *whiteoutsOf) error) error {
	if w == nil {
		return nil
	}
	next := from // the first page that was not looked at
	for more := true; more; {
		extents, m, err := w.file.Extents(next*whiteoutPage, nil)
		if err != nil {
			return err
		}
		for _, e := range extents {
			last := (e.Off + e.Len + whiteoutPage - 1) / whiteoutPage
			for next = max(next, e.Off/whiteoutPage); next < last; {
				n := min(last-next, whiteoutRead)
				if err := w.eachOf(next, n, fn); err != nil {
					return err
				}
				next += n
			}
		}
		more = m && len(extents) > 0
	}
	return nil
}

// eachOf calls fn for n pages from first on.
func (w *whiteoutFile) eachOf(first, n int64, fn func(number int64, p *whiteoutsOf) error) error {
	data := make([]byte, n*whiteoutPage)
	err := readFull(w.file, data, first*whiteoutPage)
	if err != nil && !errors.Is(err, disk.ErrIO) {
		return err
	}
	for i := range n {
		p := whiteoutsOf{}
		if err != nil { // some of them: which ones shows when each is read by itself
			var one error
			if p, one = w.load(first + i); one != nil {
				return one
			}
		} else {
			p = newestWhiteouts(w.id, first+i, data[i*whiteoutPage:][:whiteoutPage])
		}
		if err := fn(first+i, &p); err != nil {
			return err
		}
	}
	return nil
}

// damaged tells whether what a byte's page says is not known.
func (w *whiteoutFile) damaged(off int64) (bool, error) {
	if w == nil {
		return false, nil
	}
	p, err := w.load(off / whiteoutSpan)
	return p.damaged, err
}

// blocks calls fn for those of the blocks [first, last) that have a whiteout. disk.ErrIO if that is
// not known.
func (w *whiteoutFile) blocks(first, last int64, fn func(block int64)) error {
	for w != nil && first < last {
		number := first / whiteoutBlocks
		end := min(last, (number+1)*whiteoutBlocks)
		p, err := w.load(number)
		if err == nil {
			err = p.known(w, number)
		}
		if err != nil {
			return err
		}
		for b := first; b < end; b++ {
			if p.bits.has(b % whiteoutBlocks) {
				fn(b)
			}
		}
		first = end
	}
	return nil
}

// reserve gives a page its space. Nothing of it is durable; a page that a crash takes again was
// never written.
func (w *whiteoutFile) reserve(number int64) error {
	return w.put(make([]byte, whiteoutPage), number*whiteoutPage)
}

// put writes a part of a page that need not stay. Where the disk cannot write its sectors it is
// given others: the file system does not use those that it has just been given back.
func (w *whiteoutFile) put(p []byte, off int64) error {
	_, err := w.file.WriteAt(p, off)
	if !errors.Is(err, disk.ErrIO) {
		return err
	}
	if w.file.Punch(off, int64(len(p))) != nil {
		return err
	}
	_, err = w.file.WriteAt(p, off)
	return err
}

// write writes the page's newest bits to the slot that is not durable.
func (w *whiteoutFile) write(number int64, seq uint64, b *whiteoutBits) error {
	return w.put(encodeWhiteouts(w.id, number, seq, b), number*whiteoutPage+int64(seq%2)*whiteoutSlot)
}

// writeNew writes bits to both slots of a page of a file that nobody reads before it is synced.
func (w *whiteoutFile) writeNew(number int64, b *whiteoutBits) error {
	p := append(encodeWhiteouts(w.id, number, 2, b), encodeWhiteouts(w.id, number, 1, b)...)
	return w.put(p, number*whiteoutPage)
}

// edit changes the whiteouts of the blocks [first, last). Durable after sync. disk.ErrIO if it is
// not known which there are.
func (w *whiteoutFile) edit(first, last int64, on bool) error {
	for first < last {
		number := first / whiteoutBlocks
		end := min(last, (number+1)*whiteoutBlocks)
		p := w.unsynced[number]
		if p == nil {
			now, err := w.load(number)
			if err == nil {
				err = now.known(w, number)
			}
			if err != nil {
				return err
			}
			if now.seq == 0 && on {
				if err := w.reserve(number); err != nil {
					return err
				}
			}
			now.seq++
			p = &now
		}
		if p.bits.set(first%whiteoutBlocks, (end-1)%whiteoutBlocks+1, on) {
			if err := w.write(number, p.seq, &p.bits); err != nil {
				return err
			}
			if w.unsynced == nil {
				w.unsynced = map[int64]*whiteoutsOf{}
			}
			w.unsynced[number] = p
		}
		first = end
	}
	return nil
}

// sync makes what edit has done durable, in both slots.
func (w *whiteoutFile) sync() error {
	if w == nil || len(w.unsynced) == 0 {
		return nil
	}
	if err := w.file.Sync(); err != nil {
		return fmt.Errorf("sync %s: %w", w.file.Path(), err)
	}
	for _, number := range slices.Sorted(maps.Keys(w.unsynced)) {
		p := w.unsynced[number]
		if err := w.write(number, p.seq+1, &p.bits); err != nil {
			return fmt.Errorf("sync %s: %w", w.file.Path(), err)
		}
	}
	if err := w.file.Sync(); err != nil {
		return fmt.Errorf("sync %s: %w", w.file.Path(), err)
	}
	clear(w.unsynced)
	return nil
}
