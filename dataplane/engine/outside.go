package engine

import (
	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/frontend"
	"ankole.storage/dataplane/loop"
)

// Outside is a message to the core: a request that comes from no frontend of this engine, but from
// a device on another node, for which a process there stands in (docs/design/migration.md). It is
// carried out like any other request.
type Outside struct {
	// Request has neither ID nor Buf.
	Request frontend.Request
	// Data is what a write writes, or room for what a read reads: Request.Len bytes.
	Data []byte
	// Done gets the result, on the core's thread; it must not block. Unavailable: the engine does not
	// serve the volume, or not any more, and the request may be sent again to the next one.
	Done func(code block.Code)
}

func (q *requests) outside(m Outside) {
	switch {
	case !q.servesOutside():
		m.Done(block.Unavailable)
		return
	case !q.wellFormed(&m):
		m.Done(block.Invalid)
		return
	}
	q.takeIn(m)
}

// takeIn carries out a request that is let in.
func (q *requests) takeIn(m Outside) {
	e := q.e
	r := &request{Request: m.Request}
	if len(m.Data) == 0 {
		r.done = func(code block.Code) { q.outsideDone(r, m, code) }
		q.carryOut(r)
		return
	}
	e.memory.buffer(&e.memory.outsides, r.Len, func(seg loop.Seg) {
		r.Buf = seg.Buf
		if r.Kind == block.Write {
			copy(e.arena.Seg(seg), m.Data)
		}
		r.done = func(code block.Code) {
			if r.Kind == block.Read && code == block.OK {
				copy(m.Data, e.arena.Seg(seg))
			}
			e.arena.Release(r.Buf)
			q.outsideDone(r, m, code)
		}
		q.carryOut(r)
	})
}

// servesOutside reports whether requests from outside are taken in.
func (q *requests) servesOutside() bool {
	e := q.e
	return e.serving && e.fatal == "" && e.passing.leaving == nil && e.stopping == nil && e.imports.reason() == nil
}

// wellFormed checks what a frontend checks of the requests of its own users.
func (q *requests) wellFormed(m *Outside) bool {
	r := &m.Request
	inside := r.Off >= 0 && r.Len > 0 && r.Off <= q.e.agreedSize-r.Len && (r.Off|r.Len)%block.SectorSize == 0
	switch r.Kind {
	case block.Read, block.Write:
		return inside && r.Len <= block.MaxTransfer && int64(len(m.Data)) == r.Len
	case block.Discard, block.WriteZeroes:
		return inside && len(m.Data) == 0
	}
	return r.Kind == block.Flush && len(m.Data) == 0
}

// outsideDone answers. What fails because this engine ends is not answered with an error: the next
// one can do it.
func (q *requests) outsideDone(r *request, m Outside, code block.Code) {
	if code != block.OK && q.e.fatal != "" {
		code = block.Unavailable
	}
	r.code = code
	q.countRequest(r)
	m.Done(code)
}
