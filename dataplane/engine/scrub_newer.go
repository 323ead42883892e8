package engine

import (
	"fmt"
	"slices"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/wire"
)

// What newer snapshots read through the one that is repaired may change with it, as what users read
// (see keeping): a block that the replica had lost, and that the user zeroed before a newer
// snapshot was taken, would be in that one, too. So before any repair what newer snapshots read in
// the parts that it changes is kept in their own files. It is done for some pieces at once, since
// each snapshot has to be opened.

// maxFound is how many pieces are repaired at once: for these each newer snapshot is opened once.
const maxFound = 16

// differGrain is how exactly it is found out what a repair changes: finding out single blocks would
// take 511 questions where all of a piece is damaged, this takes 31.
const differGrain = 64 << 10

type (
	// newer is what a scrub does about the snapshots on top of the one that it repairs.
	newer struct {
		// names are yet to be looked at; open is the one whose view is open; piece is the next of
		// the pieces found.
		names []string
		open  string
		piece int
		// changes is what changes.made was when the names were asked for.
		changes uint64
	}
	// foundPiece is a piece that is to be repaired.
	foundPiece struct {
		off, n int64
		copies []copyOf
		where  []string
		d      decision
		// differ are the parts that the repair changes, in order.
		differ []section
	}
)

// locate finds the parts of a piece in which copies differ, of those left, and adds it to what is
// to be repaired.
func (j *scrubJob) locate(f foundPiece, left []section) {
	if len(left) == 0 {
		j.found = append(j.found, f)
		return
	}
	p := left[len(left)-1]
	left = left[:len(left)-1]
	j.sums(p.off, p.n, func(copies []copyOf) {
		switch k := len(f.differ) - 1; {
		case !differ(copies):
		case p.n > differGrain:
			left = append(left, p.halves()...)
		case k >= 0 && f.differ[k].off+f.differ[k].n == p.off:
			f.differ[k].n += p.n
		default:
			f.differ = append(f.differ, p)
		}
		j.locate(f, left)
	})
}

// mend repairs the pieces found. First it asks which snapshots are newer.
func (j *scrubJob) mend() {
	w := &j.newer
	*w = newer{changes: j.e.changes.made}
	j.waiting++
	j.members[0].control(&wire.ControlRequest{Describe: &wire.DescribeRequest{}},
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
			j.stage = scrubKeeping
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

// keep keeps the next piece in the next newer snapshot.
func (j *scrubJob) keep() {
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
		j.keepPiece()
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

// keepPiece keeps what the snapshot that is open reads of a piece.
func (j *scrubJob) keepPiece() {
	w := &j.newer
	j.waiting++
	j.keepViews(&j.found[w.piece], func(why string) {
		j.waiting--
		switch {
		case slices.ContainsFunc(j.members, func(l *link) bool { return l.phase != sessionReady }):
			// the next step begins again
		case why != "":
			j.leave(w.piece, "snapshot "+w.open+": "+why)
		default:
			w.piece++
		}
	})
}

// leave gives up a piece that was found.
func (j *scrubJob) leave(piece int, why string) {
	j.notRepaired(&j.found[piece], why)
	j.found = slices.Delete(j.found, piece, piece+1)
}

// repairFound repairs the next piece, unless there is a snapshot now in which nothing is kept.
func (j *scrubJob) repairFound() {
	switch {
	case len(j.found) == 0:
		j.stage = scrubComparing
	case j.e.changes.made != j.newer.changes:
		j.restart()
	default:
		f := j.found[0]
		j.found = j.found[1:]
		j.repair(f)
	}
}
