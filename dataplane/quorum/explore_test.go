package quorum

import (
	"flag"
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"ankole.storage/test/lack"
	"ankole.storage/test/seeded"
)

// search tries every order of events up to the world's limits.
type search struct {
	seen   map[uint64]struct{}
	seed   maphash.Seed
	path   []event
	limit  int
	served int
}

func told(path []event) string {
	var b strings.Builder
	b.WriteString("history:")
	for _, e := range path {
		b.WriteString("\n  " + e.String())
	}
	return b.String()
}

// run explores from w and returns the first violation with the history that leads to it.
func (s *search) run(w *world) error {
	if w.err != nil {
		return fmt.Errorf("%w\n%s", w.err, told(s.path))
	}
	h := maphash.Bytes(s.seed, w.key())
	if _, ok := s.seen[h]; ok || len(s.seen) >= s.limit {
		return nil
	}
	s.seen[h] = struct{}{}
	usual, faults := w.events()
	if w.limits.faults > 0 {
		for _, f := range faults {
			l := &w.limits
			if (len(l.only) == 0 || slices.Contains(l.only, f.what)) && (l.hits == 0 || f.at+1 == l.hits) {
				usual = append(usual, f)
			}
		}
	}
	for _, e := range usual {
		next := w.clone()
		e.do(next)
		s.path = append(s.path, e)
		if last := next.engines[len(next.engines)-1]; last.began && len(next.engines) > 1 {
			s.served++
		}
		if err := s.run(next); err != nil {
			return err
		}
		s.path = s.path[:len(s.path)-1]
	}
	return nil
}

var long = flag.Bool("long", false, "explore far enough to take minutes")

// TestEveryOrder tries every order of everything that can happen to small volumes: no acknowledged
// write is ever missing where an engine starts from, and no engine acknowledges anything after a
// later one has begun.
func TestEveryOrder(t *testing.T) {
	for _, c := range []struct {
		name     string
		replicas int
		limits   limits
		long     bool
	}{
		{"two replicas and a rebuild", 2, limits{engines: 2, writes: 1, joins: 1, faults: 1}, false},
		{"two replicas, two faults", 2, limits{engines: 2, writes: 1, faults: 2}, false},
		{"three replicas, engines race", 3, limits{engines: 2, writes: 1}, false},
		{"three replicas, a fault at a start or of an engine", 3, limits{engines: 2, writes: 1, faults: 1,
			only: []string{doesNotReach, reachesOneWay, dies, witnessSilent, answerLost}}, false},
		{"three replicas, the second is cut off", 3, limits{engines: 2, writes: 1, faults: 1,
			only: []string{isCutOff}, hits: 2}, false},
		{"three replicas, an answer of the first is lost", 3, limits{engines: 2, writes: 1, faults: 1,
			only: []string{servedUntold}, hits: 1}, false},
		{"two replicas, a read and a lease", 2, limits{engines: 2, writes: 1, faults: 1, reads: 1, ticks: 1,
			only: []string{doesNotReach}}, false},
		{"two replicas, a vote", 2, limits{engines: 2, writes: 1, faults: 2, votes: 1, ticks: 1,
			only: []string{isCutOff, doesNotReach}}, true},
		{"one of two lost, a vote", 2, limits{engines: 2, writes: 1, faults: 1, votes: 1, ticks: 1, lost: true}, false},
		{"one replica in an older state", 1, limits{engines: 3, writes: 1, faults: 1, only: []string{isSetBack},
			places: true}, false},
		{"one of two replicas in an older state", 2, limits{engines: 3, writes: 1, faults: 1, only: []string{isSetBack},
			places: true}, false},
		{"one of two lost, a takeover", 2, limits{engines: 3, writes: 1, faults: 1, ticks: 1,
			only: []string{doesNotReach}, takeover: true, lost: true}, false},
		{"two replicas, a rebuild, votes", 2, limits{engines: 2, writes: 1, joins: 1, votes: 2, faults: 2}, true},
		{"two replicas, a takeover", 2, limits{engines: 3, writes: 1, faults: 2,
			only: []string{doesNotReach, witnessSilent}, takeover: true, places: true}, true},
		{"two replicas, a read, a lease, a rebuild", 2,
			limits{engines: 2, writes: 1, joins: 1, faults: 1, reads: 1, ticks: 1}, true},
		{"two replicas, a read, a lease, three engines", 2,
			limits{engines: 3, writes: 1, faults: 1, reads: 1, ticks: 1, only: []string{doesNotReach}, places: true}, true},
		{"three replicas, one fault", 3, limits{engines: 2, writes: 1, faults: 1}, true},
		{"two replicas, three engines", 2, limits{engines: 3, writes: 1, faults: 1}, true},
		{"two replicas, a rebuild, two faults", 2, limits{engines: 2, writes: 1, joins: 1, faults: 2}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.long && !*long {
				lack.Later(t, "takes a minute or more: -long runs it")
			}
			s := &search{seen: map[uint64]struct{}{}, seed: maphash.MakeSeed(), limit: 1 << 30}
			if err := s.run(newWorld(c.replicas, c.limits)); err != nil {
				t.Fatal(err)
			}
			if s.served == 0 {
				t.Fatal("no second engine ever served: the search shows nothing")
			}
			t.Logf("%d states", len(s.seen))
		})
	}
}

