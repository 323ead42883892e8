package engine

import (
	"bytes"
	"fmt"
	"slices"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/wire"
)

// each asks every member and calls done with the answers, in order, when all are there.
func (j *scrubJob) each(q *wire.ControlRequest, done func(codes []block.Code, replies []*wire.ControlReply)) {
	codes, replies := make([]block.Code, len(j.members)), make([]*wire.ControlReply, len(j.members))
	left := len(j.members)
	if left == 0 {
		done(nil, nil)
		return
	}
	j.waiting++
	for i, l := range j.members {
		l.control(q, func(code block.Code, r *wire.ControlReply) {
			codes[i], replies[i] = code, r
			if left--; left == 0 {
				j.waiting--
				done(codes, replies)
			}
		})
	}
}

func (j *scrubJob) open() {
	j.each(&wire.ControlRequest{OpenView: &wire.OpenView{Snapshot: j.name}},
		func(codes []block.Code, replies []*wire.ControlReply) {
			if len(j.members) == 0 || slices.Contains(codes, block.Unavailable) {
				j.restart()
				return
			}
			for i, l := range j.members {
				switch {
				case codes[i] == block.NotFound || codes[i] == block.Invalid:
					// It was removed since the list was made.
					j.closeViews(j.finished)
					return
				case codes[i] != block.OK || replies[i].View == nil:
					j.skip(l, "cannot open the snapshot: "+refusal(codes[i], replies[i].Error).Error())
					return
				case replies[i].View.Size != replies[0].View.Size:
					j.skip(l, fmt.Sprintf("the snapshot has %d bytes, elsewhere %d", replies[i].View.Size, replies[0].View.Size))
					return
				}
			}
			j.size, j.stage, j.newer.open = replies[0].View.Size, j.opens, ""
		})
}

// closeViews closes what may be open, then goes on.
func (j *scrubJob) closeViews(then func()) {
	j.each(&wire.ControlRequest{CloseView: &wire.CloseView{}}, func([]block.Code, []*wire.ControlReply) { then() })
}

// endHashes tells members that the computation they have begun will not go on, which frees their
// disks' locks.
func (j *scrubJob) endHashes(then func()) {
	if j.stage != scrubHashing && j.stage != scrubRehashing {
		then()
		return
	}
	j.each(&wire.ControlRequest{CancelHash: &wire.CancelHash{}}, func([]block.Code, []*wire.ControlReply) { then() })
}

// compare asks all members for the hash of the next piece.
func (j *scrubJob) compare() {
	if len(j.found) == maxFound || j.next >= j.size && len(j.found) > 0 {
		j.mend()
		return
	}
	if j.next >= j.size {
		j.stage = scrubClosing
		j.step()
		return
	}
	off, n := j.next, min(block.MaxTransfer, j.size-j.next)
	j.next += n
	j.pace(n)
	j.sums(off, n, func(copies []copyOf) {
		j.status.Compared += n
		if differ(copies) {
			j.judge(off, n, copies)
		}
	})
}

// differ tells whether a copy is not as the others, or cannot be read.
func differ(copies []copyOf) bool {
	return slices.ContainsFunc(copies, func(c copyOf) bool { return c.sum == nil || !bytes.Equal(c.sum, copies[0].sum) })
}

// sums asks for the hash of a piece at the snapshot.
func (j *scrubJob) sums(off, n int64, done func(copies []copyOf)) {
	t := j.task(wire.Hash, off, n)
	j.waiting++
	j.e.tasks.askHashes(t, j.mask(j.members), func(t *task, sums map[uint32][]byte) {
		j.waiting--
		j.e.tasks.release(t)
		if slices.ContainsFunc(j.members, func(l *link) bool { return l.phase != sessionReady }) {
			return // a replica was lost; the next step begins again
		}
		copies := make([]copyOf, len(j.members))
		for i, l := range j.members {
			copies[i].sum = sums[l.bit()]
		}
		done(copies)
	})
}

func (j *scrubJob) task(kind wire.Type, off, n int64) *task {
	t := j.e.tasks.take(kind)
	t.off, t.n, t.view = off, n, true
	return t
}

func (j *scrubJob) mask(links []*link) (m uint32) {
	for _, l := range links {
		m |= l.readyBit()
	}
	return m
}

