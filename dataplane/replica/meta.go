package replica

import (
	"encoding/binary"
	"fmt"
	"path"
	"slices"
	"strings"

	"ankole.storage/block"
	"ankole.storage/dataplane/chain"
	"ankole.storage/dataplane/loop"
	"ankole.storage/dataplane/quorum"
	"ankole.storage/dataplane/wire"
	"ankole.storage/disk"
)

// metaOp is a metadata operation: run blocks and is called away from the loop's thread, done continues on it. An
// exclusive one has the chain for itself.
type metaOp struct {
	exclusive bool
	s         *session
	// wanted is asked before it begins; nil: always.
	wanted func() bool
	run    func() any
	done   func(v any)
}

func (r *Replica) enqueue(m *metaOp) {
	r.meta = append(r.meta, m)
	r.startMeta()
}

// startMeta starts the first operation in the queue. An exclusive one stops new requests and waits for those in flight.
func (r *Replica) startMeta() {
	for !r.metaBusy && len(r.meta) > 0 && !r.dead {
		m := r.meta[0]
		if (m.s != nil && m.s.closing()) || (m.wanted != nil && !m.wanted()) {
			r.meta = r.meta[1:]
			r.exclusive = false
			continue
		}
		if m.exclusive {
			r.exclusive = true
			if r.inFlight > 0 || r.syncing {
				return
			}
		}
		r.metaBusy = true
		r.op(loop.Op{Kind: loop.Call, Tag: loop.Tag(ownerMeta, 0), Fn: m.run})
	}
}

func (r *Replica) metaDone(d *loop.Done) {
	m := r.meta[0]
	r.meta = r.meta[1:]
	r.metaBusy, r.exclusive = false, false
	if m.exclusive {
		r.extents = nil // of a chain that may be another one now
	}
	if r.chain != nil {
		r.writable = r.chain.WriteAllowed()
	}
	m.done(d.Value)
	r.freeSpace()
	r.startMeta()
}

// freeSpace gives back the space of files that a metadata operation has removed: beside everything else, since it can take the file
// system longer than the engine waits for an answer.
func (r *Replica) freeSpace() {
	if r.freeing || r.metaBusy || r.chain == nil {
		return
	}
	if giveBack := r.chain.Unlinked(); giveBack != nil {
		r.freeing = true
		r.op(loop.Op{Kind: loop.Call, Tag: loop.Tag(ownerSpace, 0), Fn: func() any { return result{err: giveBack()} }})
	}
}

func (r *Replica) spaceFreed(d *loop.Done) {
	r.freeing = false
	if err := d.Value.(result).err; err != nil {
		r.cfg.Event("io-error", err.Error())
	}
	r.freeSpace()
}

