package engine

import (
	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/wire"
)

// repairPart makes a part of a torn region identical with what is read. Only want of space leaves
// it as it is.
func (k *tornRegions) repairPart(m *regionRepair, p section, done func()) {
	e := k.e
	t := e.tasks.take(wire.Hash)
	t.off, t.n = p.off, p.n
	e.tasks.askHashes(t, e.links.mask(RW), func(t *task, sums map[uint32][]byte) {
		told, unread, bad := t.ok, t.ioErrors, (t.full|t.bad)&e.links.mask(RW)
		code := t.code
		e.tasks.release(t)
		k.dropBeside(p.off, bad&^unread, "cannot hash: "+code.String())
		k.told(m, p, sums, told&e.links.mask(RW), unread&e.links.mask(RW), done)
	})
}

// told brings what the replica has that is read from to those in told whose hash differs, and
// to those in unread: block by block, since there may be space for no more than what differs. A
// block that this one cannot read is taken from another one, as it would be if it had failed.
func (k *tornRegions) told(m *regionRepair, p section, sums map[uint32][]byte, told, unread uint32, done func()) {
	e := k.e
	src := k.reader(p.off, told)
	differ := others(sums, src)&told | unread
	switch {
	case differ == 0:
	case p.divisible():
		m.smaller = append(m.smaller, p.halves()...)
	case told == 0:
		if e.noneReads(p, &m.lost) {
			k.dropBeside(p.off, unread, "its disk cannot read")
		}
	default:
		e.transfer(&transfer{off: p.off, n: p.n, from: e.links.of(src),
			to: func() uint32 { return differ & e.links.mask(RW) },
			done: func(r transferred) {
				k.partRepaired(m, p, src, unread, r)
				done()
			}})
		return
	}
	done()
}

// partRepaired judges how the copy went.
func (k *tornRegions) partRepaired(m *regionRepair, p section, src, unread uint32, r transferred) {
	e := k.e
	if r.read != block.OK {
		e.links.dropSpare(src, "read failed: "+r.read.String())
		m.smaller = append(m.smaller, p) // the next one is read from now
		return
	}
	e.links.sectorsWritten(unread&r.ok, p.off, p.n)
	e.links.dropSpare(r.failed()&^r.full, "cannot be made identical: "+r.write.String())
	m.failed = m.failed || r.full&e.links.mask(RW) != 0
}

// dropBeside drops the links in mask, the one that off is read from only if there are others.
func (k *tornRegions) dropBeside(off int64, mask uint32, reason string) {
	e := k.e
	src := k.reader(off, e.links.mask(RW))
	e.links.dropSpare(mask&^src, reason)
	e.links.dropSpare(mask&src, reason)
}
