package replica

import (
	"encoding/binary"
	"slices"
	"strings"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/chain"
	"ankole.storage/dataplane/loop"
	"ankole.storage/dataplane/wire"
)

// metaOp is a metadata operation: it blocks and is called away from the loop's thread, done
// continues on it. What it works on is what its function is given: files, sidecars, or both. Two
// that work on the same run one after the other, in the order in which they came; others beside
// each other. An exclusive one runs while no I/O is under way; only such a one may change where
// blocks are read from.
type metaOp struct {
	exclusive bool
	s         *session
	// wanted is asked before it begins; nil: always.
	wanted func() bool
	// begin is called on the loop's thread when the operation's turn has come, to look up the
	// values it needs; may be nil.
	begin func()
	// settle are whiteouts of the head that an exclusive one makes durable first: what it does to
	// the head it does to them.
	settle *chain.WhiteoutWrite
	// One of them.
	run  func(w *worker) any
	note func(l *sidecarSet) any
	both func(w *worker, l *sidecarSet) any
	done func(v any)
}

// What operations work on, as a set. The number of an operation that runs is the lowest of them: no
// two have the same.
const (
	onFiles = 1 << iota
	onSidecars
)

func (m *metaOp) works() int {
	switch {
	case m.note != nil:
		return onSidecars
	case m.both != nil:
		return onFiles | onSidecars
	}
	return onFiles
}

// queued counts for the session that has asked for it how much of that waits.
func (m *metaOp) queued(n int) {
	if m.s != nil {
		m.s.queued += n
	}
}

// metaOps are the operations that run away from the loop's thread: their order, and when one has
// the chain for itself. Nothing else gives the worker and the sidecars anything to do.
type metaOps struct {
	r *Replica
	// worker and sidecarSet are the operations'; the loop only passes them on.
	worker     *worker
	sidecarSet *sidecarSet
	// waiting are those that have not begun, running those that have, by their numbers.
	waiting []*metaOp
	running [2]*metaOp
	// exclusive: one wants, or has, the chain for itself.
	exclusive bool
	// copying: the metadata files are being copied, or will be.
	copying bool
	// writable as of the last one.
	writable bool
}

func (q *metaOps) enqueue(m *metaOp) {
	q.waiting = append(q.waiting, m)
	m.queued(1)
	q.start()
}

// enqueueNext puts an operation before all that wait.
func (q *metaOps) enqueueNext(m *metaOp) {
	q.waiting = slices.Insert(q.waiting, 0, m)
	m.queued(1)
	q.start()
}

// forget drops what a session that is over has asked for and was not begun: it must not
// meet a directory that is not open, or one that was opened for somebody else.
func (q *metaOps) forget(s *session) {
	q.waiting = slices.DeleteFunc(q.waiting, func(m *metaOp) bool { return m.s == s })
	s.queued = 0
	s.drop()
}

// start starts what can be started. An exclusive operation whose turn has come stops new
// requests and waits for those in flight.
func (q *metaOps) start() {
	taken := 0
	q.exclusive = false
	for _, m := range q.running {
		if m != nil {
			taken |= m.works()
			q.exclusive = q.exclusive || m.exclusive
		}
	}
	for i := 0; i < len(q.waiting) && !q.r.dead; {
		m := q.waiting[i]
		if (m.s != nil && m.s.closing()) || (m.wanted != nil && !m.wanted()) {
			q.waiting = slices.Delete(q.waiting, i, i+1)
			m.queued(-1)
			continue
		}
		free := taken&m.works() == 0
		taken |= m.works() // also for those behind one that waits
		q.exclusive = q.exclusive || free && m.exclusive
		if !free || m.exclusive && (q.r.requests.inFlight > 0 || q.r.syncs.running) {
			i++
			continue
		}
		q.waiting = slices.Delete(q.waiting, i, i+1)
		m.queued(-1)
		q.begin(m)
	}
}