// judge asks what the members' checksums say about a piece of which they have different content.
func (j *scrubJob) judge(off, n int64, copies []copyOf) {
	j.each(&wire.ControlRequest{Verify: &wire.Verify{Off: off, Len: n}},
		func(codes []block.Code, replies []*wire.ControlReply) {
			where := make([]string, len(copies))
			for i := range copies {
				copies[i].verdict = wire.VerdictUnknown
				if codes[i] == block.OK && replies[i].Verify != nil {
					copies[i].verdict = replies[i].Verify.Verdict
					where[i] = describeRot(replies[i].Verify.Rot)
				}
			}
			d := decide(copies)
			if d.source < 0 {
				for i, l := range j.members {
					j.find(Finding{Replica: l.addr, Snapshot: j.name, Off: off, Len: n,
						Text: fmt.Sprintf("%s; this copy is %s%s", d.why, condition(&copies[i]), where[i])})
				}
				return
			}
			if len(d.repair) > 0 {
				j.locate(foundPiece{off: off, n: n, copies: copies, where: where, d: d}, []section{{off: off, n: n}})
			}
		})
}

func condition(c *copyOf) string {
	if c.sum == nil {
		return "unreadable"
	}
	return c.verdict
}

func describeRot(rot []wire.Rot) string {
	var b bytes.Buffer
	for _, r := range rot {
		how := "wrong"
		if r.Unreadable {
			how = "unreadable"
		}
		fmt.Fprintf(&b, ", %s in [%d,+%d) of the file of %s", how, r.Off, r.Len, r.Snapshot)
	}
	return b.String()
}

// repair writes the source's content to the others, and looks whether they have it then. Nobody
// reads or writes the range meanwhile, and what users read there stays: see keeping.
func (j *scrubJob) repair(f foundPiece) {
	e, off, n := j.e, f.off, f.n
	source := j.members[f.d.source]
	targets, _ := j.parties(f.d)
	j.waiting++
	e.requests.ranges.lock(off, n, true, grantFunc(func() {
		e.writes.inFlight++ // whoever wants no write in flight waits for this one
		end := func(text string) {
			if text != "" {
				j.notRepaired(&f, text)
			}
			j.waiting--
			e.requests.ranges.unlock(off, n, true)
			e.writes.inFlight--
			e.writes.quiet()
		}
		if e.changes.made != j.newer.changes {
			j.found = append(j.found, f) // there may be another newer snapshot
			end("")
			return
		}
		if e.stopping != nil || e.writes.frozen > 0 || e.dirty.torn(off) {
			end("writes are stopped, or one has failed there; the next scrub tries again")
			return
		}
		j.keepHeads(&f, func(why string) {
			if why != "" {
				end(why)
				return
			}
			e.transfer(&transfer{off: off, n: n, view: true, from: source,
				to: func() uint32 { return j.mask(targets) },
				done: func(r transferred) {
					if r.read != block.OK {
						end("it cannot be read: " + r.read.String())
						return
					}
					j.sums(off, n, func(after []copyOf) { j.told(&f, after, r.write) })
					end("")
				}})
		})
	}))
}

// told notes what a repair has led to.
func (j *scrubJob) told(f *foundPiece, after []copyOf, code block.Code) {
	for _, i := range f.d.repair {
		if bytes.Equal(after[i].sum, f.copies[f.d.source].sum) {
			j.findPiece(f, i, true, "; repaired from "+j.members[f.d.source].addr)
		} else {
			j.findPiece(f, i, false, "; not repaired from "+j.members[f.d.source].addr+": "+code.String())
		}
	}
}

// notRepaired notes that a piece was not repaired on any of the copies that need it.
func (j *scrubJob) notRepaired(f *foundPiece, why string) {
	for _, i := range f.d.repair {
		j.findPiece(f, i, false, "; not repaired from "+j.members[f.d.source].addr+": "+why)
	}
}

func (j *scrubJob) findPiece(f *foundPiece, i int, repaired bool, text string) {
	j.find(Finding{Replica: j.members[i].addr, Snapshot: j.name, Off: f.off, Len: f.n, Repaired: repaired,
		Text: condition(&f.copies[i]) + f.where[i] + text})
}

