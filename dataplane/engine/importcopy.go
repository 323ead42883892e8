package engine

import (
	"bytes"
	"fmt"

	"ankole.storage/block"
	"ankole.storage/clock"
	"ankole.storage/dataplane/loop"
	"ankole.storage/dataplane/rebuild"
	"ankole.storage/dataplane/wire"
)

// more keeps pieces under way.
func (j *importJob) more() {
	if j.dead || j.opening {
		return
	}
	switch j.stage {
	case importListing:
		j.ranges = nil
		j.list(0) // again, from another place
	case importCopying:
		j.progress()
		j.moreCopies()
	case importVerifying:
		j.progress()
		j.moreVerifies()
	}
}

// importMore is called at the end of every step: the budget may have left room, the engine may have come to its end.
func (e *Engine) importMore() {
	j := e.importing
	switch {
	case j == nil:
	case e.fatal != "":
		j.fail(fmt.Errorf("%w: %s", ErrState, e.fatal))
	case e.stopping != nil:
		j.fail(fmt.Errorf("%w: the engine is shutting down", ErrState))
	case j.stage == importCopying || j.stage == importVerifying:
		j.more()
	}
}

// importDue is when the budget lets the import go on.
func (e *Engine) importDue() clock.Ticks {
	if j := e.importing; j != nil && j.paceAt > e.now && (j.stage == importCopying || j.stage == importVerifying) {
		return j.paceAt
	}
	return clock.Never
}

func (j *importJob) progress() {
	p, done, total := j.plan.Progress()
	j.e.changed = j.e.changed || p != j.status.Progress
	j.status.Progress, j.status.Done, j.status.Total = p, done, total
}

// free reports whether another piece may begin. Nobody else uses the volume.
func (j *importJob) free() bool {
	return j.running < rebuildWidth && !j.dead && !j.opening && j.e.now >= j.paceAt && j.e.mask(RW) != 0
}

func (j *importJob) moreCopies() {
	for j.free() {
		p, ok := j.plan.Next()
		if !ok {
			break
		}
		j.running++
		j.copy(p)
	}
	if j.running == 0 && !j.dead && !j.opening && j.plan.CopyDone() {
		j.stage = importVerifying
		j.moreVerifies()
	}
}

// copied ends a piece: done, or to be done again.
func (j *importJob) copied(p rebuild.Piece, done bool) {
	j.running--
	if done {
		j.plan.Copied(p.Len)
	} else if !j.dead {
		j.plan.Retry(p)
	}
	j.more()
}

// copy brings one piece into the volume. Where an interrupted import goes on it looks first whether the piece is there.
func (j *importJob) copy(p rebuild.Piece) {
	if !j.resumed {
		j.transfer(p)
		return
	}
	j.compare(p.Off, p.Len, func(told, differ uint32, err error) {
		switch {
		case err != nil:
			j.copied(p, false)
			j.lost(err)
		case told != 0 && differ == 0:
			j.copied(p, true)
		default:
			j.transfer(p)
		}
	})
}

func (j *importJob) transfer(p rebuild.Piece) {
	e := j.e
	b, ok := e.arena.GetReserved(int(p.Len))
	if !ok || j.dead {
		if ok {
			e.arena.Release(b)
		}
		j.fail(fmt.Errorf("%w: no buffer to copy with", block.Unavailable))
		j.copied(p, false)
		return
	}
	j.paceAt = e.paced(j.paceAt, p.Len)
	seg := loop.Seg{Buf: b, Len: int32(p.Len)}
	j.origin.read(p.Off, seg, func(err error) {
		if err != nil || j.dead {
			e.arena.Release(b)
			j.copied(p, false)
			j.lost(err)
			return
		}
		e.write(p.Off, seg, func(code block.Code) {
			e.arena.Release(b)
			switch {
			case code == block.OK:
				j.status.Sent += p.Len
			case code == block.NoSpace:
				j.fail(fmt.Errorf("%w: no replica of this volume has room for the content; make room and ask for the same again", code))
			default:
				j.fail(fmt.Errorf("write at %d: %w", p.Off, code))
			}
			j.copied(p, code == block.OK)
		})
	})
}

// compare asks origin and replicas for the hash of a range. done gets the bits of the replicas that told theirs, and of those whose is
// another one; an error is the origin's.
func (j *importJob) compare(off, n int64, done func(told, differ uint32, err error)) {
	e := j.e
	var want []byte
	var failed error
	var got map[uint32][]byte
	left := 2
	end := func() {
		if left--; left > 0 {
			return
		}
		var told, differ uint32
		for bit, sum := range got {
			told |= bit
			if !bytes.Equal(sum, want) {
				differ |= bit
			}
		}
		done(told, differ, failed)
	}
	t := e.newTask(wire.Hash)
	t.off, t.n = off, n
	e.askHashes(t, e.mask(RW), func(t *task, sums map[uint32][]byte) {
		e.freeOf(t)
		got = sums
		end()
	})
	j.origin.hash(off, n, func(sum []byte, err error) {
		want, failed = sum, err
		end()
	})
}

func (j *importJob) moreVerifies() {
	for j.free() {
		off, n, ok := j.nextVerify()
		if !ok {
			break
		}
		j.running++
		j.verify(off, n)
	}
	if j.running > 0 || len(j.again) > 0 || j.dead || j.opening || j.stage != importVerifying {
		return
	}
	if off, n, ok := j.plan.NextVerify(); ok {
		j.again = append(j.again, [2]int64{off, n})
		return
	}
	j.settle()
}

func (j *importJob) nextVerify() (off, n int64, ok bool) {
	if k := len(j.again); k > 0 {
		r := j.again[k-1]
		j.again = j.again[:k-1]
		return r[0], r[1], true
	}
	return j.plan.NextVerify()
}

// verify compares what every replica has with the origin. One that differs from the others is dropped, as one that has failed; if none
// has what it should, the import has failed.
func (j *importJob) verify(off, n int64) {
	j.compare(off, n, func(told, differ uint32, err error) {
		j.running--
		told &= j.e.mask(RW)
		switch {
		case j.dead:
		case err != nil:
			j.again = append(j.again, [2]int64{off, n})
			j.lost(err)
		case told == 0:
			j.again = append(j.again, [2]int64{off, n}) // until the engine gives up, or a replica reads again
		case told&differ == told:
			j.fail(fmt.Errorf("%w: content at %d differs from that of %s after the copy", block.Corrupt, off, j.origin.where()))
		default:
			j.e.dropEach(told&differ, fmt.Sprintf("content at %d differs from the %s", off, j.mark))
		}
		j.more()
	})
}
