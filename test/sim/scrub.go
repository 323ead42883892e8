package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"ankole.storage/dataplane/engine"
)

func init() {
	Chores = append(Chores, Chore{"scrub", 2, (*run).scrubSnapshots})
}

// scrubSnapshots begins a scrub, which goes on when the operator does something else. Some are
// cancelled.
func (r *run) scrubSnapshots(rnd *rand.Rand, done func()) bool {
	m := engine.Scrub{Mode: pick(rnd, engine.ScrubEnabled, engine.ScrubEnabled, engine.ScrubFastCheck),
		BytesPerSecond: 1 << (18 + rnd.IntN(10))}
	if !r.scrub(m, done) {
		return false
	}
	if e := r.v.Current; rnd.IntN(4) == 0 {
		r.w.After(between(rnd, 0, time.Second), func() {
			if r.faulting {
				e.Post(engine.CancelScrub{Reply: func(error) {}})
			}
		})
	}
	return true
}

func (r *run) scrub(m engine.Scrub, done func()) bool {
	return r.operate("scrub", done, func(reply func(error)) any {
		m.At, m.Reply = created, reply
		return m
	}, func(err error) {
		if err == nil {
			r.scrubOf = r.rotten
		}
	})
}

// scrubbed looks whether a scrub did what it says.
func (r *run) scrubbed(_ *EngineProcess, s *engine.Scrubbing) {
	if rnd := r.perish; rnd != nil && r.faulting && len(r.rotten) == 0 && s.State == "complete" && r.decay(rnd, true) {
		r.faults["rot"]++
		return
	}
	if !slices.Equal(r.scrubOf, r.rotten) || s.State != "complete" || s.Mode != engine.ScrubEnabled || s.Unrepaired > 0 {
		return
	}
	for _, d := range r.rotten {
		if d.there() {
			r.check.Fail(-1, "a scrub is complete, and snapshot %s is still rotten at %d on %s", d.snapshot, d.off, d.x.Name)
			return
		}
		r.v.log("rot of snapshot %s on %s is repaired", d.snapshot, d.x.Name)
	}
	r.rotten = nil
}

// checkScrub lets a scrub put right what has rotted, then lets something rot that users of the
// volume could read, and scrubs again: nobody may read it afterwards, wherever it is read.
func (r *run) checkScrub() error {
	if r.faults["rot"] == 0 {
		return nil
	}
	if err := r.scrubAll(); err != nil {
		return err
	}
	if !r.decay(stream(r.plan.Seed, 4), false) {
		return nil
	}
	if err := r.scrubAll(); err != nil {
		return err
	}
	for range r.v.Replicas {
		if err := r.checkContent(); err != nil {
			return err
		}
	}
	return nil
}

// scrubTime bounds a scrub of a small volume, and what is left of one that was begun before.
const scrubTime = 10 * time.Minute

// scrubAll scrubs every snapshot, and finds nothing that it cannot put right.
func (r *run) scrubAll() error {
	e := r.v.Current
	idle := func() bool { return e.state.Scrub == nil || !e.state.Scrub.Running }
	e.Post(engine.CancelScrub{Reply: func(error) {}}) // one that the operator has begun may be slow
	if !r.w.Until(scrubTime, idle) {
		return fmt.Errorf("a scrub does not end in %s", scrubTime)
	}
	done := false
	if !r.scrub(engine.Scrub{Mode: engine.ScrubEnabled}, func() {
		done = true
	}) || !r.w.Until(scrubTime, func() bool { return done && idle() }) {
		return fmt.Errorf("a scrub of a healthy volume does not begin, or does not end in %s", scrubTime)
	}
	s := e.state.Scrub
	if s == nil || s.State != "complete" || s.Unrepaired > 0 {
		return fmt.Errorf("a scrub of a healthy volume: %+v", s)
	}
	for _, d := range r.rotten {
		if d.there() {
			return fmt.Errorf("snapshot %s is still rotten at %d on %s", d.snapshot, d.off, d.x.Name)
		}
	}
	r.rotten = nil
	return r.check.Err
}
