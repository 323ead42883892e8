package fuseloop

import (
	"bytes"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/frontend"
	"ankole.storage/dataplane/loop"
)

// message takes one request of n bytes that intake r has received. Its first requestHeader bytes
// lie in the headroom of the small buffer, the rest follows there and goes on in the large one.
func (f *Frontend) message(r *intake, n int, reqs *[]frontend.Request, out *[]loop.Op) {
	head := f.cfg.Arena.Seg(loop.Seg{Buf: r.small, Off: -requestHeader, Len: int32(min(n, requestHeader+smallSize))})
	if n < inHeader {
		return // not a request; the kernel never does this
	}
	h := header{size: ne.Uint32(head), opcode: ne.Uint32(head[4:]), unique: ne.Uint64(head[8:]),
		node: ne.Uint64(head[16:])}
	if int(h.size) != n || h.opcode == opForget || h.opcode == opBatchForget {
		return // nodes are never forgotten, and there is no answer
	}
	f.enter(r)
	defer f.leave(r)
	switch h.opcode {
	case opRead:
		f.read(&h, r, head, reqs, out)
	case opWrite:
		f.write(&h, r, head, n, reqs, out)
	case opFsync:
		slot := f.take(h.unique)
		f.emit(slot, frontend.Request{Kind: block.Flush}, reqs)
	case opFallocate:
		f.fallocate(&h, head, reqs, out)
	default:
		slot := f.take(h.unique)
		errno, size := f.meta(&h, head[inHeader:], f.answerBytes(slot)[outHeader:])
		f.answer(slot, errno, size, out)
	}
}

func (f *Frontend) emit(slot uint32, q frontend.Request, reqs *[]frontend.Request) {
	q.ID = uint64(slot)
	f.slots[slot].kind = q.Kind
	f.pending++
	*reqs = append(*reqs, q)
}

func (f *Frontend) refuse(unique uint64, errno int32, out *[]loop.Op) {
	slot := f.take(unique)
	f.finish(&f.slots[slot], errno)
	f.answer(slot, errno, 0, out)
}

// within reports whether n bytes at off lie inside the volume and on sector boundaries.
func (f *Frontend) within(off uint64, n uint64) bool {
	return off%block.SectorSize == 0 && n%block.SectorSize == 0 && off <= uint64(f.size) && n <= uint64(f.size)-off
}

// read answers beyond the end as a file does: with less, or nothing.
func (f *Frontend) read(h *header, r *intake, head []byte, reqs *[]frontend.Request, out *[]loop.Op) {
	if len(head) < inHeader+24 || h.node != fileNode {
		f.refuse(h.unique, errInvalid, out)
		return
	}
	off, n := ne.Uint64(head[inHeader+8:]), uint64(ne.Uint32(head[inHeader+16:]))
	if off < uint64(f.size) {
		n = min(n, uint64(f.size)-off)
	} else {
		n = 0
	}
	switch {
	case n == 0:
		f.refuse(h.unique, 0, out)
		return
	case n > block.MaxTransfer || !f.within(off, n):
		f.refuse(h.unique, errInvalid, out)
		return
	}
	slot := f.take(h.unique)
	q := &f.slots[slot]
	q.size = int(n)
	q.buf = f.bufferFor(r, q.size)
	f.emit(slot, frontend.Request{Kind: block.Read, Off: int64(off), Len: int64(n), Buf: q.buf}, reqs)
}

// bufferFor returns a buffer for n bytes: one of the arena's, or if it has none one of the intake's
// own, which always does.
func (f *Frontend) bufferFor(r *intake, n int) loop.Buf {
	if b, ok := f.cfg.Arena.Get(n); ok {
		return b
	}
	own := &r.large
	if n <= smallSize {
		own = &r.small
	}
	b := *own
	*own = 0
	return b
}

func (f *Frontend) write(h *header, r *intake, head []byte, n int, reqs *[]frontend.Request, out *[]loop.Op) {
	size := n - requestHeader
	if size < 0 || h.node != fileNode || uint64(size) != uint64(ne.Uint32(head[inHeader+16:])) {
		f.refuse(h.unique, errInvalid, out)
		return
	}
	off := ne.Uint64(head[inHeader+8:])
	switch {
	case size == 0 || off%block.SectorSize != 0 || size%block.SectorSize != 0:
		f.refuse(h.unique, errInvalid, out)
		return
	case !f.within(off, uint64(size)):
		f.refuse(h.unique, errNoSpace, out) // the kernel does not check this for us
		return
	}
	slot := f.take(h.unique)
	q := &f.slots[slot]
	q.size, q.buf = size, f.payload(r, size)
	f.emit(slot, frontend.Request{Kind: block.Write, Off: int64(off), Len: int64(size), Buf: q.buf}, reqs)
}

// payload returns the buffer that holds a write's data at its start.
func (f *Frontend) payload(r *intake, size int) loop.Buf {
	a := f.cfg.Arena
	if size <= smallSize {
		b := r.small
		r.small = 0
		return b
	}
	head := a.Bytes(r.small)[:smallSize]
	if size <= copyLimit && f.cfg.Journal == nil {
		if b, ok := a.Get(size); ok {
			p := a.Bytes(b)
			copy(p, head)
			copy(p[smallSize:size], a.Bytes(r.large)[smallSize:])
			return b
		}
	}
	b := r.large
	r.large = 0
	copy(a.Bytes(b), head)
	return b
}

