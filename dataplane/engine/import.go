package engine

import (
	"fmt"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/frontend"
	"ankole.storage/dataplane/loop"
	"ankole.storage/dataplane/rebuild"
	"ankole.storage/dataplane/wire"
)

// An import fills an empty volume with content from outside: a clone with a snapshot of another
// volume, a restore with a backup. It goes through ordinary mirrored writes, so that everything
// that holds for those holds for it: a replica that fails is dropped and rebuilt later, dirty
// regions are marked, full disks are judged. Before the first one the head of every replica is
// marked as incomplete (chain.SetImportMark); the snapshot that ends the import takes the mark away
// in the same step. As long as it is there no frontend is served.

// origin is where the content of an import comes from. Every done is called once.
type origin interface {
	// open gets ready, at another place than before if there is one, and tells the size of the
	// content in bytes.
	open(done func(size int64, err error))
	// where names the place in use for people.
	where() string
	// list tells where there is data from off on, [start, end) in whole blocks, and where the next
	// page begins, -1 at the end.
	list(off int64, done func(ranges [][2]int64, next int64, err error))
	// read reads seg.Len bytes, whole blocks.
	read(off int64, seg loop.Seg, done func(err error))
	// hash is the hash of a range as replicas compute it.
	hash(off, n int64, done func(sum []byte, err error))
	close()
}

// Importing is the progress of an import, kept after its end.
type Importing struct {
	Running bool
	// State is "in_progress", "complete" or "error".
	State    string
	Progress int
	Error    string
	// Kind is "clone" or "restore". From is the address read from, Volume and Snapshot what is read,
	// where Snapshot is the name of a backup for a restore.
	Kind, From, Volume, Snapshot string
	// Name is the snapshot that holds the content at the end.
	Name string
	// Done and Total count bytes to copy; Sent those that were written: less where an interrupted
	// import goes on.
	Done, Total, Sent int64
	// Incomplete: the volume holds a part of the content and is served to nobody.
	Incomplete bool
	// Interrupted: the engine has found that part when it started, and nobody has asked it to go on.
	Interrupted bool
}

type importStage uint8

const (
	importOpening importStage = iota
	importPreparing
	importListing
	importCopying // and comparing
	importCommitting
)

// imports has the import under way, one at a time.
type imports struct {
	e *Engine
	// job is the import under way, nil for none; last is what is known about it or the last one.
	job  *importJob
	last *Importing
	// incomplete is what the replicas hold a part of only, nil where they do not.
	incomplete *importMark
	// back is how far the way back from it is, asking are those who wait for its end.
	back   wayBack
	asking []HeldBackup
}

// importJob is an import under way.
type importJob struct {
	copying
	origin  origin
	mark    importMark
	created string
	reply   func(error)
	status  *Importing
	stage   importStage
	// size of the content; resumed: a part of it may be there already.
	size    int64
	resumed bool
	// from is the backup that the volume holds and whose difference to this one is written, "" where
	// all of this one is; over: something else is there then, and is zeroed before; merges: snapshots
	// of earlier restores are below it.
	from         string
	over, merges bool
	// image shows where a restore writes nothing, "" for none; empty: the volume shows nothing else
	// yet, and has no snapshot.
	image string
	empty bool
	// opening: the origin is being opened, for the first time or after it failed.
	opening bool
	dead    bool
}

// reason says why nothing else can be done with the volume now.
func (i *imports) reason() error {
	switch {
	case i.job != nil:
		return fmt.Errorf("%w: the %s is being copied into this volume", ErrBusy, i.job.mark)
	case i.incomplete != nil:
		return fmt.Errorf(
			"%w: this volume holds a part of the %s only: ask for the same again to go on, or delete the volume",
			ErrState, *i.incomplete)
	}
	return nil
}

