package engine

import (
	"fmt"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/loop"
	"ankole.storage/dataplane/wire"
)

// A restore is an import whose content comes from outside of all volumes, and is pushed: who reads
// the backup checks it and has it written here, by ordinary mirrored writes. Mark, refusals, the
// end by a snapshot and what a start finds are those of a clone.

type (
	// BeginRestore opens this volume, which has to be without a frontend, for the content of a
	// backup. It is empty, or holds nothing but a backup of the same volume, or a part of one. Reply
	// comes when RestoreIO is taken, or with whole set when an earlier restore of the same backup is
	// complete already. Without From the volume reads zero then, whatever an earlier restore has
	// left, or its image, which ErrState says cannot be had where one has left a backup. A part of one
	// is given up before (goBack).
	BeginRestore struct {
		// Backup and Volume are names in a store; Store tells stores apart, without credentials.
		Backup, Volume, Store string
		// BackupCreated is when the backup was made, as HeldBackup is to tell it.
		BackupCreated string
		// From is the backup that HeldBackup has told of, to which only the difference is written; "":
		// all of the backup is.
		From string
		// Size of the backup's volume, in bytes.
		Size int64
		// Image is the backing image below both volumes that shows where nothing is written; "": that is
		// to read zero.
		Image string
		// Name is the snapshot that holds the content at the end, Created the time to record with it.
		Name, Created string
		Reply         func(whole bool, err error)
	}
	// HeldBackup asks which backup of a volume this one holds, on every replica and unchanged since:
	// the base of BeginRestore.From. "": none that is certain. Where a restore was cut off the answer
	// comes when the volume holds again what it held before.
	HeldBackup struct {
		Volume, Store string
		Reply         func(backup, created string, err error)
	}
	// RestoreIO is a write of the restore under way. Unavailable: none is.
	RestoreIO struct{ Outside }
	// RestoreProgress tells how many parts of all are done.
	RestoreProgress struct{ Done, Total int64 }
	// EndRestore ends it: whole, or for a reason, with what was written staying, marked. Reply gets
	// what became of it.
	EndRestore struct {
		Reason error
		Reply  func(error)
	}
)

// KindRestore is the kind of a restore's mark.
const KindRestore = "restore"

// pushed is the origin of a restore: there is nothing to be read from.
type pushed struct{ size int64 }

func (p *pushed) open(done func(size int64, err error)) { done(p.size, nil) }

func (p *pushed) where() string { return "" }

func (p *pushed) list(_ int64, done func([][2]int64, int64, error)) { done(nil, -1, nil) }

func (p *pushed) read(_ int64, _ loop.Seg, done func(error)) { done(block.Invalid) }

func (p *pushed) hash(_, _ int64, done func([]byte, error)) { done(nil, block.Invalid) }

func (p *pushed) close() {}

func (i *imports) beginRestore(m BeginRestore) {
	what := importMark{Kind: KindRestore, Volume: m.Volume, VolumeUUID: m.Store, Snapshot: m.Backup, Name: m.Name,
		Created: m.BackupCreated}
	switch {
	case m.Backup == "" || m.Volume == "" || m.Size <= 0:
		m.Reply(false, fmt.Errorf("%w: a restore of backup %q of volume %q with %d bytes", block.Invalid, m.Backup,
			m.Volume, m.Size))
		return
	case i.job != nil && i.job.mark.same(what):
		m.Reply(false, fmt.Errorf("%w: the %s is already in progress", ErrBusy, what))
		return
	}
	j := &importJob{origin: &pushed{size: m.Size}, mark: what, created: m.Created, from: m.From, image: m.Image}
	j.reply = func(err error) { m.Reply(err == nil && j.dead, err) }
	j.copying = copying{e: i.e, work: j}
	i.start(j)
}

func (i *imports) heldBackup(m HeldBackup) {
	e := i.e
	if err := e.unavailable(); err != nil {
		m.Reply("", "", err)
		return
	}
	if i.goesBack() {
		i.asking = append(i.asking, m)
		return
	}
	e.links.describeAll(func(all []*link, views []view) {
		if len(all) == 0 {
			m.Reply("", "", e.nobodyToAsk())
			return
		}
		h, _ := views[0].holds()
		if !complete(views, h) || !h.replaces(importMark{Kind: KindRestore, Volume: m.Volume, VolumeUUID: m.Store}) {
			h = importMark{}
		}
		m.Reply(h.Snapshot, h.Created, nil)
	})
}

// mergeRestored has the snapshots merged that earlier restores have left below the one that has
// ended; the next restore waits for it.
func (g *purges) mergeRestored() {
	g.start(PurgeSnapshots{SkipIfRunning: true, Reply: func(err error) {
		if err != nil { // the end of the next restore merges them
			g.e.event("purge-failed", "", "snapshots of earlier restores stay: "+err.Error())
		}
	}})
}

