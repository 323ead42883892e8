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

// markChain takes in that a discard begins: it gives up the snapshots that are there now, and none
// that is taken later, whenever they are marked.
func (e *Engine) markChain(r *request) {
	m := &e.chainMarks
	if !e.options.UnmapMarkSnapChainRemoved {
		return
	}
	r.trims = true
	if len(e.snapshots) == 0 || m.from == &e.snapshots[0] {
		return
	}
	m.from = &e.snapshots[0]
	m.names = slices.DeleteFunc(m.names, func(name string) bool {
		return !slices.ContainsFunc(e.snapshots, func(s Snapshot) bool { return s.Name == name })
	})
	for _, name := range e.chainToMark() {
		if !slices.Contains(m.names, name) {
			m.names = append(m.names, name)
		}
	}
}

// trimChain takes in that a discard was carried out.
func (e *Engine) trimChain() {
	if m := &e.chainMarks; !m.trim {
		m.trim, m.trimDue = true, e.now+trimPause
	}
}

// chainToMark names the snapshots from the head down to the nearest branch that are not marked.
func (e *Engine) chainToMark() (names []string) {
	layers := make(map[string]*Snapshot, len(e.snapshots))
	for i := range e.snapshots {
		layers[e.snapshots[i].Name] = &e.snapshots[i]
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
func (e *Engine) mayMark() bool {
	return e.fatal == "" && e.stopping == nil && e.mayMake(&change{beside: true}) == nil
}

// mayTrim tells whether replicas can be asked to trim: nothing else changes or copies the files,
// and who was lost does not lack the marks.
func (e *Engine) mayTrim() bool {
	return e.mayMark() && e.frozen == 0 && e.rebuilds.job() == nil && e.purges.job == nil && !e.dropOpen()
}

// marksMore does what is due, the marks first. It is called at the end of every step.
func (e *Engine) marksMore() {
	m := &e.chainMarks
	if !e.options.UnmapMarkSnapChainRemoved {
		m.names, m.from, m.trim = nil, nil, false
	}
	switch {
	case m.marking || m.trimming > 0:
	case m.idle():
		m.tell()
	case len(m.names) > 0 && e.now >= m.markAfter && e.mayMark():
		e.markNext()
	case !m.trim || !e.mayTrim():
		m.tell()
	case e.now >= m.trimDue:
		e.trimAll()
	}
}

// marksDue is when time alone lets marksMore go on.
func (e *Engine) marksDue() clock.Ticks {
	m, due := &e.chainMarks, clock.Never
	if m.marking || m.trimming > 0 || m.idle() || !e.mayMark() {
		return due
	}
	if len(m.names) > 0 {
		due = m.markAfter
	}
	if m.trim && e.mayTrim() {
		due = clock.Min(due, m.trimDue)
	}
	return due
}

// whenTrimmed calls f when what was discarded is given back, as far as that can be done now.
func (e *Engine) whenTrimmed(f func()) { e.chainMarks.waiting = append(e.chainMarks.waiting, f) }

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
func (e *Engine) markNext() {
	m := &e.chainMarks
	m.marking = true
	name := m.names[0]
	e.refreshThen(func(err error) {
		switch {
		case err != nil:
			e.notMarked(name, err)
		case !slices.Contains(e.chainToMark(), name):
			m.ended(name)
		default:
			e.removeSnapshot(RemoveSnapshot{Name: name, Reply: func(err error) {
				if err != nil {
					e.notMarked(name, err)
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

func (e *Engine) notMarked(name string, err error) {
	e.event("chain-not-marked", name, err.Error())
	e.chainMarks.marking, e.chainMarks.markAfter = false, e.now+markRetry
}

// trimAll has every replica in sync give back what was discarded.
func (e *Engine) trimAll() {
	m := &e.chainMarks
	m.trim = false
	for _, l := range e.links {
		if l != nil && l.mode == RW && l.phase == sessionReady {
			m.trimming++
			e.trimPiece(l, 0)
		}
	}
}

// trimPiece asks a replica for a piece. One that fails keeps its place, and what it did not do for
// the next trim or purge: what a reader sees is the same.
func (e *Engine) trimPiece(l *link, from int64) {
	e.control(l, &wire.ControlRequest{Trim: &wire.TrimRequest{From: from}}, func(code block.Code, r *wire.ControlReply) {
		m := &e.chainMarks
		switch {
		case code != block.OK || r.Trim == nil:
			e.event("trim-failed", l.addr, refusal(code, r.Error).Error())
		case r.Trim.Next > from && e.mayTrim():
			e.trimPiece(l, r.Trim.Next)
			return
		case r.Trim.Next > from:
			e.trimChain()
		}
		if m.trimming--; m.trimming == 0 {
			m.tell()
			e.refreshSnapshots()
		}
	})
}