func (i *imports) start(j *importJob) {
	e := i.e
	if i.job != nil && i.job.mark.same(j.mark) {
		j.reply(nil)
		return
	}
	err := i.reason()
	if i.job == nil && i.incomplete != nil && (i.incomplete.same(j.mark) || j.mark.replaces(*i.incomplete)) {
		err = nil
	}
	if err == nil {
		err = e.passing.reason()
	}
	if err == nil {
		err = e.users.mayReplace()
	}
	switch {
	case err != nil:
	case e.purges.job != nil || e.scrubs.job != nil:
		err = fmt.Errorf("%w: a purge or a scrub is under way", ErrBusy)
	default:
		err = e.changes.mayContent()
	}
	if err != nil {
		j.reply(err)
		return
	}
	j.status = &Importing{Running: true, State: "in_progress", Kind: j.mark.Kind, Volume: j.mark.Volume,
		Snapshot: j.mark.Snapshot, Name: j.mark.Name}
	i.job, i.last, e.changed = j, j.status, true
	i.answerAsking()
	j.open()
}

// open opens the origin, again where it has failed.
func (j *importJob) open() {
	j.opening = true
	j.origin.open(func(size int64, err error) {
		j.opening = false
		switch {
		case j.dead:
		case err != nil:
			j.fail(err)
		case size > j.e.agreedSize:
			j.fail(fmt.Errorf("%w: the snapshot has %d bytes and does not fit into this volume of %d: expand it, or "+
				"make it anew", block.Invalid, size, j.e.agreedSize))
		case j.stage != importOpening && size != j.size:
			j.fail(fmt.Errorf("the snapshot has %d bytes at %s, and %d elsewhere", size, j.origin.where(), j.size))
		default:
			j.size = size
			j.status.From, j.e.changed = j.origin.where(), true
			if j.stage == importOpening {
				j.prepare()
				return
			}
			j.e.event("source-replaced", j.status.From, "the "+j.mark.String()+" goes on from there")
			if j.stage == importListing {
				j.listAll()
				return
			}
			j.more()
		}
	})
}

// lost opens another place of the origin after a request to this one has failed.
func (j *importJob) lost(err error) {
	if !j.dead && !j.opening {
		j.e.event("source-failed", j.status.From, err.Error())
		j.open()
	}
}

// answer tells the caller what became of the request.
func (j *importJob) answer(err error) {
	if j.reply != nil {
		j.reply(err)
		j.reply = nil
	}
}

// prepare looks whether the volume is empty, or holds a part of the same, or all of it.
func (j *importJob) prepare() {
	j.stage = importPreparing
	e := j.e
	e.links.describeAll(func(all []*link, views []view) {
		switch {
		case j.dead:
		case len(all) == 0:
			j.fail(fmt.Errorf("%w: no replica left", ErrState))
		case complete(views, j.mark):
			j.mark.Name = views[0].below
			j.finished("it was complete already")
		default:
			for i := range views {
				if err := j.fits(&views[i]); err != nil {
					j.fail(fmt.Errorf("replica %s: %w", all[i].addr, err))
					return
				}
			}
			if j.over && j.image != "" {
				j.fail(fmt.Errorf("%w: the backup is without what its volume reads from backing image %s, and an earlier restore "+
					"has written over that: delete the volume, and restore the backup into a new one", ErrState, j.image))
				return
			}
			if views[0].mark != "" && j.mark.Kind != KindRestore {
				j.resumed = true
				j.mark.Name = parseMark(views[0].mark).Name
			}
			j.status.Name = j.mark.Name
			j.checkName()
		}
	})
}

// checkName asks whether the snapshot at the end would be refused for its name: better now than
// then.
func (j *importJob) checkName() {
	q := &wire.ControlRequest{Check: true, Snapshot: &wire.SnapshotRequest{Name: j.mark.Name}}
	j.e.links.askAll(q, nil, func(verdicts []verdict) {
		for _, v := range verdicts {
			if isRefusal(v.err) {
				j.fail(v.err)
				return
			}
		}
		switch {
		case j.dead:
		case j.image != "" && j.empty:
			j.beginning()
		default:
			j.setMark()
		}
	})
}

