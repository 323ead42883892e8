package replica

import (
	"io"

	"github.com/zeebo/xxh3"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/chain"
	"ankole.storage/dataplane/loop"
	"ankole.storage/dataplane/wire"
)

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

func (r *Replica) newJob(s *session, h *wire.Header, payload loop.Seg) *job {
	var j *job
	if n := len(r.freeJobs); n > 0 {
		j = r.jobs[r.freeJobs[n-1]]
		r.freeJobs = r.freeJobs[:n-1]
	} else {
		j = &job{index: uint32(len(r.jobs))}
		r.jobs = append(r.jobs, j)
	}
	*j = job{index: j.index, used: true, s: s, h: *h, payload: payload, zeros: j.zeros[:0]}
	r.inFlight++
	s.jobs++
	return j
}

// finish answers and frees a job. seg is the payload of the answer, if any; its reference is taken
// over.
func (r *Replica) finish(j *job, code block.Code, seg loop.Seg) {
	s := j.s
	switch {
	case s.closing():
		r.release(seg)
	case seg.Len > 0 && code == block.OK && j.h.Flags&wire.Shared != 0:
		r.release(seg) // the engine has it already
		s.answer(&j.h, code)
	case seg.Len > 0 && code == block.OK:
		a := j.h.Answer(code)
		p := wire.NewPayload(r.arena, seg)
		s.conn.SendPayload(&a, &p, true)
	case code == block.OK:
		s.send(j.h.Answer(code), j.answer)
	default:
		r.release(seg)
		s.send(j.h.Answer(code), j.answer)
	}
	r.release(j.payload)
	if j.buf != 0 {
		r.arena.Release(j.buf)
	}
	j.used, j.s, j.next, j.answer = false, nil, nil, nil
	r.freeJobs = append(r.freeJobs, j.index)
	r.inFlight--
	s.jobs--
	s.check()
}

func (j *job) tag(op uint64) uint64 { return loop.Tag(ownerJob, uint64(j.index)<<8|op) }

// run begins a request. false: no buffer now, nothing was changed, try again later.
func (r *Replica) run(s *session, h *wire.Header, payload loop.Seg, message []byte) bool {
	if r.inFlight >= maxJobs {
		return false
	}
	switch h.Type {
	case wire.Control, wire.MarkDirty:
		r.control(s, h, message)
		return true
	case wire.LayerRead, wire.LayerWrite, wire.LayerHash, wire.LayerPunch:
		return r.runLayer(s, h, payload)
	case wire.Flush:
		r.joinSync(r.newJob(s, h, payload))
		return true
	}
	if h.Flags&wire.AtView != 0 {
		return r.runView(s, h, payload)
	}
	if h.Off > r.blocks.Size() || h.Len > r.blocks.Size()-h.Off || h.Len == 0 || (h.Off|h.Len)%block.SectorSize != 0 {
		return r.refuse(s, h, payload)
	}
	switch h.Type {
	case wire.Read, wire.Hash:
		return r.read(s, h, payload)
	case wire.Write:
		if int64(payload.Len) != h.Len {
			return r.refuse(s, h, payload)
		}
		return r.write(s, h, payload)
	case wire.WriteZeroes, wire.Discard:
		if (h.Off|h.Len)%block.Size != 0 || h.Len > chain.RegionSize {
			return r.refuse(s, h, payload)
		}
		if h.Type == wire.Discard {
			return r.discard(s, h, payload)
		}
		r.zero(r.newJob(s, h, payload))
		return true
	}
	return r.refuse(s, h, payload)
}

func (r *Replica) refuse(s *session, h *wire.Header, payload loop.Seg) bool {
	s.answer(h, block.Invalid)
	r.release(payload)
	return true
}

func widen(off, n int64) (beg, end int64) {
	return off &^ (block.Size - 1), (off + n + block.Size - 1) &^ (block.Size - 1)
}

// read reads whole blocks around the range and answers with the part asked for, or its hash. room
// is where to, the zero segment without a slot.
func (r *Replica) read(s *session, h *wire.Header, room loop.Seg) bool {
	beg, end := widen(h.Off, h.Len)
	if end-beg > block.MaxTransfer {
		return r.refuse(s, h, room)
	}
	r.plan = r.blocks.ReadPlan(beg, end-beg, r.plan[:0])
	if h.Type == wire.Hash && len(r.plan) == 1 && r.plan[0].Handle == chain.NoHandle && h.Len == block.MaxTransfer {
		return r.zeroHash(s, h)
	}
	b, ok := s.buffer(end-beg, room)
	if !ok {
		return false
	}
	j := r.newJob(s, h, loop.Seg{})
	j.buf, j.base = b, beg
	j.next = r.readDone
	j.pending++
	r.readPlan(j, r.blocks, r.plan, b, 0)
	r.step(j)
	return true
}

