package engine

import (
	"bytes"
	"fmt"
	"slices"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/quorum"
	"ankole.storage/dataplane/rebuild"
	"ankole.storage/dataplane/wire"
)

// rebuilds has the rebuild under way, one at a time: the job of the link that joins.
type rebuilds struct {
	e *Engine
	// budget bounds what rebuilds and imports send, in bytes per second; 0 means no bound.
	budget int64
	// compareInFull are members whose last rebuild ended in other content than its source has, or
	// in content that their disks cannot read: the next one compares everything.
	compareInFull map[string]bool
	// onPaused is the change that waits for the rebuild under way, nil if none does.
	onPaused func()
}

// rebuildJob brings one replica to RW while the volume is in use.
type rebuildJob struct {
	copying
	target *link
	// source is nil while another one is being looked for; tried are those that have failed.
	source *link
	tried  uint32
	// shape is what the source's chain was at the beginning: whoever takes over must have the same.
	shape *wire.ChainDescription
	// same: source and target can differ in known regions only.
	same  bool
	stage rebuildStage
	// paused: a change of the chain is made, or waits for what is under way. lost is what is to be
	// done then about the source, which was lost meanwhile.
	paused bool
	lost   func()
	dead   bool
	status *Rebuild
	reply  func(error)
}

type rebuildStage uint8

const (
	stageConnecting rebuildStage = iota
	stageSurveying
	stagePreparing
	stageCopying // and comparing
	stageFinishing
	stageJoining
)

// add admits the replica at addr. It answers as soon as the rebuild is under way or cannot
// begin.
func (b *rebuilds) add(addr string, reply func(error)) {
	e := b.e
	if err := e.passing.reason(); err != nil {
		reply(err)
		return
	}
	if !e.serving {
		reply(fmt.Errorf("%w: the volume is not served yet: %s", ErrBusy, e.why()))
		if e.links.at(addr) == nil {
			e.votes.lookAt(addr)
		}
		return
	}
	before := e.links.at(addr)
	if l := before; l != nil {
		if l.mode == RW || l.mode == WO || l.joining != nil {
			reply(nil)
			return
		}
		if l.phase != sessionClosed || l.conn != nil {
			reply(fmt.Errorf("%w: replica %s is being closed; try again", ErrBusy, addr))
			return
		}
	}
	if e.quorum.Holding() {
		// The replica may still be a member: its copy is worth keeping until the set without it is
		// agreed.
		reply(fmt.Errorf("%w: %s", ErrBusy, e.why()))
		if before == nil {
			e.votes.lookAt(addr)
		}
		return
	}
	if e.imports.job != nil {
		reply(e.imports.reason())
		return
	}
	if e.changes.current != "" {
		reply(fmt.Errorf("%w: %s is under way; try again", ErrBusy, e.changes.current))
		return
	}
	if b.job() != nil {
		reply(fmt.Errorf("%w: replica %s is being rebuilt: one at a time", ErrBusy, b.job().target.addr))
		return
	}
	if e.links.freePlace(before) < 0 {
		reply(fmt.Errorf("the engine has %d replicas already", maxLinks))
		return
	}
	if before != nil {
		e.links.forget(before)
	}
	l := e.links.add(addr)
	j := &rebuildJob{target: l, reply: reply, status: &Rebuild{State: "in_progress", Running: true}}
	j.copying = copying{e: e, work: j}
	l.joining = j
	l.rebuild = j.status
	l.contact()
	e.changed = true
}

// at returns the link to an address, nil if there is none.
func (k *links) at(addr string) *link {
	for _, l := range k.all {
		if l != nil && l.addr == addr {
			return l
		}
	}
	return nil
}

func (b *rebuilds) job() *rebuildJob {
	for _, l := range b.e.links.all {
		if l != nil && l.joining != nil {
			return l.joining
		}
	}
	return nil
}

func (j *rebuildJob) answer(err error) {
	if j.reply != nil {
		j.reply(err)
		j.reply = nil
	}
}

