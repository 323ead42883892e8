package chain

import (
	"fmt"
	"maps"
	"slices"
)

// The head's whiteouts belong to the data path, like the block map. A discard sets bits in memory,
// has the pages that changed written, and is answered then: as for a write, what was answered
// outlives the process, and after a flush, which syncs the file, the machine's power too. Blocks
// that the head itself holds are punched only when the bits that hide what is below are durable:
// until then a crash would bring back what was there before them.
//
// Pages are written and synced by one operation at a time (WhiteoutWrite). A flush waits for it,
// and a snapshot holds requests back for it, so what is left to do for discards that were answered
// long ago is bounded, however many there were: once whiteoutBacklog pages are not durable, the
// next write syncs too, and each write that syncs brings as many more pages into their second slot.

// whiteoutBacklog is that number of pages: 4 GiB of the volume.
const whiteoutBacklog = 64

// headWhiteouts are the pages of the head's whiteout file that have space.
type headWhiteouts struct {
	pages map[int64]*headPage
	// changed are those with bits that are not in the file yet, unsynced those with bits there that
	// no sync has covered, single those whose durable bits are in one slot only, failed those whose
	// last write has failed, untrimmed those with bits that no trim has seen.
	changed, unsynced, single, failed, untrimmed map[int64]bool
}

// headPage is one of them.
type headPage struct {
	bits whiteoutBits
	// written is what the file has of a page that is unsynced.
	written *whiteoutBits
	// durable is what a loss of power leaves, in the slot of seq.
	durable whiteoutBits
	seq     uint64
}

func (h *headWhiteouts) put(number int64, p *headPage) {
	if h.pages == nil {
		*h = headWhiteouts{pages: map[int64]*headPage{}, changed: map[int64]bool{}, unsynced: map[int64]bool{},
			single: map[int64]bool{}, failed: map[int64]bool{}, untrimmed: map[int64]bool{}}
	}
	h.pages[number] = p
	h.untrimmed[number] = true // since this process does not know what trims have seen
}

func (h *headWhiteouts) has(block int64) bool {
	p := h.pages[block/whiteoutBlocks]
	return p != nil && p.bits.has(block%whiteoutBlocks)
}

// set changes the whiteouts of [first, last). Pages without space are left alone, which is right
// only for taking them away.
func (h *headWhiteouts) set(first, last int64, on bool) {
	for first < last {
		number := first / whiteoutBlocks
		end := min(last, (number+1)*whiteoutBlocks)
		p := h.pages[number]
		if p == nil && on {
			panic(fmt.Sprintf("chain: whiteout of block %d without room for it", first))
		}
		if p != nil && p.bits.set(first%whiteoutBlocks, (end-1)%whiteoutBlocks+1, on) {
			h.changed[number], h.untrimmed[number] = true, true
		}
		first = end
	}
}

// backed tells whether the backing file may hold a block.
func (b *Blocks) backed(block int64) bool { return b.backing && block*blockSize < b.layers[1].size }

// hide records that the whiteouts of a layer cover the blocks [first, last), which no layer above
// it holds. Where nothing is below them they are of no interest, unless a rebuild may put something
// there.
func (b *Blocks) hide(first, last int64) {
	for at := first; at < last; at++ {
		if b.rebuilding || b.m.b[at] != inNone || b.backed(at) {
			b.m.b[at] = inVoid
			note(b.m.used, at, at+1)
		}
	}
}

// WhiteoutsWanted names pages of the head's whiteouts that need space first.
type WhiteoutsWanted struct{ first, last int64 }

// WhiteoutRoom is the proof that they have it.
type WhiteoutRoom struct {
	file *whiteoutFile
	WhiteoutsWanted
}

// WhiteoutsWanted reports whether a plan of DiscardPlan needs room for whiteouts that is not there
// yet: Files.WhiteoutRoom makes it, TakeRoom takes it over.
func (b *Blocks) WhiteoutsWanted(plan []ZeroRange) (want WhiteoutsWanted, missing bool) {
	for _, z := range plan {
		if !z.Whiteout {
			continue
		}
		for n := z.Off / whiteoutSpan; n*whiteoutSpan < z.Off+z.Len; n++ {
			if b.whiteouts.pages[n] != nil {
				continue
			}
			if missing {
				return want, true // a page at a time
			}
			want, missing = WhiteoutsWanted{n, n}, true
		}
	}
	return want, missing
}

// TakeRoom takes over what Files.WhiteoutRoom has made.
func (b *Blocks) TakeRoom(r WhiteoutRoom) {
	b.head().whiteouts = r.file
	for n := r.first; n <= r.last; n++ {
		b.whiteouts.put(n, &headPage{})
	}
}

