package engine

import (
	"bytes"
	"errors"
	"strconv"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/clock"
	"ankole.storage/dataplane/rebuild"
	"ankole.storage/dataplane/wire"
)

// rebuildWidthBusy is how many pieces are under way while somebody uses the volume, for each that
// the option RebuildConcurrency allows: so few that a request never waits behind many of them.
const rebuildWidthBusy = 2

// width implements copyWork.
func (j *rebuildJob) width() int {
	busy := rebuildWidthBusy * max(1, j.e.options.RebuildConcurrency)
	switch {
	case j.dead || j.paused || j.source == nil || j.stage != stageCopying:
		return 0
	case j.e.requests.foreground > 0:
		return busy
	}
	return max(copyWidth, busy)
}

// progress implements copyWork.
func (j *rebuildJob) progress(percent int, done, total int64) {
	j.e.changed = j.e.changed || percent != j.status.Progress
	j.status.Progress, j.status.Done, j.status.Total = percent, done, total
}

// step goes on: the budget or the user may have left room, a purge may have paused.
func (b *rebuilds) step() {
	b.paused()
	j := b.job()
	switch {
	case j == nil:
	case j.stage == stageSurveying && b.filesAtRest():
		j.survey()
	case j.stage == stageCopying:
		j.more()
	}
}

// filesAtRest reports that nothing of the engine's own changes the files: no piece of a purge
// or trim, no repair of a torn region, no change of the chain.
func (b *rebuilds) filesAtRest() bool {
	e := b.e
	return e.changes.current == "" && (e.purges.job == nil || e.purges.job.waiting == 0) && e.chainMarks.trimming == 0 &&
		e.torn.job == nil
}

// due is when the budget lets the rebuild go on.
func (b *rebuilds) due() clock.Ticks {
	if j := b.job(); j != nil && j.stage == stageCopying {
		return j.due()
	}
	return clock.Never
}

// list implements copyWork.
func (j *rebuildJob) list(layer uint32, off int64, target bool) {
	from := j.source
	if target {
		from = j.target
	}
	tried := j.tried
	from.control(&wire.ControlRequest{Extents: &wire.ExtentsRequest{Layer: layer, Off: off}},
		func(code block.Code, r *wire.ControlReply) {
			ok := code == block.OK && r.Extents != nil
			if ok {
				x := r.Extents
				if err := errors.Join(j.plan.Check(off, x.Ranges, x.Next), j.plan.Check(off, x.Hides, x.Next)); err != nil {
					ok, code, r.Error = false, block.Invalid, err.Error()
				}
			}
			switch {
			case j.dead:
				return
			case j.tried != tried: // another source has taken over, and the layer is listed again
				ok = false
			case !ok && target:
				j.fail("cannot list its extents: %s: %s", code, r.Error)
				return
			case !ok:
				j.takeOver("cannot list its extents: " + code.String() + ": " + r.Error)
			}
			if ok {
				j.plan.Hides(r.Extents.Hides)
				j.listed(r.Extents.Ranges, r.Extents.Next, true)
			} else {
				j.listed(nil, 0, false)
			}
		})
}

// work is one piece under way.
type work struct {
	j   *rebuildJob
	p   rebuild.Piece
	src *link
	differences
}

// bring implements copyWork. Writes to the piece's blocks wait meanwhile, reads do not: only the
// target changes, and nobody reads there.
func (j *rebuildJob) bring(p rebuild.Piece) {
	w := &work{j: j, p: p}
	if !p.Locked {
		w.begin()
		return
	}
	j.e.requests.ranges.lock(p.Off, p.Len, false, grantFunc(w.begin))
}

func (w *work) begin() {
	w.src = w.j.source
	switch {
	case w.j.dead || w.src == nil:
		w.end(false)
	case w.p.Compare:
		w.compare()
	default:
		w.copies = [][2]int64{{w.p.Off, w.p.Off + w.p.Len}}
		w.next()
	}
}

// end gives the piece up, or counts it.
func (w *work) end(done bool) {
	j := w.j
	if w.p.Locked {
		j.e.requests.ranges.unlock(w.p.Off, w.p.Len, false)
	}
	j.brought(w.p, done)
}

// sourceFailed gives the piece to whoever takes over.
func (w *work) sourceFailed(code block.Code) {
	if j := w.j; !j.dead && j.source == w.src && w.src != nil {
		j.takeOver("cannot be read: " + code.String())
	}
	w.end(false)
}

// compare asks both sides what they hold, and finds what to change.
func (w *work) compare() {
	e := w.j.e
	t := e.tasks.take(wire.LayerHash)
	t.layer, t.off, t.n = w.p.Layer, w.p.Off, w.p.Len
	source, target := w.src.readyBit(), w.j.target.readyBit()
	e.tasks.askHashes(t, source|target, func(t *task, sums map[uint32][]byte) {
		code := t.code
		e.tasks.release(t)
		switch {
		case len(sums[source]) != wire.LayerSumsSize:
			w.sourceFailed(code)
		case len(sums[target]) != wire.LayerSumsSize && code != block.IOError:
			w.j.fail("cannot be compared: %s", code)
			w.end(false)
		default:
			// A target that cannot read what it holds gets the whole piece: a write makes a sector readable.
			w.differences = compareLayers(w.p.Off, w.p.Len, sums[source], sums[target])
			w.next()
		}
	})
}

// layerSums is an answer to LayerHash; nil is that of somebody who cannot read: any block may be
// held, none is hidden, and no chunk is equal to another one.
type layerSums []byte

func (s layerSums) has(b int64) bool { return s == nil || s[b/8]&(1<<(b%8)) != 0 }

