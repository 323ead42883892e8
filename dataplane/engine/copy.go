package engine

import (
	"bytes"
	"strconv"
	"time"

	"ankole.storage/block"
	"ankole.storage/clock"
	"ankole.storage/dataplane/loop"
	"ankole.storage/dataplane/rebuild"
	"ankole.storage/dataplane/wire"
)

// Pieces that are copied or compared at once: so many while nobody uses the volume, and so few, for each that the option
// RebuildConcurrency allows, while somebody does, that a request never waits behind many of them. Ten at most, of 1 MiB each, leave
// most of the arena's reserve to others.
const (
	rebuildWidth     = 8
	rebuildWidthBusy = 2
)

// width is how many pieces may be under way now.
func (j *rebuildJob) width() int {
	busy := rebuildWidthBusy * max(1, j.e.options.RebuildConcurrency)
	if j.e.foreground > 0 {
		return busy
	}
	return max(rebuildWidth, busy)
}

// more keeps pieces under way.
func (j *rebuildJob) more() {
	j.progress()
	switch {
	case j.dead || j.source == nil:
	case j.stage == stageCopying:
		j.moreCopies()
	case j.stage == stageVerifying:
		j.moreVerifies()
	}
}

func (j *rebuildJob) progress() {
	if j.plan == nil || j.dead {
		return
	}
	p, done, total := j.plan.Progress()
	if p != j.status.Progress {
		j.e.changed = true
	}
	j.status.Progress, j.status.Done, j.status.Total = p, done, total
}

// free reports whether another piece may begin: requests of the volume's user come first, and the budget is kept.
func (j *rebuildJob) free() bool {
	return j.running < j.width() && !j.dead && j.source != nil && j.e.now >= j.paceAt
}

// paced takes n bytes from the budget: it returns when the next ones may be sent by who might send these at the given time.
func (e *Engine) paced(at clock.Ticks, n int64) clock.Ticks {
	if e.rebuildBudget <= 0 {
		return at
	}
	return max(at, e.now).Add(takes(n, e.rebuildBudget))
}

// takes is how long n bytes take at so many a second.
func takes(n, bytesPerSecond int64) time.Duration {
	return time.Duration(float64(n) / float64(bytesPerSecond) * float64(time.Second))
}

// rebuildMore is called at the end of every step: the budget or the user may have left room, a purge may have paused.
func (e *Engine) rebuildMore() {
	j := e.rebuilding()
	switch {
	case j == nil:
	case j.stage == stageSurveying && e.settledFiles():
		j.survey()
	case j.stage == stageCopying || j.stage == stageVerifying:
		j.more()
	}
}

// settledFiles reports that nothing of the engine's own changes the files: no piece of a purge, no mending.
func (e *Engine) settledFiles() bool {
	return (e.purge == nil || e.purge.waiting == 0) && e.mending == nil
}

// rebuildDue is when the budget lets the rebuild go on.
func (e *Engine) rebuildDue() clock.Ticks {
	if j := e.rebuilding(); j != nil && j.paceAt > e.now && (j.stage == stageCopying || j.stage == stageVerifying) {
		return j.paceAt
	}
	return clock.Never
}

func (j *rebuildJob) moreCopies() {
	for j.free() {
		piece, ok := j.plan.Next()
		if !ok {
			if j.running > 0 || j.listing || !j.plan.Waiting() {
				break
			}
			j.plan.Begin()
			if j.list() {
				break
			}
			continue
		}
		j.running++
		j.copy(piece)
	}
	if j.dead || j.source == nil || j.listing || j.stage != stageCopying || j.list() {
		return
	}
	if j.running == 0 && j.plan.CopyDone() {
		j.stage = stageVerifying
		j.moreVerifies()
	}
}

