package engine

import (
	"fmt"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/wire"
)

// maxRepairs bounds the rounds of repairs at a start: a chain has at most 250 snapshots, each is
// removed at most once, and an expansion and a revert may come on top.
const maxRepairs = 256

// reconcile makes the chains of the RW replicas agree before anything is compared or served, then
// calls done.
func (m *membership) reconcile(done func()) { m.reconcileRound(0, done) }

func (m *membership) reconcileRound(round int, done func()) {
	e := m.e
	e.links.describeAll(func(all []*link, views []view) {
		switch {
		case e.fatal != "" || e.stopped:
			return
		case m.dropOpen():
			// Those that are left are asked again when they are agreed: a repair is a step of a
			// change like any other.
			m.whenNoDropIsOpen(func() { m.reconcileRound(round, done) })
			return
		}
		if len(all) == 0 {
			done() // the last one was lost meanwhile; whoever waits is told so
			return
		}
		todo := repairs(views)
		if todo != nil && round < maxRepairs {
			m.repair(all, todo, func() { m.reconcileRound(round+1, done) })
			return
		}
		if todo != nil {
			for i, l := range all {
				if todo[i] != (repair{}) {
					l.fail("its snapshots cannot be made to agree with the others'")
				}
			}
		}
		if size := views[0].size; size < e.cfg.Size {
			e.stop(fmt.Sprintf("every replica has %d bytes, the volume %d: they were made before it was expanded", size,
				e.cfg.Size), false)
			return
		}
		e.setSize(views[0].size)
		e.imports.found(&views[0])
		for _, l := range all {
			e.pushLimits(l)
		}
		done()
	})
}

// describeAll asks every RW replica for its chain; one that cannot tell is dropped.
func (k *links) describeAll(done func(all []*link, views []view)) {
	var asked []*link
	for _, l := range k.all {
		if l != nil && l.mode == RW {
			asked = append(asked, l)
		}
	}
	if len(asked) == 0 {
		done(nil, nil)
		return
	}
	replies := make([]*wire.ControlReply, len(asked))
	left := len(asked)
	for i, l := range asked {
		l.control(&wire.ControlRequest{Describe: &wire.DescribeRequest{}}, func(code block.Code, r *wire.ControlReply) {
			if code == block.OK && r.Chain != nil {
				replies[i] = r
			} else {
				l.fail("cannot describe its chain: " + refusal(code, r.Error).Error())
			}
			if left--; left > 0 {
				return
			}
			var all []*link
			var views []view
			for i, r := range replies {
				if r != nil && asked[i].mode == RW {
					all, views = append(all, asked[i]), append(views, viewOf(r))
				}
			}
			done(all, views)
		})
	}
}

// repair carries one round out.
func (m *membership) repair(all []*link, todo []repair, done func()) {
	left := 1
	next := func() {
		if left--; left == 0 {
			done()
		}
	}
	for i, l := range all {
		switch {
		case todo[i].drop != "":
			l.fail(todo[i].drop)
		case todo[i].request != nil:
			left++
			m.e.event("unfinished-change", l.addr, "an interrupted change is made the same everywhere: "+
				string(wire.Marshal(todo[i].request)))
			l.control(todo[i].request, func(code block.Code, r *wire.ControlReply) {
				if code != block.OK {
					l.fail("cannot be made to agree with the others: " + refusal(code, r.Error).Error())
				}
				next()
			})
		}
	}
	next()
}

// setSize is the size of every replica from now on; agreedSize follows when the set that has it is
// agreed.
func (e *Engine) setSize(size int64) {
	if size != e.size {
		e.event("size", "", fmt.Sprintf("%d bytes", size))
	}
	e.size = size
}
