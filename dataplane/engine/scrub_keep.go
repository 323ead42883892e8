package engine

import (
	"bytes"
	"slices"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/wire"
)

// keeping makes what is read in a range independent of the snapshot that is repaired there: what
// users read, or a newer snapshot. A replica may have lost blocks of the snapshot, so that it had
// nothing to write when the user zeroed or discarded them: then it reads zeroes through the hole,
// and would read old content again once the blocks are back. So such a replica writes to its head,
// or to the newer snapshot's file, what it reads there already, which needs no marks, and makes
// that durable before the repair begins. Whatever ends the scrub then, what is read has not
// changed.
//
// It does so only in the parts that the repair changes, and only where some replica that is not
// repaired reads the same now. Elsewhere one of the two is damaged: in the snapshot, which the
// repair puts right for the head too, or above it, which is not this repair's to judge and must not
// be copied.
type keeping struct {
	j *scrubJob
	// view: of the snapshot that is open, not of the head.
	view bool
	// targets are yet to be kept, sources are not repaired.
	targets, sources []*link
	// differ are the parts that the repair changes; left are those of the first target that are yet
	// to be looked at.
	differ, left []section
	// write writes a part in which the first target reads the same as another replica, and goes on
	// with next. written are the links whose head was written to.
	write   func(p section)
	written uint32
	// then gets the reason why it could not be done, "" if it was.
	then func(why string)
}

// keepHeads keeps what users read of a piece on those whose copies are repaired; then gets the
// reason why that could not be done.
func (j *scrubJob) keepHeads(f *foundPiece, then func(why string)) {
	k := &keeping{j: j}
	k.write, k.then = k.writeHead, func(why string) {
		if why != "" || k.written == 0 {
			then(why)
			return
		}
		k.flush(then)
	}
	k.begin(f)
}

// keepViews does the same in the newer snapshot that is open.
func (j *scrubJob) keepViews(f *foundPiece, then func(why string)) {
	k := &keeping{j: j, view: true, then: then}
	k.write = k.writeView
	k.begin(f)
}

// begin looks whether all sources read in the whole piece what the snapshot is to have. Then it is
// what the repair makes of it, and there is nothing to keep.
func (k *keeping) begin(f *foundPiece) {
	if len(f.differ) == 0 {
		k.then("") // what could not be read is read again
		return
	}
	k.targets, k.sources = k.j.parties(f.d)
	k.differ, k.left = f.differ, slices.Clone(f.differ)
	k.ask(section{off: f.off, n: f.n}, k.j.mask(k.sources), func(sums map[uint32][]byte, _ block.Code) {
		for _, l := range k.sources {
			if !bytes.Equal(sums[l.bit()], f.copies[f.d.source].sum) {
				k.next()
				return
			}
		}
		k.then("")
	})
}

func (k *keeping) ask(p section, mask uint32, done func(sums map[uint32][]byte, code block.Code)) {
	e := k.j.e
	t := e.tasks.take(wire.Hash)
	t.off, t.n, t.view = p.off, p.n, k.view
	e.tasks.askHashes(t, mask, func(t *task, sums map[uint32][]byte) {
		code := t.code
		e.tasks.release(t)
		done(sums, code)
	})
}

// next looks at the next part, first of one target, then of the others.
func (k *keeping) next() {
	switch {
	case len(k.left) == 0 && len(k.targets) == 1:
		k.then("")
		return
	case len(k.left) == 0:
		k.targets, k.left = k.targets[1:], slices.Clone(k.differ)
	}
	p := k.left[len(k.left)-1]
	k.left = k.left[:len(k.left)-1]
	k.ask(p, k.j.mask(k.sources)|k.targets[0].readyBit(), func(sums map[uint32][]byte, code block.Code) {
		k.told(p, sums, code)
	})
}

// told judges a part by what the target and the sources read there.
func (k *keeping) told(p section, sums map[uint32][]byte, code block.Code) {
	target := k.targets[0]
	own := sums[target.bit()]
	read, same := 0, false
	for _, l := range k.sources {
		if sum := sums[l.bit()]; sum != nil {
			read++
			same = same || bytes.Equal(sum, own)
		}
	}
	switch {
	case target.phase != sessionReady:
		k.then("the replica was lost")
	case same:
		k.write(p)
	case p.divisible():
		k.left = append(k.left, p.halves()...)
		k.next()
	case own != nil && read == 0:
		k.then("what is read there cannot be compared: " + code.String())
	default:
		k.next()
	}
}

// writeHead writes to the target's head what it reads there.
func (k *keeping) writeHead(p section) {
	e, target := k.j.e, k.targets[0]
	e.transfer(&transfer{off: p.off, n: p.n, from: target,
		to: func() uint32 { return target.readyBit() & e.links.mask(RW) },
		done: func(r transferred) {
			if r.read != block.OK || r.ok == 0 {
				k.then("what users read there cannot be kept: " + r.read.String() + ", " + r.write.String())
				return
			}
			k.written |= r.ok
			k.next()
		}})
}

// flush makes durable what was written to heads.
func (k *keeping) flush(then func(why string)) {
	e := k.j.e
	e.tasks.start(e.tasks.take(wire.Flush), k.written, func(t *task) {
		bad, code := t.bad|t.full, t.code
		e.tasks.release(t)
		if bad != 0 {
			e.links.drop(bad, "flush failed: "+code.String())
			then("what users read there cannot be kept: " + code.String())
			return
		}
		then("")
	})
}

// writeView has the target write to the newer snapshot's file, durably, what it reads there from
// the one that is repaired or from further down.
func (k *keeping) writeView(p section) {
	e := k.j.e
	if e.stopping != nil || e.writes.frozen > 0 {
		k.then("writes are stopped; the next scrub tries again")
		return
	}
	e.writes.inFlight++ // whoever wants no write in flight waits for this one
	q := &wire.KeepView{Off: p.off, Len: p.n, Below: k.j.name}
	k.targets[0].control(&wire.ControlRequest{KeepView: q}, func(code block.Code, r *wire.ControlReply) {
		if code == block.OK {
			k.next()
		} else {
			k.then("what is read there cannot be kept: " + refusal(code, r.Error).Error())
		}
		e.writes.inFlight--
		e.writes.quiet()
	})
}