// list asks for the next page of extents, if one is wanted.
func (j *rebuildJob) list() bool {
	layer, off, target, ok := j.plan.NeedExtents()
	if !ok || j.listing || j.dead || j.source == nil {
		return false
	}
	from := j.source
	if target {
		from = j.target
	}
	j.listing = true
	j.e.control(from, &wire.ControlRequest{Extents: &wire.ExtentsRequest{Layer: layer, Off: off}}, func(code block.Code, r *wire.ControlReply) {
		j.listing = false
		switch {
		case j.dead:
		case !target && from != j.source: // another one lists again
		case target && (code != block.OK || r.Extents == nil):
			j.fail("cannot list its extents: %s: %s", code, r.Error)
		case code != block.OK || r.Extents == nil:
			j.takeOver("cannot list its extents: " + code.String() + ": " + r.Error)
		default:
			j.plan.Extents(r.Extents.Ranges, r.Extents.Next)
		}
		j.more()
	})
	return true
}

// work is one piece under way.
type work struct {
	j   *rebuildJob
	p   rebuild.Piece
	src *link
	// holes are to be made in the target, copies to be made from the source; [start, end).
	holes, copies [][2]int64
}

// copy brings one piece about. The head's are locked against writes meanwhile.
func (j *rebuildJob) copy(p rebuild.Piece) {
	w := &work{j: j, p: p}
	if !p.Head {
		w.begin()
		return
	}
	j.e.ranges.lock(p.Off, p.Len, true, w.begin)
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
	if w.p.Head {
		j.e.ranges.unlock(w.p.Off, w.p.Len, true)
	}
	j.running--
	switch {
	case done:
		j.plan.Copied(w.p.Len)
	case !j.dead:
		j.plan.Retry(w.p)
	}
	j.more()
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
	t := e.newTask(wire.LayerHash)
	t.layer, t.off, t.n = w.p.Layer, w.p.Off, w.p.Len
	source, target := w.src.readyBit(), w.j.target.readyBit()
	e.askHashes(t, source|target, func(t *task, sums map[uint32][]byte) {
		code := t.code
		e.freeOf(t)
		switch {
		case len(sums[source]) != wire.LayerSumsSize:
			w.sourceFailed(code)
		case len(sums[target]) != wire.LayerSumsSize:
			w.j.fail("cannot be compared: %s", code)
			w.end(false)
		default:
			w.holes, w.copies = differences(w.p.Off, w.p.Len, sums[source], sums[target])
			w.next()
		}
	})
}

// differences compares two answers to LayerHash for [off, off+n): what the target holds and the source does not becomes
// holes, what the source holds in chunks that differ is copied.
func differences(off, n int64, source, target []byte) (holes, copies [][2]int64) {
	has := func(s []byte, b int64) bool { return s[b/8]&(1<<(b%8)) != 0 }
	for at := int64(0); at < n; at += wire.SumChunk {
		end := min(at+wire.SumChunk, n)
		i := wire.SumBlocks + at/wire.SumChunk*wire.SumSize
		differ := !bytes.Equal(source[i:i+wire.SumSize], target[i:i+wire.SumSize])
		for b := at / block.Size; b*block.Size < end; b++ {
			differ = differ || (has(source, b) && !has(target, b))
		}
		for b := at / block.Size; b*block.Size < end; b++ {
			beg := off + b*block.Size
			switch {
			case has(source, b) && differ:
				copies = extend(copies, beg, beg+block.Size)
			case !has(source, b) && has(target, b):
				holes = extend(holes, beg, beg+block.Size)
			}
		}
	}
	return holes, copies
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
		w.punch(w.holes[0])
		w.holes = w.holes[1:]
	case len(w.copies) > 0:
		c := w.copies[0]
		w.copies = w.copies[1:]
		w.transfer(c[0], c[1]-c[0])
	default:
		w.end(true)
	}
}

func (w *work) punch(r [2]int64) {
	t := w.j.e.newTask(wire.LayerPunch)
	t.layer, t.off, t.n = w.p.Layer, r[0], r[1]-r[0]
	w.j.e.internal(t, w.j.target.readyBit(), func(t *task) {
		if t.ok == 0 {
			w.j.fail("cannot be changed: %s", t.code)
		}
		w.j.e.freeOf(t)
		w.next()
	})
}

