package engine

import (
	"fmt"
	"maps"
	"slices"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/clock"
	"ankole.storage/dataplane/wire"
)

// A scrub looks for rot in snapshots and puts it right. Replicas may have chains of other shapes,
// so what is compared is the content at a snapshot, as a reader would see it, piece by piece. Where
// replicas differ, each is asked what its own checksums say, decide judges, and the losers get the
// winner's content. Snapshots are taken from the oldest to the newest: a repair writes to the
// snapshot's own file, so what an older one lacks must be there first.
//
// A scrub pauses while chains are changed or copied, keeps to a bandwidth, and changes nothing it
// is not sure of.

// ScrubMode is how much a scrub reads, by the values of the setting snapshot-data-integrity.
type ScrubMode string

// Modes.
const (
	// ScrubEnabled compares every snapshot on all replicas, and computes checksums that do not hold.
	ScrubEnabled ScrubMode = "enabled"
	// ScrubFastCheck computes checksums that do not hold; it compares a snapshot only if that finds
	// something wrong.
	ScrubFastCheck ScrubMode = "fast-check"
)

type (
	// Scrub begins a scrub. Reply comes when it has begun, or cannot; progress is in the state.
	Scrub struct {
		// Snapshot is the one to scrub, empty for all that are not marked removed.
		Snapshot string
		Mode     ScrubMode
		// BytesPerSecond bounds what is read from each replica; 0 means 64 MiB.
		BytesPerSecond int64
		// At is the time to record beside checksums, RFC 3339, UTC.
		At    string
		Reply func(error)
	}
	// CancelScrub ends a scrub after the pieces under way. Reply comes at once.
	CancelScrub struct{ Reply func(error) }
)

// Bounds of a scrub.
const (
	// scrubBandwidth leaves most of a disk to the volume's user.
	scrubBandwidth = 64 << 20
	// maxFindings bounds the list kept in the state; the counters go on.
	maxFindings = 100
	// scrubRestarts bounds how often a snapshot is begun again because replicas or snapshots changed.
	scrubRestarts = 16
)

// Scrubbing is the progress of a scrub, kept after its end.
type Scrubbing struct {
	Running bool
	// State is "in_progress", "complete", "cancelled" or "error".
	State    string
	Error    string
	Mode     ScrubMode
	Snapshot string // the one under way
	// Done and Total count snapshots, Compared bytes compared.
	Done, Total int
	Compared    int64
	// Repaired counts pieces of copies that were put right, Unrepaired differences and damage left
	// as they are.
	Repaired, Unrepaired int
	// Findings are the first of them.
	Findings []Finding
	// Checksums of the snapshots by name, then by replica address; "" where the file is damaged.
	Checksums map[string]map[string]string
}

func (s *Scrubbing) clone() *Scrubbing {
	if s == nil {
		return nil
	}
	c := *s
	c.Findings = slices.Clone(s.Findings)
	c.Checksums = map[string]map[string]string{}
	for name, sums := range s.Checksums {
		c.Checksums[name] = maps.Clone(sums)
	}
	return &c
}

// Finding is damage to one replica's copy of a piece.
type Finding struct {
	Replica, Snapshot string
	Off, Len          int64
	Repaired          bool
	Text              string
}

// scrubs has the scrub under way, one at a time, and the checksums that are asked for: each is a
// scrub of its own.
type scrubs struct {
	e *Engine
	// job is the scrub under way, nil for none; last is what is known about it or the last one.
	job  *scrubJob
	last *Scrubbing
	// hashes are the checksums of single snapshots that are asked for, those that have ended last.
	hashes []*hashing
}

// scrubJob is a scrub under way.
type scrubJob struct {
	e      *Engine
	req    Scrub
	status *Scrubbing
	queue  []string
	// The snapshot under way: its size, the replicas whose views are open, what is next.
	name    string
	size    int64
	members []*link
	next    int64
	stage   scrubStage
	rehash  bool
	suspect bool // checksums have shown damage: compare
	starts  int
	// opens is the stage that follows scrubOpening. found are pieces that are to be repaired before
	// more are compared.
	opens scrubStage
	found []foundPiece
	newer newer
	// waiting counts answers that are outstanding; the job goes on when there are none.
	waiting int
	due     clock.Ticks
	// cancel: end, for the reason why.
	cancel bool
	why    string
	// hash is the request that this is for, nil for a scrub.
	hash *hashing
}