// control carries out a control message or marks regions dirty.
func (r *Replica) control(s *session, h *wire.Header, payload loop.Seg) {
	hdr := *h
	if payload.Len == 0 {
		r.reply(s, &hdr, block.Invalid, wire.ControlReply{Error: "empty message"})
		return
	}
	p := slices.Clone(r.arena.Seg(payload))
	r.release(payload)
	if h.Type == wire.MarkDirty {
		r.markDirty(s, &hdr, p)
		return
	}
	var m wire.ControlRequest
	if err := wire.Unmarshal(p, &m); err != nil {
		r.reply(s, &hdr, block.Invalid, wire.ControlReply{Error: err.Error()})
		return
	}
	switch {
	case s.reader && m.ViewExtents == nil && m.Ping == nil:
		r.reply(s, &hdr, block.Refused, wire.ControlReply{Error: "a reader's session is for reading its snapshot and nothing else"})
	case m.ViewExtents != nil:
		r.viewExtents(s, &hdr, m.ViewExtents)
	case m.ImportMark != nil:
		what := m.ImportMark.What
		r.blocking(s, &hdr, false, func() error { return r.chain.SetImportMark(what) })
	case m.SetRecord != nil:
		r.setRecord(s, &hdr, m.SetRecord)
	case m.Check:
		r.blocking(s, &hdr, false, func() error { return r.check(&m) })
	case m.Snapshot != nil:
		q := m.Snapshot
		r.blocking(s, &hdr, true, func() error { return r.chain.Snapshot(q.Name, q.UserCreated, q.Created, q.Labels) })
	case m.Describe != nil:
		r.describe(s, &hdr, m.Describe)
	case m.Regions != nil:
		r.regions(s, &hdr, m.Regions.Member)
	case m.Extents != nil:
		r.listExtents(s, &hdr, m.Extents)
	case m.BeginRebuild != nil:
		r.beginRebuild(s, &hdr, m.BeginRebuild)
	case m.FinishRebuild != nil:
		r.finishRebuild(s, &hdr)
	case m.ClearDirty != nil:
		r.clearDirty(s, &hdr, m.ClearDirty)
	case m.RemoveSnapshot != nil:
		name := m.RemoveSnapshot.Name
		r.blocking(s, &hdr, false, func() error { return r.removeSnapshot(name) })
	case m.Purge != nil:
		r.purgePiece(s, &hdr, m.Purge)
	case m.Revert != nil:
		q := m.Revert
		r.blocking(s, &hdr, true, func() error { return r.chain.Revert(q.Name, q.Created) })
	case m.Expand != nil:
		q := m.Expand
		r.blocking(s, &hdr, true, func() error { return r.chain.Expand(q.Size, q.Created) })
	case m.SetLimits != nil:
		q := m.SetLimits
		r.blocking(s, &hdr, false, func() error { return r.chain.SetLimits(q.MaxCount, q.MaxSize) })
	case m.Release != nil:
		r.releaseDirectory(s, &hdr)
	case m.Keep != nil:
		r.keep(s, &hdr)
	case m.Close != nil, m.Ping != nil:
		r.reply(s, &hdr, block.OK, wire.ControlReply{})
	case !r.scrubControl(s, &hdr, &m):
		r.reply(s, &hdr, block.Invalid, wire.ControlReply{Error: "unknown control message: this replica is older than the engine"})
	}
}

func (r *Replica) reply(s *session, h *wire.Header, code block.Code, m wire.ControlReply) {
	if !s.closing() {
		s.send(h.Answer(code), wire.Marshal(m))
	}
}

// blocking runs f as a metadata operation and answers with its error.
func (r *Replica) blocking(s *session, h *wire.Header, exclusive bool, f func() error) {
	r.enqueue(&metaOp{s: s, exclusive: exclusive, run: func() any { return result{err: f()} },
		done: func(v any) { r.replyErr(s, h, v.(result).err) }})
}

type result struct {
	err   error
	reply wire.ControlReply
}

func (r *Replica) replyErr(s *session, h *wire.Header, err error) {
	m := wire.ControlReply{}
	if err != nil {
		m.Error = err.Error()
	}
	r.reply(s, h, codeOf(err), m)
	r.checkBroken()
}

// checkBroken ends the replica when a sync has failed: whatever it would answer next could be wrong.
func (r *Replica) checkBroken() {
	if !r.writable {
		r.fail("the disk failed a sync: its content is no longer known")
	}
}

func (r *Replica) setRecord(s *session, h *wire.Header, m *wire.RecordMessage) {
	old := quorum.Record{Epoch: r.record.Epoch, Generation: r.record.Generation}
	next := quorum.Record{Epoch: m.Epoch, Generation: m.Generation, Members: m.Members}
	switch {
	case m.VolumeUUID != r.cfg.VolumeUUID:
		r.reply(s, h, block.Refused, wire.ControlReply{Error: "record of another volume"})
		return
	case m.Epoch != s.epoch || !next.Valid() || !next.Has(r.cfg.Member):
		r.reply(s, h, block.Invalid, wire.ControlReply{Error: fmt.Sprintf("record %s in a session of epoch %d with %s", next, s.epoch, r.cfg.Member)})
		return
	case next.Compare(old) < 0:
		r.reply(s, h, block.Stale, wire.ControlReply{Error: fmt.Sprintf("record %s is older than %d in epoch %d", next, old.Generation, old.Epoch)})
		return
	}
	rec := r.record
	rec.Epoch, rec.Generation, rec.State = m.Epoch, m.Generation, chain.MemberRW
	rec.Members, rec.Replaces, rec.Agreed = nil, m.Replaces, m.Agreed
	for _, name := range m.Members {
		rec.Members = append(rec.Members, chain.Member{Name: name})
	}
	r.enqueue(&metaOp{s: s, run: func() any { return result{err: r.chain.WriteRecord(rec)} }, done: func(v any) {
		err := v.(result).err
		if err == nil {
			r.record = rec
		}
		r.replyErr(s, h, err)
	}})
}

