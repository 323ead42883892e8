package replica

import (
	"io"

	"github.com/zeebo/xxh3"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/chain"
	"ankole.storage/dataplane/loop"
	"ankole.storage/dataplane/wire"
)

// requests are the requests for data that are being carried out, and what they are carried out
// with. A piece of them is a loop operation whose tag names the job.
type requests struct {
	r    *Replica
	list []*job
	// free are those of list that are not used.
	free     []uint32
	inFlight int
	plan     []chain.Extent
	zeroes   loop.Buf // a buffer of zeroes, shared by every zeroing write
	zeroSum  []byte   // hash of a piece of zeroes
}

// job is one request being carried out on the chain's files.
type job struct {
	index uint32
	used  bool
	s     *session
	h     wire.Header
	// payload of the request; released at the end.
	payload loop.Seg
	// answer is what a request is answered with that is not for data.
	answer []byte
	// buf holds what is read, or the blocks around an unaligned write; base is the volume offset of
	// its start.
	buf  loop.Buf
	base int64
	// pending operations, and the worst result so far. Reads must bring as many bytes as were wanted.
	pending int
	wanted  int64
	code    block.Code
	// next continues when nothing is pending.
	next  func(j *job)
	zeros []chain.ZeroRange
}

// file operations of a job, in the low byte of its tags beside the job's index.
const (
	opRead = iota
	opWrite
	opPunch
	opCall
)

func (x *requests) add(s *session, h *wire.Header, payload loop.Seg) *job {
	var j *job
	if n := len(x.free); n > 0 {
		j = x.list[x.free[n-1]]
		x.free = x.free[:n-1]
	} else {
		j = &job{index: uint32(len(x.list))}
		x.list = append(x.list, j)
	}
	*j = job{index: j.index, used: true, s: s, h: *h, payload: payload, zeros: j.zeros[:0]}
	x.inFlight++
	s.jobs++
	return j
}

// finish answers and frees a job. seg is the payload of the answer, if any; its reference is taken
// over.
func (x *requests) finish(j *job, code block.Code, seg loop.Seg) {
	s := j.s
	switch {
	case s.closing():
		x.r.release(seg)
	case seg.Len > 0 && code == block.OK && j.h.Flags&wire.Shared != 0:
		x.r.release(seg) // the engine has it already
		s.answer(&j.h, code)
	case seg.Len > 0 && code == block.OK:
		a := j.h.Answer(code)
		p := wire.NewPayload(x.r.arena, seg)
		s.conn.SendPayload(&a, &p, true)
	case code == block.OK:
		s.send(j.h.Answer(code), j.answer)
	default:
		x.r.release(seg)
		s.send(j.h.Answer(code), j.answer)
	}
	x.r.release(j.payload)
	if j.buf != 0 {
		x.r.arena.Release(j.buf)
	}
	x.drop(j)
}

// drop frees a job; its session may have waited for that to end.
func (x *requests) drop(j *job) {
	s := j.s
	j.used, j.s, j.next, j.answer = false, nil, nil, nil
	x.free = append(x.free, j.index)
	x.inFlight--
	s.jobs--
	s.check()
}

func (j *job) tag(op uint64) uint64 { return loop.Tag(ownerJob, uint64(j.index)<<8|op) }

