package seeded

import (
	"fmt"
	"slices"
	"testing"
)

// failing is a test that fails, and what it says when it ends.
type failing struct {
	testing.TB
	cleanup func()
	said    string
}

func (f *failing) Helper()          {}
func (f *failing) Failed() bool     { return true }
func (f *failing) Name() string     { return "TestX/some_case" }
func (f *failing) Cleanup(c func()) { f.cleanup = c }
func (f *failing) Log(args ...any)  { f.said += fmt.Sprint(args...) }

func TestFailureNamesRuleSeedAndCommand(t *testing.T) {
	t.Setenv(Variable, "")
	f := &failing{TB: t}
	s := New(f, "P9: a rule")
	for seed := range s.Seeds(10) {
		if seed == 7 {
			break
		}
	}
	f.cleanup()
	want := "this test holds: P9: a rule\nseed 7; again: SEED=7 go test ./test/seeded -count=1 -run '^TestX$/^some_case$'"
	if f.said != want {
		t.Errorf("it says\n%s\nwant\n%s", f.said, want)
	}
}

func TestSeedOfTheEnvironment(t *testing.T) {
	t.Setenv(Variable, "42")
	s := New(t, "the seed of the environment is the only one")
	if got := slices.Collect(s.Seeds(5)); !slices.Equal(got, []uint64{42}) {
		t.Errorf("seeds %v, want 42 alone", got)
	}
	if got := s.Seed(3); got != 42 {
		t.Errorf("seed %d, want 42", got)
	}
	a, b := s.Rand(1).Uint64(), s.Rand(1).Uint64()
	if c := s.Rand(2).Uint64(); a != b || a == c {
		t.Errorf("numbers of one stream %d and %d, of another %d: want the same, and another", a, b, c)
	}
}

func TestSeedsWithoutTheEnvironment(t *testing.T) {
	t.Setenv(Variable, "")
	s := New(t, "without the environment every seed has its turn")
	if got := slices.Collect(s.Seeds(3)); !slices.Equal(got, []uint64{0, 1, 2}) {
		t.Errorf("seeds %v, want 0, 1 and 2", got)
	}
	if got := s.Seed(3); got != 3 {
		t.Errorf("seed %d, want 3", got)
	}
}