// abort ends the job; the target is ERR already.
func (j *rebuildJob) abort(reason string) {
	if j.dead {
		return
	}
	j.dead = true
	j.status.Running, j.status.State, j.status.Error = false, "error", reason
	j.answer(fmt.Errorf("replica %s: %s", j.target.addr, reason))
	j.e.event("rebuild-failed", j.target.addr, reason)
}

// finished is called when the target has become a member.
func (j *rebuildJob) finished() {
	j.dead = true
	delete(j.e.rebuilds.compareInFull, j.target.member)
	j.status.Running, j.status.State, j.status.Progress = false, "complete", 100
	j.e.event("rebuilt", j.target.addr, fmt.Sprintf("%d bytes sent of %d looked at", j.status.Sent, j.status.Done))
	j.e.sizes.refresh()
}

func (j *rebuildJob) fail(format string, args ...any) {
	if !j.dead {
		j.target.fail(fmt.Sprintf(format, args...))
	}
}

// ready begins the rebuild once the target has promised the epoch.
func (j *rebuildJob) ready() {
	j.stage = stageSurveying
	if j.e.links.mask(RW) == 0 {
		j.fail("no replica to copy from")
		return
	}
	j.answer(nil)
	if j.e.rebuilds.filesAtRest() {
		j.survey() // otherwise rebuilds.step does it
	}
}

// survey asks everybody for the chain, and for what is known about the target's absence.
func (j *rebuildJob) survey() {
	j.stage = stagePreparing
	asked := []*link{j.target}
	for _, l := range j.e.links.all {
		if l != nil && l.mode == RW && l.phase == sessionReady {
			asked = append(asked, l)
		}
	}
	answers := map[*link]*wire.ControlReply{}
	left := len(asked)
	for _, l := range asked {
		l.control(&wire.ControlRequest{Describe: &wire.DescribeRequest{Absent: j.target.member, Branches: true}},
			func(code block.Code, r *wire.ControlReply) {
				if code == block.OK && r.Chain != nil && len(r.Chain.Layers) > 0 {
					answers[l] = r
				}
				if left--; left == 0 && !j.dead {
					j.choose(asked[1:], answers)
				}
			})
	}
}

// base is the content that the target still has, but for what its own marks say: that of the record
// it holds, or of the one it held when an earlier attempt made it void, or when it stored one that
// replaces it. Without one nothing is known about it.
func (j *rebuildJob) base(r *wire.ControlReply) (ref wire.RecordRef, structure []byte, known bool) {
	h := &j.target.helloReply
	switch {
	case h.DirtyAll || j.e.rebuilds.compareInFull[j.target.member]:
		return ref, nil, false
	case j.target.named():
		return wire.RecordRef{Epoch: h.Record.Epoch, Generation: h.Record.Generation}, r.Chain.Structure,
			h.Record.VolumeUUID == j.e.cfg.VolumeUUID
	case r.Absent != nil:
		return r.Absent.Since, r.Absent.Structure, true
	}
	return ref, nil, false
}

// named reports whether the replica's own record names it: then nothing has become of its content
// since.
func (l *link) named() bool {
	return l.helloReply.Record != nil && slices.Contains(l.helloReply.Record.Members, l.member)
}

// choose takes the source: one whose account of the target's absence begins where the target's
// content stands, of these the one with the least to do.
func (j *rebuildJob) choose(candidates []*link, answers map[*link]*wire.ControlReply) {
	t := answers[j.target]
	if t == nil {
		j.fail("it cannot describe its chain")
		return
	}
	base, structure, known := j.base(t)
	for _, l := range candidates {
		r := answers[l]
		if r == nil || l.mode != RW {
			continue
		}
		same := known && r.Absent != nil && (r.Absent.Since == base || r.Absent.Before == base) &&
			bytes.Equal(r.Absent.Structure, structure)
		if j.source == nil || (same && !j.same) || (same == j.same && l.load < j.source.load) {
			j.source, j.same = l, same
		}
	}
	switch {
	case j.source == nil:
		j.fail("no replica to copy from can describe its chain")
	case j.e.quorum.Holding():
		j.fail("the set of replicas is changing")
	default:
		j.prepare(answers[j.source], t)
	}
}