// run begins a request. false: no buffer now, nothing was changed, try again later.
func (x *requests) run(s *session, h *wire.Header, payload loop.Seg, message []byte) bool {
	if x.inFlight >= maxJobs {
		return false
	}
	switch h.Type {
	case wire.Control, wire.MarkDirty:
		x.r.control(s, h, message)
		return true
	case wire.LayerRead, wire.LayerWrite, wire.LayerHash, wire.LayerPunch:
		return x.r.runLayer(s, h, payload)
	case wire.Flush:
		x.r.syncs.join(x.add(s, h, payload))
		return true
	}
	if h.Flags&wire.AtView != 0 {
		return x.r.runView(s, h, payload)
	}
	if h.Off > x.r.blocks.Size() || h.Len > x.r.blocks.Size()-h.Off || h.Len == 0 || (h.Off|h.Len)%block.SectorSize != 0 {
		return x.refuse(s, h, payload)
	}
	switch h.Type {
	case wire.Read, wire.Hash:
		return x.read(s, h, payload)
	case wire.Write:
		if int64(payload.Len) != h.Len {
			return x.refuse(s, h, payload)
		}
		return x.write(s, h, payload)
	case wire.WriteZeroes, wire.Discard:
		if (h.Off|h.Len)%block.Size != 0 || h.Len > chain.RegionSize {
			return x.refuse(s, h, payload)
		}
		if h.Type == wire.Discard {
			return x.r.white.discard(s, h, payload)
		}
		x.zero(x.add(s, h, payload))
		return true
	}
	return x.refuse(s, h, payload)
}

func (x *requests) refuse(s *session, h *wire.Header, payload loop.Seg) bool {
	s.answer(h, block.Invalid)
	x.r.release(payload)
	return true
}

func widen(off, n int64) (beg, end int64) {
	return off &^ (block.Size - 1), (off + n + block.Size - 1) &^ (block.Size - 1)
}

// read reads whole blocks around the range and answers with the part asked for, or its hash. room
// is where to, the zero segment without a slot.
func (x *requests) read(s *session, h *wire.Header, room loop.Seg) bool {
	beg, end := widen(h.Off, h.Len)
	if end-beg > block.MaxTransfer {
		return x.refuse(s, h, room)
	}
	x.plan = x.r.blocks.ReadPlan(beg, end-beg, x.plan[:0])
	if h.Type == wire.Hash && len(x.plan) == 1 && x.plan[0].Handle == chain.NoHandle && h.Len == block.MaxTransfer {
		return x.zeroHash(s, h)
	}
	b, ok := s.buffer(end-beg, room)
	if !ok {
		return false
	}
	j := x.add(s, h, loop.Seg{})
	j.buf, j.base = b, beg
	j.next = x.readDone
	j.pending++
	x.readPlan(j, x.r.blocks, x.plan, b, 0)
	x.step(j)
	return true
}

// readDone answers with the part of the blocks that was asked for, or hashes it first.
func (x *requests) readDone(j *job) {
	if j.wanted != 0 && j.h.Type != wire.LayerRead {
		// A file is shorter than it was when it was opened: what the buffer held before must not be
		// taken for its content.
		x.r.cfg.Event("io-error", "a file ends early")
		j.code = block.IOError
	}
	if j.code != block.OK {
		x.finish(j, j.code, loop.Seg{})
		return
	}
	seg := loop.Seg{Buf: j.buf, Off: int32(j.h.Off - j.base), Len: int32(j.h.Len)}
	if j.h.Type == wire.Hash {
		x.hash(j, seg)
		return
	}
	j.buf = 0
	x.finish(j, block.OK, seg)
}

// readPlan starts the reads of a plan of some blocks whose first byte goes to byte at of b.
func (x *requests) readPlan(j *job, of *chain.Blocks, plan []chain.Extent, b loop.Buf, at int64) {
	p := x.r.arena.Bytes(b)
	for _, e := range plan {
		switch e.Handle {
		case chain.NoHandle:
			clear(p[at : at+e.Len])
		case chain.PackedHandle:
			x.readPacked(j, of.Packed(), p[at:at+e.Len], e.Off)
		default:
			x.fileOp(j, loop.FileRead, e.Handle, e.Off, loop.Seg{Buf: b, Off: int32(at), Len: int32(e.Len)})
		}
		at += e.Len
	}
}

// unpacked is how a read of a packed backing file has ended.
type unpacked struct{ err error }

// readPacked starts a read of a backing file that the loop cannot read.
func (x *requests) readPacked(j *job, image io.ReaderAt, p []byte, off int64) {
	j.pending++
	x.r.op(loop.Op{Kind: loop.Call, Tag: j.tag(opCall), Fn: func() any {
		n, err := image.ReadAt(p, off)
		if n == len(p) {
			err = nil
		}
		return unpacked{err}
	}})
}

