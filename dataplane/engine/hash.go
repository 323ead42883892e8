package engine

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/wire"
)

// The checksum of one snapshot can be asked for, as those who check the integrity of snapshots from
// outside do. It is a scrub of that snapshot which always begins with checksums: every RW replica
// computes its own, or tells the one that still holds; where one contradicts its file, or they
// differ, the content is compared and put right as in any scrub. Snapshots are taken one after the
// other, in the order in which they were asked for; a scrub under way is waited for.

// Messages about checksums of one snapshot, posted to the core.
type (
	// HashSnapshot asks for the checksum of a snapshot. Reply comes when it is accepted; progress
	// is in the state. Asking again while it waits or is under way changes nothing; while it is
	// being cancelled it is refused.
	HashSnapshot struct {
		Name string
		// Rehash: read the files even where their checksums still hold, which finds rot.
		Rehash bool
		// At is the time to record, RFC 3339, UTC.
		At    string
		Reply func(error)
	}
	// CancelHash ends it, after the pieces under way. Reply comes at once.
	CancelHash struct {
		Name  string
		Reply func(error)
	}
	// AskHash asks for progress or result; ErrNotFound where nothing is known.
	AskHash struct {
		Name  string
		Reply func(h Hashing, err error)
	}
	// HashLocks asks every connected replica whether a checksum is being computed on its disk, for
	// whatever volume; by address.
	HashLocks struct {
		Reply func(locked map[string]bool, err error)
	}
)

// Bounds of checksums asked for.
const (
	// maxHashes bounds those that wait: one for every snapshot that a volume can have.
	maxHashes = 250
	// keptHashes is how many are remembered after their end, and as many that have failed, as other
	// engines do.
	keptHashes = 10
	// hashRetry is when to try again after the disks were busy with other volumes' checksums.
	hashRetry = time.Second
)

// Hashing is the progress or result of one snapshot's checksum.
type Hashing struct {
	Snapshot string
	Rehash   bool
	// Running also while it waits for its turn.
	Running bool
	// Replicas by address: those that were RW when it began.
	Replicas map[string]HashStatus
}

// HashStatus is one replica's part.
type HashStatus struct {
	// State is "in_progress", "complete" or "error".
	State string
	// Progress in percent.
	Progress int
	// Checksum is the CRC-64 of the replica's file as it was read, "" where it cannot be read.
	Checksum string
	Error    string
	// Corrupted: the file contradicts a checksum that still holds, or cannot be read, and could not
	// be put right.
	Corrupted bool
	// Repaired counts pieces that were put right from another replica.
	Repaired int
}

// hashing is a request and what became of it.
type hashing struct {
	Hashing
	at string
	// job is set while it is under way; ended when it has ended, failed: not on all replicas.
	job    *scrubJob
	ended  bool
	failed bool
}

// clone is what is told. Nobody's part is complete before all are: what differs is still looked at,
// and put right.
func (h *hashing) clone() Hashing {
	c := h.Hashing
	c.Replicas = maps.Clone(h.Replicas)
	for addr, s := range c.Replicas {
		if h.Running && s.State == "complete" {
			c.Replicas[addr] = HashStatus{State: "in_progress", Progress: s.Progress, Repaired: s.Repaired}
		}
	}
	return c
}

// set changes one replica's part.
func (h *hashing) set(addr string, f func(s *HashStatus)) {
	s := h.Replicas[addr]
	f(&s)
	h.Replicas[addr] = s
}

// hashOf finds the entry of a snapshot.
func (s *scrubs) hashOf(name string) *hashing {
	for _, h := range s.hashes {
		if h.Snapshot == name {
			return h
		}
	}
	return nil
}

func (s *scrubs) hashSnapshot(m HashSnapshot) {
	e := s.e
	switch err := e.unavailable(); {
	case err != nil:
		m.Reply(err)
		return
	case e.passing.leaving != nil:
		m.Reply(e.passing.reason())
		return
	case m.Name == HeadName || m.Name == "":
		m.Reply(fmt.Errorf("%w: %q is not a snapshot", block.Invalid, m.Name))
		return
	}
	if unfinished, refused := s.joinHash(m); unfinished {
		m.Reply(refused)
		return
	}
	waiting := 0
	for _, h := range s.hashes {
		waiting += count(!h.ended)
	}
	if waiting >= maxHashes {
		m.Reply(fmt.Errorf("%w: %d checksums are waited for already; try again when some are done", block.LimitReached,
			waiting))
		return
	}
	e.links.first().control(&wire.ControlRequest{Describe: &wire.DescribeRequest{}},
		func(code block.Code, r *wire.ControlReply) {
			if code != block.OK {
				m.Reply(refusal(code, r.Error))
				return
			}
			if !slices.Contains(oldestFirst(r.Snapshots), m.Name) {
				m.Reply(fmt.Errorf("%w: there is no snapshot %.128q, or it is marked removed", ErrNotFound, m.Name))
				return
			}
			unfinished, refused := s.joinHash(m) // asked for twice at the same time
			if !unfinished {
				s.addHash(m)
			}
			m.Reply(refused)
		})
}

// joinHash tells whether a request for the same snapshot is there that has not ended, and why this
// one cannot be answered by it. If it can, it is from now on.
func (s *scrubs) joinHash(m HashSnapshot) (unfinished bool, refused error) {
	h := s.hashOf(m.Name)
	switch {
	case h == nil || h.ended:
		return false, nil
	case h.job != nil && h.job.cancel && h.job.why != "":
		return true, fmt.Errorf("%w: the checksum of snapshot %s is being cancelled; try again", ErrBusy, m.Name)
	case h.job != nil && m.Rehash && !h.Rehash:
		return true, fmt.Errorf("%w: the checksum of snapshot %s is being computed without reading all files "+
			"again; ask again when it is done, or cancel it", ErrState, m.Name)
	}
	h.Rehash = h.Rehash || m.Rehash
	return true, nil
}

