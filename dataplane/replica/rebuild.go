package replica

import (
	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/chain"
	"ankole.storage/dataplane/disk"
	"ankole.storage/dataplane/loop"
	"ankole.storage/dataplane/wire"
)

// absence is what this replica knows about a member that is not there, but for the regions; nil if
// nothing.
func (l *sidecarSet) absence(member string) *wire.AbsentReply {
	a, ok := l.side.Absent(member)
	if !ok {
		return nil
	}
	return &wire.AbsentReply{Since: wire.RecordRef{Epoch: a.Since.Epoch, Generation: a.Since.Generation},
		Before: wire.RecordRef{Epoch: a.Before.Epoch, Generation: a.Before.Generation}, Structure: a.Structure[:],
		First: a.First, Gone: a.Gone, Changed: a.Changed, AllChanged: a.AllChanged}
}

// regions tells where this replica may differ from a member: a region is in the entry or still
// marked. Both are read in one operation, since a region passes from the one to the other. Without
// an entry nothing is known.
func (r *Replica) regions(s *session, h *wire.Header, member string) {
	r.ops.enqueue(&metaOp{s: s, note: func(l *sidecarSet) any {
		a, known := l.side.Absent(member)
		dirty, all := l.dirty()
		return &wire.RegionsReply{Shift: a.Regions.Shift, Bits: a.Regions.Bits, Dirty: dirty, All: all || !known}
	}, done: func(v any) {
		r.reply(s, h, block.OK, wire.ControlReply{Regions: v.(*wire.RegionsReply)})
	}})
}

// beginRebuild gives the directory the shape of the described chain and repeats the promise there.
// The record is void from then on; what the content was before is remembered, so that an
// interrupted rebuild can go on from there.
func (r *Replica) beginRebuild(s *session, h *wire.Header, b *wire.BeginRebuild) {
	shape := chain.Shape{NewHead: b.NewHead, HeadBecomes: snapshotFile(b.HeadBecomes)}
	shape.Spec = chain.Spec{Size: b.Size, VolumeUUID: r.uuid, Self: r.cfg.Member, Rebuilding: true}
	for i, l := range b.Layers {
		if i == len(b.Layers)-1 {
			shape.Created, shape.HeadParent, shape.HeadLabels = l.Created, snapshotFile(l.Parent), l.Labels
			break
		}
		shape.Layers = append(shape.Layers, layerSpec(l))
	}
	for _, l := range b.Branches {
		shape.Branches = append(shape.Branches, layerSpec(l))
	}
	for _, name := range b.Untouched {
		shape.Untouched = append(shape.Untouched, snapshotFile(name))
	}
	shape.Compared = b.Compared
	if err := shape.Validate(); err != nil {
		r.replyErr(s, h, err) // before what the directory holds is given up
		return
	}
	rec := chain.Record{VolumeUUID: r.uuid, Self: r.cfg.Member, Promised: r.record.Promised, Engine: r.record.Engine,
		State: chain.MemberWO}
	headBecomes := b.HeadBecomes
	r.ops.enqueue(&metaOp{s: s, exclusive: true, both: func(w *worker, l *sidecarSet) any {
		var res reshaped
		res.opened, res.lost, res.err = w.reshape(l, &rec, headBecomes, &shape)
		if res.opened == nil && !res.lost {
			res.held = l.held()
		}
		return res
	}, done: func(v any) {
		res := v.(reshaped)
		switch {
		case res.lost:
			r.fail("cannot begin a rebuild: " + res.err.Error())
			return
		case res.opened != nil:
			r.adopt(res.opened)
		default:
			r.record, r.recorded = res.held.record, res.held.recorded
		}
		r.replyErr(s, h, res.err)
	}})
}

// reshaped is the result of worker.reshape; held is of a directory that is as it was.
type reshaped struct {
	opened *opened
	held   held
	lost   bool
	err    error
}

// layerSpec is how a snapshot's file is made.
func layerSpec(l wire.Layer) chain.LayerSpec {
	return chain.LayerSpec{File: snapshotFile(l.Name), Size: l.Size,
		Meta: chain.DiskMeta{Name: snapshotFile(l.Name), Parent: snapshotFile(l.Parent),
			Removed: l.Removed, UserCreated: l.UserCreated, Created: l.Created, Labels: l.Labels}, Whiteouts: l.Whiteouts}
}

