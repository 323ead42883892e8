package sim

import (
	"os"
	"strconv"
	"strings"
	"testing"
)

// seeds is how many seeds a plain test run tries; SEEDS overrides it.
const seeds = 25

func count(t *testing.T) (first, n uint64) {
	t.Helper()
	n = seeds
	if s := os.Getenv("SEEDS"); s != "" {
		v, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatalf("SEEDS=%q is not a number", s)
		}
		n = v
	}
	if s := os.Getenv("SEED"); s != "" {
		v, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatalf("SEED=%q is not a number", s)
		}
		return v, 1
	}
	return 1, n
}

// TestSeeds runs random histories with faults and checks every read, and that replicas end up identical.
func TestSeeds(t *testing.T) {
	first, n := count(t)
	var ops, faults, rebuilt, violations int
	for seed := first; seed < first+n; seed++ {
		r := Run(seed, Options{})
		ops += r.Operations
		faults += r.Faults
		rebuilt += r.Rebuilt
		if r.Err != nil {
			violations++
			t.Errorf("seed %d: %v\nrepeat with: SEED=%d go test ./sim -run TestSeeds\n%s", seed, r.Err, seed, strings.Join(r.Log, "\n"))
			if violations == 3 {
				break
			}
		}
	}
	t.Logf("%d seeds, %d operations, %d faults, %d rebuilds, %d violations", n, ops, faults, rebuilt, violations)
	if faults == 0 || rebuilt == 0 {
		t.Error("nothing was tried: no fault or no rebuild in any seed")
	}
}

// TestSameSeedSameHistory is what makes a seed a reproduction.
func TestSameSeedSameHistory(t *testing.T) {
	a, b := Run(42, Options{}), Run(42, Options{})
	if a.Hash != b.Hash || a.Steps != b.Steps {
		t.Fatalf("seed 42 gave two histories: %x after %d steps, %x after %d", a.Hash, a.Steps, b.Hash, b.Steps)
	}
	if c := Run(43, Options{}); c.Hash == a.Hash {
		t.Fatal("another seed gave the same history")
	}
}
