package engine

import (
	"fmt"
	"math/bits"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/wire"
)

// compare asks every RW replica for the hash of one part.
func (e *Engine) compare(p section) {
	t := e.tasks.take(wire.Hash)
	t.off, t.n = p.off, p.n
	e.tasks.askHashes(t, e.links.mask(RW), func(t *task, sums map[uint32][]byte) {
		unread := t.ioErrors & e.links.mask(RW)
		e.links.dropSpare((t.full|t.bad)&^unread, "cannot hash: "+t.code.String())
		e.tasks.release(t)
		e.equalise(p, sums, unread)
	})
}

// equalise copies the part from one replica to those that differ from it, or cannot read it. What
// none can read stays as it is: nobody reads it anywhere, and it is no reason to lose a copy of
// all the rest.
func (e *Engine) equalise(p section, sums map[uint32][]byte, unread uint32) {
	var told uint32
	for bit := range sums {
		told |= bit & e.links.mask(RW)
	}
	unread &= e.links.mask(RW)
	src, more := e.resyncSource(told, p.tried)
	differ := others(sums, src)&told | unread
	switch {
	case differ == 0:
		e.resyncNext()
	case unread != 0 && p.divisible():
		e.halve(p)
	case told == 0:
		if e.noneReads(p, &e.resync.lost) {
			e.links.dropSpare(unread, "its disk cannot read")
		}
		e.resyncNext()
	default:
		e.transfer(&transfer{off: p.off, n: p.n, from: e.links.of(src),
			to:   func() uint32 { return differ & e.links.mask(RW) },
			done: func(r transferred) { e.equalised(p, src, more, unread, r) }})
	}
}

// equalised judges how the copy went. more: there are other sources to try.
func (e *Engine) equalised(p section, src uint32, more bool, unread uint32, r transferred) {
	if r.read != block.OK {
		// The source failed and is dropped: compare the rest again.
		e.links.dropSpare(src, "cannot read: "+r.read.String())
		e.compare(p)
		return
	}
	e.resync.copied += p.n * int64(bits.OnesCount32(r.ok))
	e.links.sectorsWritten(unread&r.ok, p.off, p.n)
	failed := r.failed() & e.links.mask(RW)
	switch {
	case failed == 0:
		e.resyncNext()
	case r.write == block.NoSpace && p.divisible():
		e.halve(p)
	case r.write == block.NoSpace && more:
		p.tried |= src
		e.compare(p)
	default:
		e.links.dropSpare(failed, "cannot be made identical: "+r.write.String())
		e.resyncNext()
	}
}

// halve compares the two halves of a part in its place.
func (e *Engine) halve(p section) {
	e.resync.smaller = append(e.resync.smaller, p.halves()...)
	e.resyncNext()
}

// divisible tells whether a part is more than one block.
func (p section) divisible() bool { return p.n > block.Size }

// halves are the two halves of a part, the first one last.
func (p section) halves() []section {
	n := (p.n/2 + block.Size - 1) &^ (block.Size - 1)
	return []section{{off: p.off + n, n: p.n - n}, {off: p.off, n: n}}
}

// noneReads tells of a block that no disk can read, and whether there were so many that who cannot
// read is better dropped.
func (e *Engine) noneReads(p section, lost *int) bool {
	e.event("unreadable", "", fmt.Sprintf("[%d,+%d) cannot be read from any disk", p.off, p.n))
	*lost++
	return *lost > maxSectorRepairs
}

// resyncSource chooses whose content is taken among the links in mask: the first that kept its
// power, if any has, else the first. If others have no room for what that one holds another one of
// the same kind is tried, whose content is as good: it differs by what was never acknowledged, or,
// where all lost their power, never flushed. more: there are others. When all were tried it is the
// first again.
func (e *Engine) resyncSource(mask, tried uint32) (src uint32, more bool) {
	kept := uint32(0)
	for _, l := range e.links.all {
		if l != nil && mask&l.bit() != 0 && !l.helloReply.PowerLost {
			kept |= l.bit()
		}
	}
	if kept == 0 {
		kept = mask
	}
	if left := kept &^ tried; left != 0 {
		src = left & -left
		return src, left != src
	}
	return kept & -kept, false
}