// transfer copies one range from source to target.
func (w *work) transfer(off, n int64) {
	e := w.j.e
	b, ok := e.arena.GetReserved(int(n))
	if !ok {
		w.j.fail("no buffer to copy with")
		w.end(false)
		return
	}
	w.j.paceAt = e.paced(w.j.paceAt, n)
	rd := e.newTask(wire.LayerRead)
	rd.layer, rd.off, rd.n, rd.bounce = w.p.Layer, off, n, true
	rd.seg = loop.Seg{Buf: b, Len: int32(n)}
	e.internal(rd, w.src.readyBit(), func(rd *task) {
		if rd.ok == 0 || w.j.dead {
			code := rd.code
			e.freeOf(rd)
			w.sourceFailed(code)
			return
		}
		wr := e.newTask(wire.LayerWrite)
		wr.layer, wr.off, wr.n, wr.seg, wr.bounce = w.p.Layer, off, n, rd.seg, true
		rd.bounce = false
		e.freeOf(rd)
		e.internal(wr, w.j.target.readyBit(), func(wr *task) {
			if wr.ok == 0 {
				w.j.fail("cannot be written: %s", wr.code)
			}
			w.j.status.Sent += n
			e.freeOf(wr)
			w.next()
		})
	})
}

func (l *link) readyBit() uint32 {
	if l.phase != linkReady {
		return 0
	}
	return l.bit()
}

func (j *rebuildJob) moreVerifies() {
	for j.free() {
		off, n, ok := j.nextVerify()
		if !ok {
			break
		}
		j.running++
		j.e.ranges.lock(off, n, true, func() { j.verify(off, n) })
	}
	if j.running == 0 && len(j.again) == 0 && !j.dead && j.source != nil && j.stage == stageVerifying && j.verified() {
		j.stage = stageFinishing
		j.finish()
	}
}

// nextVerify returns the next range to compare, those first whose comparison was interrupted.
func (j *rebuildJob) nextVerify() (off, n int64, ok bool) {
	if k := len(j.again); k > 0 {
		r := j.again[k-1]
		j.again = j.again[:k-1]
		return r[0], r[1], true
	}
	return j.plan.NextVerify()
}

// verified reports that nothing is left to compare. It puts back what it has looked at.
func (j *rebuildJob) verified() bool {
	off, n, ok := j.plan.NextVerify()
	if ok {
		j.again = append(j.again, [2]int64{off, n})
	}
	return !ok
}

// verify compares one range of source and target by hash, as a reader sees it.
func (j *rebuildJob) verify(off, n int64) {
	e, src := j.e, j.source
	end := func(again bool) {
		e.ranges.unlock(off, n, true)
		j.running--
		if again && !j.dead {
			j.again = append(j.again, [2]int64{off, n})
		}
		j.more()
	}
	if j.dead || src == nil || j.stage == stageCopying { // something has to be copied again first
		end(true)
		return
	}
	t := e.newTask(wire.Hash)
	t.off, t.n = off, n
	source, target := src.readyBit(), j.target.readyBit()
	e.askHashes(t, source|target, func(t *task, sums map[uint32][]byte) {
		code := t.code
		e.freeOf(t)
		switch {
		case j.dead:
		case sums[source] == nil:
			if j.source == src {
				j.takeOver("cannot be compared: " + code.String())
			}
			end(true)
			return
		case sums[target] == nil:
			j.fail("cannot be compared: %s", code)
		case !bytes.Equal(sums[source], sums[target]):
			e.doubted[j.target.member] = true
			e.event("rebuild-differs", j.target.addr, "from "+src.addr+" at "+strconv.FormatInt(off, 10))
			j.fail("content differs from %s at %d after the copy", src.addr, off)
		}
		end(false)
	})
}