// restoring returns the restore that takes writes, nil if there is none.
func (i *imports) restoring() *importJob {
	if j := i.job; j != nil && j.mark.Kind == KindRestore && j.stage == importCopying {
		return j
	}
	return nil
}

func (i *imports) restoreIO(m RestoreIO) {
	e := i.e
	switch j := i.restoring(); {
	case j == nil || e.fatal != "" || e.stopping != nil:
		m.Done(block.Unavailable)
	case !e.requests.wellFormed(&m.Outside) || m.Request.Kind == block.Read || m.Request.Off > j.size-m.Request.Len:
		m.Done(block.Invalid)
	default:
		j.status.Sent += m.Request.Len
		e.requests.takeIn(m.Outside)
	}
}

func (i *imports) restoreProgress(m RestoreProgress) {
	if j := i.restoring(); j != nil && m.Total > 0 {
		// The last percent is what makes the content durable and whole.
		j.progress(int(99*m.Done/m.Total), j.status.Sent, j.size)
	}
}

func (i *imports) endRestore(m EndRestore) {
	j := i.restoring()
	if j == nil {
		m.Reply(fmt.Errorf("%w: no restore is under way", ErrNotFound))
		return
	}
	j.reply = m.Reply
	if m.Reason != nil {
		j.fail(m.Reason)
		return
	}
	j.makeDurable()
}

// wayBack is how far the volume has come that is to hold again what it held before a restore.
type wayBack uint8

const (
	backDue wayBack = iota
	backUnderWay
	backOver
)

// goesBack: a restore was cut off, and what it has written is to be given up.
func (i *imports) goesBack() bool {
	return i.job == nil && i.incomplete != nil && i.incomplete.Kind == KindRestore && i.back != backOver
}

// goBack gives up what a restore has written that was cut off, where it began on a backup that the
// volume held, or on nothing (beginning): every replica takes a new head for the one that is
// marked. One that has is not marked any more, so a start that finds some of them marks them again
// (spreadMarks), and goes back with all.
//
// A volume that held another backup can be used, and follow the next one by what differs, when the
// store is gone in the middle of a step. Where nothing is below the part it stays.
func (i *imports) goBack() {
	e := i.e
	if !i.goesBack() || i.back != backDue || e.passing.reason() != nil || e.users.mayReplace() != nil ||
		e.changes.mayContent() != nil {
		return
	}
	i.back = backUnderWay
	e.links.describeAll(func(all []*link, views []view) {
		switch {
		case !i.goesBack() || len(all) == 0 || e.changes.mayContent() != nil: // an import may have begun
			i.back = backDue
		default:
			held, to, ok := heldBefore(views, *i.incomplete)
			if !ok {
				i.wentBack()
				return
			}
			i.revertTo(held, to, views[0].created)
		}
	})
}

// heldBefore is what was whole before a restore began, and the snapshot that has it.
func heldBefore(views []view, part importMark) (held importMark, snapshot string, ok bool) {
	for n := range views {
		v := &views[n]
		h := parseMark(v.label)
		if v.mark == "" || v.label == "" || !part.replaces(h) || n > 0 && (v.below != snapshot || !h.same(held)) {
			return held, "", false
		}
		held, snapshot = h, v.below
	}
	return held, snapshot, true
}

func (i *imports) revertTo(held importMark, snapshot, created string) {
	e := i.e
	e.users.replacing++
	e.changes.make(&change{what: "the way back from a part of the " + i.incomplete.String(), between: true, check: true,
		own:     true,
		request: &wire.ControlRequest{Revert: &wire.RevertRequest{Name: snapshot, Created: created}},
		made:    func() { i.incomplete = nil; e.sizes.refresh() },
		done: func(err error) {
			e.users.replaced()
			e.held.whenAgreed(func(err error) {
				if err != nil {
					e.event("went-not-back", "", "a part of a restore stays: "+err.Error())
				} else {
					e.event("went-back", "", "the volume holds what it held before: "+held.held())
					i.foundAfter(held)
				}
				i.wentBack()
			}, err)
		}})
}

// wentBack ends the way back, or gives it up.
func (i *imports) wentBack() {
	i.back, i.e.changed = backOver, true
	i.answerAsking()
}

// answerAsking answers who has waited for the end of the way back.
func (i *imports) answerAsking() {
	asking := i.asking
	i.asking = nil
	for _, m := range asking {
		i.heldBackup(m)
	}
}

// foundAfter tells what the volume holds in the place of what its start has found. What this
// process knows of its own attempt stays.
func (i *imports) foundAfter(held importMark) {
	if i.last != nil && i.last.Interrupted {
		i.last = held.whole()
	}
}
