package engine

import (
	"bytes"
	"encoding/json"
	"fmt"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/clock"
	"ankole.storage/dataplane/loop"
	"ankole.storage/dataplane/rebuild"
	"ankole.storage/dataplane/wire"
)

// importMark is what the mark of an incomplete head, and the label of the snapshot that it becomes,
// say: what is brought in, and the name of that snapshot.
type importMark struct {
	Kind       string `json:"kind"`
	Volume     string `json:"volume"`
	VolumeUUID string `json:"volumeUUID"`
	Snapshot   string `json:"snapshot"`
	Name       string `json:"name"`
	// Created is when a backup that is restored was made: another one can get its name.
	Created string `json:"created,omitempty"`
}

// importLabel is the label that package chain gives a marked head; the finished snapshot keeps it.
const importLabel = "ankole-import"

func (m importMark) text() string {
	p, err := json.Marshal(m)
	if err != nil {
		panic("engine: mark cannot be encoded: " + err.Error()) // plain strings
	}
	return string(p)
}

func parseMark(text string) (m importMark) {
	if json.Unmarshal([]byte(text), &m) != nil {
		return importMark{Kind: "import", Snapshot: text}
	}
	return m
}

// same reports whether two marks are about the same content.
func (m importMark) same(o importMark) bool {
	return m.Kind == o.Kind && m.VolumeUUID == o.VolumeUUID && m.Volume == o.Volume && m.Snapshot == o.Snapshot
}

// replaces reports whether m may go over a part, or the whole, of o: nobody has written to a volume
// that holds either, and every backup of the same volume is as good as another to whoever follows
// them.
func (m importMark) replaces(o importMark) bool {
	return m.Kind == KindRestore && o.Kind == KindRestore && m.VolumeUUID == o.VolumeUUID && m.Volume == o.Volume
}

// String names the content for people.
func (m importMark) String() string {
	if m.Kind == KindRestore {
		return fmt.Sprintf("restore of backup %s of volume %s", m.Snapshot, m.Volume)
	}
	return fmt.Sprintf("%s of snapshot %s of volume %s", m.Kind, m.Snapshot, m.Volume)
}

// held names for people what a volume holds.
func (m importMark) held() string {
	if m.Snapshot == "" {
		return "nothing"
	}
	return fmt.Sprintf("backup %s of volume %s", m.Snapshot, m.Volume)
}

// importing is what is told of an import.
func (m importMark) importing(state string) *Importing {
	return &Importing{State: state, Kind: m.Kind, Volume: m.Volume, Snapshot: m.Snapshot, Name: m.Name}
}

// whole is what is told of an import that has ended well; nil where it is the beginning of one.
func (m importMark) whole() *Importing {
	if m.Snapshot == "" {
		return nil
	}
	i := m.importing("complete")
	i.Progress = 100
	return i
}

// complete reports that an earlier import of the same has ended well, and nothing has become of the
// volume since.
func complete(views []view, m importMark) bool {
	for i := range views {
		if h, ok := views[i].holds(); !ok || !h.same(m) {
			return false
		}
	}
	return true
}

// holds is the import that has ended well in a chain, if nothing has become of it since.
func (v *view) holds() (importMark, bool) {
	return parseMark(v.label), v.mark == "" && v.label != "" && v.headEmpty
}

// fits is an error where a replica holds what the import must not go over, and notes what it may.
func (j *importJob) fits(v *view) error {
	h, whole := v.holds()
	j.merges = j.merges || len(v.known) > 0
	switch {
	case j.from != "":
		if was := j.mark; !whole || !h.replaces(was) || h.Snapshot != j.from {
			return fmt.Errorf("%w: it does not hold backup %s of volume %s; ask again", ErrBusy, j.from, was.Volume)
		}
		return nil
	case whole && j.mark.replaces(h):
		j.over = j.over || h.Snapshot != ""
		return nil
	case v.mark != "" && j.mark.replaces(parseMark(v.mark)):
		j.over = true
		return nil
	}
	j.empty = len(v.known) == 0 && v.mark == ""
	return fillable(v, j.mark)
}

// fillable is an error where a replica holds something of its own.
func fillable(v *view, m importMark) error {
	switch {
	case len(v.known) > 0:
		return fmt.Errorf("%w: the volume has %d snapshots; content from outside goes into an empty volume", ErrState,
			len(v.known))
	case v.mark != "" && !parseMark(v.mark).same(m):
		return fmt.Errorf("%w: the volume holds a part of the %s", ErrState, parseMark(v.mark))
	case v.mark == "" && !v.headEmpty:
		return fmt.Errorf("%w: the volume is not empty; content from outside goes into an empty volume", ErrState)
	}
	return nil
}

// width implements copyWork. Nobody else uses the volume.
func (j *importJob) width() int {
	if j.dead || j.opening || j.stage != importCopying || j.e.links.mask(RW) == 0 {
		return 0
	}
	return copyWidth
}

// progress implements copyWork.
func (j *importJob) progress(percent int, done, total int64) {
	j.e.changed = j.e.changed || percent != j.status.Progress
	j.status.Progress, j.status.Done, j.status.Total = percent, done, total
}

