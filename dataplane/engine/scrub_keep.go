package engine

import (
	"bytes"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/wire"
)

// keeping makes what users read in a range independent of the snapshot that is repaired there. A
// replica may have lost blocks of the snapshot, so that it had nothing to write when the user
// zeroed or discarded them: then it reads zeroes through the hole, and would read old content again
// once the blocks are back. So such a replica writes to its head what it reads there already, which
// needs no marks, and makes that durable before the repair begins.
//
// It does so only where some replica that is not repaired reads the same now. Elsewhere one of the
// two is damaged: in the snapshot, which the repair puts right for the head too, or above it, which
// is not this repair's to judge and must not be copied.
type keeping struct {
	j *scrubJob
	// view: of the snapshot that is open, not of the head.
	view bool
	// targets are yet to be kept, sources are not repaired.
	targets, sources []*link
	whole            part
	// snapshot is the hash of what the snapshot is to have in the whole range.
	snapshot []byte
	// same is called with a part in which the first target reads the same as another replica, and
	// goes on with next.
	same func(p part, reads *link)
	// left are the parts of the first target that are yet to be looked at.
	left    []part
	written uint32
	// then gets the reason why it could not be done, "" if it was.
	then func(why string)
}

// keepHeads keeps what users read in a range from each of the targets; then gets the reason why
// that could not be done.
func (j *scrubJob) keepHeads(off, n int64, targets, sources []*link, snapshot []byte, then func(why string)) {
	whole := part{off: off, n: n}
	k := &keeping{j: j, targets: targets, sources: sources, whole: whole, left: []part{whole},
		snapshot: snapshot}
	k.same, k.then = k.write, func(why string) {
		if why != "" || k.written == 0 {
			then(why)
			return
		}
		k.flush(then)
	}
	k.next()
}

// next looks at the next part, first of one target, then of the others.
func (k *keeping) next() {
	switch {
	case len(k.left) == 0 && len(k.targets) == 1:
		k.then("")
		return
	case len(k.left) == 0:
		k.targets, k.left = k.targets[1:], []part{k.whole}
	}
	p := k.left[len(k.left)-1]
	k.left = k.left[:len(k.left)-1]
	e := k.j.e
	t := e.newTask(wire.Hash)
	t.off, t.n, t.view = p.off, p.n, k.view
	e.askHashes(t, k.j.mask(k.sources)|k.targets[0].readyBit(), func(t *task, sums map[uint32][]byte) {
		code := t.code
		e.freeOf(t)
		k.told(p, sums, code)
	})
}

// told judges a part by what the target and the sources read there.
func (k *keeping) told(p part, sums map[uint32][]byte, code block.Code) {
	target := k.targets[0]
	own := sums[target.bit()]
	read, same, through := 0, (*link)(nil), p == k.whole
	for _, l := range k.sources {
		sum := sums[l.bit()]
		if sum == nil {
			continue
		}
		read++
		if bytes.Equal(sum, own) {
			same = l
		}
		through = through && bytes.Equal(sum, k.snapshot)
	}
	switch {
	case target.phase != sessionReady:
		k.then("the replica was lost")
	case read == len(k.sources) && through:
		k.next() // what the repair makes of it is what users read elsewhere
	case own != nil && same != nil:
		k.same(p, same)
	case p.divisible():
		k.left = append(k.left, p.halves()...)
		k.next()
	case own != nil && read == 0:
		k.then("what is read there cannot be compared: " + code.String())
	default:
		k.next()
	}
}

// write writes to the target's head what it reads there.
func (k *keeping) write(p part, _ *link) {
	e, target := k.j.e, k.targets[0]
	e.transfer(&transfer{off: p.off, n: p.n, from: target,
		to: func() uint32 { return target.readyBit() & e.mask(RW) },
		done: func(r transferred) {
			if r.read != block.OK || r.ok == 0 {
				k.then("what users read there cannot be kept: " + r.read.String() + ", " + r.write.String())
				return
			}
			k.written |= r.ok
			k.next()
		}})
}

// flush makes durable what was written.
func (k *keeping) flush(then func(why string)) {
	e := k.j.e
	e.internal(e.newTask(wire.Flush), k.written, func(t *task) {
		bad, code := t.bad|t.full, t.code
		e.freeOf(t)
		if bad != 0 {
			e.dropEach(bad, "flush failed: "+code.String())
			then("what users read there cannot be kept: " + code.String())
			return
		}
		then("")
	})
}