// finishRebuild first syncs every file while requests go on, so that the part that stops them is
// short.
func (r *Replica) finishRebuild(s *session, h *wire.Header) {
	j := r.requests.add(s, h, loop.Seg{})
	hdr := *h
	j.next = func(j *job) {
		code := j.code
		r.requests.drop(j)
		if code != block.OK {
			r.fail("cannot sync a rebuilt file")
			return
		}
		r.changing(s, &hdr, func(w *worker, l *sidecarSet) error { return w.change(w.files.FinishRebuild(l.side)) })
	}
	j.pending++
	for i := range r.blocks.Layers() + r.blocks.Branches() {
		_, handle, _ := r.layer(i)
		j.pending++
		r.op(loop.Op{Kind: loop.FileSync, Handle: loop.Handle(handle), Tag: j.tag(opWrite)})
	}
	r.requests.step(j)
}

// layer returns a file by its number: of the live chain, bottom first, then of the branches that
// are open. live is its name, "" off the live chain.
func (r *Replica) layer(n int) (live string, handle int32, file disk.File) {
	if k := n - r.blocks.Layers(); k >= 0 {
		handle, _, file = r.blocks.Branch(k)
		return "", handle, file
	}
	live, handle, _ = r.blocks.Layer(n)
	return live, handle, r.blocks.LayerFile(n)
}

// runLayer reads, hashes, writes or punches one file for a rebuild.
func (r *Replica) runLayer(s *session, h *wire.Header, payload loop.Seg) bool {
	if int(h.Layer) >= r.blocks.Layers()+r.blocks.Branches() || h.Len == 0 || h.Len > block.MaxTransfer ||
		(h.Off|h.Len)%block.Size != 0 || h.Off+h.Len > r.blocks.Size() {
		return r.requests.refuse(s, h, payload)
	}
	live, handle, file := r.layer(int(h.Layer))
	if h.Type == wire.LayerHash {
		return r.layerHash(s, h, file)
	}
	if h.Type == wire.LayerRead {
		b, ok := s.buffer(h.Len, payload)
		if !ok {
			return false
		}
		j := r.requests.add(s, h, loop.Seg{})
		j.buf, j.base = b, h.Off
		// Beyond the end of a layer that is shorter than the volume there is nothing to read.
		clear(r.arena.Bytes(b)[:h.Len])
		j.next = r.requests.readDone
		r.requests.fileOp(j, loop.FileRead, handle, h.Off, loop.Seg{Buf: b, Len: int32(h.Len)})
		return true
	}
	switch {
	case !r.blocks.MayWriteLayer(int(h.Layer)):
		return r.requests.refuse(s, h, payload)
	case h.Type == wire.LayerPunch && int(h.Layer) == r.blocks.Layers()-1:
		return r.headPunch(s, h)
	case h.Type == wire.LayerPunch:
		r.layerPunch(s, h)
		return true
	case int64(payload.Len) != h.Len:
		return r.requests.refuse(s, h, payload)
	}
	j := r.requests.add(s, h, payload)
	j.next = func(j *job) {
		switch {
		case j.code != block.OK || live == "":
		case int(j.h.Layer) < r.blocks.Layers()-1 && r.blocks.Hidden(j.h.Off, j.h.Len):
			r.findBelow(j) // whether what hides it is of this layer or above it
			return
		default:
			r.blocks.MarkLayerWritten(live, j.h.Off, j.h.Len)
		}
		r.requests.finish(j, j.code, loop.Seg{})
	}
	r.requests.fileOp(j, loop.FileWrite, handle, h.Off, loop.Seg{Buf: payload.Buf, Len: payload.Len})
	return true
}

// layerHash tells which blocks of a piece a file holds and hashes them, away from the loop's
// thread. The engine lets nobody write there meanwhile.
func (r *Replica) layerHash(s *session, h *wire.Header, f disk.File) bool {
	b, ok := s.buffer(h.Len, loop.Seg{})
	if !ok {
		return false
	}
	j := r.requests.add(s, h, loop.Seg{})
	j.buf = b
	off, p := h.Off, r.arena.Bytes(b)[:h.Len]
	hides := r.blocks.Whiteouts(int(h.Layer), h.Off, h.Len)
	r.op(loop.Op{Kind: loop.Call, Tag: j.tag(opCall), Fn: func() any {
		sums, err := layerSums(f, off, p)
		if err == nil {
			var hidden []byte
			hidden, err = hides()
			copy(sums[wire.WhiteoutsAt:], hidden)
		}
		return summed{sums, err}
	}})
	return true
}

// summed is the result of layerHash.
type summed struct {
	sums []byte
	err  error
}