// markDirty adds regions to the log.
func (r *Replica) markDirty(s *session, h *wire.Header, p []byte) {
	last := uint32((r.chain.Size() - 1) / chain.RegionSize)
	for i := 0; i < len(p); i += 4 {
		if len(p)%4 != 0 || binary.LittleEndian.Uint32(p[i:]) > last {
			s.answer(h, block.Invalid)
			return
		}
	}
	added := false
	for len(p) >= 4 {
		n := binary.LittleEndian.Uint32(p)
		p = p[4:]
		if !r.dirty[n] {
			r.dirty[n] = true
			added = true
		}
	}
	if r.dirtyAll || !added {
		// Behind whatever is queued, so that the answer still means "durable".
		r.enqueue(&metaOp{s: s, run: func() any { return nil }, done: func(any) { s.answer(h, block.OK) }})
		return
	}
	r.enqueue(&metaOp{s: s, run: r.writeDirty(r.dirtyList()), done: func(v any) { r.dirtyWritten(s, h, v) }})
}

func (r *Replica) writeDirty(set []uint32) func() any {
	regions := make([]chain.Region, len(set))
	for i, n := range set {
		regions[i] = chain.Region(n)
	}
	return func() any { return result{err: r.chain.WriteDirty(regions)} }
}

func (r *Replica) dirtyWritten(s *session, h *wire.Header, v any) {
	err := v.(result).err
	if err != nil {
		r.cfg.Event("dirty-log-failed", err.Error())
	}
	s.answer(h, codeOf(err))
	r.checkBroken()
}

func (r *Replica) clearDirty(s *session, h *wire.Header, m *wire.ClearDirty) {
	clear(r.dirty)
	for _, n := range m.Keep {
		r.dirty[n] = true
	}
	r.dirtyAll = false
	r.enqueue(&metaOp{s: s, run: r.writeDirty(r.dirtyList()), done: func(v any) { r.replyErr(s, h, v.(result).err) }})
}

// snapshotName returns the snapshot's name of a chain file, "" for a head.
func snapshotName(file string) string {
	n, ok := strings.CutPrefix(strings.TrimSuffix(file, ".img"), "volume-snap-")
	if !ok {
		return ""
	}
	return n
}

func snapshotFile(name string) string {
	if name == "" {
		return ""
	}
	return "volume-snap-" + name + ".img"
}

// describe needs the chain for itself where it opens branches: those that were open before are closed.
func (r *Replica) describe(s *session, h *wire.Header, m *wire.DescribeRequest) {
	absent, branches := m.Absent, m.Branches
	r.enqueue(&metaOp{s: s, exclusive: branches, run: func() any {
		res := r.description(absent)
		if branches && res.err == nil {
			res.reply.Chain.Branches, res.err = r.branches(res.reply.Snapshots)
		}
		return res
	}, done: func(v any) {
		res := v.(result)
		if res.err != nil {
			r.replyErr(s, h, res.err)
			return
		}
		r.reply(s, h, block.OK, res.reply)
	}})
}

func (r *Replica) description(absent string) result {
	snaps, err := r.chain.Snapshots()
	if err != nil {
		return result{err: err}
	}
	sizes := map[string]int64{}
	var res result
	for _, n := range snaps {
		l := wire.Layer{Name: n.Name, Parent: n.Parent, Removed: n.Removed, UserCreated: n.UserCreated, Created: n.Created,
			Labels: n.Labels, Allocated: n.SizeBytes}
		if n.Name == chain.HeadName {
			l.Name = ""
		}
		sizes[l.Name] = n.SizeBytes
		res.reply.Snapshots = append(res.reply.Snapshots, l)
	}
	structure := r.chain.Structure()
	d := &wire.ChainDescription{Size: r.chain.Size(), Structure: structure[:]}
	res.reply.Absent = r.absence(absent)
	layers := r.chain.LayerList()
	if d.HeadEmpty, err = r.empty(layers[len(layers)-1].File); err != nil {
		return result{err: err}
	}
	for _, l := range layers {
		name := snapshotName(l.File)
		d.Layers = append(d.Layers, wire.Layer{Name: name, Size: l.Size, Parent: snapshotName(l.Meta.Parent), Removed: l.Meta.Removed,
			UserCreated: l.Meta.UserCreated, Created: l.Meta.Created, Labels: l.Meta.Labels, Allocated: sizes[name]})
	}
	res.reply.Chain = d
	return res
}