// beginning takes a snapshot of a volume that shows its image and nothing else, so that an attempt
// that is cut off can be given up: what was written cannot show the image again.
func (j *importJob) beginning() {
	e := j.e
	of := importMark{Kind: j.mark.Kind, Volume: j.mark.Volume, VolumeUUID: j.mark.VolumeUUID}
	of.Name = fmt.Sprintf("restore-%x", e.cfg.Nonce()[:8])
	e.changes.make(&change{what: "the beginning of the " + j.mark.String(), between: true, check: true, own: true,
		request: &wire.ControlRequest{Snapshot: &wire.SnapshotRequest{Name: of.Name, Created: j.created,
			Labels: map[string]string{importLabel: of.text()}}},
		done: func(err error) {
			e.held.whenAgreed(func(err error) {
				if err != nil {
					j.fail(err)
				} else if !j.dead {
					j.merges = true
					j.setMark()
				}
			}, err)
		}})
}

// setMark marks every replica, and answers the caller when that is agreed: from here on only the
// whole content ends it.
func (j *importJob) setMark() {
	e := j.e
	e.users.replacing++ // also when it is cancelled meanwhile
	e.changes.make(&change{what: "the beginning of the " + j.mark.String(), between: true, own: true,
		request: &wire.ControlRequest{ImportMark: &wire.ImportMark{What: j.mark.text()}},
		made:    func() { e.imports.incomplete, e.imports.back = &j.mark, backDue },
		done: func(err error) {
			e.users.replaced()
			e.held.whenAgreed(func(err error) {
				if err != nil {
					j.fail(err)
				} else if !j.dead {
					e.event("importing", j.status.From, j.mark.String())
					j.clear()
				}
			}, err)
		}})
}

// clear zeroes what a whole restore goes over: it is marked, so that nobody reads it any more.
func (j *importJob) clear() {
	if !j.over {
		j.begun()
		return
	}
	j.e.requests.carryOut(&request{Request: frontend.Request{Kind: block.WriteZeroes, Unmap: true, Len: j.e.agreedSize},
		done: func(code block.Code) {
			switch {
			case j.dead:
			case code != block.OK:
				j.fail(fmt.Errorf("what the volume holds cannot be zeroed: %w", code))
			default:
				j.begun()
			}
		}})
}

// begun answers the caller and begins to read what is not pushed.
func (j *importJob) begun() {
	j.stage = importListing
	if j.mark.Kind == KindRestore {
		j.stage = importCopying
	}
	j.answer(nil)
	if j.stage == importListing {
		j.listAll()
	}
}

// listAll looks where the origin has data, for what there is to do and to compare at the end. The
// pages are asked for again when they are copied: all of them at once would be as large as the
// content is scattered.
func (j *importJob) listAll() {
	j.plan = rebuild.New(j.size, []rebuild.Layer{{Mode: rebuild.Copy, Size: j.size}}, false)
	j.collect(0)
}

// collect lists from off on, and then, where a part may be there, what the volume holds.
func (j *importJob) collect(off int64) {
	j.origin.list(off, func(ranges [][2]int64, next int64, err error) {
		switch {
		case j.dead:
		case err != nil:
			j.lost(err) // it lists from the beginning
		default:
			if ranges, err = j.page(off, ranges); err != nil {
				j.fail(err)
				return
			}
			for _, r := range ranges {
				j.plan.Expect(r[1] - r[0])
			}
			switch {
			case next > off:
				j.collect(next)
			case j.resumed:
				j.collectOwn(0)
			default:
				j.stage = importCopying
				j.more()
			}
		}
	})
}

// page checks a page that was asked for from off on, since what comes from another machine is not
// trusted, and returns what of it is behind that. It is compared at the end.
func (j *importJob) page(off int64, ranges [][2]int64) ([][2]int64, error) {
	var out [][2]int64
	last := int64(0)
	for _, r := range ranges {
		if r[0] < last || r[0] >= r[1] || r[1] > j.size || (r[0]|r[1])%block.Size != 0 {
			return nil, fmt.Errorf("%w: %s lists data at [%d,%d) of %d bytes", wire.ErrFrame, j.origin.where(), r[0], r[1],
				j.size)
		}
		last = r[1]
		if r[0] = max(r[0], off); r[0] < r[1] {
			out = append(out, r)
			j.plan.Differs(r[0], r[1]-r[0])
		}
	}
	return out, nil
}

