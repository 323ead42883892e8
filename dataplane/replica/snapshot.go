package replica

import (
	"errors"
	"fmt"

	"ankole.storage/block"
	"ankole.storage/dataplane/chain"
	"ankole.storage/dataplane/wire"
	"ankole.storage/disk"
)

// removeSnapshot marks a snapshot as removed.
func (r *Replica) removeSnapshot(name string) error {
	if name == chain.HeadName {
		return fmt.Errorf("%w: the head is no snapshot and cannot be removed", chain.ErrInvalid)
	}
	return r.chain.MarkRemoved(name)
}

// check tells whether a change would be refused.
func (r *Replica) check(m *wire.ControlRequest) error {
	switch {
	case m.Snapshot != nil:
		return r.chain.CheckSnapshot(m.Snapshot.Name)
	case m.Revert != nil:
		return r.chain.CheckRevert(m.Revert.Name)
	case m.Expand != nil:
		return r.chain.CheckExpand(m.Expand.Size)
	}
	return nil
}

// purging is a purge of the chain, one piece at a time. It is touched by metadata operations only, of which one runs at a time.
type purging struct {
	plan *chain.Purge
	// step is the one under way, if open.
	step chain.PurgeStep
	open bool
	// stale counts steps in a row for which the chain had changed.
	stale int
}

// maxStale bounds how often a purge plans again in a row: a chain cannot change that often between two pieces.
const maxStale = 8

// piece is what a metadata operation of a purge brings back.
type piece struct {
	reply wire.PurgeReply
	err   error
	// finish: the step's end comes next; it needs the chain for itself.
	finish bool
}

// purgePiece carries out one piece of a purge: beside I/O, except for the end of a step, which only exchanges names.
func (r *Replica) purgePiece(s *session, h *wire.Header, m *wire.PurgeRequest) {
	begin := m.Begin
	r.enqueue(&metaOp{s: s, run: func() any {
		if begin {
			return r.beginPurge()
		}
		return r.purge.work()
	}, done: func(v any) {
		p := v.(piece)
		if !p.finish {
			r.purged(s, h, p)
			return
		}
		r.enqueue(&metaOp{exclusive: true, s: s, run: func() any { return r.purge.finish() },
			done: func(v any) { r.purged(s, h, v.(piece)) }})
	}})
}

func (r *Replica) purged(s *session, h *wire.Header, p piece) {
	if p.err != nil {
		r.replyErr(s, h, p.err)
		return
	}
	r.reply(s, h, block.OK, wire.ControlReply{Purge: &p.reply})
}

func (r *Replica) beginPurge() piece {
	r.purge = purging{}
	plan, err := r.chain.NewPurge()
	if err != nil {
		return piece{err: err}
	}
	r.purge.plan = plan
	return piece{reply: wire.PurgeReply{Changed: true, Progress: plan.Progress()}}
}

// work does a bounded piece of the present step, or begins the next one.
func (p *purging) work() piece {
	if p.plan == nil {
		return piece{err: fmt.Errorf("%w: no purge was begun here", chain.ErrInvalid)}
	}
	if !p.open {
		step, more := p.plan.Next()
		if !more {
			p.plan = nil
			return piece{reply: wire.PurgeReply{Done: true, Progress: 100}}
		}
		p.step, p.open = step, true
	}
	done, err := p.plan.Work(&p.step)
	if err != nil {
		return p.failed(err)
	}
	p.stale = 0
	return piece{reply: wire.PurgeReply{Progress: p.plan.Progress()}, finish: done}
}

// finish makes the step's result take effect.
func (p *purging) finish() piece {
	p.open = false
	if err := p.plan.Finish(&p.step); err != nil {
		return p.failed(err)
	}
	return piece{reply: wire.PurgeReply{Changed: true, Progress: p.plan.Progress()}}
}

// failed gives the step up. If only the chain has another shape than the step was planned for (a snapshot was taken), the next
// piece plans again.
func (p *purging) failed(err error) piece {
	p.open = false
	if p.stale++; errors.Is(err, chain.ErrInvalid) && p.stale < maxStale {
		return piece{reply: wire.PurgeReply{Progress: p.plan.Progress()}}
	}
	p.plan = nil
	return piece{err: err}
}

// errStop ends a walk through extents early.
var errStop = errors.New("stop")

// empty reports that a layer has no block.
func (r *Replica) empty(file string) (bool, error) {
	err := r.chain.LayerExtents(file, func(disk.Extent) error { return errStop })
	if errors.Is(err, errStop) {
		return false, nil
	}
	return err == nil, err
}