// layerSums reads what the file holds of [off, off+len(p)) into p; the answer is laid out as
// wire.LayerSumsSize says, without whiteouts.
func layerSums(f disk.File, off int64, p []byte) ([]byte, error) {
	clear(p)
	sums := make([]byte, wire.LayerSumsSize)
	end := off + int64(len(p))
	extents, _, err := f.Extents(off, nil)
	if err != nil {
		return nil, err
	}
	for _, e := range extents {
		beg, stop := widen(e.Off, e.Len)
		if beg, stop = max(beg, off), min(stop, end); beg >= stop {
			continue
		}
		for n := (beg - off) / block.Size; n < (stop-off)/block.Size; n++ {
			sums[n/8] |= 1 << (n % 8)
		}
		if n, err := f.ReadAt(p[beg-off:stop-off], beg); err != nil && int64(n) < min(e.Off+e.Len, stop)-beg {
			return nil, err
		}
	}
	for i := range wire.SumChunks {
		at := i * wire.SumChunk
		if at >= len(p) {
			break
		}
		copy(sums[wire.SumBlocks+i*wire.SumSize:], sum(p[at:min(at+wire.SumChunk, len(p))]))
	}
	return sums, nil
}

// summedUp answers a LayerHash.
func (r *Replica) summedUp(j *job, v summed) {
	if v.err != nil {
		r.cfg.Event("io-error", v.err.Error())
		r.requests.finish(j, codeOf(v.err), loop.Seg{})
		return
	}
	r.requests.hashed(j, v.sums)
}

// headPunch makes holes in the head of a rebuild target, sets or takes away whiteouts there, and
// then finds out what is below.
func (r *Replica) headPunch(s *session, h *wire.Header) bool {
	hide := h.Flags&wire.Whiteout != 0
	if ok, code := r.white.room(s, h, []chain.ZeroRange{{Off: h.Off, Len: h.Len, Whiteout: hide}}); !ok {
		if code == block.OK {
			s.postpone(h, loop.Seg{})
			return true
		}
		s.answer(h, code)
		return true
	}
	j := r.requests.add(s, h, loop.Seg{})
	j.next = func(j *job) {
		if j.code != block.OK {
			r.requests.finish(j, j.code, loop.Seg{})
			return
		}
		r.blocks.SetWhiteouts(j.h.Off, j.h.Len, hide)
		r.white.settle(false, func(code block.Code) {
			if code != block.OK {
				r.requests.finish(j, code, loop.Seg{})
				return
			}
			r.findBelow(j)
		})
	}
	r.requests.punchHead(j, h.Off, h.Len)
	return true
}

// findBelow finds out where blocks are read from whose layers a rebuild has changed, and ends the
// job.
func (r *Replica) findBelow(j *job) {
	punched := j.h.Type == wire.LayerPunch && int(j.h.Layer) == r.blocks.Layers()-1
	find := r.blocks.Below(j.h.Off, j.h.Len)
	r.op(loop.Op{Kind: loop.Call, Tag: j.tag(opCall), Fn: func() any {
		top, err := find()
		return below{top, punched, err}
	}})
}

// layerPunch does it for a layer below the head or a branch. Whiteouts of these are the worker's.
func (r *Replica) layerPunch(s *session, h *wire.Header) {
	hdr, number, hide := *h, int(h.Layer), h.Flags&wire.Whiteout != 0
	find := func() ([]byte, error) { return nil, nil }
	if number < r.blocks.Layers() {
		find = r.blocks.Below(h.Off, h.Len)
	}
	r.ops.enqueue(&metaOp{s: s, run: func(w *worker) any {
		return w.punchLayer(number, hdr.Off, hdr.Len, hide, find)
	}, done: func(v any) {
		b := v.(below)
		if b.err != nil {
			r.cfg.Event("io-error", b.err.Error())
		} else if b.top != nil {
			r.blocks.SetBelow(hdr.Off, b.top, false)
		}
		s.answer(&hdr, codeOf(b.err))
	}})
}

// punchLayer makes a hole in a layer, with or without whiteouts, and tells what is below the head
// then.
func (w *worker) punchLayer(number int, off, n int64, hide bool, find func() ([]byte, error)) below {
	if err := w.files.PunchLayer(number, off, n, hide); err != nil {
		return below{err: err}
	}
	top, err := find()
	return below{top: top, err: err}
}

// below is what lies below the head after a change by a rebuild.
type below struct {
	top  []byte
	head bool
	err  error
}

func (r *Replica) foundBelow(j *job, v below) {
	if v.err != nil {
		r.fail("cannot look up extents after a hole was made: " + v.err.Error())
	} else {
		r.blocks.SetBelow(j.h.Off, v.top, v.head)
	}
	r.requests.finish(j, codeOf(v.err), loop.Seg{})
}