// step goes on: the budget may have left room, the engine may have come to its end.
func (i *imports) step() {
	e := i.e
	j := i.job
	switch {
	case j == nil:
		i.goBack()
	case e.fatal != "":
		j.fail(fmt.Errorf("%w: %s", ErrState, e.fatal))
	case e.stopping != nil:
		j.fail(fmt.Errorf("%w: the engine is shutting down", ErrState))
	default:
		j.more()
	}
}

// due is when the budget lets the import go on.
func (i *imports) due() clock.Ticks {
	if i.job == nil {
		return clock.Never
	}
	return i.job.due()
}

// list implements copyWork.
func (j *importJob) list(_ uint32, off int64, _ bool) {
	j.origin.list(off, func(ranges [][2]int64, next int64, err error) {
		if err == nil && !j.dead {
			if next <= off || next >= j.size {
				next = -1
			}
			if ranges, err = j.page(off, ranges); err == nil {
				err = j.plan.Check(off, ranges, next)
			}
			if err != nil {
				j.fail(err)
			}
		} else if err != nil {
			j.lost(err) // before it is listed again: not by the same place
		}
		if !j.dead {
			j.listed(ranges, next, err == nil)
		}
	})
}

// bring implements copyWork. Where an interrupted import goes on it looks first whether the piece
// is there.
func (j *importJob) bring(p rebuild.Piece) {
	if !j.resumed {
		j.transfer(p)
		return
	}
	j.compare(p.Off, p.Len, func(told, differ, _ uint32, err error) {
		switch {
		case err != nil:
			j.lost(err)
			j.brought(p, false)
		case told != 0 && differ == 0:
			j.brought(p, true)
		default:
			j.transfer(p)
		}
	})
}

func (j *importJob) transfer(p rebuild.Piece) {
	j.e.memory.buffer(&j.e.memory.imports, p.Len, func(seg loop.Seg) { j.fetch(p, seg) })
}

// fetch reads a piece and writes it.
func (j *importJob) fetch(p rebuild.Piece, seg loop.Seg) {
	e, b := j.e, seg.Buf
	if j.dead {
		e.arena.Release(b)
		j.brought(p, false)
		return
	}
	j.paced(p.Len)
	j.origin.read(p.Off, seg, func(err error) {
		if err != nil || j.dead {
			e.arena.Release(b)
			j.lost(err) // before the piece is handed out again: not to the same place
			j.brought(p, false)
			return
		}
		e.requests.write(p.Off, seg, func(code block.Code) {
			e.arena.Release(b)
			switch {
			case code == block.OK:
				j.status.Sent += p.Len
			case code == block.NoSpace:
				j.fail(fmt.Errorf("%w: no replica of this volume has room for the content; make room and ask for the "+
					"same again", code))
			default:
				j.fail(fmt.Errorf("write at %d: %w", p.Off, code))
			}
			j.brought(p, code == block.OK)
		})
	})
}

// compare asks origin and replicas for the hash of a range. done gets the bits of the replicas that
// told theirs, of those whose is another one, and of those that cannot read it; an error is the
// origin's.
func (j *importJob) compare(off, n int64, done func(told, differ, unread uint32, err error)) {
	e := j.e
	var want []byte
	var unread uint32
	var failed error
	var got map[uint32][]byte
	left := 2
	end := func() {
		if left--; left > 0 {
			return
		}
		var told, differ uint32
		for bit, sum := range got {
			told |= bit
			if !bytes.Equal(sum, want) {
				differ |= bit
			}
		}
		done(told, differ, unread, failed)
	}
	t := e.tasks.take(wire.Hash)
	t.off, t.n = off, n
	e.tasks.askHashes(t, e.links.mask(RW), func(t *task, sums map[uint32][]byte) {
		unread = t.ioErrors
		e.tasks.release(t)
		got = sums
		end()
	})
	j.origin.hash(off, n, func(sum []byte, err error) {
		want, failed = sum, err
		end()
	})
}

// verified implements copyWork.
func (j *importJob) verified() { j.makeDurable() }

// verify implements copyWork. It compares what every replica has with the origin. One that differs
// from the others is dropped, as one that has failed; if none has what it should, the import has
// failed.
func (j *importJob) verify(off, n int64) {
	j.compare(off, n, func(told, differ, unread uint32, err error) {
		told &= j.e.links.mask(RW)
		// Without an answer it is asked again: a replica was lost.
		done := err == nil && told != 0
		switch {
		case j.dead:
		case told == 0 && unread&j.e.links.mask(RW) != 0:
			j.fail(fmt.Errorf("%w: content at %d cannot be read from any replica after the copy", block.IOError, off))
		case !done:
		case told&differ == told:
			j.fail(fmt.Errorf("%w: content at %d differs from that of %s after the copy", block.Corrupt, off, j.origin.where()))
		default:
			j.e.links.drop(told&differ, fmt.Sprintf("content at %d differs from the %s", off, j.mark))
		}
		if err != nil {
			j.lost(err)
		}
		j.compared(off, n, done)
	})
}
