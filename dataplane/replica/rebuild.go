package replica

import (
	"ankole.storage/block"
	"ankole.storage/dataplane/chain"
	"ankole.storage/dataplane/loop"
	"ankole.storage/dataplane/wire"
	"ankole.storage/disk"
)

// absence is what this replica knows about a member that is not there, but for the regions; nil if nothing.
func (r *Replica) absence(member string) *wire.AbsentReply {
	a, ok := r.chain.Absent(member)
	if !ok {
		return nil
	}
	return &wire.AbsentReply{Since: wire.RecordRef{Epoch: a.Since.Epoch, Generation: a.Since.Generation},
		Before: wire.RecordRef{Epoch: a.Before.Epoch, Generation: a.Before.Generation}, Structure: a.Structure[:],
		First: a.First, Gone: a.Gone, Changed: a.Changed, AllChanged: a.AllChanged}
}

// regions tells where this replica may differ from a member, as far as it knows: a region is in the entry or still marked.
func (r *Replica) regions(s *session, h *wire.Header, member string) {
	r.enqueue(&metaOp{s: s, run: func() any {
		a, _ := r.chain.Absent(member)
		return a
	}, done: func(v any) {
		a := v.(chain.Absent)
		r.reply(s, h, block.OK, wire.ControlReply{Regions: &wire.RegionsReply{Shift: a.Regions.Shift, Bits: a.Regions.Bits,
			Dirty: r.dirtyList(), All: r.dirtyAll}})
	}})
}

// beginRebuild gives the directory the shape of the described chain and repeats the promise there. The record is void from
// then on; what the content was before is remembered, so that an interrupted rebuild can go on from there.
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
	if err := shape.Validate(); err != nil {
		r.replyErr(s, h, err) // before what the directory holds is given up
		return
	}
	rec := chain.Record{VolumeUUID: r.uuid, Self: r.cfg.Member, Promised: r.record.Promised, Engine: r.record.Engine, State: chain.MemberWO}
	r.enqueue(&metaOp{s: s, exclusive: true, run: func() any {
		if err := r.chain.VoidForRebuild(rec, b.HeadBecomes, r.fresh(&shape)); err != nil {
			return recreated{r.chain, err}
		}
		c, err := r.cfg.Recreate(r.chain, shape)
		if now, ok := chainRecord(c); err == nil && (!ok || now.Promised != rec.Promised) {
			// Everything was made anew: the promise has to be repeated.
			if err = c.WriteRecord(rec); err == nil {
				err = c.WriteDirty([]chain.Region{})
			}
		}
		if c != nil && err == nil {
			_, err = c.OpenBranches()
		}
		return recreated{c, err}
	}, done: func(v any) {
		res := v.(recreated)
		if res.chain == nil {
			r.fail("cannot begin a rebuild: " + res.err.Error())
			return
		}
		r.adopt(res.chain)
		r.replyErr(s, h, res.err)
	}})
}

// layerSpec is how a snapshot's file is made.
func layerSpec(l wire.Layer) chain.LayerSpec {
	return chain.LayerSpec{File: snapshotFile(l.Name), Size: l.Size, Meta: chain.DiskMeta{Name: snapshotFile(l.Name), Parent: snapshotFile(l.Parent),
		Removed: l.Removed, UserCreated: l.UserCreated, Created: l.Created, Labels: l.Labels}}
}

func chainRecord(c *chain.Chain) (chain.Record, bool) {
	if c == nil {
		return chain.Record{}, false
	}
	return c.Record()
}

// fresh names what a shape makes anew, and the branches, which are written to wherever they differ.
func (r *Replica) fresh(shape *chain.Shape) []string {
	var names []string
	kept := map[string]bool{shape.HeadBecomes: true}
	for _, file := range r.chain.Kept(shape.Layers) {
		kept[file] = true
	}
	for _, l := range shape.Layers {
		if !kept[l.File] {
			names = append(names, snapshotName(l.File))
		}
	}
	for _, l := range shape.Branches {
		names = append(names, snapshotName(l.File))
	}
	if shape.NewHead || shape.HeadBecomes != "" {
		names = append(names, chain.HeadName)
	}
	return names
}

type recreated struct {
	chain *chain.Chain
	err   error
}

// finishRebuild first syncs every file while requests go on, so that the part that stops them is short.
func (r *Replica) finishRebuild(s *session, h *wire.Header) {
	j := r.newJob(s, h, loop.Seg{})
	hdr := *h
	j.next = func(j *job) {
		code := j.code
		j.used, j.s, j.next = false, nil, nil
		r.freeJobs = append(r.freeJobs, j.index)
		r.inFlight--
		s.jobs--
		s.check()
		if code != block.OK {
			r.fail("cannot sync a rebuilt file")
			return
		}
		r.blocking(s, &hdr, true, func() error { return r.chain.FinishRebuild() })
	}
	j.pending++
	for i := range r.chain.Layers() + r.chain.Branches() {
		_, handle, _ := r.layer(i)
		j.pending++
		r.op(loop.Op{Kind: loop.FileSync, Handle: loop.Handle(handle), Tag: j.tag(opWrite)})
	}
	r.step(j)
}

