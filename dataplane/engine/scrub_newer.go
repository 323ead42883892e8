package engine

import (
	"fmt"
	"slices"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/wire"
)

// What newer snapshots read through the one that is repaired may change with it, as what users read
// (see keeping): a block that the replica had lost, and that the user zeroed before a newer
// snapshot was taken, would be in that one, too. A snapshot's file cannot be given what is read
// there already. So before any repair it is noted where newer snapshots read the same from a
// replica that is repaired as from one that is not, and after it they are made to read that again.
// It is done for some pieces at once, since each snapshot has to be opened twice. A scrub that is
// to end in between does this first.

// maxFound is how many pieces are repaired at once: what is noted of each is at most as many
// ranges for each newer snapshot as it has blocks.
const maxFound = 16

type (
	// newer is what a scrub does about the snapshots on top of the one that it repairs.
	newer struct {
		// names are yet to be looked at; open is the one whose view is open; piece is the next of
		// the pieces found.
		names []string
		open  string
		piece int
		// noted is to be restored, in the order of the snapshots. changes is what Engine.changes was
		// when the names were asked for.
		noted   []noted
		changes uint64
	}
	// noted is a part of a piece in which a newer snapshot reads the same from both.
	noted struct {
		snapshot      string
		target, reads *link
		p             part
	}
	// foundPiece is a piece that is to be repaired.
	foundPiece struct {
		off, n int64
		copies []copyOf
		where  []string
		d      decision
	}
)

// mend repairs the pieces found. First it asks which snapshots are newer.
func (j *scrubJob) mend() {
	w := &j.newer
	*w = newer{changes: j.e.changes}
	j.waiting++
	j.e.control(j.members[0], &wire.ControlRequest{Describe: &wire.DescribeRequest{}},
		func(code block.Code, r *wire.ControlReply) {
			j.waiting--
			if code != block.OK {
				j.restart()
				return
			}
			if w.names = onTopOf(r.Snapshots, j.name); len(w.names) == 0 {
				j.stage = scrubRepairing
				return
			}
			j.stage = scrubNoting
		})
}

// onTopOf lists the snapshots that stand on one, directly or not, oldest first, without those that
// are marked removed.
func onTopOf(layers []wire.Layer, base string) []string {
	parents := map[string]string{}
	for _, l := range layers {
		parents[l.Name] = l.Parent
	}
	return slices.DeleteFunc(oldestFirst(layers), func(name string) bool {
		for n := 0; n <= len(layers) && name != ""; n++ {
			if name = parents[name]; name == base {
				return false
			}
		}
		return true
	})
}

// note looks at the next piece in the next newer snapshot.
func (j *scrubJob) note() {
	w := &j.newer
	switch {
	case len(w.names) == 0:
		j.stage, j.opens = scrubOpening, scrubRepairing
	case w.open != w.names[0]:
		j.openNewer(w.names[0], func(why string) {
			w.names = w.names[1:]
			for len(j.found) > 0 && why != "" {
				j.leave(0, why)
			}
		})
	case w.piece == len(j.found):
		w.names, w.piece = w.names[1:], 0
	default:
		j.pace(j.found[w.piece].n)
		j.noteEqual(w.piece)
	}
}

// openNewer opens the view of a newer snapshot where a replica is connected. fails is called if
// there is none to open, because it was removed or for the reason why.
func (j *scrubJob) openNewer(name string, fails func(why string)) {
	j.each(&wire.ControlRequest{OpenView: &wire.OpenView{Snapshot: name}},
		func(codes []block.Code, replies []*wire.ControlReply) {
			j.newer.open = name
			for i, l := range j.members {
				switch {
				case l.phase != sessionReady || codes[i] == block.OK:
				case codes[i] == block.NotFound || codes[i] == block.Invalid:
					fails("")
					return
				default:
					fails(fmt.Sprintf("snapshot %s cannot be opened on %s: %s", name, l.addr,
						refusal(codes[i], replies[i].Error)))
					return
				}
			}
		})
}

// noteEqual notes where the snapshot that is open reads the same from targets as from others.
func (j *scrubJob) noteEqual(piece int) {
	f := &j.found[piece]
	targets, sources := j.parties(f.d)
	k := &keeping{j: j, view: true, targets: targets, sources: sources, whole: part{off: f.off, n: f.n},
		left: []part{{off: f.off, n: f.n}}, snapshot: f.copies[f.d.source].sum}
	k.same = func(p part, reads *link) {
		j.newer.noted = append(j.newer.noted, noted{j.newer.open, k.targets[0], reads, p})
		k.next()
	}
	j.waiting++
	k.then = func(why string) {
		j.waiting--
		switch {
		case slices.ContainsFunc(j.members, func(l *link) bool { return l.phase != sessionReady }):
			// the next step begins again
		case why != "":
			j.leave(piece, "snapshot "+j.newer.open+": "+why)
		default:
			j.newer.piece++
		}
	}
	k.next()
}

// leave gives up a piece that was found.
func (j *scrubJob) leave(piece int, why string) {
	j.notRepaired(&j.found[piece], why)
	j.found = slices.Delete(j.found, piece, piece+1)
}

// repairFound repairs the next piece, unless there is a snapshot now of which nothing is noted.
func (j *scrubJob) repairFound() {
	switch {
	case j.cancel || !slices.Equal(j.members, j.e.withMode(RW)):
		j.found, j.stage = nil, scrubRestoring // who goes on finds them again
	case len(j.found) == 0 || j.e.changes != j.newer.changes:
		j.stage = scrubRestoring
	default:
		f := j.found[0]
		j.found = j.found[1:]
		j.repair(f)
	}
}

// restore makes the next newer snapshot read again what it has read before.
func (j *scrubJob) restore() {
	w := &j.newer
	switch {
	case len(w.noted) > 0 && w.open != w.noted[0].snapshot:
		name := w.noted[0].snapshot
		j.openNewer(name, func(why string) {
			w.noted = slices.DeleteFunc(w.noted, func(n noted) bool {
				if n.snapshot == name && why != "" {
					j.notRestored(&n, why)
				}
				return n.snapshot == name
			})
		})
	case len(w.noted) > 0:
		n := w.noted[0]
		w.noted = w.noted[1:]
		j.restorePart(&n)
	case len(j.found) > 0:
		j.restart()
	default:
		j.stage, j.opens = scrubOpening, scrubComparing
	}
}

// restorePart writes to a newer snapshot's file what it reads otherwise now. Who reads it through
// the range waits, as in a repair.
func (j *scrubJob) restorePart(n *noted) {
	e := j.e
	j.waiting++
	e.ranges.lock(n.p.off, n.p.n, true, func() {
		e.writes++
		e.transfer(&transfer{off: n.p.off, n: n.p.n, view: true, from: n.reads,
			to: func() uint32 { return n.target.readyBit() & e.mask(RW) },
			done: func(r transferred) {
				if r.read != block.OK || r.ok == 0 {
					j.notRestored(n, r.read.String()+", "+r.write.String())
				}
				j.waiting--
				e.ranges.unlock(n.p.off, n.p.n, true)
				e.writes--
				e.quiet()
			}})
	})
}

func (j *scrubJob) notRestored(n *noted, why string) {
	j.find(Finding{Replica: n.target.addr, Snapshot: n.snapshot, Off: n.p.off, Len: n.p.n,
		Text: "may read other content since an older snapshot was repaired, which cannot be undone from " +
			n.reads.addr + ": " + why})
}
