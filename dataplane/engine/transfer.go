package engine

import (
	"bytes"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/loop"
	"ankole.storage/dataplane/wire"
)

// transfer brings one range from one replica to others. Rebuild, resync, scrub and the repair of
// regions and sectors all consist of transfers; what they have in common is here: the buffer, which
// is waited for, the read, and the write of what was read. Whoever starts one holds the locks that
// it takes.
type transfer struct {
	// off and n are the range in bytes, at most block.MaxTransfer.
	off, n int64
	// file: of the file of one layer, as it is there; otherwise what a reader of the volume sees,
	// or of the open view.
	file  bool
	view  bool
	layer uint32
	// from is read from, if it is connected by the time that there is a buffer.
	from *link
	// to returns the bits of the links to write to, when the range has been read; 0 gives the
	// transfer up.
	to func() uint32
	// done gets the result.
	done func(r transferred)
}

// transferred is how a transfer ended.
type transferred struct {
	// read says whether the source could be read; if not, nothing was written.
	read block.Code
	// to are the links that were written to, ok those that have the range now; write is why the
	// others have not, full are those of them that have no space.
	to, ok, full uint32
	write        block.Code
}

func (r *transferred) failed() uint32 { return r.to &^ r.ok }

// transfer begins x, or queues it until there is a buffer.
func (e *Engine) transfer(x *transfer) {
	e.memory.buffer(&e.memory.transfers, x.n, func(seg loop.Seg) { e.transferRead(x, seg) })
}

func (e *Engine) transferTask(x *transfer, kind, ofFile wire.Type, seg loop.Seg) *task {
	if x.file {
		kind = ofFile
	}
	t := e.tasks.take(kind)
	t.off, t.n, t.layer, t.view, t.seg, t.bounce = x.off, x.n, x.layer, x.view, seg, true
	return t
}

func (e *Engine) transferRead(x *transfer, seg loop.Seg) {
	e.tasks.start(e.transferTask(x, wire.Read, wire.LayerRead, seg), x.from.readyBit(), func(rd *task) {
		if rd.ok == 0 {
			code := rd.code
			e.tasks.release(rd)
			x.done(transferred{read: code})
			return
		}
		rd.bounce = false // the write has the buffer
		e.tasks.release(rd)
		r := transferred{read: block.OK, to: x.to()}
		e.tasks.start(e.transferTask(x, wire.Write, wire.LayerWrite, seg), r.to, func(wr *task) {
			r.ok, r.full, r.write = wr.ok, wr.full, wr.code
			e.tasks.release(wr)
			x.done(r)
		})
	})
}

// others returns the bits of the links in sums whose hash is not that of the link with the bit src.
func others(sums map[uint32][]byte, src uint32) (mask uint32) {
	for bit, sum := range sums {
		if !bytes.Equal(sum, sums[src]) {
			mask |= bit
		}
	}
	return mask
}