type scrubStage uint8

const (
	scrubIdle scrubStage = iota
	scrubHashing
	scrubOpening
	scrubComparing
	// These two are a repair: see newer.
	scrubKeeping
	scrubRepairing
	scrubClosing
	scrubRehashing
)

func (s *scrubs) start(m Scrub) {
	e := s.e
	err := e.passing.reason()
	if err == nil {
		err = e.unavailable()
	}
	switch {
	case s.job != nil && s.job.hash != nil:
		m.Reply(fmt.Errorf("%w: the checksum of snapshot %s is being computed; try again", ErrState, s.job.hash.Snapshot))
		return
	case s.job != nil:
		m.Reply(fmt.Errorf("%w: a scrub is under way", ErrState))
		return
	case err != nil:
		m.Reply(err)
		return
	case m.Mode != ScrubEnabled && m.Mode != ScrubFastCheck:
		m.Reply(fmt.Errorf("%w: scrub mode %q; use enabled or fast-check", block.Invalid, m.Mode))
		return
	}
	if m.BytesPerSecond <= 0 {
		m.BytesPerSecond = scrubBandwidth
	}
	j := &scrubJob{e: e, req: m, due: clock.Never, status: &Scrubbing{Running: true, State: "in_progress", Mode: m.Mode,
		Checksums: map[string]map[string]string{}}}
	s.job = j
	j.waiting++
	e.links.first().control(&wire.ControlRequest{Describe: &wire.DescribeRequest{}},
		func(code block.Code, r *wire.ControlReply) {
			j.waiting--
			err := error(nil)
			if code != block.OK {
				err = refusal(code, r.Error)
			} else if j.queue = oldestFirst(r.Snapshots); m.Snapshot != "" {
				if !slices.Contains(j.queue, m.Snapshot) {
					err = fmt.Errorf("%w: there is no snapshot %.128q, or it is marked removed", ErrNotFound, m.Snapshot)
				}
				j.queue = []string{m.Snapshot}
			}
			if err != nil {
				s.job = nil
				m.Reply(err)
				return
			}
			j.status.Total = len(j.queue)
			s.last, e.changed = j.status, true
			e.event("scrubbing", "", fmt.Sprintf("%d snapshots, mode %s", len(j.queue), m.Mode))
			m.Reply(nil)
		})
}

func (k *links) first() *link { return k.of(k.mask(RW)) }

// oldestFirst orders the snapshots of all branches so that each comes after what it is based on.
func oldestFirst(layers []wire.Layer) (names []string) {
	parents := map[string]string{}
	for _, l := range layers {
		parents[l.Name] = l.Parent
	}
	depth := func(name string) (n int) {
		for ; parents[name] != "" && n <= len(layers); name = parents[name] {
			n++
		}
		return n
	}
	for _, l := range layers {
		if l.Name != "" && !l.Removed {
			names = append(names, l.Name)
		}
	}
	slices.SortStableFunc(names, func(a, b string) int { return depth(a) - depth(b) })
	return names
}

func (s *scrubs) cancel(reply func(error)) {
	if s.job == nil || s.job.hash != nil {
		reply(fmt.Errorf("%w: no scrub is under way", ErrNotFound))
		return
	}
	s.job.cancel = true
	reply(nil)
}

// step continues the scrub.
func (s *scrubs) step() {
	s.nextHash()
	j := s.job
	for more := true; more && j != nil && s.job == j && j.waiting == 0; {
		more = s.once(j)
	}
}

// once does what is next, if it is time; nothing is outstanding. It tells whether there may be
// more to do at once.
func (s *scrubs) once(j *scrubJob) bool {
	e := s.e
	switch {
	case e.fatal != "" || e.stopping != nil:
		j.end("error", "the engine has stopped")
	case j.cancel:
		j.endHashes(func() { j.closeViews(func() { j.end("cancelled", j.why) }) })
	case e.changes.current != "" || e.writes.frozen > 0 || e.rebuilds.job() != nil || !e.serving || e.links.mask(RW) == 0:
		j.due = clock.Never // a change is waited for, not a time
		return false
	case j.due != clock.Never && j.due > e.now:
		return false
	default:
		j.due = clock.Never
		j.step()
	}
	return true
}

