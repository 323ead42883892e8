package engine

import (
	"slices"
	"time"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/clock"
	"ankole.storage/dataplane/wire"
)

const (
	// trimPause is how long discards are collected before replicas give their space back: a file
	// system discards in bursts, and each trim syncs files.
	trimPause = clock.Ticks(250 * time.Millisecond)
	// markRetry is how long a chain that could not be marked is left alone.
	markRetry = clock.Ticks(10 * time.Second)
)

// chainMarks is the work of option UnmapMarkSnapChainRemoved: whoever discards wants space back, so
// with the option the snapshots that stand between the head and the nearest branch are given up:
// they are marked removed, and what was discarded is given back out of them at once. The next purge
// gives the rest back. Those below a branch are somebody else's history too and stay, as does what
// they hold. A block device asks in one way for discards and for zeroes that may give space back;
// so there both count, but for what was never written, which mkfs zeroes. No discard waits for any
// of this.
type chainMarks struct {
	e *Engine
	// names are to be marked. from is the list of snapshots that was looked at for them last.
	names []string
	from  *Snapshot
	// marking: one of them is being marked. trim: something was discarded that no trim has seen.
	// trimming is how many replicas are at one.
	marking, trim      bool
	trimming           int
	markAfter, trimDue clock.Ticks
	// waiting are called when what can be done is done.
	waiting []func()
}

// begin takes in that a discard begins: it gives up the snapshots that are there now, and none
// that is taken later, whenever they are marked.
func (m *chainMarks) begin(r *request) {
	e := m.e
	if !e.options.UnmapMarkSnapChainRemoved {
		return
	}
	r.trims = true
	if len(e.sizes.all) == 0 || m.from == &e.sizes.all[0] {
		return
	}
	m.from = &e.sizes.all[0]
	m.names = slices.DeleteFunc(m.names, func(name string) bool {
		return !slices.ContainsFunc(e.sizes.all, func(s Snapshot) bool { return s.Name == name })
	})
	for _, name := range m.chainToMark() {
		if !slices.Contains(m.names, name) {
			m.names = append(m.names, name)
		}
	}
}

// trimLater takes in that a discard was carried out.
func (m *chainMarks) trimLater() {
	if !m.trim {
		m.trim, m.trimDue = true, m.e.now+trimPause
	}
}

// chainToMark names the snapshots from the head down to the nearest branch that are not marked.
func (m *chainMarks) chainToMark() (names []string) {
	e := m.e
	layers := make(map[string]*Snapshot, len(e.sizes.all))
	for i := range e.sizes.all {
		layers[e.sizes.all[i].Name] = &e.sizes.all[i]
	}
	for at, seen := layers[HeadName], 0; at != nil && seen < len(layers); seen++ {
		at = layers[at.Parent]
		if at == nil || len(at.Children) != 1 {
			break
		}
		if !at.Removed {
			names = append(names, at.Name)
		}
	}
	return names
}

// idle: nothing is to be done.
func (m *chainMarks) idle() bool { return len(m.names) == 0 && !m.trim }

// mayMark tells whether snapshots can be marked now.
func (m *chainMarks) mayMark() bool {
	e := m.e
	return e.fatal == "" && e.stopping == nil && e.changes.mayMake(&change{beside: true}) == nil
}

// mayTrim tells whether replicas can be asked to trim: nothing else changes or copies the files,
// and who was lost does not lack the marks.
func (m *chainMarks) mayTrim() bool {
	e := m.e
	return m.mayMark() && e.writes.frozen == 0 && e.rebuilds.job() == nil && e.purges.job == nil && !e.members.dropOpen()
}

// step does what is due, the marks first.
func (m *chainMarks) step() {
	e := m.e
	if !e.options.UnmapMarkSnapChainRemoved {
		m.names, m.from, m.trim = nil, nil, false
	}
	switch {
	case m.marking || m.trimming > 0:
	case m.idle():
		m.tell()
	case len(m.names) > 0 && e.now >= m.markAfter && m.mayMark():
		m.markNext()
	case !m.trim || !m.mayTrim():
		m.tell()
	case e.now >= m.trimDue:
		m.trimAll()
	}
}

// due is when time alone lets it go on.
func (m *chainMarks) due() clock.Ticks {
	due := clock.Never
	if m.marking || m.trimming > 0 || m.idle() || !m.mayMark() {
		return due
	}
	if len(m.names) > 0 {
		due = m.markAfter
	}
	if m.trim && m.mayTrim() {
		due = clock.Min(due, m.trimDue)
	}
	return due
}

// whenDone calls f when what was discarded is given back, as far as that can be done now.
func (m *chainMarks) whenDone(f func()) { m.waiting = append(m.waiting, f) }

func (m *chainMarks) tell() {
	waiting := m.waiting
	m.waiting = nil
	for _, f := range waiting {
		f()
	}
}

// markNext marks the first of the names when a replica has said that it is still below the head:
// what the state says can be from before a revert, after which a snapshot that was below the head
// is another branch's.
func (m *chainMarks) markNext() {
	e := m.e
	m.marking = true
	name := m.names[0]
	e.sizes.refreshThen(func(err error) {
		switch {
		case err != nil:
			m.notMarked(name, err)
		case !slices.Contains(m.chainToMark(), name):
			m.ended(name)
		default:
			e.changes.removeSnapshot(RemoveSnapshot{Name: name, Reply: func(err error) {
				if err != nil {
					m.notMarked(name, err)
					return
				}
				e.event("chain-marked", name, "given up because the volume was trimmed")
				m.ended(name)
			}})
		}
	})
}

// ended takes a name off the list.
func (m *chainMarks) ended(name string) {
	m.marking = false
	m.names = slices.DeleteFunc(m.names, func(n string) bool { return n == name })
}

func (m *chainMarks) notMarked(name string, err error) {
	m.e.event("chain-not-marked", name, err.Error())
	m.marking, m.markAfter = false, m.e.now+markRetry
}

// trimAll has every replica in sync give back what was discarded.
func (m *chainMarks) trimAll() {
	m.trim = false
	for _, l := range m.e.links.all {
		if l != nil && l.mode == RW && l.phase == sessionReady {
			m.trimming++
			m.trimPiece(l, 0)
		}
	}
}

// trimPiece asks a replica for a piece. One that fails keeps its place, and what it did not do for
// the next trim or purge: what a reader sees is the same.
func (m *chainMarks) trimPiece(l *link, from int64) {
	e := m.e
	l.control(&wire.ControlRequest{Trim: &wire.TrimRequest{From: from}}, func(code block.Code, r *wire.ControlReply) {
		switch {
		case code != block.OK || r.Trim == nil:
			e.event("trim-failed", l.addr, refusal(code, r.Error).Error())
		case r.Trim.Next > from && m.mayTrim():
			m.trimPiece(l, r.Trim.Next)
			return
		case r.Trim.Next > from:
			m.trimLater()
		}
		if m.trimming--; m.trimming == 0 {
			m.tell()
			e.sizes.refresh()
		}
	})
}