// side is what a description says to rebuild.Arrange. A record that holds means that nothing has
// become of the files since.
func side(r *wire.ControlReply, entry bool) rebuild.Side {
	var s rebuild.Side
	for _, l := range r.Chain.Layers[:len(r.Chain.Layers)-1] {
		s.Names = append(s.Names, l.Name)
		if l.Removed {
			s.Removed = append(s.Removed, l.Name)
		}
	}
	for _, l := range r.Chain.Branches {
		s.Branches = append(s.Branches, l.Name)
	}
	if a := r.Absent; a != nil && entry {
		s.First, s.Gone, s.Changed, s.AllChanged = a.First, a.Gone, a.Changed, a.AllChanged
	}
	return s
}

// prepare gives the target the shape of the source's chain.
func (j *rebuildJob) prepare(from, to *wire.ControlReply) {
	j.status.From = j.source.addr
	j.shape = from.Chain
	h := &j.target.helloReply
	source, target := side(from, true), side(to, !j.target.named())
	target.Blank = h.Blank
	a := rebuild.Arrange(source, target, j.same)
	j.status.Delta = j.same && a.Delta()
	layers := make([]rebuild.Layer, len(j.shape.Layers))
	for i, l := range j.shape.Layers {
		layers[i] = rebuild.Layer{Mode: a.Modes[i], Size: l.Size, Allocated: l.Allocated, Removed: l.Removed}
	}
	for i, l := range j.shape.Branches {
		layers = append(layers, rebuild.Layer{Mode: a.Branches[i], Size: l.Size, Allocated: l.Allocated, Branch: true,
			Removed: l.Removed})
	}
	j.plan = rebuild.New(j.e.size, layers, !j.status.Delta)
	j.e.event("rebuilding", j.target.addr, fmt.Sprintf("from %s, layers %v, branches %v", j.source.addr, a.Modes,
		a.Branches))
	begin := &wire.BeginRebuild{ChainDescription: *j.shape, HeadBecomes: a.HeadBecomes, NewHead: a.NewHead,
		Untouched: a.Untouched(&source), Compared: a.Compared(&source)}
	j.target.control(&wire.ControlRequest{BeginRebuild: begin}, func(code block.Code, r *wire.ControlReply) {
		switch {
		case j.dead:
		case code != block.OK:
			j.fail("cannot begin: %s: %s", code, r.Error)
		default:
			j.e.writes.freeze(j.mirror)
		}
	})
}

// mirror runs while no write is in flight: whatever is written from here on reaches the target.
// What the two may differ in is known from here on as well.
func (j *rebuildJob) mirror() {
	if j.dead || j.source == nil {
		j.fail("its source was lost")
		j.e.writes.thaw()
		return
	}
	if !j.same {
		j.join()
		return
	}
	left := 2
	for _, l := range []*link{j.source, j.target} {
		l.control(&wire.ControlRequest{Regions: &wire.RegionsRequest{Member: j.target.member}},
			func(code block.Code, r *wire.ControlReply) {
				if code != block.OK || r.Regions == nil {
					j.fail("%s cannot say what has changed: %s: %s", l.addr, code, r.Error)
				} else if !j.dead {
					j.differs(r.Regions)
				}
				if left--; left == 0 {
					j.join()
				}
			})
	}
}

// differs adds what one side knows.
func (j *rebuildJob) differs(r *wire.RegionsReply) {
	if r.All {
		j.plan.Differs(0, j.e.size)
	}
	for _, n := range r.Dirty {
		j.plan.Differs(int64(n)*DirtyRegion, DirtyRegion)
	}
	grain := int64(DirtyRegion) << min(r.Shift, 24)
	for n := range min(int64(len(r.Bits))*8, j.e.size/grain+1) {
		if r.Bits[n/8]&(1<<(n%8)) != 0 {
			j.plan.Differs(n*grain, grain)
		}
	}
}

