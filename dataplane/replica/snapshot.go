package replica

import (
	"errors"
	"fmt"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/chain"
	"ankole.storage/dataplane/disk"
	"ankole.storage/dataplane/wire"
)

// purging is a purge of the chain, one piece at a time. It is touched by metadata operations only,
// of which one runs at a time.
type purging struct {
	plan *chain.Purge
	// step is the one under way, if open.
	step chain.PurgeStep
	open bool
	// stale counts steps in a row for which the chain had changed.
	stale int
}

// maxStale bounds how often a purge plans again in a row: a chain cannot change that often between
// two pieces.
const maxStale = 8

// piece is what a metadata operation of a purge brings back.
type piece struct {
	reply wire.PurgeReply
	err   error
	// next is what comes next of the same piece; 0: nothing.
	next pieceNext
	// whiteouts is the page from which on the work wants to know the head's.
	whiteouts int64
}

type pieceNext uint8

const (
	// pieceWork: it is noted what the piece changes.
	pieceWork pieceNext = 1 + iota
	// pieceFinish: the step's end comes; it needs the chain for itself.
	pieceFinish
)

// purgePiece carries out one piece of a purge: beside I/O, except for the end of a step, which only
// exchanges names. What it changes is noted first, and nothing comes between: a record that was
// written there would make an account that does not know of it.
func (r *Replica) purgePiece(s *session, h *wire.Header, m *wire.PurgeRequest) {
	if m.Begin {
		r.ops.enqueue(&metaOp{s: s, run: func(w *worker) any {
			return w.beginPurge()
		}, done: func(v any) { r.purgeAnswer(s, h, v.(piece)) }})
		return
	}
	r.ops.enqueue(&metaOp{s: s, both: func(w *worker, l *sidecarSet) any { return w.purge.note(l) }, done: func(v any) {
		p := v.(piece)
		if p.next != pieceWork {
			r.purged(s, h, p)
			return
		}
		durable := r.blocks.DurableWhiteouts(p.whiteouts)
		r.ops.enqueueNext(&metaOp{s: s, run: func(w *worker) any { return w.purge.work(durable) }, done: func(v any) {
			p := v.(piece)
			if p.next != pieceFinish {
				r.purged(s, h, p)
				return
			}
			r.ops.enqueue(&metaOp{exclusive: true, s: s,
				both: func(w *worker, l *sidecarSet) any { return w.finishPurgeStep(l) },
				done: func(v any) { r.purged(s, h, v.(piece)) }})
		}})
	}})
}

// purged answers for a piece. One that has found no room waits for some that is on its way, for a
// while.
func (r *Replica) purged(s *session, h *wire.Header, p piece) {
	if errors.Is(p.err, chain.ErrNoSpace) && r.space.comes(func() {
		r.ops.enqueue(&metaOp{s: s, run: func(w *worker) any { return w.purge.waited(true) },
			done: func(v any) { r.purged(s, h, v.(piece)) }})
	}, func() {
		r.ops.enqueue(&metaOp{s: s, run: func(w *worker) any { return w.purge.waited(false) },
			done: func(v any) { r.purgeAnswer(s, h, v.(piece)) }})
	}) {
		return
	}
	r.purgeAnswer(s, h, p)
}

func (r *Replica) purgeAnswer(s *session, h *wire.Header, p piece) {
	if p.err != nil {
		r.replyErr(s, h, p.err)
		return
	}
	r.reply(s, h, block.OK, wire.ControlReply{Purge: &p.reply})
}

func (w *worker) beginPurge() piece {
	w.purge = purging{}
	plan, err := w.files.NewPurge()
	if err != nil {
		return piece{err: err}
	}
	w.purge.plan = plan
	return piece{reply: wire.PurgeReply{Changed: true, Progress: plan.Progress()}}
}