// fileOp starts one read or write of a file for a job.
func (x *requests) fileOp(j *job, kind loop.Kind, handle int32, off int64, seg loop.Seg) {
	what := uint64(opRead)
	if kind == loop.FileWrite {
		what = opWrite
	}
	op := loop.Op{Kind: kind, Handle: loop.Handle(handle), Off: off, Tag: j.tag(what)}
	op.Add(seg)
	if kind == loop.FileRead {
		j.wanted += int64(seg.Len)
	}
	j.pending++
	x.r.op(op)
}

// step counts one operation down and continues when none is pending.
func (x *requests) step(j *job) {
	if j.pending--; j.pending == 0 {
		j.next(j)
	}
}

func (x *requests) done(v uint64, d *loop.Done) {
	j := x.list[v>>8]
	if d.Errno != 0 {
		j.code = codeOfErrno(d.Errno)
		if j.code == block.IOError {
			x.r.cfg.Event("io-error", d.Kind.String())
		}
	}
	if d.Kind == loop.FileRead {
		j.wanted -= int64(d.N)
	}
	if _, ok := d.Value.(looked); ok || d.Kind == loop.FileWrite || d.Kind == loop.FilePunch {
		x.r.losing.touch(j)
	}
	if d.Kind != loop.Call {
		x.step(j)
		return
	}
	switch v := d.Value.(type) {
	case []byte:
		x.hashed(j, v)
	case openedWindow:
		j.s.windowOpened(j, v)
	case unpacked:
		if v.err != nil {
			x.r.cfg.Event("io-error", v.err.Error())
			j.code = block.IOError
		}
		x.step(j)
	case summed:
		x.r.summedUp(j, v)
	case below:
		x.r.foundBelow(j, v)
	case looked:
		if v.err != nil {
			x.r.fail("cannot look up extents after a failed write: " + v.err.Error())
		} else {
			x.r.blocks.Found(v.found)
		}
		x.finish(j, j.code, loop.Seg{})
	}
}

// looked is the result of a look at the head.
type looked struct {
	found chain.Found
	err   error
}

// remap finds out what a failed write has left in the head, then ends the job with its code. The
// engine keeps the range locked until it is answered.
func (x *requests) remap(j *job, off, n int64) {
	look := x.r.blocks.Look(off, n)
	x.r.op(loop.Op{Kind: loop.Call, Tag: j.tag(opCall), Fn: func() any {
		found, err := look()
		return looked{found, err}
	}})
}

func codeOfErrno(e loop.Errno) block.Code {
	switch e {
	case loop.ENOSPC, loop.EDQUOT:
		return block.NoSpace
	}
	return block.IOError
}

// hash computes the answer of a Hash request away from the loop's thread.
func (x *requests) hash(j *job, seg loop.Seg) {
	p := x.r.arena.Seg(seg)
	x.r.op(loop.Op{Kind: loop.Call, Tag: j.tag(opCall), Fn: func() any { return sum(p) }})
}

func (x *requests) hashed(j *job, sum []byte) {
	j.answer = sum
	x.finish(j, block.OK, loop.Seg{})
}

// zeroHash answers for a piece that is in no file without reading anything.
func (x *requests) zeroHash(s *session, h *wire.Header) bool {
	j := x.add(s, h, loop.Seg{})
	x.hashed(j, x.zeroSum)
	return true
}

// sum is the hash by which replicas compare content: XXH3-128, fast enough to keep up with a disk.
// It guards against difference by accident; nobody who could forge it is between engine and
// replica.
func sum(p []byte) []byte {
	s := xxh3.Hash128(p).Bytes()
	return s[:]
}