func (q *metaOps) begin(m *metaOp) {
	number := uint64(0)
	if m.works() == onSidecars {
		number = 1
	}
	q.running[number] = m
	if m.exclusive && q.r.blocks != nil {
		m.settle = q.r.blocks.LastWhiteouts()
	}
	if m.begin != nil {
		m.begin()
	}
	w, l, settle, run, note, both := q.worker, q.sidecarSet, m.settle, m.run, m.note, m.both
	q.r.op(loop.Op{Kind: loop.Call, Tag: loop.Tag(ownerMeta, number), Fn: func() any {
		switch {
		case note != nil:
			return l.perform(note)
		case both != nil:
			return performBoth(w, l, settle, both)
		}
		return w.perform(settle, run)
	}})
}

func (q *metaOps) done(number uint64, d *loop.Done) {
	m := q.running[number]
	q.running[number] = nil
	res := d.Value.(worked)
	if m.exclusive {
		q.exclusive = false
	} else if len(res.changes) > 0 {
		panic("replica: an operation beside I/O has changed where blocks are read from")
	}
	if m.settle != nil {
		q.r.white.took(m.settle, res.unsettled)
		if res.unsettled != nil {
			q.r.fail("whiteouts could not be synced: " + res.unsettled.Error())
			return
		}
	}
	for _, ch := range res.changes {
		q.r.blocks.Apply(ch)
	}
	if res.unwritable {
		q.writable = false
	}
	if res.giveBack != nil {
		q.r.space.add(res.giveBack)
	}
	m.done(res.value)
	if res.broken {
		// Whatever the replica would answer next could be wrong. Nobody may be waiting for this
		// operation, so it is not enough that the next one is refused.
		q.r.fail("the disk failed a sync: its content is no longer known")
		return
	}
	if res.stale {
		q.copyMeta()
	}
	q.r.space.free()
	q.start()
}

// copyMeta has the metadata files copied, beside everything else. Nobody waits for it.
func (q *metaOps) copyMeta() {
	if q.copying {
		return
	}
	q.copying = true
	q.enqueue(&metaOp{run: (*worker).copyMeta, done: func(v any) {
		q.copying = false
		if err := v.(result).err; err != nil {
			q.r.cfg.Event("metadata-not-copied", err.Error())
		}
	}})
}

// unknownMessage is the answer to a control message without a known part.
const unknownMessage = "unknown control message: this replica is older than the engine"

// control carries out a control message or marks regions dirty.
func (r *Replica) control(s *session, h *wire.Header, p []byte) {
	hdr := *h
	if h.Type == wire.MarkDirty && len(p) > 0 {
		r.markDirty(s, &hdr, p)
		return
	}
	var m wire.ControlRequest
	if err := wire.Unmarshal(p, &m); err != nil {
		r.reply(s, &hdr, block.Invalid, wire.ControlReply{Error: err.Error()})
		return
	}
	switch {
	case r.losing.keepsChain(s, &hdr, &m):
	case s.reader && m.ViewExtents == nil && m.Ping == nil && m.Window == nil:
		r.reply(s, &hdr, block.Refused,
			wire.ControlReply{Error: "a reader's session is for reading its snapshot and nothing else"})
	case m.Window != nil:
		s.openWindow(&hdr, *m.Window)
	case m.ViewExtents != nil:
		r.viewExtents(s, &hdr, m.ViewExtents)
	case m.ImportMark != nil:
		r.blocking(s, &hdr, func(w *worker) error { return w.files.SetImportMark(m.ImportMark.What) })
	case m.Snapshot != nil && m.Snapshot.Check() != nil:
		r.reply(s, &hdr, block.Invalid, wire.ControlReply{Error: m.Snapshot.Check().Error()})
	case m.SetRecord != nil:
		r.setRecord(s, &hdr, m.SetRecord)
	case m.Check:
		r.blocking(s, &hdr, func(w *worker) error { return w.check(&m) })
	case m.Snapshot != nil:
		q := m.Snapshot
		r.changing(s, &hdr, func(w *worker, l *sidecarSet) error {
			return w.change(w.files.Snapshot(l.side, q.Name, q.UserCreated, q.Created, q.Labels))
		})
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
		r.removeSnapshot(s, &hdr, *m.RemoveSnapshot)
	case m.Purge != nil:
		r.purgePiece(s, &hdr, m.Purge)
	case m.Trim != nil:
		r.trim(s, &hdr, m.Trim.From)
	case m.Revert != nil:
		r.revert(s, &hdr, m.Revert)
	case m.Expand != nil:
		r.expand(s, &hdr, m.Expand)
	case m.SetLimits != nil:
		q := m.SetLimits
		r.blocking(s, &hdr, func(w *worker) error { return w.files.SetLimits(q.MaxCount, q.MaxSize) })
	case m.Release != nil:
		r.handover.releaseDirectory(s, &hdr)
	case m.Close != nil, m.Ping != nil:
		r.reply(s, &hdr, block.OK, wire.ControlReply{})
	case !r.scrubControl(s, &hdr, &m):
		r.reply(s, &hdr, block.Invalid, wire.ControlReply{Error: unknownMessage})
	}
}