// due is when the scrub may go on.
func (s *scrubs) due() clock.Ticks {
	if s.job == nil || s.job.waiting > 0 {
		return clock.Never
	}
	return s.job.due
}

// pace makes the next step wait for as long as n bytes may take.
func (j *scrubJob) pace(n int64) {
	j.due = j.e.now.Add(takes(n, j.req.BytesPerSecond))
}

func (j *scrubJob) end(state, reason string) {
	j.e.scrubs.job = nil
	j.e.changed = true
	s := j.status
	s.Running, s.State, s.Error, s.Snapshot = false, state, reason, ""
	if j.hash != nil && j.cancel && reason == "" {
		j.e.scrubs.interruptHash(j.hash)
		return
	}
	if j.hash != nil {
		j.e.scrubs.endHash(j.hash, reason)
		j.e.event("hashed", "", fmt.Sprintf("snapshot %s: %s, %d repaired, %d not %s", j.hash.Snapshot, state,
			s.Repaired, s.Unrepaired, reason))
		return
	}
	j.e.event("scrubbed", "", fmt.Sprintf("%s: %d of %d snapshots, %d bytes compared, %d repaired, %d not %s", state,
		s.Done, s.Total,
		s.Compared, s.Repaired, s.Unrepaired, reason))
}

// step does what is next. Nothing is outstanding.
func (j *scrubJob) step() {
	compares := j.stage == scrubComparing || j.stage == scrubKeeping || j.stage == scrubRepairing
	if compares && !slices.Equal(j.members, j.e.links.ready(RW)) {
		// A replica came or went: what was compared without it says nothing about it.
		j.restart()
		return
	}
	switch j.stage {
	case scrubIdle:
		j.begin()
	case scrubHashing, scrubRehashing:
		j.hashMore()
	case scrubOpening:
		j.open()
	case scrubComparing:
		j.compare()
	case scrubKeeping:
		j.keep()
	case scrubRepairing:
		j.repairFound()
	case scrubClosing:
		j.closeViews(func() { j.stage, j.members, j.rehash = scrubRehashing, j.e.links.ready(RW), false })
	}
}

// begin takes the next snapshot.
func (j *scrubJob) begin() {
	if len(j.queue) == 0 {
		j.end("complete", "")
		return
	}
	j.name, j.queue = j.queue[0], j.queue[1:]
	j.status.Snapshot, j.e.changed = j.name, true
	j.starts, j.suspect = 0, false
	j.first()
	if j.hash != nil {
		j.hash.began(j.members)
	}
}

// first is where a snapshot begins: what is compared needs no reading of its own, unless there is
// nothing to compare with.
func (j *scrubJob) first() {
	j.members, j.next = j.e.links.ready(RW), 0
	j.stage, j.opens, j.found, j.rehash = scrubOpening, scrubComparing, nil, false
	if j.req.Mode == ScrubFastCheck && !j.suspect || len(j.members) < 2 {
		j.stage, j.rehash = scrubHashing, j.req.Mode == ScrubEnabled || j.hash != nil && j.hash.Rehash
	}
}

func (j *scrubJob) restart() {
	if j.starts++; j.starts > scrubRestarts {
		j.closeViews(func() { j.end("error", "replicas or snapshots keep changing; try again later") })
		return
	}
	j.closeViews(j.first)
}

// skip leaves the snapshot for a reason that is worth telling.
func (j *scrubJob) skip(l *link, text string) {
	j.find(Finding{Replica: l.addr, Snapshot: j.name, Text: text})
	j.closeViews(j.finished)
}

func (j *scrubJob) finished() {
	j.stage = scrubIdle
	j.status.Done++
	j.e.changed = true
}

func (k *links) ready(m Mode) (out []*link) {
	for _, l := range k.all {
		if l != nil && l.mode == m && l.phase == sessionReady {
			out = append(out, l)
		}
	}
	return out
}