// write writes whole blocks to the head. The engine lets no two writes to one block be in flight,
// so the blocks at the edges of an unaligned one can be read, completed and written back.
func (x *requests) write(s *session, h *wire.Header, payload loop.Seg) bool {
	if !x.r.ops.writable {
		s.answer(h, block.IOError)
		x.r.release(payload)
		return true
	}
	beg, end := widen(h.Off, h.Len)
	if beg == h.Off && end == h.Off+h.Len {
		j := x.add(s, h, payload)
		x.writeHead(j, payload.Buf, beg, end-beg)
		return true
	}
	b, ok := x.r.arena.GetFor(loop.Edges, 2*block.Size)
	if !ok {
		return false
	}
	j := x.add(s, h, payload)
	j.buf, j.base = b, beg
	j.next = x.edgesRead
	j.pending++
	x.plan = x.r.blocks.ReadPlan(beg, block.Size, x.plan[:0])
	x.readPlan(j, x.r.blocks, x.plan, b, 0)
	if end-beg > block.Size {
		x.plan = x.r.blocks.ReadPlan(end-block.Size, block.Size, x.plan[:0])
		x.readPlan(j, x.r.blocks, x.plan, b, block.Size)
	}
	x.step(j)
	return true
}

// edgesRead completes the payload to whole blocks. The payload lies at its block offset in its
// buffer, so the bytes before and after it are the job's to fill.
func (x *requests) edgesRead(j *job) {
	if j.wanted != 0 {
		j.code = block.IOError
	}
	if j.code != block.OK {
		x.finish(j, j.code, loop.Seg{})
		return
	}
	beg, end := widen(j.h.Off, j.h.Len)
	dst, edges := x.r.arena.Bytes(j.payload.Buf), x.r.arena.Bytes(j.buf)
	lead, stop := j.h.Off-beg, j.h.Off+j.h.Len-beg
	copy(dst[:lead], edges[:lead])
	last := edges[:block.Size]
	if end-beg > block.Size {
		last = edges[block.Size : 2*block.Size]
	}
	inLast := stop - (end - beg - block.Size)
	copy(dst[stop:end-beg], last[inLast:])
	x.writeHead(j, j.payload.Buf, beg, end-beg)
}

func (x *requests) writeHead(j *job, b loop.Buf, off, n int64) {
	j.next = func(j *job) {
		if j.code != block.OK {
			x.remap(j, off, n)
			return
		}
		x.r.blocks.MarkWritten(off, n)
		x.written(j)
	}
	x.fileOp(j, loop.FileWrite, x.r.blocks.HeadHandle(), off, loop.Seg{Buf: b, Len: int32(n)})
}

// written ends a write, after a sync if the request asks for one.
func (x *requests) written(j *job) {
	if j.h.Flags&wire.FUA != 0 {
		x.r.syncs.join(j)
		return
	}
	x.finish(j, block.OK, loop.Seg{})
}

// punchHead makes a hole of bytes [off, off+n) of the head, for a job that waits for it.
func (x *requests) punchHead(j *job, off, n int64) {
	j.pending++
	x.r.op(loop.Op{Kind: loop.FilePunch, Handle: loop.Handle(x.r.blocks.HeadHandle()), Off: off, Len: n,
		Tag: j.tag(opPunch)})
}

// zero makes whole blocks read zero: holes where nothing is below, written zeroes elsewhere.
func (x *requests) zero(j *job) {
	j.zeros = x.r.blocks.ZeroPlan(j.h.Off, j.h.Len, j.zeros[:0])
	j.next = x.zeroed
	j.pending++
	for _, z := range j.zeros {
		if z.Punch {
			x.punchHead(j, z.Off, z.Len)
			continue
		}
		for off, end := z.Off, z.Off+z.Len; off < end; {
			n := min(end-off, block.MaxTransfer)
			x.fileOp(j, loop.FileWrite, x.r.blocks.HeadHandle(), off, loop.Seg{Buf: x.zeroes, Len: int32(n)})
			off += n
		}
	}
	x.step(j)
}

func (x *requests) zeroed(j *job) {
	if j.code != block.OK {
		x.remap(j, j.h.Off, j.h.Len)
		return
	}
	for _, z := range j.zeros {
		if z.Punch {
			x.r.blocks.MarkPunched(z.Off, z.Len)
		} else {
			x.r.blocks.MarkWritten(z.Off, z.Len)
		}
	}
	x.written(j)
}
