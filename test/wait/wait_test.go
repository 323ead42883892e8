package wait

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// failing is a test that fails as a real one does: Fatalf ends its goroutine.
type failing struct {
	testing.TB
	failed bool
	said   string
}

func (*failing) Helper()        {}
func (*failing) Name() string   { return "TestOf/a_failure" }
func (f *failing) Failed() bool { return f.failed }

func (f *failing) Fatalf(format string, args ...any) {
	f.failed, f.said = true, format
	runtime.Goexit()
}

// run runs what ends with Fatalf.
func run(f func()) {
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	<-done
}

func TestNotes(t *testing.T) {
	notes := filepath.Join(t.TempDir(), "waits")
	t.Setenv(NotesVariable, notes)
	never := func() error { return errors.New("not yet") }

	Until(t, "what holds", func() bool { return true })
	calls := 0
	For(t, "what holds later", func() error {
		if calls++; calls < 3 {
			return errors.New("not yet")
		}
		return nil
	})
	full := make(chan int, 1)
	full <- 7
	if got := Receive(t, "a number", full); got != 7 {
		t.Errorf("received %d", got)
	}
	f := &failing{TB: t}
	run(func() { Within(f, time.Millisecond, "the volume", never) })
	if !f.failed {
		t.Error("a wait that ran out did not end the test")
	}
	run(func() { Within(f, time.Millisecond, "its end", never) }) // what had failed before
	Final(f, "lost data\nand a log")

	said, err := os.ReadFile(notes)
	if err != nil {
		t.Fatal(err)
	}
	want := "wait\tTestOf/a_failure\tthe volume\nfinal\tTestOf/a_failure\tlost data\n"
	if string(said) != want || calls != 3 {
		t.Errorf("noted %q, want %q", strings.TrimSpace(string(said)), want)
	}
}
