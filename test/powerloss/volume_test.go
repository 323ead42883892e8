package powerloss

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"ankole.storage/test/lack"
	"ankole.storage/test/powerdisk"
	"ankole.storage/test/seeded"
)

var (
	trials = flag.Int("trials", 25, "moments tried of each long history")
	part   = flag.String("part", "1/1", "with -deep, the first, second… of so many parts of the moments")
	// deep adds what takes minutes.
	deep = flag.Bool("deep", false, "also try every moment of short histories, and deliberate bugs")
)

// seed begins every random choice. The kernel and the scheduler have a say too: the same seed makes
// a similar history, not the same.
func seed(t *testing.T) uint64 {
	s := seeded.Key(t)
	if v := os.Getenv("SEED"); v != "" {
		n, err := strconv.ParseUint(v, 10, 64)
		if err != nil {
			t.Fatalf("SEED=%q: %v", v, err)
		}
		s = n
	}
	t.Logf("SEED=%d", s)
	return s
}

// TestMoments records a volume's life and tries moments of it: those right after an
// acknowledgement, and others.
func TestMoments(t *testing.T) {
	needDisks(t)
	for _, fs := range []string{"ext4", "xfs"} {
		t.Run(fs, func(t *testing.T) {
			s := seed(t)
			r := record(t, plan{fs: fs, replicas: 3, size: 8 * mib, seed: s, ops: 120, changes: true, faults: true})
			r.try(t, sample(r, *trials, s))
		})
	}
}

// TestEveryMoment records a short life and tries each of its moments.
func TestEveryMoment(t *testing.T) {
	needDisks(t)
	if !*deep {
		lack.Later(t, "tries some hundred states; run with -deep")
	}
	for _, fs := range []string{"ext4", "xfs"} {
		t.Run(fs, func(t *testing.T) {
			s := seed(t)
			r := record(t, plan{fs: fs, replicas: 2, size: 8 * mib, seed: s, ops: 12, changes: true})
			r.try(t, ofPart(t, r, every(r, s)))
		})
	}
}

// every lists all moments at which a disk or the witness changed or something was acknowledged.
func every(r *recording, seed uint64) []trial {
	rng := rand.New(rand.NewPCG(seed, 6))
	var list []trial
	for at := 1; at <= len(r.events); at++ {
		if e := &r.events[at-1]; e.Kind != powerdisk.Note || e.Note != nil || slices.Contains(r.acknowledged, at) {
			list = append(list, r.trial(at, rng))
		}
	}
	return list
}

// ofPart leaves, of moments in their order, those right after an acknowledgement and the part that
// the flag asks for.
func ofPart(t *testing.T, r *recording, all []trial) (some []trial) {
	t.Helper()
	var k, n int
	if c, err := fmt.Sscanf(*part, "%d/%d", &k, &n); c != 2 || err != nil || n < 1 {
		t.Fatalf("-part %q is not a number of so many", *part)
	}
	for i, x := range all {
		if i%n == k%n || slices.Contains(r.acknowledged, x.at) {
			some = append(some, x)
		}
	}
	return some
}

// TestParts: the parts together are all moments, and those of an acknowledgement are in each.
func TestParts(t *testing.T) {
	r := &recording{acknowledged: []int{4}}
	var all []trial
	for at := range 10 {
		all = append(all, trial{at: at})
	}
	whole := *part
	defer func() { *part = whole }()
	times := map[int]int{}
	for _, *part = range []string{"1/3", "2/3", "3/3"} {
		for _, x := range ofPart(t, r, all) {
			times[x.at]++
		}
	}
	for _, x := range all {
		want := 1
		if slices.Contains(r.acknowledged, x.at) {
			want = 3
		}
		if times[x.at] != want {
			t.Errorf("moment %d is in %d of 3 parts, want %d", x.at, times[x.at], want)
		}
	}
}

// sample draws moments of a history, half of them right after something was acknowledged.
func sample(r *recording, n int, seed uint64) []trial {
	rng := rand.New(rand.NewPCG(seed, 5))
	var list []trial
	for i := range n {
		at := 1 + rng.IntN(len(r.events))
		if i%2 == 0 {
			at = r.acknowledged[rng.IntN(len(r.acknowledged))]
		}
		list = append(list, r.trial(at, rng))
	}
	slices.SortFunc(list, func(a, b trial) int { return a.at - b.at })
	return list
}

func (r *recording) trial(at int, rng *rand.Rand) trial {
	x := trial{at: at, seed: rng.Uint64()}
	for range r.disks {
		x.keep = append(x.keep, powerdisk.AnySurvival(rng))
	}
	return x
}

// parallelBeds is how many states are tried at once. Each waits a good deal for the kernel.
const parallelBeds = 3

// try tries states, in order of time, on several beds. The first violation ends it.
func (r *recording) try(t *testing.T, list []trial) {
	t.Helper()
	began := time.Now()
	again, err := r.firstViolation(t, list)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s: %d states tried in %v, %d of them again with whole blocks, no violation", r.fs, len(list),
		time.Since(began).Round(time.Millisecond), again)
}

// firstViolation returns the first violation, and how many states were tried again.
func (r *recording) firstViolation(t *testing.T, list []trial) (again int, err error) {
	t.Helper()
	var beds []*bed
	found := make(chan error, parallelBeds)
	stop := make(chan struct{})
	var once sync.Once
	var wg sync.WaitGroup
	for k := range parallelBeds {
		b := newBed(t, r)
		beds = append(beds, b)
		wg.Go(func() {
			for i := k; i < len(list) && !closed(stop); i += parallelBeds {
				if err := b.try(list[i]); err != nil {
					found <- violation{list[i], err}
					once.Do(func() { close(stop) })
					return
				}
			}
		})
	}
	wg.Wait()
	for _, b := range beds {
		again += b.again
	}
	select {
	case err := <-found:
		return again, err
	default:
		return again, nil
	}
}

// violation is a state that must not be.
type violation struct {
	trial trial
	err   error
}

func (v violation) Error() string { return v.trial.String() + ":\n" + v.err.Error() }
