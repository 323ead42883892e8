package engine

import "ankole.storage/dataplane/clock"

// Process or machine may stand still: SIGSTOP, a paused virtual machine, a scheduler that runs
// others. Nothing was received meanwhile, which is no failure of a replica. What has arrived is
// handed over before time has passed (loop.Core), so whoever has answered counts as heard. But a
// replica on the same machine stood still too, and what was on its way to this machine is sent
// again only now: everybody whose answer is due gets a moment to be heard before it is dropped.

const (
	// standstillParts: a step that comes later than it was wanted by this part of the replica
	// timeout follows a standstill; a machine that is merely busy is late by much less.
	standstillParts = 8
	// graceParts is which part of the replica timeout others have left at least after one.
	graceParts = 4
)

// standstill notices that the engine stood still.
type standstill struct {
	untimed
	e *Engine
	// wakeAt is when the last step wanted the next one at the latest, nextGrace when a standstill is
	// allowed for again, last when the engine stood still last.
	wakeAt, nextGrace, last clock.Ticks
}

// step gives everybody who owes an answer the moment. Once within a replica timeout: an
// engine that stands still again and again drops a dead replica all the same.
func (k *standstill) step() {
	e := k.e
	timeout := e.cfg.ReplicaTimeout
	if k.wakeAt == clock.Never || e.now.Sub(k.wakeAt) < timeout/standstillParts {
		return
	}
	k.last = e.now
	if e.now < k.nextGrace {
		return
	}
	k.nextGrace = e.now.Add(timeout)
	until := e.now.Add(timeout / graceParts)
	for _, l := range e.links.all {
		if d := l.deadline(); d < until {
			l.heard = l.heard.Add(until.Sub(d))
		}
	}
	for _, s := range e.sources.all {
		if d := s.deadline(); d < until {
			s.heard = s.heard.Add(until.Sub(d))
		}
	}
	if e.gathering.until < until {
		e.gathering.until = until
	}
}
