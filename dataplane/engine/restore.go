package engine

import (
	"fmt"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/loop"
)

// A restore is an import whose content comes from outside of all volumes, and is pushed: who reads
// the backup checks it and has it written here, by ordinary mirrored writes. Mark, refusals, the
// end by a snapshot and what a start finds are those of a clone.

type (
	// BeginRestore opens this volume, which has to be empty and without a frontend, for the content
	// of a backup. Reply comes when RestoreIO is taken, or with whole set when an earlier restore of
	// the same backup is complete already. One that was interrupted is begun again, and writes
	// everything again.
	BeginRestore struct {
		// Backup and Volume are names in a store; Store tells stores apart, without credentials.
		Backup, Volume, Store string
		// Size of the backup's volume, in bytes.
		Size int64
		// Name is the snapshot that holds the content at the end, Created the time to record with it.
		Name, Created string
		Reply         func(whole bool, err error)
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

func (e *Engine) beginRestore(m BeginRestore) {
	what := importMark{Kind: KindRestore, Volume: m.Volume, VolumeUUID: m.Store, Snapshot: m.Backup, Name: m.Name}
	switch {
	case m.Backup == "" || m.Volume == "" || m.Size <= 0:
		m.Reply(false, fmt.Errorf("%w: a restore of backup %q of volume %q with %d bytes", block.Invalid, m.Backup,
			m.Volume, m.Size))
		return
	case e.importing != nil && e.importing.mark.same(what):
		m.Reply(false, fmt.Errorf("%w: the %s is already in progress", ErrBusy, what))
		return
	}
	j := &importJob{origin: &pushed{size: m.Size}, mark: what, created: m.Created}
	j.reply = func(err error) { m.Reply(err == nil && j.dead, err) }
	j.copying = copying{e: e, work: j}
	e.startImport(j)
}

// restoring returns the restore that takes writes, nil if there is none.
func (e *Engine) restoring() *importJob {
	if j := e.importing; j != nil && j.mark.Kind == KindRestore && j.stage == importCopying {
		return j
	}
	return nil
}

func (e *Engine) restoreIO(m RestoreIO) {
	switch j := e.restoring(); {
	case j == nil || e.fatal != "" || e.stopping != nil:
		m.Done(block.Unavailable)
	case !e.wellFormed(&m.Outside) || m.Request.Kind == block.Read || m.Request.Off > j.size-m.Request.Len:
		m.Done(block.Invalid)
	default:
		j.status.Sent += m.Request.Len
		e.takeIn(m.Outside)
	}
}

func (e *Engine) restoreProgress(m RestoreProgress) {
	if j := e.restoring(); j != nil && m.Total > 0 {
		// The last percent is what makes the content durable and whole.
		j.progress(int(99*m.Done/m.Total), j.status.Sent, j.size)
	}
}

func (e *Engine) endRestore(m EndRestore) {
	j := e.restoring()
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