// addHash puts a request at the end of the queue; what is known of an earlier one is forgotten.
func (s *scrubs) addHash(m HashSnapshot) {
	s.hashes = slices.DeleteFunc(s.hashes, func(h *hashing) bool { return h.Snapshot == m.Name })
	h := &hashing{Hashing: Hashing{Snapshot: m.Name, Rehash: m.Rehash, Running: true,
		Replicas: map[string]HashStatus{}}, at: m.At}
	for _, l := range s.e.links.ready(RW) {
		h.Replicas[l.addr] = HashStatus{State: "in_progress"}
	}
	s.hashes = append(s.hashes, h)
	s.e.changed = true
}

// nextHash begins the first request that waits, if nothing else reads snapshots. A purge goes
// first: it changes the files; so does a live upgrade, which waits for what is under way.
func (s *scrubs) nextHash() {
	e := s.e
	if s.job != nil || e.purges.job != nil || e.stopping != nil || e.passing.leaving != nil {
		return
	}
	i := slices.IndexFunc(s.hashes, func(h *hashing) bool { return !h.ended })
	if i < 0 {
		return
	}
	h := s.hashes[i]
	h.job = &scrubJob{e: e, due: e.now, queue: []string{h.Snapshot}, hash: h,
		status: &Scrubbing{Checksums: map[string]map[string]string{}},
		req:    Scrub{Snapshot: h.Snapshot, Mode: ScrubFastCheck, BytesPerSecond: scrubBandwidth, At: h.at}}
	s.job = h.job
}

// began notes who takes part.
func (h *hashing) began(members []*link) {
	clear(h.Replicas)
	for _, l := range members {
		h.Replicas[l.addr] = HashStatus{State: "in_progress"}
	}
}

// endHash concludes a request: reason says why it was not finished.
func (s *scrubs) endHash(h *hashing, reason string) {
	h.Running, h.ended, h.job = false, true, nil
	s.e.changed = true
	for addr := range h.Replicas {
		h.set(addr, func(s *HashStatus) {
			switch {
			case s.State != "in_progress":
			case reason == "":
				s.State, s.Error = "error", "not computed: the replica or the snapshot went away meanwhile; ask again"
			default:
				s.State, s.Error = "error", reason
			}
			h.failed = h.failed || s.State == "error"
		})
	}
	// The newest are kept: what has ended goes behind those that ended before.
	s.hashes = append(slices.DeleteFunc(s.hashes, func(x *hashing) bool { return x == h }), h)
	for _, failed := range []bool{false, true} {
		drop := -keptHashes
		for _, x := range s.hashes {
			if x.ended && x.failed == failed {
				drop++
			}
		}
		s.hashes = slices.DeleteFunc(s.hashes, func(x *hashing) bool {
			if drop <= 0 || !x.ended || x.failed != failed {
				return false
			}
			drop--
			return true
		})
	}
}

// interruptHash puts a request back to where it waits.
func (s *scrubs) interruptHash(h *hashing) {
	h.job = nil
	for addr := range h.Replicas {
		h.Replicas[addr] = HashStatus{State: "in_progress"}
	}
	s.e.changed = true
}

// cancelHash ends the request for a snapshot, whether it waits or is under way.
func (s *scrubs) cancelHash(name, reason string) error {
	h := s.hashOf(name)
	switch {
	case h == nil || h.ended:
		return fmt.Errorf("%w: no checksum of snapshot %.128q is being computed or waited for", ErrNotFound, name)
	case h.job == nil:
		s.endHash(h, reason)
	default:
		h.job.cancel, h.job.why = true, reason
	}
	return nil
}

func (s *scrubs) askHash(m AskHash) {
	if h := s.hashOf(m.Name); h != nil {
		m.Reply(h.clone(), nil)
		return
	}
	m.Reply(Hashing{}, fmt.Errorf("%w: no checksum of snapshot %.128q was asked for since the engine started, or it "+
		"was too long ago; ask for it",
		ErrNotFound, m.Name))
}

// cancelGone ends the requests for snapshots that are not there any more, or are marked removed.
func (s *scrubs) cancelGone() {
	for _, h := range slices.Clone(s.hashes) {
		i := slices.IndexFunc(s.e.sizes.all, func(s Snapshot) bool { return s.Name == h.Snapshot })
		if !h.ended && (i < 0 || s.e.sizes.all[i].Removed) {
			_ = s.cancelHash(h.Snapshot, "the snapshot was removed") // it has not ended
		}
	}
}

// hashLocks asks all that are connected.
func (s *scrubs) hashLocks(m HashLocks) {
	e := s.e
	links := e.links.ready(RW)
	if len(links) == 0 {
		m.Reply(nil, e.nobodyToAsk())
		return
	}
	locked, left := map[string]bool{}, len(links)
	var failed error
	for _, l := range links {
		l.control(&wire.ControlRequest{HashLock: &wire.HashLock{}}, func(code block.Code, r *wire.ControlReply) {
			if code == block.OK && r.HashLock != nil {
				locked[l.addr] = r.HashLock.Locked
			} else if failed == nil {
				failed = fmt.Errorf("replica %s: %w", l.addr, refusal(code, r.Error))
			}
			if left--; left > 0 {
				return
			}
			if len(locked) > 0 {
				failed = nil // whoever answered is told
			}
			m.Reply(locked, failed)
		})
	}
}