// parties are the members whose copies a decision replaces, and the others.
func (j *scrubJob) parties(d decision) (targets, sources []*link) {
	for i, l := range j.members {
		if slices.Contains(d.repair, i) {
			targets = append(targets, l)
		} else {
			sources = append(sources, l)
		}
	}
	return targets, sources
}

// find notes damage.
func (j *scrubJob) find(f Finding) {
	s := j.status
	if f.Repaired {
		s.Repaired++
	} else {
		s.Unrepaired++
	}
	if len(s.Findings) < maxFindings {
		s.Findings = append(s.Findings, f)
	}
	name := "rot"
	if f.Repaired {
		name = "rot-repaired"
		if j.hash != nil {
			j.hash.set(f.Replica, func(s *HashStatus) { s.Repaired++ })
		}
	}
	j.e.event(name, f.Replica, fmt.Sprintf("snapshot %s, [%d,+%d): %s", f.Snapshot, f.Off, f.Len, f.Text))
}

// hashMore asks the members for the next piece of computing their checksums, until all are done.
func (j *scrubJob) hashMore() {
	j.members = slices.DeleteFunc(slices.Clone(j.members), func(l *link) bool {
		return l.mode != RW || l.phase != sessionReady
	})
	if len(j.members) == 0 {
		j.hashed()
		return
	}
	q := &wire.HashSnapshot{Snapshot: j.name, Rehash: j.rehash, At: j.req.At}
	j.each(&wire.ControlRequest{HashSnapshot: q}, func(codes []block.Code, replies []*wire.ControlReply) {
		var left []*link
		waiting := true
		for i, l := range j.members {
			switch r := replies[i].Hash; {
			case codes[i] == block.Unavailable:
			case codes[i] != block.OK || r == nil:
				j.hashFailed(l, refusal(codes[i], replies[i].Error).Error())
			case !r.Done:
				left = append(left, l)
				waiting = waiting && r.Waiting
				j.hashGoesOn(l, r)
			default:
				j.hashedOn(l, r)
			}
		}
		j.members = left
		j.pace(hashPiece)
		if len(left) > 0 && waiting {
			j.due = j.e.now.Add(hashRetry)
		}
	})
}

func (j *scrubJob) hashFailed(l *link, text string) {
	j.find(Finding{Replica: l.addr, Snapshot: j.name, Text: "checksums cannot be computed: " + text})
	if j.hash != nil {
		j.e.changed = true
		j.hash.set(l.addr, func(s *HashStatus) { s.State, s.Error = "error", text })
	}
}

func (j *scrubJob) hashGoesOn(l *link, r *wire.HashReply) {
	if j.hash == nil || j.hash.Replicas[l.addr].Progress == r.Progress {
		return
	}
	j.e.changed = true
	j.hash.set(l.addr, func(s *HashStatus) { s.State, s.Progress = "in_progress", r.Progress })
}

// hashPiece is how much a replica reads per piece of a computation.
const hashPiece = 8 << 20

func (j *scrubJob) hashedOn(l *link, r *wire.HashReply) {
	sums := j.status.Checksums[j.name]
	if sums == nil {
		sums = map[string]string{}
		j.status.Checksums[j.name] = sums
	}
	sums[l.addr] = r.Checksum
	if j.hash != nil {
		j.e.changed = true
		j.hash.set(l.addr, func(s *HashStatus) {
			s.State, s.Progress, s.Checksum, s.Corrupted = "complete", 100, r.Checksum, r.Corrupted
		})
	}
	if !r.Corrupted {
		return
	}
	sums[l.addr] = ""
	if j.stage == scrubHashing && len(j.e.links.ready(RW)) > 1 {
		j.suspect = true
		return
	}
	j.find(Finding{Replica: l.addr, Snapshot: j.name, Text: "the file contradicts its checksum" + describeRot(r.Rot)})
}

// hashed is the end of a computation: of the snapshot, or before it is compared.
func (j *scrubJob) hashed() {
	if j.stage == scrubHashing && (j.suspect || j.differ()) && len(j.e.links.ready(RW)) > 1 {
		j.suspect = true
		j.first()
		return
	}
	j.finished()
}

// differ tells whether the checksums that were computed are not all the same: rot older than the
// first checksum shows only so.
func (j *scrubJob) differ() bool {
	seen := map[string]bool{}
	for _, sum := range j.status.Checksums[j.name] {
		seen[sum] = true
	}
	return len(seen) > 1
}