// layer returns a file by its number: of the live chain, bottom first, then of the branches that are open. live is its name, "" off the
// live chain.
func (r *Replica) layer(n int) (live string, handle int32, file disk.File) {
	if k := n - r.chain.Layers(); k >= 0 {
		handle, _, file = r.chain.Branch(k)
		return "", handle, file
	}
	live, handle, _ = r.chain.Layer(n)
	return live, handle, r.chain.LayerFile(n)
}

// runLayer reads, hashes, writes or punches one file for a rebuild.
func (r *Replica) runLayer(s *session, h *wire.Header, payload loop.Seg) bool {
	if int(h.Layer) >= r.chain.Layers()+r.chain.Branches() || h.Len == 0 || h.Len > block.MaxTransfer || (h.Off|h.Len)%block.Size != 0 || h.Off+h.Len > r.chain.Size() {
		return r.refuse(s, h, payload)
	}
	live, handle, file := r.layer(int(h.Layer))
	if h.Type == wire.LayerHash {
		return r.layerHash(s, h, file)
	}
	if h.Type == wire.LayerRead {
		b, ok := r.arena.Get(int(h.Len))
		if !ok {
			return false
		}
		j := r.newJob(s, h, payload)
		j.buf, j.base = b, h.Off
		// Beyond the end of a layer that is shorter than the volume there is nothing to read.
		clear(r.arena.Bytes(b)[:h.Len])
		j.next = r.readDone
		r.fileOp(j, loop.FileRead, handle, h.Off, loop.Seg{Buf: b, Len: int32(h.Len)})
		return true
	}
	switch {
	case !r.chain.Rebuilding():
		return r.refuse(s, h, payload)
	case h.Type == wire.LayerPunch:
		r.layerPunch(s, h, handle)
		return true
	case int64(payload.Len) != h.Len:
		return r.refuse(s, h, payload)
	}
	j := r.newJob(s, h, payload)
	j.next = func(j *job) {
		if j.code == block.OK && live != "" {
			r.chain.MarkLayerWritten(live, j.h.Off, j.h.Len)
		}
		r.finish(j, j.code, loop.Seg{})
	}
	r.fileOp(j, loop.FileWrite, handle, h.Off, loop.Seg{Buf: payload.Buf, Len: payload.Len})
	return true
}

// layerHash tells which blocks of a piece a file holds and hashes them, away from the loop's thread. The engine lets
// nobody write there meanwhile.
func (r *Replica) layerHash(s *session, h *wire.Header, f disk.File) bool {
	b, ok := r.arena.Get(int(h.Len))
	if !ok {
		return false
	}
	j := r.newJob(s, h, loop.Seg{})
	j.buf = b
	off, p := h.Off, r.arena.Bytes(b)[:h.Len]
	r.op(loop.Op{Kind: loop.Call, Tag: j.tag(opCall), Fn: func() any {
		sums, err := layerSums(f, off, p)
		return summed{sums, err}
	}})
	return true
}

// summed is the result of layerHash.
type summed struct {
	sums []byte
	err  error
}

// layerSums reads what the file holds of [off, off+len(p)) into p; the answer is laid out as wire.LayerSumsSize says.
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
		r.finish(j, codeOf(v.err), loop.Seg{})
		return
	}
	r.hashed(j, v.sums)
}

// layerPunch makes holes in a file of a rebuild target, and then finds out what is below them.
func (r *Replica) layerPunch(s *session, h *wire.Header, handle int32) {
	head := int(h.Layer) == r.chain.Layers()-1
	j := r.newJob(s, h, loop.Seg{})
	j.next = func(j *job) {
		if j.code != block.OK || int(j.h.Layer) >= r.chain.Layers() {
			r.finish(j, j.code, loop.Seg{})
			return
		}
		find := r.chain.Below(j.h.Off, j.h.Len)
		r.op(loop.Op{Kind: loop.Call, Tag: j.tag(opCall), Fn: func() any {
			top, err := find()
			return below{top, head, err}
		}})
	}
	j.pending++
	r.op(loop.Op{Kind: loop.FilePunch, Handle: loop.Handle(handle), Off: h.Off, Len: h.Len, Tag: j.tag(opPunch)})
}

// below is what layerPunch found.
type below struct {
	top  []byte
	head bool
	err  error
}

func (r *Replica) foundBelow(j *job, v below) {
	if v.err != nil {
		r.fail("cannot look up extents after a hole was made: " + v.err.Error())
	} else {
		r.chain.SetBelow(j.h.Off, v.top, v.head)
	}
	r.finish(j, codeOf(v.err), loop.Seg{})
}
