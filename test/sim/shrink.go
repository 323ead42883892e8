package sim

import (
	"maps"
	"slices"
)

// Shrink makes a failing plan shorter: it leaves out faults, then what makes the world uneven, then
// requests, as long as the same kind of violation remains. It plays at most so many plans, and
// stops early when stop says so.
func (p Plan) Shrink(plays int, stop func() bool) Result {
	s := &shrinker{best: p.Play(), left: plays, stop: stop}
	if s.best.Err == nil {
		return s.best
	}
	s.faults()
	s.even()
	s.requests()
	return s.best
}

// shrinker keeps the shortest plan that still fails.
type shrinker struct {
	best Result
	left int
	stop func() bool
}

// try plays a plan and keeps it if it fails like the best one: about data, or about something else.
func (s *shrinker) try(p Plan) bool {
	if s.left <= 0 || s.stop() {
		return false
	}
	s.left--
	r := p.Play()
	if r.Err == nil || (r.At >= 0) != (s.best.At >= 0) {
		return false
	}
	s.best = r
	return true
}

// ddmin leaves out pieces of n things, halves first, single ones last. without tries to leave
// [from, to) out and says whether they are gone.
func ddmin(n func() int, without func(from, to int) bool) {
	for size := (n() + 1) / 2; size > 0; size /= 2 {
		for from := 0; from < n(); {
			if !without(from, min(from+size, n())) {
				from += size
			}
		}
	}
}

func (s *shrinker) faults() {
	ddmin(func() int { return len(s.best.Plan.Faults) }, func(from, to int) bool {
		p := s.best.Plan
		p.Faults = slices.Delete(slices.Clone(p.Faults), from, to)
		return s.try(p)
	})
}

func (s *shrinker) even() {
	p := s.best.Plan
	p.Chores = 0
	s.try(p)
	p = s.best.Plan
	p.Drift = make([]int64, len(p.Drift))
	s.try(p)
	for s.best.Plan.Clients > 1 {
		p = s.best.Plan
		if p.Clients--; !s.try(p) {
			break
		}
	}
}

func (s *shrinker) requests() {
	left := func() []uint64 {
		var ids []uint64
		for _, id := range s.best.Requests {
			if !s.best.Plan.Skip[id] {
				ids = append(ids, id)
			}
		}
		return ids
	}
	ddmin(func() int { return len(left()) }, func(from, to int) bool {
		p := s.best.Plan
		p.Skip = maps.Clone(p.Skip)
		if p.Skip == nil {
			p.Skip = map[uint64]bool{}
		}
		for _, id := range left()[from:to] {
			p.Skip[id] = true
		}
		return s.try(p)
	})
}