// note says what the next piece of the present step changes, or of the next one.
func (p *purging) note(l *sidecarSet) piece {
	if p.plan == nil {
		return piece{err: errNoPurge}
	}
	if !p.open {
		step, more := p.plan.Next()
		if !more {
			return p.end()
		}
		p.step, p.open = step, true
	}
	if err := p.plan.Note(l.side, &p.step); err != nil {
		return p.failed(err)
	}
	return piece{next: pieceWork, whiteouts: p.step.Whiteouts()}
}

// end ends the purge: it is done, or says why steps were left out.
func (p *purging) end() piece {
	if err := p.plan.Err(); err != nil {
		return piece{err: err} // the plan stays, for waited
	}
	p.plan = nil
	return piece{reply: wire.PurgeReply{Done: true, Progress: 100}}
}

// waited says how far the purge is, which has waited for room. again: steps for which there was
// none are tried again.
func (p *purging) waited(again bool) piece {
	if p.plan == nil {
		return piece{err: errNoPurge}
	}
	if again {
		p.plan.Retry()
	}
	return piece{reply: wire.PurgeReply{Progress: p.plan.Progress()}}
}

var errNoPurge = fmt.Errorf("%w: no purge was begun here", chain.ErrInvalid)

// work does the piece.
func (p *purging) work(durable chain.DurableWhiteouts) piece {
	done, err := p.plan.Work(&p.step, durable)
	if err != nil {
		return p.failed(err)
	}
	p.stale = 0
	res := piece{reply: wire.PurgeReply{Progress: p.plan.Progress()}}
	if done {
		res.next = pieceFinish
	}
	return res
}

// finishPurgeStep makes the step's result take effect.
func (w *worker) finishPurgeStep(l *sidecarSet) piece {
	p := &w.purge
	p.open = false
	if err := w.change(p.plan.Finish(l.side, &p.step)); err != nil {
		return p.failed(err)
	}
	return piece{reply: wire.PurgeReply{Changed: true, Progress: p.plan.Progress()}}
}

// failed gives the step up. If others can be done, or only the chain has another shape than the
// step was planned for (a snapshot was taken), the next piece plans again.
func (p *purging) failed(err error) piece {
	p.open = false
	if p.plan.Fail(&p.step, err) {
		return piece{reply: wire.PurgeReply{Progress: p.plan.Progress()}}
	}
	if p.stale++; errors.Is(err, chain.ErrInvalid) && p.stale < maxStale {
		return piece{reply: wire.PurgeReply{Progress: p.plan.Progress()}}
	}
	p.plan = nil
	return piece{err: err}
}

// revert opens the chain below the snapshot beside requests, which takes a second for a million
// pieces, and then exchanges it for the present one. Nothing comes between the two.
func (r *Replica) revert(s *session, h *wire.Header, m *wire.RevertRequest) {
	name, created := m.Name, m.Created
	var prepared *chain.Reverting
	r.ops.enqueue(&metaOp{s: s, run: func(w *worker) any {
		var err error
		prepared, err = w.files.PrepareRevert(name, created)
		return result{err: err}
	}, done: func(v any) {
		if err := v.(result).err; err != nil {
			r.replyErr(s, h, err)
			return
		}
		over := false
		// For nobody's session: what is prepared has to be given back if this one ends.
		r.ops.enqueueNext(&metaOp{exclusive: true, begin: func() {
			over = s.closing()
		}, both: func(w *worker, l *sidecarSet) any {
			if over {
				w.files.DropRevert(prepared)
				return result{err: errSessionOver}
			}
			return result{err: w.change(w.files.Revert(l.side, prepared))}
		}, done: func(v any) { r.replyErr(s, h, v.(result).err) }})
	}})
}

// errSessionOver: who has asked for an operation is gone.
var errSessionOver = errors.New("the session is over")

// errStop ends a walk through extents early.
var errStop = errors.New("stop")

// empty reports that a layer has no block.
func (w *worker) empty(file string) (bool, error) {
	err := w.files.LayerExtents(file, func(disk.Extent) error { return errStop })
	if errors.Is(err, errStop) {
		return false, nil
	}
	return err == nil, err
}