func (r *Replica) reply(s *session, h *wire.Header, code block.Code, m wire.ControlReply) {
	if !s.closing() {
		s.send(h.Answer(code), wire.Marshal(m))
	}
}

// blocking runs f as an operation on files, beside I/O, and answers with its error.
func (r *Replica) blocking(s *session, h *wire.Header, f func(w *worker) error) {
	r.ops.enqueue(&metaOp{s: s, run: func(w *worker) any {
		return result{err: f(w)}
	}, done: func(v any) { r.replyErr(s, h, v.(result).err) }})
}

// changing runs f, which changes the chain, while no I/O is under way, and answers with its error.
func (r *Replica) changing(s *session, h *wire.Header, f func(w *worker, l *sidecarSet) error) {
	r.ops.enqueue(&metaOp{s: s, exclusive: true, both: func(w *worker, l *sidecarSet) any { return result{err: f(w, l)} },
		done: func(v any) { r.replyErr(s, h, v.(result).err) }})
}

// expand makes room in the block map before the files grow: nothing may fail afterwards.
func (r *Replica) expand(s *session, h *wire.Header, m *wire.ExpandRequest) {
	var room chain.Room
	var full error
	created := m.Created
	r.ops.enqueue(&metaOp{exclusive: true, s: s, begin: func() {
		room, full = r.blocks.Reserve(m.Size)
	}, both: func(w *worker, l *sidecarSet) any {
		if full != nil {
			return result{err: full}
		}
		return result{err: w.change(w.files.Expand(l.side, room, created))}
	}, done: func(v any) { r.replyErr(s, h, v.(result).err) }})
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
}

// markDirty adds regions to the log. The log is the chain's alone, and changes and questions go
// through one queue: whoever asks sees a region either marked or in the entries of absent members,
// never on its way between them.
func (r *Replica) markDirty(s *session, h *wire.Header, p []byte) {
	last := uint32((r.blocks.Size() - 1) / chain.RegionSize)
	regions := make([]chain.Region, 0, len(p)/4)
	for i := 0; i < len(p); i += 4 {
		if len(p)%4 != 0 || binary.LittleEndian.Uint32(p[i:]) > last {
			s.answer(h, block.Invalid)
			return
		}
		regions = append(regions, chain.Region(binary.LittleEndian.Uint32(p[i:])))
	}
	r.ops.enqueue(&metaOp{s: s, note: func(l *sidecarSet) any {
		return result{err: l.side.AddDirty(regions)}
	}, done: func(v any) {
		err := v.(result).err
		if err != nil {
			r.cfg.Event("dirty-log-failed", err.Error())
		}
		r.syncs.marked = true
		s.answer(h, codeOf(err))
	}})
}