// SetWhiteouts sets or takes away the whiteouts of [off, off+n), whole blocks. They count when what
// PendingWhiteouts returns is done; MarkHidden says so.
func (b *Blocks) SetWhiteouts(off, n int64, on bool) {
	b.checkRange(off, n)
	b.whiteouts.set(off/blockSize, (off+n)/blockSize, on)
}

// MarkHidden records that whiteouts hide what is below the head at [off, off+n), and that the head
// holds nothing there.
func (b *Blocks) MarkHidden(off, n int64) {
	b.checkRange(off, n)
	fill(b.m.b[off/blockSize:(off+n)/blockSize], inVoid)
	note(b.m.used, off/blockSize, (off+n)/blockSize)
}

// WhiteoutWrite writes the pages of the head's whiteouts that have changed, and may make all that
// was written durable. Only one may be under way.
type WhiteoutWrite struct {
	file  *whiteoutFile
	pages []pageWrite
	// sync: it ends with a sync. twice: with everything in both slots, durably.
	sync, twice bool
	// syncing: it has come to that.
	syncing bool
	// uncopied is why a page could not be written to its second slot.
	uncopied error
}

// pageWrite is a page of a WhiteoutWrite.
type pageWrite struct {
	number int64
	seq    uint64
	bits   *whiteoutBits
	// copy: the bits are durable in the other slot. single: they are in one slot only after all,
	// since the disk could not write the second one.
	copy, single bool
}

// PendingWhiteouts prepares the next write, nil if there is nothing to do. Do carries it out, which
// blocks and may run beside everything else; WhiteoutsWritten takes the result over. One that syncs
// also writes pages that are durable in one slot only to the other one.
func (b *Blocks) PendingWhiteouts(sync bool) *WhiteoutWrite {
	h := &b.whiteouts
	pages := maps.Clone(h.changed)
	sync = sync || h.behind() > whiteoutBacklog
	if sync {
		left := whiteoutBacklog + len(h.changed) // as many as this write can make durable in one slot
		for _, n := range slices.Sorted(maps.Keys(h.single)) {
			if left > 0 && !pages[n] && !h.unsynced[n] { // else the other slot has newer bits
				pages[n] = true
				left--
			}
		}
	}
	if len(pages) == 0 && (!sync || len(h.unsynced) == 0) {
		return nil
	}
	return b.writeOf(pages, sync)
}

// behind is how many pages have bits that are not durable.
func (h *headWhiteouts) behind() int {
	n := len(h.unsynced)
	for page := range h.changed {
		if !h.unsynced[page] {
			n++
		}
	}
	return n
}

// LastWhiteouts prepares the last write to the head's whiteouts, before the file is a snapshot's or
// another process's: everything is durable in both slots after it. nil if it is so already.
func (b *Blocks) LastWhiteouts() *WhiteoutWrite {
	h := &b.whiteouts
	pages := map[int64]bool{}
	for _, set := range []map[int64]bool{h.changed, h.unsynced, h.single} {
		maps.Copy(pages, set)
	}
	if len(pages) == 0 {
		return nil
	}
	w := b.writeOf(pages, true)
	w.twice = true
	return w
}

func (b *Blocks) writeOf(pages map[int64]bool, sync bool) *WhiteoutWrite {
	h := &b.whiteouts
	w := &WhiteoutWrite{file: b.head().whiteouts, sync: sync}
	for _, n := range slices.Sorted(maps.Keys(pages)) {
		bits := h.pages[n].bits
		w.pages = append(w.pages, pageWrite{number: n, seq: h.pages[n].seq + 1, bits: &bits,
			copy: !h.changed[n] && !h.unsynced[n]})
	}
	clear(h.changed)
	return w
}

// Do writes, and syncs. That a page cannot be copied to its second slot is no error: it guards
// against damage only, and one bad sector must not keep a replica from flushing.
func (w *WhiteoutWrite) Do() error {
	err := w.write()
	if err == nil && w.sync {
		w.syncing = true
		err = w.file.file.Sync()
	}
	if err == nil && w.twice {
		w.writeAgain()
		err = w.file.file.Sync()
	}
	return err
}

// write writes the pages to the slot that is not durable.
func (w *WhiteoutWrite) write() error {
	for i := range w.pages {
		p := &w.pages[i]
		err := w.file.write(p.number, p.seq, p.bits)
		if err != nil && !p.copy {
			return err
		}
		w.copied(p, err)
	}
	return nil
}

// writeAgain copies the pages that have just become durable to their other slot.
func (w *WhiteoutWrite) writeAgain() {
	for i := range w.pages {
		if p := &w.pages[i]; !p.copy {
			w.copied(p, w.file.write(p.number, p.seq+1, p.bits))
		}
	}
}

// copied notes whether a page could be copied.
func (w *WhiteoutWrite) copied(p *pageWrite, err error) {
	if err != nil {
		p.single, w.uncopied = true, err
	}
}

// Uncopied is why a page could not be written to its second slot, nil if all were. Until it changes
// nobody tries again in this process.
func (w *WhiteoutWrite) Uncopied() error { return w.uncopied }