// readDone answers with the part of the blocks that was asked for, or hashes it first.
func (r *Replica) readDone(j *job) {
	if j.wanted != 0 && j.h.Type != wire.LayerRead {
		// A file is shorter than it was when it was opened: what the buffer held before must not be
		// taken for its content.
		r.cfg.Event("io-error", "a file ends early")
		j.code = block.IOError
	}
	if j.code != block.OK {
		r.finish(j, j.code, loop.Seg{})
		return
	}
	seg := loop.Seg{Buf: j.buf, Off: int32(j.h.Off - j.base), Len: int32(j.h.Len)}
	if j.h.Type == wire.Hash {
		r.hash(j, seg)
		return
	}
	j.buf = 0
	r.finish(j, block.OK, seg)
}

// readPlan starts the reads of a plan of some blocks whose first byte goes to byte at of b.
func (r *Replica) readPlan(j *job, of *chain.Blocks, plan []chain.Extent, b loop.Buf, at int64) {
	p := r.arena.Bytes(b)
	for _, e := range plan {
		switch e.Handle {
		case chain.NoHandle:
			clear(p[at : at+e.Len])
		case chain.PackedHandle:
			r.readPacked(j, of.Packed(), p[at:at+e.Len], e.Off)
		default:
			r.fileOp(j, loop.FileRead, e.Handle, e.Off, loop.Seg{Buf: b, Off: int32(at), Len: int32(e.Len)})
		}
		at += e.Len
	}
}

// unpacked is how a read of a packed backing file has ended.
type unpacked struct{ err error }

// readPacked starts a read of a backing file that the loop cannot read.
func (r *Replica) readPacked(j *job, image io.ReaderAt, p []byte, off int64) {
	j.pending++
	r.op(loop.Op{Kind: loop.Call, Tag: j.tag(opCall), Fn: func() any {
		n, err := image.ReadAt(p, off)
		if n == len(p) {
			err = nil
		}
		return unpacked{err}
	}})
}

// fileOp starts one read or write of a file for a job.
func (r *Replica) fileOp(j *job, kind loop.Kind, handle int32, off int64, seg loop.Seg) {
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
	r.op(op)
}

// step counts one operation down and continues when none is pending.
func (r *Replica) step(j *job) {
	if j.pending--; j.pending == 0 {
		j.next(j)
	}
}

func (r *Replica) jobDone(v uint64, d *loop.Done) {
	j := r.jobs[v>>8]
	if d.Errno != 0 {
		j.code = codeOfErrno(d.Errno)
		if j.code == block.IOError {
			r.cfg.Event("io-error", d.Kind.String())
		}
	}
	if d.Kind == loop.FileRead {
		j.wanted -= int64(d.N)
	}
	if _, ok := d.Value.(looked); ok || d.Kind == loop.FileWrite || d.Kind == loop.FilePunch {
		r.touch(j)
	}
	if d.Kind != loop.Call {
		r.step(j)
		return
	}
	switch v := d.Value.(type) {
	case []byte:
		r.hashed(j, v)
	case openedWindow:
		j.s.windowOpened(j, v)
	case unpacked:
		if v.err != nil {
			r.cfg.Event("io-error", v.err.Error())
			j.code = block.IOError
		}
		r.step(j)
	case summed:
		r.summedUp(j, v)
	case below:
		r.foundBelow(j, v)
	case looked:
		if v.err != nil {
			r.fail("cannot look up extents after a failed write: " + v.err.Error())
		} else {
			r.blocks.Found(v.found)
		}
		r.finish(j, j.code, loop.Seg{})
	}
}

// looked is the result of a look at the head.
type looked struct {
	found chain.Found
	err   error
}

