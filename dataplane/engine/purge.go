package engine

import (
	"fmt"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/wire"
)

// purges has the purge under way, one at a time.
type purges struct {
	untimed
	e *Engine
	// job is the purge under way, nil for none; again: one that the engine before was at has to be
	// begun again.
	job   *purging
	again bool
}

// purging is a purge under way. Every RW replica merges its own files, a bounded piece per request
// of the engine, so that reads and writes go on in between, and the engine can pause or give up at
// any time. A replica that joins meanwhile has to wait for the next purge. A replica whose purge
// fails keeps its chain as it is and stays: what a reader sees is the same everywhere all the time.
type purging struct {
	// waiting counts requests for pieces that are not answered.
	waiting int
}

// start begins a purge, and replies when every replica knows what goes.
func (g *purges) start(m PurgeSnapshots) {
	e := g.e
	if g.job != nil {
		if m.SkipIfRunning {
			m.Reply(nil)
			return
		}
		m.Reply(fmt.Errorf("%w: a purge is under way", ErrState))
		return
	}
	p := &purging{}
	// The snapshots that the system made are marked everywhere before any of them goes anywhere:
	// the next start must never see one that is a snapshot to some replicas and gone from others.
	e.changes.make(&change{what: "the beginning of a purge",
		request: &wire.ControlRequest{Purge: &wire.PurgeRequest{Begin: true}}, made: func() {
			g.job, g.again = p, false
			e.event("purging", "", "")
			for _, l := range e.links.all {
				if l == nil {
					continue
				}
				l.purge = nil
				if l.mode == RW {
					l.purge = &Purge{Running: true, State: "in_progress"}
				}
			}
		}, done: m.Reply})
}

// step asks every replica that waits for it for its next piece. A purge pauses while the chains are
// changed or copied, and while a drop is open: who was lost may lack the marks of what is merged.
func (g *purges) step() {
	e := g.e
	g.resume()
	p := g.job
	if p == nil || e.passing.leaving != nil || e.changes.current != "" || e.writes.frozen > 0 ||
		e.stopping != nil || e.rebuilds.job() != nil || e.members.dropOpen() {
		return
	}
	if e.fatal != "" {
		g.end(e.fatal)
		return
	}
	left := 0
	for _, l := range e.links.all {
		if l == nil || l.mode != RW || l.phase != sessionReady || l.purge == nil || !l.purge.Running {
			continue
		}
		left++
		if !l.purge.asked {
			g.piece(l)
		}
	}
	if left == 0 && p.waiting == 0 {
		g.end("")
	}
}

// resume begins the purge again that the engine before was at: what it has done is on the
// disks, and a purge that is begun again does the rest.
func (g *purges) resume() {
	e := g.e
	if !g.again || g.job != nil || e.changes.may() != nil {
		return
	}
	g.start(PurgeSnapshots{SkipIfRunning: true, Reply: func(err error) {
		if err != nil {
			g.again, e.changed = false, true
			e.event("purge-failed", "", "it was under way in the engine before and cannot go on: "+err.Error())
		}
	}})
}

// piece asks one replica for a piece.
func (g *purges) piece(l *link) {
	e := g.e
	p, s := g.job, l.purge
	p.waiting++
	s.asked = true
	l.control(&wire.ControlRequest{Purge: &wire.PurgeRequest{}}, func(code block.Code, r *wire.ControlReply) {
		p.waiting--
		s.asked = false
		switch {
		case code != block.OK || r.Purge == nil:
			s.end("error", refusal(code, r.Error).Error())
			e.event("purge-failed", l.addr, s.Error)
		case r.Purge.Done:
			s.end("complete", "")
		default:
			e.changed = e.changed || s.Progress != r.Purge.Progress
			s.Progress = r.Purge.Progress
		}
		if !s.Running {
			e.changed = true
		}
		if e.serving && (!s.Running || (r.Purge != nil && r.Purge.Changed)) {
			e.sizes.refresh()
		}
	})
}

func (p *Purge) end(state, reason string) {
	p.Running, p.State, p.Error = false, state, reason
	if reason == "" {
		p.Progress = 100
	}
}

// end ends the purge; reason says why it could not be finished.
func (g *purges) end(reason string) {
	e := g.e
	g.job = nil
	e.changed = true
	for _, l := range e.links.all {
		if l == nil || reason == "" || (l.purge != nil && !l.purge.Running) {
			continue
		}
		l.purge = &Purge{}
		l.purge.end("error", reason)
	}
	e.event("purged", "", reason)
}
