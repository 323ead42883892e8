// Package seeded gives tests random numbers that can be had again. A test that fails says which
// rule it holds, the seed of the run that failed, and the command that repeats it.
package seeded

import (
	"fmt"
	"iter"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
)

const (
	// Variable is the environment variable that names the one seed to run with.
	Variable = "SEED"
	// KeyVariable is the environment variable by which tests of the hunt (tools/hunt.sh) get other
	// seeds in each run.
	KeyVariable = "KEY"
)

// Key is the number that chooses the seeds of this run: that of the environment, else always 1, so
// that the same sources play the same histories.
func Key(t testing.TB) uint64 {
	t.Helper()
	key, ok := number(t, KeyVariable)
	if !ok {
		return 1
	}
	return key
}

// Source is where a test gets its random numbers from.
type Source struct {
	t    testing.TB
	seed atomic.Uint64
}

// New makes the source of a test. rule is what the test holds: a promise with its line, or a rule
// of a page. It is part of the message if the test fails.
func New(t testing.TB, rule string) *Source {
	t.Helper()
	s := &Source{t: t}
	folder := folderOf(t)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(message(rule, s.seed.Load(), folder, t.Name()))
		}
	})
	return s
}

func message(rule string, seed uint64, folder, test string) string {
	return fmt.Sprintf("this test holds: %s\nseed %d; again: %s=%d go test %s -count=1 -run '^%s$'", rule, seed, Variable,
		seed, folder, strings.ReplaceAll(test, "/", "$/^"))
}

// folderOf is the folder of the package that is tested, where tests begin, relative to the root of
// its module.
func folderOf(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		return "."
	}
	for root := dir; root != filepath.Dir(root); root = filepath.Dir(root) {
		if _, err := os.Stat(filepath.Join(root, "go.mod")); err == nil {
			if rel, err := filepath.Rel(root, dir); err == nil {
				return "./" + rel
			}
		}
	}
	return dir
}

// given is the seed of the environment.
func given(t testing.TB) (seed uint64, ok bool) {
	t.Helper()
	return number(t, Variable)
}

// number reads a variable of the environment; ok is false where it is not set.
func number(t testing.TB, variable string) (n uint64, ok bool) {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return 0, false
	}
	n, err := strconv.ParseUint(text, 0, 64)
	if err != nil {
		t.Fatalf("%s=%q is not a number", variable, text)
	}
	return n, true
}

// Seed makes the run's seed the one of the environment, or else this one, and returns it.
func (s *Source) Seed(otherwise uint64) uint64 {
	s.t.Helper()
	if seed, ok := given(s.t); ok {
		otherwise = seed
	}
	s.seed.Store(otherwise)
	return otherwise
}

// Note says that the run's seed is this one, which the test has chosen by itself.
func (s *Source) Note(seed uint64) { s.seed.Store(seed) }

// Fresh is Seed with another one for each Key. It is logged at once: a test that hangs says no
// more.
func (s *Source) Fresh() uint64 {
	s.t.Helper()
	seed := s.Seed(Key(s.t))
	s.t.Logf("%s=%d", Variable, seed)
	return seed
}

// Seeds goes through the seeds from 0 to n-1, or has only the one of the environment.
func (s *Source) Seeds(n uint64) iter.Seq[uint64] {
	return func(yield func(uint64) bool) {
		if seed, ok := given(s.t); ok {
			s.seed.Store(seed)
			yield(seed)
			return
		}
		for seed := range n {
			s.seed.Store(seed)
			if !yield(seed) {
				return
			}
		}
	}
}

// Rand returns random numbers of the run's seed. Each stream is another sequence.
func (s *Source) Rand(stream uint64) *rand.Rand { return rand.New(rand.NewPCG(s.seed.Load(), stream)) }