// remap finds out what a failed write has left in the head, then ends the job with its code. The
// engine keeps the range locked until it is answered.
func (r *Replica) remap(j *job, off, n int64) {
	look := r.blocks.Look(off, n)
	r.op(loop.Op{Kind: loop.Call, Tag: j.tag(opCall), Fn: func() any {
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
func (r *Replica) hash(j *job, seg loop.Seg) {
	p := r.arena.Seg(seg)
	r.op(loop.Op{Kind: loop.Call, Tag: j.tag(opCall), Fn: func() any { return sum(p) }})
}

func (r *Replica) hashed(j *job, sum []byte) {
	j.answer = sum
	r.finish(j, block.OK, loop.Seg{})
}

// zeroHash answers for a piece that is in no file without reading anything.
func (r *Replica) zeroHash(s *session, h *wire.Header) bool {
	j := r.newJob(s, h, loop.Seg{})
	r.hashed(j, r.zeroSum)
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
func (r *Replica) write(s *session, h *wire.Header, payload loop.Seg) bool {
	if !r.writable {
		s.answer(h, block.IOError)
		r.release(payload)
		return true
	}
	beg, end := widen(h.Off, h.Len)
	if beg == h.Off && end == h.Off+h.Len {
		j := r.newJob(s, h, payload)
		r.writeHead(j, payload.Buf, beg, end-beg)
		return true
	}
	b, ok := r.arena.GetFor(loop.Edges, 2*block.Size)
	if !ok {
		return false
	}
	j := r.newJob(s, h, payload)
	j.buf, j.base = b, beg
	j.next = r.edgesRead
	j.pending++
	r.plan = r.blocks.ReadPlan(beg, block.Size, r.plan[:0])
	r.readPlan(j, r.blocks, r.plan, b, 0)
	if end-beg > block.Size {
		r.plan = r.blocks.ReadPlan(end-block.Size, block.Size, r.plan[:0])
		r.readPlan(j, r.blocks, r.plan, b, block.Size)
	}
	r.step(j)
	return true
}

// edgesRead completes the payload to whole blocks. The payload lies at its block offset in its
// buffer, so the bytes before and after it are the job's to fill.
func (r *Replica) edgesRead(j *job) {
	if j.wanted != 0 {
		j.code = block.IOError
	}
	if j.code != block.OK {
		r.finish(j, j.code, loop.Seg{})
		return
	}
	beg, end := widen(j.h.Off, j.h.Len)
	dst, edges := r.arena.Bytes(j.payload.Buf), r.arena.Bytes(j.buf)
	lead, stop := j.h.Off-beg, j.h.Off+j.h.Len-beg
	copy(dst[:lead], edges[:lead])
	last := edges[:block.Size]
	if end-beg > block.Size {
		last = edges[block.Size : 2*block.Size]
	}
	inLast := stop - (end - beg - block.Size)
	copy(dst[stop:end-beg], last[inLast:])
	r.writeHead(j, j.payload.Buf, beg, end-beg)
}

func (r *Replica) writeHead(j *job, b loop.Buf, off, n int64) {
	j.next = func(j *job) {
		if j.code != block.OK {
			r.remap(j, off, n)
			return
		}
		r.blocks.MarkWritten(off, n)
		r.written(j)
	}
	r.fileOp(j, loop.FileWrite, r.blocks.HeadHandle(), off, loop.Seg{Buf: b, Len: int32(n)})
}

// written ends a write, after a sync if the request asks for one.
func (r *Replica) written(j *job) {
	if j.h.Flags&wire.FUA != 0 {
		r.joinSync(j)
		return
	}
	r.finish(j, block.OK, loop.Seg{})
}

// punchHead makes a hole of bytes [off, off+n) of the head, for a job that waits for it.
func (r *Replica) punchHead(j *job, off, n int64) {
	j.pending++
	r.op(loop.Op{Kind: loop.FilePunch, Handle: loop.Handle(r.blocks.HeadHandle()), Off: off, Len: n,
		Tag: j.tag(opPunch)})
}

// zero makes whole blocks read zero: holes where nothing is below, written zeroes elsewhere.
func (r *Replica) zero(j *job) {
	j.zeros = r.blocks.ZeroPlan(j.h.Off, j.h.Len, j.zeros[:0])
	j.next = r.zeroed
	j.pending++
	for _, z := range j.zeros {
		if z.Punch {
			r.punchHead(j, z.Off, z.Len)
			continue
		}
		for off, end := z.Off, z.Off+z.Len; off < end; {
			n := min(end-off, block.MaxTransfer)
			r.fileOp(j, loop.FileWrite, r.blocks.HeadHandle(), off, loop.Seg{Buf: r.zeroes, Len: int32(n)})
			off += n
		}
	}
	r.step(j)
}

func (r *Replica) zeroed(j *job) {
	if j.code != block.OK {
		r.remap(j, j.h.Off, j.h.Len)
		return
	}
	for _, z := range j.zeros {
		if z.Punch {
			r.blocks.MarkPunched(z.Off, z.Len)
		} else {
			r.blocks.MarkWritten(z.Off, z.Len)
		}
	}
	r.written(j)
}
