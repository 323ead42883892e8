package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"ankole.storage/instancemanager/instancetest"
	"ankole.storage/test/wait"
)

// collector holds what a reader was sent.
type collector struct {
	mu    sync.Mutex
	lines []string
}

func (c *collector) line(s string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lines = append(c.lines, s)
	return nil
}

func (c *collector) text() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return strings.Join(c.lines, ",")
}

// TestFollow: a follower gets the lines from before, those that come, and the end of the process;
// one of a process that has ended gets what there is.
func TestFollow(t *testing.T) {
	m := newManager(t, nil)
	create := func() {
		t.Helper()
		if _, err := m.Create(spec(t, "demo-e-0", instancetest.Echo, 0)); err != nil {
			t.Fatal(err)
		}
	}
	create()
	wait.Until(t, "first line", func() bool { return len(readLog(t, m, "demo-e-0")) == 1 })
	var got collector
	ended := make(chan error, 1)
	go func() { ended <- m.Log(t.Context(), "demo-e-0", LogOptions{Follow: true}, got.line) }()
	wait.Until(t, "the line from before", func() bool { return got.text() == "ready" })
	// SIGHUP makes it print a line.
	if err := unix.Kill(pidOf(m, "demo-e-0"), unix.SIGHUP); err != nil {
		t.Fatal(err)
	}
	wait.Until(t, "a line that came", func() bool { return got.text() == "ready,hangup" })
	if _, err := m.Delete("demo-e-0", ""); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil || got.text() != "ready,hangup,interrupt" {
		t.Errorf("%v: %s", err, got.text())
	}
	awaitGone(t, m, "demo-e-0")
	var after collector
	if err := m.Log(t.Context(), "demo-e-0", LogOptions{Follow: true}, after.line); err != nil ||
		after.text() != got.text() {
		t.Errorf("after the end: %v: %s", err, after.text())
	}
}

// TestFollowEndsWithItsContext: a client that goes away leaves nothing.
func TestFollowEndsWithItsContext(t *testing.T) {
	m := newManager(t, nil)
	if _, err := m.Create(spec(t, "demo-e-0", instancetest.NeverListens, 0)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- m.Log(ctx, "demo-e-0", LogOptions{Follow: true}, func(string) error { return nil }) }()
	wait.Until(t, "it reads", func() bool { return m.logs.reading() == 1 })
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if n := m.logs.reading(); n != 0 {
		t.Errorf("%d readers are left", n)
	}
}

func pidOf(m *Manager, name string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.listed[name].child.cmd.Process.Pid
}

func (l *logs) reading() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.readers
}

// TestReadersAreBounded: one more than allowed is refused, and admitted when another one has gone.
func TestReadersAreBounded(t *testing.T) {
	l := &logs{dir: t.TempDir(), open: map[string]*logFile{}}
	for range maxLogReaders {
		if _, err := l.enter("demo-e-0"); err != nil {
			t.Fatal(err)
		}
	}
	err := l.read(t.Context(), "demo-e-0", LogOptions{}, nil)
	if !errors.Is(err, ErrTooMany) || l.reading() != maxLogReaders {
		t.Errorf("%v, %d readers", err, l.reading())
	}
	l.leave()
	if err := l.read(t.Context(), "demo-e-0", LogOptions{}, nil); !errors.Is(err, ErrNotFound) ||
		l.reading() != maxLogReaders-1 {
		t.Errorf("%v, %d readers", err, l.reading())
	}
}