// branches opens the snapshots off the live chain and describes them.
func (r *Replica) branches(all []wire.Layer) ([]wire.Layer, error) {
	list, err := r.chain.OpenBranches()
	out := make([]wire.Layer, 0, len(list)) // never nil: older replicas say nothing
	for _, l := range list {
		d := wire.Layer{Name: snapshotName(l.File), Size: l.Size, Parent: snapshotName(l.Meta.Parent), Removed: l.Meta.Removed,
			UserCreated: l.Meta.UserCreated, Created: l.Meta.Created, Labels: l.Meta.Labels}
		for _, s := range all {
			if s.Name == d.Name {
				d.Allocated = s.Allocated
			}
		}
		out = append(out, d)
	}
	return out, err
}

// maxRanges bounds an answer to Extents.
const maxRanges = 4096

// listExtents lists the allocated ranges of a layer. The list is taken once per layer and handed out in pages.
func (r *Replica) listExtents(s *session, h *wire.Header, m *wire.ExtentsRequest) {
	if n := r.chain.Layers() + r.chain.Branches(); int(m.Layer) >= n {
		r.reply(s, h, block.Invalid, wire.ControlReply{Error: fmt.Sprintf("chain has %d layers, no layer %d", n, m.Layer)})
		return
	}
	if m.Off > 0 && r.exLayer == m.Layer && r.extents != nil {
		r.pageOfExtents(s, h, m)
		return
	}
	number := int(m.Layer)
	r.enqueue(&metaOp{s: s, run: func() any { return r.scan(number) }, done: func(v any) {
		res := v.(scanned)
		if res.err != nil {
			r.replyErr(s, h, res.err)
			return
		}
		r.extents, r.exLayer = res.ranges, m.Layer
		r.pageOfExtents(s, h, m)
	}})
}

type scanned struct {
	ranges [][2]int64
	err    error
}

func (r *Replica) scan(number int) scanned {
	ranges := [][2]int64{}
	err := r.extentsOf(number, func(e disk.Extent) error {
		beg, end := widen(e.Off, e.Len)
		if n := len(ranges); n > 0 && ranges[n-1][1] >= beg {
			ranges[n-1][1] = max(ranges[n-1][1], end)
		} else {
			ranges = append(ranges, [2]int64{beg, end})
		}
		return nil
	})
	return scanned{ranges, err}
}

// extentsOf goes through the extents of a file by its number.
func (r *Replica) extentsOf(number int, fn func(disk.Extent) error) error {
	if k := number - r.chain.Layers(); k >= 0 {
		return r.chain.BranchExtents(k, fn)
	}
	file, _, _ := r.chain.Layer(number)
	return r.chain.LayerExtents(file, fn)
}

func (r *Replica) pageOfExtents(s *session, h *wire.Header, m *wire.ExtentsRequest) {
	r.reply(s, h, block.OK, wire.ControlReply{Extents: pageOf(r.extents, m.Off)})
}

// pageOf returns the ranges from off on, as many as fit into an answer.
func pageOf(ranges [][2]int64, off int64) *wire.ExtentsReply {
	i, _ := slices.BinarySearchFunc(ranges, off, func(e [2]int64, off int64) int {
		if e[1] <= off {
			return -1
		}
		return 1
	})
	page := ranges[i:]
	next := int64(-1)
	if len(page) > maxRanges {
		next = page[maxRanges][0]
		page = page[:maxRanges]
	}
	return &wire.ExtentsReply{Ranges: page, Next: next}
}

// Base returns the member name of a replica directory: the last element of its path.
func Base(dir string) string { return path.Base(dir) }