// fallocate serves the two modes a loop device uses. Punching must read zero afterwards, since the
// loop device zeroes with it as well, and may give space back; zeroing may not.
func (f *Frontend) fallocate(h *header, head []byte, reqs *[]frontend.Request, out *[]loop.Op) {
	if len(head) < inHeader+32 || h.node != fileNode {
		f.refuse(h.unique, errInvalid, out)
		return
	}
	off, n, mode := ne.Uint64(head[inHeader+8:]), ne.Uint64(head[inHeader+16:]), ne.Uint32(head[inHeader+24:])
	q := frontend.Request{Kind: block.WriteZeroes, Off: int64(off), Len: int64(n)}
	switch mode {
	case fallocPunch | fallocKeepSize:
		q.Unmap, q.Trim = true, true // a loop device asks so for both
	case fallocZero | fallocKeepSize, fallocZero:
	default:
		f.refuse(h.unique, errOpNotSupp, out)
		return
	}
	switch {
	case n == 0 || off%block.SectorSize != 0 || n%block.SectorSize != 0:
		f.refuse(h.unique, errInvalid, out)
	case !f.within(off, n):
		f.refuse(h.unique, errNoSpace, out)
	default:
		f.emit(f.take(h.unique), q, reqs)
	}
}

// meta answers a request about the file system itself: an error, or the number of bytes put into
// out.
func (f *Frontend) meta(h *header, in, out []byte) (errno int32, n int) {
	switch h.opcode {
	case opInit:
		return f.init(in, out)
	case opLookup:
		return f.lookup(h, in, out)
	case opGetattr:
		return f.getattr(h.node, out)
	case opSetattr:
		// Times and modes may be set and are not kept; the size is not the kernel's to change.
		if len(in) < 4 || ne.Uint32(in)&setattrSize != 0 {
			return errPerm, 0
		}
		return f.getattr(h.node, out)
	case opOpen, opOpendir:
		return f.open(h, out)
	case opReaddir:
		return f.readdir(in, out)
	case opStatfs:
		putStatfs(out, f.size)
		return 0, 80
	case opRelease, opReleasedir, opFlush, opFsyncdir, opAccess, opDestroy:
		return 0, 0
	case opIoctl:
		return errNoTTY, 0
	}
	return errNoSys, 0 // INTERRUPT too: then the kernel does not send it, and a request ends when it ends
}

func (f *Frontend) init(in, out []byte) (int32, int) {
	if len(in) < 16 || ne.Uint32(in) < major {
		return errProto, 0
	}
	offered := uint64(ne.Uint32(in[12:]))
	if len(in) >= 20 && offered&initExt != 0 {
		offered |= uint64(ne.Uint32(in[16:])) << 32
	}
	f.flags = offered & wantedFlags
	putInit(out, ne.Uint32(in[4:]), ne.Uint32(in[8:]), f.flags)
	return 0, 64
}

func (f *Frontend) lookup(h *header, in, out []byte) (int32, int) {
	name, _, _ := bytes.Cut(in, []byte{0})
	if h.node != rootNode {
		return errNotDir, 0
	}
	if string(name) != f.cfg.File {
		return errNoEntry, 0
	}
	clear(out[:40])
	ne.PutUint64(out, fileNode)
	ne.PutUint64(out[24:], attrValid)
	putAttr(out[40:], fileNode, f.size)
	return 0, 128
}

// getattr answers with attributes that stay valid: whoever lists loop devices has the kernel look
// at them, and must not wait for a server that is away.
func (f *Frontend) getattr(node uint64, out []byte) (int32, int) {
	if node != rootNode && node != fileNode {
		return errNoEntry, 0
	}
	clear(out[:16])
	ne.PutUint64(out, attrValid)
	putAttr(out[16:], node, f.size)
	return 0, 104
}

func (f *Frontend) open(h *header, out []byte) (int32, int) {
	clear(out[:16])
	switch {
	case h.opcode == opOpendir && h.node == rootNode:
	case h.opcode == opOpen && h.node == fileNode:
		ne.PutUint32(out[8:], fileOpenFlags)
	case h.opcode == opOpen:
		return errIsDir, 0
	default:
		return errNotDir, 0
	}
	return 0, 16
}

func (f *Frontend) readdir(in, out []byte) (int32, int) {
	if len(in) < 20 {
		return errInvalid, 0
	}
	from, limit := ne.Uint64(in[8:]), min(int(ne.Uint32(in[16:])), len(out))
	var list []byte
	for i, e := range []struct {
		node uint64
		kind uint32
		name string
	}{{rootNode, direntDir, "."}, {rootNode, direntDir, ".."}, {fileNode, direntFile, f.cfg.File}} {
		if from <= uint64(i) {
			list = appendDirent(list, limit, e.node, uint64(i)+1, e.kind, e.name)
		}
	}
	return 0, copy(out, list)
}