// hides tells whether the layer hides block b of the layers below: if it holds it, whiteouts count
// for nothing.
func (s layerSums) hides(b int64) bool {
	return s != nil && !s.has(b) && s[wire.WhiteoutsAt:][b/8]&(1<<(b%8)) != 0
}

func (s layerSums) chunk(at int64) []byte {
	if s == nil {
		return nil
	}
	i := wire.SumBlocks + at/wire.SumChunk*wire.SumSize
	return s[i : i+wire.SumSize]
}

// differences are to be made good in the target: holes made, holes made that hide what is below,
// blocks copied; [start, end).
type differences struct {
	holes, hidden, copies [][2]int64
}

// compareLayers compares two answers to LayerHash for [off, off+n): what the target holds or hides
// and the source does not becomes holes, what the source hides becomes hidden, what the source
// holds in chunks that differ is copied.
func compareLayers(off, n int64, source, target layerSums) (d differences) {
	for at := int64(0); at < n; at += wire.SumChunk {
		end := min(at+wire.SumChunk, n)
		differ := !bytes.Equal(source.chunk(at), target.chunk(at))
		for b := at / block.Size; b*block.Size < end; b++ {
			differ = differ || (source.has(b) && !target.has(b))
		}
		for b := at / block.Size; b*block.Size < end; b++ {
			beg := off + b*block.Size
			switch {
			case source.has(b) && differ:
				d.copies = extend(d.copies, beg, beg+block.Size)
			case source.has(b):
			case source.hides(b) && !target.hides(b):
				d.hidden = extend(d.hidden, beg, beg+block.Size)
			case !source.hides(b) && (target.has(b) || target.hides(b)):
				d.holes = extend(d.holes, beg, beg+block.Size)
			}
		}
	}
	return d
}

func extend(ranges [][2]int64, beg, end int64) [][2]int64 {
	if n := len(ranges); n > 0 && ranges[n-1][1] == beg {
		ranges[n-1][1] = end
		return ranges
	}
	return append(ranges, [2]int64{beg, end})
}

// next makes the next change of the piece.
func (w *work) next() {
	switch {
	case w.j.dead:
		w.end(false)
	case len(w.holes) > 0:
		r := w.holes[0]
		w.holes = w.holes[1:]
		w.punch(r, 0)
	case len(w.hidden) > 0:
		r := w.hidden[0]
		w.hidden = w.hidden[1:]
		w.punch(r, wire.Whiteout)
	case len(w.copies) > 0:
		c := w.copies[0]
		w.copies = w.copies[1:]
		w.transfer(c[0], c[1]-c[0])
	default:
		w.end(true)
	}
}

// punch makes a hole in the target, with whiteouts if the flag says so.
func (w *work) punch(r [2]int64, flag uint8) {
	t := w.j.e.tasks.take(wire.LayerPunch)
	t.layer, t.off, t.n, t.flags = w.p.Layer, r[0], r[1]-r[0], flag
	w.j.e.tasks.start(t, w.j.target.readyBit(), func(t *task) {
		if t.ok == 0 {
			w.j.fail("cannot be changed: %s", t.code)
		}
		w.j.e.tasks.release(t)
		w.next()
	})
}

// transfer copies one range from source to target.
func (w *work) transfer(off, n int64) {
	j := w.j
	j.paced(n)
	j.e.transfer(&transfer{off: off, n: n, file: true, layer: w.p.Layer, from: w.src,
		to: func() uint32 {
			if j.dead {
				return 0
			}
			return j.target.readyBit()
		},
		done: func(r transferred) {
			if r.read != block.OK {
				w.sourceFailed(r.read)
				return
			}
			if r.ok == 0 {
				j.fail("cannot be written: %s", r.write)
			}
			j.status.Sent += n
			w.next()
		}})
}

func (l *link) readyBit() uint32 {
	if l.phase != sessionReady {
		return 0
	}
	return l.bit()
}

// verified implements copyWork.
func (j *rebuildJob) verified() {
	j.stage = stageFinishing
	j.finish()
}

// verify compares one range of source and target by hash, as a reader sees it.
func (j *rebuildJob) verify(off, n int64) {
	j.e.requests.ranges.lock(off, n, false, grantFunc(func() { j.verifyLocked(off, n) }))
}

func (j *rebuildJob) verifyLocked(off, n int64) {
	e, src := j.e, j.source
	end := func(done bool) {
		e.requests.ranges.unlock(off, n, false)
		j.compared(off, n, done)
	}
	if j.dead || src == nil || !j.verifying { // something has to be copied again first
		end(false)
		return
	}
	t := e.tasks.take(wire.Hash)
	t.off, t.n = off, n
	source, target := src.readyBit(), j.target.readyBit()
	e.tasks.askHashes(t, source|target, func(t *task, sums map[uint32][]byte) {
		code := t.code
		e.tasks.release(t)
		switch {
		case j.dead:
		case sums[source] == nil:
			if j.source == src {
				j.takeOver("cannot be compared: " + code.String())
			}
			end(false)
			return
		case sums[target] == nil:
			e.rebuilds.compareInFull[j.target.member] = e.rebuilds.compareInFull[j.target.member] || code == block.IOError
			j.fail("cannot be compared: %s", code)
		case !bytes.Equal(sums[source], sums[target]):
			e.rebuilds.compareInFull[j.target.member] = true
			e.event("rebuild-differs", j.target.addr, "from "+src.addr+" at "+strconv.FormatInt(off, 10))
			j.fail("content differs from %s at %d after the copy", src.addr, off)
		}
		end(true)
	})
}
