// Package wait is how tests wait for what other threads, processes or machines do: for a condition,
// with one deadline, and the name of what was awaited.
//
// Where tests decide about a change (tools/test.sh), a wait that runs out is not a verdict yet: the
// machine may have been busy. The wait is noted, and a test that failed for nothing else runs once
// more, alone. What else a test finds wrong is final; who finds it while other failures may follow
// says so with Final.
package wait

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

const (
	// Limit is how long For and Until wait: far longer than anything takes, for slow machines.
	Limit = 2 * time.Minute
	// They look at once, and again each time after a part of the time that has passed, so that what is
	// quick is seen at once and what takes long is not asked all the time.
	firstPause, mostPause = time.Millisecond, 100 * time.Millisecond
	// told is how long a wait takes that is logged.
	told = 2 * time.Second
	// NotesVariable of the environment names the file that gets a line for each wait that ran out.
	NotesVariable = "ANKOLE_WAITS"
)

// For waits until check returns nil. The test ends at once where it does not within the limit, and
// says what check returned last.
func For(t testing.TB, what string, check func() error) {
	t.Helper()
	Within(t, Limit, what, check)
}

// Until waits until the condition holds.
func Until(t testing.TB, what string, holds func() bool) {
	t.Helper()
	Within(t, Limit, what, func() error {
		if !holds() {
			return errNot
		}
		return nil
	})
}

// Tester is the part of testing.TB that Final uses.
type Tester interface {
	Helper()
	Name() string
	Errorf(format string, args ...any)
}

var errNot = errors.New("it does not hold")

// Within is For with another limit.
func Within(t testing.TB, limit time.Duration, what string, check func() error) {
	t.Helper()
	began := time.Now()
	tick := time.NewTicker(firstPause)
	defer tick.Stop()
	for pause := firstPause; ; pause = min(pause*5/4, mostPause) {
		err := check()
		if err == nil {
			if took := time.Since(began); took > told {
				t.Logf("%s: after %.1f s", what, took.Seconds())
			}
			return
		}
		if time.Since(began) > limit {
			RanOut(t, what)
			t.Fatalf("%s: not within %s: %v", what, limit, err)
		}
		tick.Reset(pause)
		<-tick.C
	}
}

// Late is the end of For's limit, for a select; whoever gets there says RanOut.
func Late() <-chan time.Time { return time.After(Limit) }

// Receive waits for a value of a channel, or for the channel's end.
func Receive[T any](t testing.TB, what string, from <-chan T) (value T) {
	t.Helper()
	select {
	case value = <-from:
	case <-Late():
		RanOut(t, what)
		t.Fatalf("%s: not within %s", what, Limit)
	}
	return value
}

// RanOut notes that a test fails since it has waited in vain, for those that wait in a way of their
// own. A test that had failed before fails for that.
func RanOut(t testing.TB, what string) {
	t.Helper()
	if !t.Failed() {
		note("wait", t, what)
	}
}

// Final notes that what a test has found is no matter of time, whatever else it waits for: lost
// data, copies that differ, a process that panicked.
func Final(t Tester, what string) {
	t.Helper()
	note("final", t, what)
}

func note(kind string, t Tester, what string) {
	t.Helper()
	name := os.Getenv(NotesVariable)
	if name == "" {
		return
	}
	f, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Errorf("notes of waits: %v", err)
		return
	}
	what, _, _ = strings.Cut(what, "\n")
	_, err = fmt.Fprintf(f, "%s\t%s\t%s\n", kind, t.Name(), what)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Errorf("notes of waits: %v", err)
	}
}