// join lets the target take part in writes.
func (j *rebuildJob) join() {
	if j.dead {
		j.e.writes.thaw()
		return
	}
	j.e.dirty.markAll(j.target, func(ok bool) {
		switch {
		case j.dead:
		case !ok:
			j.fail("cannot mark dirty regions")
		default:
			j.target.mode = WO
			j.e.changed = true
			j.stage = stageCopying
		}
		j.e.writes.thaw()
		j.more()
	})
}

// zeroed notes that zeroes or a discard reach the target while it does not know everything below
// its head: what it makes of them may differ from the source, and is compared when the rest is
// complete.
func (j *rebuildJob) zeroed(off, n int64) {
	if j.plan != nil && !j.plan.AtHead() {
		j.plan.Differs(off, n)
	}
}

// tookAlone notes that a write failed on all replicas, and the target has it: it is to have what
// the others have.
func (j *rebuildJob) tookAlone(off, n int64) {
	if j.plan == nil || j.dead {
		return
	}
	j.plan.Again(off, n)
	j.verifying = false
}

// closing reports that a target has everything and nothing more is brought to it, but it is no
// member yet.
func (b *rebuilds) closing() bool {
	j := b.job()
	return j != nil && !j.dead && j.stage >= stageFinishing
}

// finish makes the target complete on its disk, then proposes it as a member.
func (j *rebuildJob) finish() {
	j.target.control(&wire.ControlRequest{FinishRebuild: &wire.FinishRebuild{}},
		func(code block.Code, r *wire.ControlReply) {
			switch {
			case j.dead:
			case code != block.OK:
				j.fail("cannot finish: %s: %s", code, r.Error)
			default:
				j.stage = stageJoining
				j.e.quorum.Join(j.target.member)
			}
		})
}

// sourceLost lets another replica take over where l was copied from.
func (b *rebuilds) sourceLost(l *link) {
	j := b.job()
	if j == nil || j.source != l || j.dead || b.e.quorum.Phase() != quorum.Serving ||
		(j.stage >= stageFinishing && b.e.links.count(RW) > 0) {
		return
	}
	j.takeOver("it was lost")
}

// takeOver goes on with another source. Layers that are complete stay: the replicas of a volume
// read the same there.
func (j *rebuildJob) takeOver(reason string) {
	old := j.source
	j.tried |= old.bit()
	j.source = nil
	if j.paused {
		j.lost = func() { j.replace(old, reason) } // the chain of who takes over is about to change
		return
	}
	j.replace(old, reason)
}

// replace looks for another source.
func (j *rebuildJob) replace(old *link, reason string) {
	for _, l := range j.e.links.all {
		if l == nil || l.mode != RW || l.phase != sessionReady || j.tried&l.bit() != 0 {
			continue
		}
		if j.stage < stageCopying {
			break // nothing was copied yet: beginning again costs nothing
		}
		if j.verifying {
			j.plan.Replaced()
		} else {
			j.plan.TakeOver()
		}
		j.e.event("source-replaced", j.target.addr, fmt.Sprintf("%s follows %s: %s", l.addr, old.addr, reason))
		l.control(&wire.ControlRequest{Describe: &wire.DescribeRequest{Branches: true}},
			func(code block.Code, r *wire.ControlReply) {
				switch {
				case j.dead:
				case code != block.OK || r.Chain == nil || !sameShape(r.Chain, j.shape):
					j.fail("its source %s was lost (%s), and the chain of %s is another one", old.addr, reason, l.addr)
				default:
					j.source = l
					j.status.From = l.addr
					j.more()
				}
			})
		return
	}
	j.fail("its source %s failed: %s", old.addr, reason)
}

// sameShape reports whether pieces of one chain are the same pieces of the other.
func sameShape(a, b *wire.ChainDescription) bool {
	same := func(a, b wire.Layer) bool { return a.Name == b.Name && a.Size == b.Size && a.Parent == b.Parent }
	return a.Size == b.Size && slices.EqualFunc(a.Layers, b.Layers, same) &&
		slices.EqualFunc(a.Branches, b.Branches, same)
}
