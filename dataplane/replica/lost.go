package replica

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/chain"
	"ankole.storage/dataplane/clock"
	"ankole.storage/dataplane/wire"
)

// Every few seconds a replica looks whether the files that it has open still have their names. One
// that has none is gone with the process. The engine is told, which drops the replica if there is
// another one; and whether it does or not, the file is written anew beside I/O, while it can still
// be read. A replica that is asked to end before that is done, and whose record names others,
// leaves an empty rebuild target; the only one goes on until it has everything.

const (
	// lookEvery is how often it is looked.
	lookEvery = 2 * time.Second
	// restoreAgain is when writing a file anew is tried again.
	restoreAgain = 30 * time.Second
	// touchedUnit is the unit in which it is noted what was written to since it was copied.
	touchedUnit = 1 << 20
	// restoreRest is how many of them may be left for the time in which I/O is held back,
	// restorePasses how often it is tried to have no more than that.
	restoreRest   = 16
	restorePasses = 10
)

// losing is what is known of lost files.
type losing struct {
	lookAt  clock.Ticks
	looking bool
	// names are those that are lost; told is what sessions were told.
	names []string
	told  string
	// restoring is the file that is being written anew, "" for none; touched, of the head, what was
	// written to since it was copied, by number; passes how often it was copied again.
	restoring string
	touched   map[int64]bool
	passes    int
	// failed is why the last try has failed; the next one is at again.
	failed string
	again  clock.Ticks
}

// lookDue has the directory looked at if it is time, and says when it is next.
func (r *Replica) lookDue() clock.Ticks {
	l := &r.losing
	switch {
	case r.blocks == nil || r.dead || r.ending:
		return clock.Never
	case l.looking:
		return clock.Never // its end makes a step
	case r.now < l.lookAt:
		return l.lookAt
	}
	r.look(func() {})
	return clock.Never
}

// look looks once.
func (r *Replica) look(then func()) {
	l := &r.losing
	l.looking = true
	r.enqueue(&metaOp{note: (*sidecarSet).mend, done: func(v any) {
		if err := v.(result).err; err != nil {
			r.cfg.Event("sidecar-lost", err.Error())
		}
	}})
	r.enqueue(&metaOp{run: (*worker).look, done: func(v any) {
		res := v.(lookedFor)
		l.looking, l.lookAt = false, r.now.Add(lookEvery)
		if res.err != nil && len(res.lost) == 0 {
			r.cfg.Event("metadata-lost", res.err.Error())
		}
		r.found(res.lost)
		then()
	}})
}

type lookedFor struct {
	lost []string
	err  error
}

func (w *worker) look() any {
	if w.files == nil {
		return lookedFor{}
	}
	lost, err := w.files.Lost()
	return lookedFor{lost, err}
}

func (l *sidecarSet) mend() any {
	if l.side == nil {
		return result{}
	}
	return result{err: l.side.Mend()}
}

// found takes in which files are lost, and begins to write one of them anew.
func (r *Replica) found(lost []string) {
	l := &r.losing
	for _, name := range lost {
		if !slices.Contains(l.names, name) {
			r.cfg.Event("file-lost", name+" was removed, or another file was put in its place, while it is in use: it is "+
				"there as long as this process runs, and is being written anew")
		}
	}
	l.names = lost
	if len(lost) == 0 {
		l.failed, l.again = "", 0
	}
	r.tellLost()
	if len(lost) > 0 && r.blocks != nil && l.restoring == "" && r.now >= l.again && !r.ending {
		r.restore(lost[0])
	}
}

// tellLost tells everybody who wants to know what is lost, if that has changed.
func (r *Replica) tellLost() {
	l := &r.losing
	r.cfg.Lost(int64(len(l.names)))
	if text := l.text(); text != l.told {
		l.told = text
		for _, s := range r.conns {
			if s != nil && s.phase == sessionOpen {
				s.tellLost()
			}
		}
	}
}

// tellLost tells the session's engine what is lost.
func (s *session) tellLost() {
	if s.notices {
		s.send(wire.Header{Type: wire.Notice, Epoch: s.epoch}, wire.Marshal(wire.NoticeMessage{Lost: s.r.losing.told}))
	}
}

// text says what is lost, "" for nothing.
func (l *losing) text() string {
	if len(l.names) == 0 {
		return ""
	}
	text := strings.Join(l.names, ", ") + " was removed or replaced while it was in use"
	if l.failed != "" {
		return text + ", and cannot be written anew: " + l.failed
	}
	return text + "; it is being written anew"
}

// keepsChain refuses what would change the chain, or give it away, while a file has no name.
func (r *Replica) keepsChain(s *session, h *wire.Header, m *wire.ControlRequest) bool {
	if len(r.losing.names) == 0 || m.Snapshot == nil && m.Revert == nil && m.Expand == nil && m.Purge == nil &&
		m.Trim == nil && m.BeginRebuild == nil && m.FinishRebuild == nil && m.Release == nil {
		return false
	}
	r.reply(s, h, block.Invalid, wire.ControlReply{Error: "not now: " + r.losing.told})
	return true
}