// Synced reports whether the write has come to its sync, whose failure leaves unknown what the file
// holds.
func (w *WhiteoutWrite) Synced() bool { return w.syncing }

// WhiteoutsWritten takes over how a write ended.
func (b *Blocks) WhiteoutsWritten(w *WhiteoutWrite, err error) {
	h := &b.whiteouts
	for _, p := range w.pages {
		switch {
		case err != nil && !p.copy:
			h.changed[p.number], h.failed[p.number] = true, true
			continue
		case err != nil:
			continue
		case p.copy && p.single:
			delete(h.single, p.number)
			continue
		}
		delete(h.failed, p.number)
		h.pages[p.number].written = p.bits
		h.unsynced[p.number] = true
	}
	if err != nil || !w.sync {
		return
	}
	for n := range h.unsynced {
		p := h.pages[n]
		p.seq++
		if *p.written == p.durable {
			delete(h.single, n) // the slot from before has them too
		} else {
			h.single[n] = true
		}
		p.durable, p.written = *p.written, nil
	}
	clear(h.unsynced)
	if w.twice {
		for _, p := range w.pages {
			if !p.copy && !p.single {
				h.pages[p.number].seq++
			}
			delete(h.single, p.number)
		}
	}
}

// DurableWhiteouts are those of one page of the head that no crash takes back.
type DurableWhiteouts struct {
	// Page is the page's number, -1 if there is none any more.
	Page int64
	bits whiteoutBits
}

// DurableWhiteouts returns the first page from the given one on that has any, for Purge.Work.
func (b *Blocks) DurableWhiteouts(from int64) DurableWhiteouts {
	next := int64(-1)
	for n, p := range b.whiteouts.pages {
		if n >= from && (next < 0 || n < next) && !p.durable.empty() {
			next = n
		}
	}
	if next < 0 {
		return DurableWhiteouts{Page: -1}
	}
	return DurableWhiteouts{next, b.whiteouts.pages[next].durable}
}

// writeWhiteouts is PendingWhiteouts and what follows in one, for tools and tests.
func (c *Chain) writeWhiteouts(sync bool) error { return c.carryOut(c.PendingWhiteouts(sync)) }

func (c *Chain) carryOut(w *WhiteoutWrite) error {
	if w == nil {
		return nil
	}
	err := w.Do()
	c.WhiteoutsWritten(w, err)
	if err != nil && w.sync {
		err = c.Files.breaks(err)
	}
	return err
}

// Discard makes the whole blocks inside [off, off+n) read as zeroes and gives their space back, the
// blocking way, for tools and tests.
func (c *Chain) Discard(off, n int64) error {
	if err := c.Files.usable(); err != nil {
		return err
	}
	plan := c.DiscardPlan(off, n, nil)
	for want, missing := c.WhiteoutsWanted(plan); missing; want, missing = c.WhiteoutsWanted(plan) {
		room, err := c.openFiles.WhiteoutRoom(want)
		if err != nil {
			return err
		}
		c.TakeRoom(room)
	}
	sync := false
	for _, z := range plan {
		if z.Whiteout {
			c.SetWhiteouts(z.Off, z.Len, true)
			sync = sync || z.Punch
		}
	}
	if err := c.writeWhiteouts(sync); err != nil {
		return err
	}
	for _, z := range plan {
		if z.Punch {
			if err := c.Blocks.head().file.Punch(z.Off, z.Len); err != nil {
				return err
			}
		}
		if z.Whiteout {
			c.MarkHidden(z.Off, z.Len)
		} else {
			c.MarkPunched(z.Off, z.Len)
		}
	}
	return nil
}

// Whiteouts prepares to find out which blocks of [off, off+n) of a layer have whiteouts that count,
// one bit each; number is the layer's. find blocks unless it is the head, and may run beside I/O.
// Blocks that the layer holds may have a bit too.
func (b *Blocks) Whiteouts(number int, off, n int64) (find func() ([]byte, error)) {
	first, last := off/blockSize, (off+n)/blockSize
	out := make([]byte, (last-first+7)/8)
	put := func(block int64) { out[(block-first)/8] |= 1 << ((block - first) % 8) }
	if number == b.Layers()-1 {
		for at := first; at < last; at++ {
			if b.whiteouts.has(at) {
				put(at)
			}
		}
		return func() ([]byte, error) { return out, nil }
	}
	w := b.numbered(number).whiteouts
	return func() ([]byte, error) { return out, w.blocks(first, last, put) }
}

// Hidden reports whether whiteouts hide something at [off, off+n). Which layer they are of is not
// known here.
func (b *Blocks) Hidden(off, n int64) bool {
	b.checkRange(off, n)
	return slices.Contains(b.m.b[off/blockSize:(off+n+blockSize-1)/blockSize], inVoid)
}
