package engine

import (
	"fmt"

	"ankole.storage/dataplane/block"
)

// A sector that a disk cannot read any more is usually well again when it is written: the disk puts
// it elsewhere. So a read that fails with an i/o error on one replica is answered by another one,
// and the range is then written to the first with what the other has. That makes no difference to
// anybody who reads, so it needs neither marks nor a rebuild. What lies in a snapshot stays
// unreadable there, hidden below the head, until a scrub.

// maxSectorRepairs bounds how many ranges of one replica are written again before it is dropped
// after all: a disk that goes on failing is better replaced.
const maxSectorRepairs = 64

// mayRepairSector tells whether the links in bad are kept although they failed to read.
func (q *requests) mayRepairSector(t *task, bad uint32) bool {
	e := q.e
	if t.code != block.IOError || bad == 0 || e.links.count(RW) < 2 || e.dirty.torn(t.off) {
		// In a region in which a write has failed, another replica may have another content.
		return false
	}
	for _, l := range e.links.all {
		if l != nil && bad&l.bit() != 0 && l.sectorRepairs >= maxSectorRepairs {
			return false
		}
	}
	return true
}

// repairSector writes the whole blocks around a range to the links in mask with what another
// replica has.
func (q *requests) repairSector(mask uint32, off, n int64) {
	e := q.e
	beg, end := widen(off, n)
	q.ranges.lock(beg, end-beg, true, grantFunc(func() {
		mask &= e.links.mask(RW)
		source := e.links.mask(RW) &^ mask
		if mask == 0 || source == 0 || e.writes.frozen > 0 || e.dirty.torn(beg) {
			// Not now. The next read of the range will ask again; if it was torn meanwhile, the
			// repair of the region does it.
			q.ranges.unlock(beg, end-beg, true)
			return
		}
		e.writes.inFlight++ // whoever wants no write in flight waits for this one
		e.transfer(&transfer{off: beg, n: end - beg, from: e.links.of(source),
			to: func() uint32 { return mask & e.links.mask(RW) },
			done: func(r transferred) {
				q.sectorRepaired(beg, end-beg, r)
				q.ranges.unlock(beg, end-beg, true)
				e.writes.inFlight--
				e.writes.quiet()
			}})
	}))
}

func (q *requests) sectorRepaired(off, n int64, r transferred) {
	q.e.links.sectorsWritten(r.ok, off, n)
	q.e.links.dropSpare(r.failed(), "its disk could neither read nor write: "+r.write.String())
}

func (k *links) tellRewritten(mask uint32, off, n int64) {
	for _, l := range k.all {
		if l != nil && mask&l.bit() != 0 {
			k.e.event("rewritten", l.addr, fmt.Sprintf("[%d,+%d) could not be read from its disk", off, n))
		}
	}
}

// sectorsWritten counts a block that was written to the links in mask because their disks could not
// read it, and drops those that have had too many.
func (k *links) sectorsWritten(mask uint32, off, n int64) {
	k.countSectorRepair(mask)
	k.tellRewritten(mask, off, n)
	for _, l := range k.all {
		if l != nil && mask&l.bit() != 0 && l.sectorRepairs > maxSectorRepairs {
			k.dropSpare(l.bit(), "its disk cannot read")
		}
	}
}

// countSectorRepair counts a range that is written again for each of the links in mask.
func (k *links) countSectorRepair(mask uint32) {
	for _, l := range k.all {
		if l != nil && mask&l.bit() != 0 {
			l.sectorRepairs++
		}
	}
}
