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

// losing looks for files that have lost their names, tells sessions of them, and has them written
// anew where this is the only replica.
type losing struct {
	r       *Replica
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

// due has the directory looked at if it is time, and says when it is next.
func (l *losing) due() clock.Ticks {
	switch {
	case l.r.blocks == nil || l.r.dead || l.r.ending:
		return clock.Never
	case l.looking:
		return clock.Never // its end makes a step
	case l.r.now < l.lookAt:
		return l.lookAt
	}
	l.look(func() {})
	return clock.Never
}

// look looks once.
func (l *losing) look(then func()) {
	l.looking = true
	l.r.ops.enqueue(&metaOp{note: (*sidecarSet).mend, done: func(v any) {
		if err := v.(result).err; err != nil {
			l.r.cfg.Event("sidecar-lost", err.Error())
		}
	}})
	l.r.ops.enqueue(&metaOp{run: (*worker).look, done: func(v any) {
		res := v.(lookedFor)
		l.looking, l.lookAt = false, l.r.now.Add(lookEvery)
		if res.err != nil && len(res.lost) == 0 {
			l.r.cfg.Event("metadata-lost", res.err.Error())
		}
		l.found(res.lost)
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
func (l *losing) found(lost []string) {
	for _, name := range lost {
		if !slices.Contains(l.names, name) {
			l.r.cfg.Event("file-lost", name+" was removed, or another file was put in its place, while it is in use: it is "+
				"there as long as this process runs, and is being written anew")
		}
	}
	l.names = lost
	if len(lost) == 0 {
		l.failed, l.again = "", 0
	}
	l.tell()
	if len(lost) > 0 && l.r.blocks != nil && l.restoring == "" && l.r.now >= l.again && !l.r.ending {
		l.restore(lost[0])
	}
}

// tell tells everybody who wants to know what is lost, if that has changed.
func (l *losing) tell() {
	l.r.cfg.Lost(int64(len(l.names)))
	if text := l.text(); text != l.told {
		l.told = text
		for _, s := range l.r.sessions.conns {
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
func (l *losing) keepsChain(s *session, h *wire.Header, m *wire.ControlRequest) bool {
	if len(l.names) == 0 || m.Snapshot == nil && m.Revert == nil && m.Expand == nil && m.Purge == nil &&
		m.Trim == nil && m.BeginRebuild == nil && m.FinishRebuild == nil && m.Release == nil {
		return false
	}
	l.r.reply(s, h, block.Invalid, wire.ControlReply{Error: "not now: " + l.told})
	return true
}

// touch notes that a job has changed the head.
func (l *losing) touch(j *job) {
	if l.touched == nil || j.h.Len == 0 {
		return
	}
	for n := j.h.Off / touchedUnit; n*touchedUnit < j.h.Off+j.h.Len; n++ {
		l.touched[n] = true
	}
}

// takeTouched returns what was written to since it was copied, and forgets it.
func (l *losing) takeTouched() (out []chain.Range) {
	for _, n := range slices.Sorted(maps.Keys(l.touched)) {
		out = append(out, chain.Range{Off: n * touchedUnit, Len: touchedUnit})
	}
	clear(l.touched)
	return out
}

// restore writes a file anew.
func (l *losing) restore(name string) {
	l.restoring, l.touched, l.passes = name, nil, 0
	if head, _, _ := l.r.blocks.Layer(l.r.blocks.Layers() - 1); head == name {
		l.touched = map[int64]bool{}
	}
	l.goOn(func(w *worker) (bool, error) { return true, w.beginRestore(name) })
}

// goOn carries out a part of it, and goes on with the next one.
func (l *losing) goOn(part func(w *worker) (bool, error)) {
	l.r.ops.enqueue(&metaOp{run: func(w *worker) any {
		more, err := part(w)
		return restored{more, err}
	}, done: func(v any) {
		res := v.(restored)
		switch {
		case res.err != nil:
			l.restoreEnded(res.err)
		case l.r.ending: // the end does what is left
		case res.more:
			l.goOn((*worker).copyRestore)
		case len(l.touched) > restoreRest && l.passes < restorePasses:
			l.passes++
			again := l.takeTouched()
			l.goOn(func(w *worker) (bool, error) { return true, w.restoreAgain(again) })
		default:
			l.finishRestore()
		}
	}})
}

type restored struct {
	more bool
	err  error
}

// finishRestore copies the rest and puts the copy in the file's place, while no I/O is under way.
func (l *losing) finishRestore() {
	var rest []chain.Range
	l.r.ops.enqueue(&metaOp{exclusive: true, begin: func() { rest = l.takeTouched() }, run: func(w *worker) any {
		return result{err: w.finishRestore(rest)}
	}, done: func(v any) { l.restoreEnded(v.(result).err) }})
}

func (l *losing) restoreEnded(err error) {
	name := l.restoring
	l.restoring, l.touched = "", nil
	if err != nil {
		l.failed, l.again = err.Error(), l.r.now.Add(restoreAgain)
		l.r.cfg.Event("file-not-restored", name+": "+l.failed)
		l.tell()
		return
	}
	l.r.cfg.Event("file-restored", name+" was written anew")
	l.failed, l.again, l.lookAt = "", 0, l.r.now // the next one, if there is one
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

// save is done before the directory is closed at the end: what is lost is written anew by the
// only replica, and made empty by one of several.
func (l *losing) save(then func()) {
	others := len(l.r.record.Members) > 1
	var rest []chain.Range
	l.look(func() {
		if len(l.names) == 0 {
			then()
			return
		}
		lost := l.names
		l.r.ops.enqueue(&metaOp{exclusive: true, begin: func() { rest = l.takeTouched() },
			both: func(w *worker, l *sidecarSet) any {
				return result{err: w.saveLost(l, lost, rest, others)}
			}, done: func(v any) {
				if err := v.(result).err; err != nil {
					l.r.cfg.Event("file-not-restored", fmt.Sprintf("%s: %v", strings.Join(lost, ", "), err))
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
