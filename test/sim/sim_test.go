package sim

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"ankole.storage/dataplane/engine"
)

// seeds is how many seeds a plain test run tries; SEEDS overrides it.
const seeds = 300

// number reads an environment variable.
func number(t *testing.T, name string, otherwise uint64) uint64 {
	t.Helper()
	s := os.Getenv(name)
	if s == "" {
		return otherwise
	}
	v, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		t.Fatalf("%s=%q is not a number", name, s)
	}
	return v
}

// TestMain trades memory for time: a simulation makes much garbage of little size.
func TestMain(m *testing.M) {
	debug.SetGCPercent(400)
	code := m.Run()
	if summary != "" {
		fmt.Println(summary)
	}
	os.Exit(code)
}

// summary is the last line that a run of seeds prints.
var summary string

// TestSeeds runs random histories with faults and checks every read, and what must hold in the end.
func TestSeeds(t *testing.T) {
	first, n := number(t, "FROM", 1), number(t, "SEEDS", seeds)
	if s := number(t, "SEED", 0); s > 0 {
		first, n = s, 1
	}
	total := soak(t, first, n)
	t.Logf("faults: %v", total.by)
	t.Logf("sum: seeds %d to %d: %v", first, first+n-1, total)
	summary = total.String()
	if n >= seeds && (total.faults == 0 || total.rebuilt == 0 || total.followed == 0 || total.shared == 0 ||
		total.log.Shrinks == 0 || total.log.Waits == 0) {
		t.Errorf(
			"not everything was tried in any seed: faults, rebuilds, snapshots during them (%d), sessions with shared memory "+
				"(%d), dirty logs that shrink (%d) and are full (%d)", total.followed, total.shared,
			total.log.Shrinks, total.log.Waits)
	}
	for i := range Atlas {
		if n >= seeds && total.by[Atlas[i].Name] == 0 {
			t.Errorf("the fault %s was in none of %d seeds", Atlas[i].Name, n)
		}
	}
}

type totals struct {
	seeds, operations, faults, rebuilt, followed, shared, violations int
	by                                                               map[string]int
	log                                                              engine.LogUse
}

func (s *totals) String() string {
	return fmt.Sprintf("%d seeds, %d operations, %d faults, %d rebuilds, %d snapshots during them, %d shrinks of dirty logs, %d "+
		"sessions with shared memory, %d violations", s.seeds, s.operations, s.faults, s.rebuilt, s.followed,
		s.log.Shrinks, s.shared, s.violations)
}

// progressEvery is how many seeds there are to a line of progress.
const progressEvery = 1000

// maxViolations ends a soak: one defect shows in many seeds.
const maxViolations = 3

// soak plays n seeds on all processors.
func soak(t *testing.T, first, n uint64) *totals {
	t.Helper()
	todo := make(chan uint64)
	sum := &totals{by: map[string]int{}}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for seed := range todo {
				r := Run(seed)
				mu.Lock()
				sum.add(t, &r)
				mu.Unlock()
			}
		})
	}
	for seed := first; seed < first+n; seed++ {
		mu.Lock()
		enough := sum.violations >= maxViolations
		mu.Unlock()
		if enough {
			break
		}
		todo <- seed
	}
	close(todo)
	wg.Wait()
	return sum
}

func (s *totals) add(t *testing.T, r *Result) {
	if s.seeds++; s.seeds%progressEvery == 0 {
		fmt.Println("progress:", s)
	}
	s.operations += r.Operations
	s.faults += r.Faults
	s.rebuilt += r.Rebuilt
	s.followed += r.Followed
	s.log.Shrinks += r.Log.Shrinks
	s.log.Waits += r.Log.Waits
	s.shared += r.Shared
	for k, n := range r.By {
		s.by[k] += n
	}
	if r.Err != nil {
		s.violations++
		short := shortened(r, shrinkPlays)
		t.Errorf(
			"found: seed %d: %v\nrepeat with: make sim SEED=%d\n%s\nshortened: %v\n%s\n%s",
			r.Plan.Seed,
			r.Err,
			r.Plan.Seed,
			&r.Plan,
			short.Err,
			&short.Plan,
			strings.Join(short.History, "\n"),
		)
	}
}

// Bounds of shortening a history: a report late is worth less than one a little longer.
const (
	shrinkPlays = 400
	shrinkTime  = time.Minute
)

func shortened(r *Result, plays int) Result {
	end := time.Now().Add(shrinkTime)
	return r.Plan.Shrink(plays, func() bool { return time.Now().After(end) })
}

// TestSameSeedSameHistory is what makes a seed a reproduction.
func TestSameSeedSameHistory(t *testing.T) {
	for _, seed := range []uint64{42, 43, longEvery} {
		a, b := Run(seed), Run(seed)
		if a.Hash != b.Hash || a.Steps != b.Steps {
			t.Fatalf(
				"seed %d gave two histories: %x after %d steps, %x after %d",
				seed,
				a.Hash,
				a.Steps,
				b.Hash,
				b.Steps,
			)
		}
		if c := Run(seed + 1); c.Hash == a.Hash {
			t.Fatal("another seed gave the same history")
		}
	}
}