// touch notes that a job has changed the head.
func (r *Replica) touch(j *job) {
	if r.losing.touched == nil || j.h.Len == 0 {
		return
	}
	for n := j.h.Off / touchedUnit; n*touchedUnit < j.h.Off+j.h.Len; n++ {
		r.losing.touched[n] = true
	}
}

// takeTouched returns what was written to since it was copied, and forgets it.
func (r *Replica) takeTouched() (out []chain.Range) {
	for _, n := range slices.Sorted(maps.Keys(r.losing.touched)) {
		out = append(out, chain.Range{Off: n * touchedUnit, Len: touchedUnit})
	}
	clear(r.losing.touched)
	return out
}

// restore writes a file anew.
func (r *Replica) restore(name string) {
	l := &r.losing
	l.restoring, l.touched, l.passes = name, nil, 0
	if head, _, _ := r.blocks.Layer(r.blocks.Layers() - 1); head == name {
		l.touched = map[int64]bool{}
	}
	r.restoring(func(w *worker) (bool, error) { return true, w.beginRestore(name) })
}

// restoring carries out a part of it, and goes on with the next one.
func (r *Replica) restoring(part func(w *worker) (bool, error)) {
	r.enqueue(&metaOp{run: func(w *worker) any {
		more, err := part(w)
		return restored{more, err}
	}, done: func(v any) {
		res := v.(restored)
		l := &r.losing
		switch {
		case res.err != nil:
			r.restoreEnded(res.err)
		case r.ending: // the end does what is left
		case res.more:
			r.restoring((*worker).copyRestore)
		case len(l.touched) > restoreRest && l.passes < restorePasses:
			l.passes++
			again := r.takeTouched()
			r.restoring(func(w *worker) (bool, error) { return true, w.restoreAgain(again) })
		default:
			r.finishRestore()
		}
	}})
}

type restored struct {
	more bool
	err  error
}

// finishRestore copies the rest and puts the copy in the file's place, while no I/O is under way.
func (r *Replica) finishRestore() {
	var rest []chain.Range
	r.enqueue(&metaOp{exclusive: true, begin: func() { rest = r.takeTouched() }, run: func(w *worker) any {
		return result{err: w.finishRestore(rest)}
	}, done: func(v any) { r.restoreEnded(v.(result).err) }})
}

func (r *Replica) restoreEnded(err error) {
	l := &r.losing
	name := l.restoring
	l.restoring, l.touched = "", nil
	if err != nil {
		l.failed, l.again = err.Error(), r.now.Add(restoreAgain)
		r.cfg.Event("file-not-restored", name+": "+l.failed)
		r.tellLost()
		return
	}
	r.cfg.Event("file-restored", name+" was written anew")
	l.failed, l.again, l.lookAt = "", 0, r.now // the next one, if there is one
}

var errNothingLost = errors.New("no file is being written anew")

func (w *worker) beginRestore(name string) (err error) {
	if w.files == nil {
		return errStandby
	}
	w.purge = purging{} // its plan is of files that may be changed no more
	w.restore, err = w.files.BeginRestore(name)
	return err
}

func (w *worker) copyRestore() (bool, error) {
	if w.restore == nil {
		return false, errNothingLost
	}
	more, err := w.restore.Copy()
	if err != nil {
		err = errors.Join(err, w.dropRestore())
	}
	return more, err
}

func (w *worker) restoreAgain(again []chain.Range) error {
	if w.restore == nil {
		return errNothingLost
	}
	w.restore.Again(again)
	return nil
}

func (w *worker) finishRestore(rest []chain.Range) error {
	if w.restore == nil {
		return errNothingLost
	}
	err := w.change(w.restore.Finish(rest))
	if err != nil {
		return errors.Join(err, w.dropRestore())
	}
	w.restore = nil
	return nil
}

func (w *worker) dropRestore() error {
	f := w.restore
	w.restore = nil
	if f == nil {
		return nil
	}
	return f.Drop()
}

// saveLost is done before the directory is closed at the end: what is lost is written anew by the
// only replica, and made empty by one of several.
func (r *Replica) saveLost(then func()) {
	others := len(r.record.Members) > 1
	var rest []chain.Range
	r.look(func() {
		if len(r.losing.names) == 0 {
			then()
			return
		}
		lost := r.losing.names
		r.enqueue(&metaOp{exclusive: true, begin: func() { rest = r.takeTouched() },
			both: func(w *worker, l *sidecarSet) any {
				return result{err: w.saveLost(l, lost, rest, others)}
			}, done: func(v any) {
				if err := v.(result).err; err != nil {
					r.cfg.Event("file-not-restored", fmt.Sprintf("%s: %v", strings.Join(lost, ", "), err))
				}
				then()
			}})
	})
}

func (w *worker) saveLost(l *sidecarSet, lost []string, rest []chain.Range, others bool) error {
	if w.files == nil {
		return nil
	}
	begun := w.restore
	w.restore = nil
	if others {
		if begun != nil {
			if err := begun.Drop(); err != nil {
				return err
			}
		}
		return w.files.Blank(l.side, lost)
	}
	for _, name := range lost {
		if err := w.change(w.files.Restore(name, begun, rest)); err != nil {
			return err
		}
	}
	return nil
}