// fate is what an engine of a random history meets: which replicas it cannot reach at its start,
// and whether the witness is away once it serves. Drawing single events alike would hardly ever
// bring about a partition.
type fate struct {
	away        uint16
	witnessAway bool
	// silentFirst: the witness does not answer the engine's first question, so that it tries to
	// take over.
	silentFirst bool
}

func drawFate(r *rand.Rand, replicas int) fate {
	f := fate{witnessAway: r.IntN(2) == 0, silentFirst: r.IntN(2) == 0}
	for i := range replicas {
		if r.IntN(3) == 0 {
			f.away |= 1 << i
		}
	}
	return f
}

// unheard reports that the engine has asked its first question, and nobody is going to answer it.
func (f fate) unheard(e *engine) bool {
	return f.silentFirst && e.core.cfg.Takeover && e.core.phase == Asking && e.core.wanted == 0 &&
		len(e.core.probes) == 0
}

// allows reports whether the event fits the engine's fate.
func (f fate) allows(w *world, e event) bool {
	switch e.what {
	case reaches:
		return f.away&(1<<e.at) == 0
	case doesNotReach:
		return f.away&(1<<e.at) != 0
	case witnessAnswers:
		if f.unheard(w.engines[e.engine]) {
			return false
		}
		return !f.witnessAway || !w.engines[e.engine].began
	}
	return true
}

// draw chooses the next event: a fault in trouble of a hundred cases, and a further engine mostly
// when there is none.
func draw(r *rand.Rand, w *world, fates []fate, trouble int) (event, bool) {
	alive := false
	for _, e := range w.engines {
		alive = alive || e.alive
	}
	usual, faults := w.events()
	misfit := func(e event) bool { return !fates[e.engine].allows(w, e) }
	if alive && r.IntN(20) > 0 {
		usual = slices.DeleteFunc(usual, func(e event) bool { return e.what == started || e.what == startedInPlace })
	}
	for _, e := range faults {
		if e.what == doesNotReach || (e.what == witnessSilent && fates[e.engine].unheard(w.engines[e.engine])) {
			usual = append(usual, e)
		}
	}
	usual, faults = slices.DeleteFunc(usual, misfit), slices.DeleteFunc(faults, misfit)
	if len(faults) > 0 && (r.IntN(100) < trouble || len(usual) == 0) {
		return faults[r.IntN(len(faults))], true
	}
	if len(usual) == 0 {
		return event{}, false
	}
	return usual[r.IntN(len(usual))], true
}

// loseLast leaves the volume without its last replica: rebuilds come early then.
func (w *world) loseLast() {
	last := len(w.disks) - 1
	w.hangUp(0, last)
	w.lost(0, last)
	w.act(0)
	for w.engines[0].core.Holding() {
		usual, _ := w.events()
		usual[0].do(w)
	}
}

// TestRandomHistories goes deeper than every order can: long histories of three replicas and many
// engines, each event drawn at random. A failure names its seed.
func TestRandomHistories(t *testing.T) {
	const length = 120
	histories := uint64(8000) // enough to find every hole that was ever found this way
	if *long {
		histories = 100000
	}
	served, tookOver, made := uint64(0), 0, uint64(0)
	src := seeded.New(t, "P2: no order of events lets a set forget an acknowledged write")
	for seed := range src.Seeds(histories) {
		made++
		r := src.Rand(1)
		w := newWorld(2+int(seed/2%2), limits{engines: 6, writes: 8, joins: 3, votes: 5, faults: 1000, reads: 20,
			ticks: 12, places: seed%2 == 0, takeover: seed%2 == 0})
		if seed%4 == 0 {
			w.loseLast()
		}
		var fates []fate
		for range w.limits.engines {
			fates = append(fates, drawFate(r, len(w.disks)))
		}
		trouble := []int{3, 10, 25}[seed/2%3]
		var path []event
		for range length {
			e, ok := draw(r, w, fates, trouble)
			if !ok {
				break
			}
			e.do(w)
			path = append(path, e)
			if w.err != nil {
				t.Fatalf("seed %d: %v\n%s", seed, w.err, told(path))
			}
		}
		for _, e := range w.engines[1:] {
			if e.began {
				served++
			}
			if e.began && e.core.takeover {
				tookOver++
			}
		}
	}
	if made < histories {
		return // one seed was asked for: how often something happens says nothing
	}
	if tookOver < 20 {
		t.Fatalf("engines took over %d times in %d histories: too few to show anything", tookOver, histories)
	}
	t.Logf("%d later engines served, %d of them after a takeover", served, tookOver)
	if served < histories/4 {
		t.Fatalf("later engines served %d times in %d histories: too few to show anything", served, histories)
	}
}