// collectOwn adds what the volume holds to what is compared at the end.
func (j *importJob) collectOwn(off int64) {
	if j.e.links.mask(RW) == 0 {
		j.fail(fmt.Errorf("%w: no replica left", ErrState))
		return
	}
	j.e.links.first().control(&wire.ControlRequest{Extents: &wire.ExtentsRequest{Off: off}},
		func(code block.Code, r *wire.ControlReply) {
			switch {
			case j.dead:
			case code != block.OK || r.Extents == nil:
				j.fail(fmt.Errorf("cannot list what is there already: %w", refusal(code, r.Error)))
			case j.plan.Check(off, r.Extents.Ranges, -1) != nil:
				j.fail(fmt.Errorf("cannot list what is there already: %w", j.plan.Check(off, r.Extents.Ranges, -1)))
			default:
				for _, x := range r.Extents.Ranges {
					if x[0] < j.size {
						j.plan.Differs(x[0], min(x[1], j.size)-x[0])
					}
				}
				if next := r.Extents.Next; next > off && next < j.size {
					j.collectOwn(next)
					return
				}
				j.stage = importCopying
				j.more()
			}
		})
}

// makeDurable makes what was compared durable on every member, before any of them makes it whole: a
// start may find that one has, and that the others only have to follow (endImports).
func (j *importJob) makeDurable() {
	j.stage = importCommitting
	j.e.requests.carryOut(&request{Request: frontend.Request{Kind: block.Flush}, done: func(code block.Code) {
		switch {
		case j.dead:
		case code != block.OK:
			j.fail(fmt.Errorf("the content cannot be made durable: %w", code))
		default:
			j.commit()
		}
	}})
}

// commit takes the snapshot, which makes the content whole.
func (j *importJob) commit() {
	e := j.e
	e.changes.make(&change{what: "the end of the " + j.mark.String(), between: true, check: true, own: true,
		request: &wire.ControlRequest{Snapshot: &wire.SnapshotRequest{Name: j.mark.Name, Created: j.created,
			Labels: map[string]string{importLabel: j.mark.text()}}},
		made: func() { e.imports.incomplete = nil; e.sizes.refresh() },
		done: func(err error) {
			e.held.whenAgreed(func(err error) {
				if err != nil {
					j.fail(err)
				} else if !j.dead {
					j.finished(fmt.Sprintf("%d bytes written of %d", j.status.Sent, j.status.Total))
				}
			}, err)
		}})
}

func (j *importJob) finished(text string) {
	j.status.Name, j.status.Progress = j.mark.Name, 100
	j.end("complete", "")
	j.e.event("imported", j.status.From, j.mark.String()+": "+text)
	j.answer(nil)
	if j.merges {
		j.e.purges.mergeRestored()
	}
}

// fail ends the import; what was copied stays, marked.
func (j *importJob) fail(err error) {
	if j.dead {
		return
	}
	j.end("error", err.Error())
	j.e.event("import-failed", j.status.From, j.mark.String()+": "+err.Error())
	j.answer(err)
}

func (j *importJob) end(state, reason string) {
	j.dead = true
	j.e.imports.job, j.e.changed = nil, true
	j.status.Running, j.status.State, j.status.Error = false, state, reason
	j.origin.close()
}

// write makes a mirrored write of the engine's own; done is called when it is acknowledged. The
// buffer stays the caller's.
func (q *requests) write(off int64, seg loop.Seg, done func(code block.Code)) {
	q.carryOut(&request{Request: frontend.Request{Kind: block.Write, Off: off, Len: int64(seg.Len), Buf: seg.Buf},
		done: done})
}

// found takes over what a start finds: an import that was interrupted, or one that had ended.
func (i *imports) found(v *view) {
	i.e.changed = true
	if v.mark == "" {
		if v.label != "" {
			i.last = parseMark(v.label).whole()
		}
		return
	}
	m := parseMark(v.mark)
	i.incomplete, i.last = &m, m.importing("error")
	i.last.Error, i.last.Interrupted = "it was interrupted; ask for the same again to go on", true
	i.e.event("incomplete", "", "the volume holds a part of the "+m.String())
}