func (r *Replica) clearDirty(s *session, h *wire.Header, m *wire.ClearDirty) {
	keep := make([]chain.Region, len(m.Keep))
	for i, n := range m.Keep {
		keep[i] = chain.Region(n)
	}
	r.ops.enqueue(&metaOp{s: s, note: func(l *sidecarSet) any { return result{err: l.side.WriteDirty(keep)} },
		done: func(v any) {
			r.syncs.marked = true
			r.replyErr(s, h, v.(result).err)
		}})
}

// dirty returns the marked regions; all: nothing is known, as in a directory that another engine
// has used, or none has yet.
func (l *sidecarSet) dirty() (regions []uint32, all bool) {
	marked, known := l.side.Dirty()
	for _, n := range marked {
		regions = append(regions, uint32(n))
	}
	return regions, !known
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

// describe needs the chain for itself where it opens branches: those that were open before are
// closed.
func (r *Replica) describe(s *session, h *wire.Header, m *wire.DescribeRequest) {
	absent, branches := m.Absent, m.Branches
	r.ops.enqueue(&metaOp{s: s, exclusive: branches, both: func(w *worker, l *sidecarSet) any {
		res := w.description(l, absent)
		if branches && res.err == nil {
			res.reply.Chain.Branches, res.err = w.branches(res.reply.Snapshots)
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

func (w *worker) description(l *sidecarSet, absent string) result {
	snaps, err := w.files.Snapshots()
	if err != nil {
		return result{err: err}
	}
	sizes := map[string]int64{}
	var res result
	for _, n := range snaps {
		l := wire.Layer{Name: n.Name, Parent: n.Parent, Removed: n.Removed, UserCreated: n.UserCreated, Created: n.Created,
			Labels: labels(n.Labels), Allocated: n.SizeBytes}
		if n.Name == chain.HeadName {
			l.Name = ""
		}
		sizes[l.Name] = n.SizeBytes
		res.reply.Snapshots = append(res.reply.Snapshots, l)
	}
	structure := w.files.Structure()
	d := &wire.ChainDescription{Size: w.files.SizeBytes(), Structure: structure[:]}
	res.reply.Absent = l.absence(absent)
	layers := w.files.LayerList()
	head := layers[len(layers)-1].File
	if d.HeadEmpty, err = w.empty(head); err != nil {
		return result{err: err}
	}
	d.HeadEmpty = d.HeadEmpty && !w.files.HasWhiteouts(head)
	for _, l := range layers {
		name := snapshotName(l.File)
		d.Layers = append(d.Layers, wire.Layer{Name: name, Size: l.Size, Parent: snapshotName(l.Meta.Parent),
			Removed:     l.Meta.Removed,
			UserCreated: l.Meta.UserCreated, Created: l.Meta.Created, Labels: labels(l.Meta.Labels), Allocated: sizes[name],
			Whiteouts: w.files.HasWhiteouts(l.File)})
	}
	res.reply.Chain = d
	return res
}

// labels are those that a description tells: none if they are too long, as a directory of another
// engine may have them.
func labels(m map[string]string) map[string]string {
	if !wire.LabelsFit(m) {
		return nil
	}
	return m
}

// branches opens the snapshots off the live chain and describes them.
func (w *worker) branches(all []wire.Layer) ([]wire.Layer, error) {
	list, ch, err := w.files.OpenBranches()
	err = w.change(ch, err)
	out := make([]wire.Layer, 0, len(list))
	for _, l := range list {
		d := wire.Layer{Name: snapshotName(l.File), Size: l.Size, Parent: snapshotName(l.Meta.Parent),
			Removed:     l.Meta.Removed,
			UserCreated: l.Meta.UserCreated, Created: l.Meta.Created, Labels: labels(l.Meta.Labels),
			Whiteouts: w.files.HasWhiteouts(l.File)}
		for _, s := range all {
			if s.Name == d.Name {
				d.Allocated = s.Allocated
			}
		}
		out = append(out, d)
	}
	return out, err
}