// TestTail is the table of what the last lines are.
func TestTail(t *testing.T) {
	l := testLogs(t, maxLogSize)
	for path, text := range map[string]string{l.path("v-e-0") + rotatedSuffix: "1\n2\n3\n",
		l.path("v-e-0"): "4\n5\nno end"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, row := range []struct {
		tail int64
		want string
	}{{0, "1,2,3,4,5,no end"}, {1, "no end"}, {2, "5,no end"}, {4, "3,4,5,no end"}, {6, "1,2,3,4,5,no end"},
		{1 << 40, "1,2,3,4,5,no end"}} {
		var got collector
		if err := l.read(t.Context(), "v-e-0", LogOptions{Tail: row.tail}, got.line); err != nil || got.text() != row.want {
			t.Errorf("last %d lines: %v: %s", row.tail, err, got.text())
		}
	}
	if err := l.read(t.Context(), "v-e-0", LogOptions{Tail: -1}, nil); !errors.Is(err, ErrInvalid) {
		t.Errorf("the last -1 lines: %v", err)
	}
}

func testLogs(t testing.TB, maxSize int64) *logs {
	t.Helper()
	l, err := newLogs(t.TempDir(), maxSize, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.echo.Close)
	return l
}

// TestFollowerMissesNothing: whatever is written, rotated and read in whatever order, a follower
// gets every line once and in order; lines that were rotated away before it came to them are marked
// by one line.
func TestFollowerMissesNothing(t *testing.T) {
	l := testLogs(t, 64)
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		name := fmt.Sprintf("v-e-%d", n)
		f, err := l.acquire(name)
		if err != nil {
			rt.Fatal(err)
		}
		defer l.release(f)
		if err := f.writeLine("first"); err != nil {
			rt.Fatal(err)
		}
		var want, got []string
		r := &logReader{logs: l, name: name, file: f, lines: lineCutter{line: func(s string) error {
			got = append(got, s)
			return nil
		}}}
		defer r.close()
		if err := r.open(); err != nil {
			rt.Fatal(err)
		}
		want = append(want, "first")
		for range rapid.IntRange(1, 20).Draw(rt, "rounds") {
			before := f.rotations
			var starts []int // where each rotation of this round begins
			for range rapid.IntRange(0, 30).Draw(rt, "lines") {
				at := f.rotations
				line := fmt.Sprintf("line %d", len(want))
				if err := f.writeLine(line); err != nil {
					rt.Fatal(err)
				}
				if f.rotations != at {
					starts = append(starts, len(want))
				}
				want = append(want, line)
			}
			_, rotations, _ := f.state()
			if err := r.drain(); err != nil {
				rt.Fatal(err)
			}
			if rotations != r.rotations {
				if err := r.reopen(); err != nil {
					rt.Fatal(err)
				}
				if err := r.drain(); err != nil {
					rt.Fatal(err)
				}
			}
			if missed := f.rotations - before - 2; missed > 0 {
				// Between what the reader had open and the file before the present one.
				want = slices.Replace(want, starts[0], starts[len(starts)-2], gapLine)
			}
			if !slices.Equal(got, want) {
				rt.Fatalf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		}
	})
}

// TestLineCutter: however a text is cut into pieces, its lines come out, long ones split.
func TestLineCutter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lines := rapid.SliceOfN(rapid.StringMatching(`[a-z]{0,20}`), 0, 20).Draw(t, "lines")
		text := strings.Join(lines, "\n") + "\n"
		var got []string
		c := lineCutter{line: func(s string) error { got = append(got, s); return nil }}
		for len(text) > 0 {
			n := rapid.IntRange(1, len(text)).Draw(t, "piece")
			if err := c.readAll(strings.NewReader(text[:n])); err != nil {
				t.Fatal(err)
			}
			text = text[n:]
		}
		if len(lines) == 0 {
			lines = []string{""}
		}
		if !slices.Equal(got, lines) {
			t.Fatalf("%q, want %q", got, lines)
		}
	})
	var got []string
	c := lineCutter{line: func(s string) error { got = append(got, s); return nil }}
	if err := errors.Join(c.readAll(strings.NewReader(strings.Repeat("x", maxLine+3))), c.flush()); err != nil {
		t.Fatal(err)
	}
	if len(got) != 2 || len(got[0]) != maxLine || got[1] != "xxx" {
		t.Errorf("a long line became %d", len(got))
	}
}
