package process

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"ankole.storage/instancemanager/instancetest"
	"ankole.storage/test/wait"
)

// lockedBuffer is the Pod's output.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// TestLog: everything an instance prints is in its log and, with its name, in the Pod's output; a
// second process of the name goes on in the same file; the log outlives the process.
func TestLog(t *testing.T) {
	var output lockedBuffer
	m := newManager(t, func(c *Config) { c.Output = &output })
	for round := 1; round <= 2; round++ {
		if _, err := m.Create(spec(t, "demo-r-1", instancetest.Print, 0, "--count", "3")); err != nil {
			t.Fatal(err)
		}
		wait.Until(t, "all lines are logged", func() bool { return len(readLog(t, m, "demo-r-1")) == 3*round })
		if _, err := m.Delete("demo-r-1", ""); err != nil {
			t.Fatal(err)
		}
		awaitGone(t, m, "demo-r-1")
	}
	want := "line 0\nline 1\nline 2\nline 0\nline 1\nline 2"
	if got := strings.Join(readLog(t, m, "demo-r-1"), "\n"); got != want {
		t.Errorf("log:\n%s", got)
	}
	wait.Until(t, "the Pod's output has it", func() bool {
		return strings.Count(output.String(), "[demo-r-1] line 2\n") == 2
	})
	if err := m.Log(t.Context(), "demo-r-2", LogOptions{}, nil); !errors.Is(err, ErrNotFound) {
		t.Errorf("log of an unknown process: %v", err)
	}
	if err := m.Log(t.Context(), "../demo", LogOptions{}, nil); !errors.Is(err, ErrNotFound) {
		t.Errorf("log of a path: %v", err)
	}
}

// TestLogRotation: at most two files of the bounded size are kept, and read as one.
func TestLogRotation(t *testing.T) {
	const size = 1000
	l, err := newLogs(t.TempDir(), size, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	defer l.echo.Close()
	f, err := l.acquire("demo-r-1")
	if err != nil {
		t.Fatal(err)
	}
	const lines = 500
	for i := range lines {
		if err := f.writeLine(fmt.Sprintf("line %d", i)); err != nil {
			t.Fatal(err)
		}
	}
	l.release(f)
	var got []string
	if err := l.read(t.Context(), "demo-r-1", LogOptions{}, func(line string) error {
		got = append(got, line)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if len(got) < 100 || got[len(got)-1] != "line 499" {
		t.Fatalf("%d lines, the last is %q", len(got), got[len(got)-1])
	}
	for i, line := range got {
		if want := fmt.Sprintf("line %d", lines-len(got)+i); line != want {
			t.Fatalf("line %q, want %q", line, want)
		}
	}
	for _, name := range []string{"demo-r-1.log", "demo-r-1.log.1"} {
		if info, err := os.Stat(filepath.Join(l.dir, name)); err != nil || info.Size() > size {
			t.Errorf("%s: %v %v", name, info, err)
		}
	}
}

// TestLogPruning: logs of processes long gone are removed, the oldest first, never one in use.
func TestLogPruning(t *testing.T) {
	l, err := newLogs(t.TempDir(), maxLogSize, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	defer l.echo.Close()
	held, err := l.acquire("held-r-1")
	if err != nil {
		t.Fatal(err)
	}
	defer l.release(held)
	for i := range maxLogFiles + 20 {
		if err := os.WriteFile(l.path(fmt.Sprintf("v-r-%d", i)), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	f, err := l.acquire("new-r-1")
	if err != nil {
		t.Fatal(err)
	}
	l.release(f)
	left, err := os.ReadDir(l.dir)
	if err != nil || len(left) > maxLogFiles+2 {
		t.Errorf("%d files are left: %v", len(left), err)
	}
	if _, err := os.Stat(l.path("held-r-1")); err != nil {
		t.Error(err)
	}
}

// stuckWriter never returns from Write until it is freed.
type stuckWriter struct{ free chan struct{} }

func (w stuckWriter) Write(p []byte) (int, error) {
	<-w.free
	return len(p), nil
}

// TestStuckOutput: nobody reads the Pod's output; instances print on.
func TestStuckOutput(t *testing.T) {
	w := stuckWriter{free: make(chan struct{})}
	m := newManager(t, func(c *Config) { c.Output = w })
	t.Cleanup(func() { close(w.free) }) // runs before the manager is closed
	const count = 5000
	if _, err := m.Create(spec(t, "demo-r-1", instancetest.Print, 0, "--count", fmt.Sprint(count))); err != nil {
		t.Fatal(err)
	}
	wait.Until(t, "all lines are logged", func() bool { return len(readLog(t, m, "demo-r-1")) == count })
}

// TestLongAndBinaryLines are split and made valid UTF-8.
func TestLongAndBinaryLines(t *testing.T) {
	var lines []string
	text := strings.Repeat("x", 2*maxLine+5) + "\n\xff\xfe\nlast without end"
	if err := eachLine(strings.NewReader(text), func(l string) error {
		lines = append(lines, l)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if len(lines) != 5 || len(lines[0]) != maxLine || lines[3] != "\uFFFD" || lines[4] != "last without end" {
		t.Errorf("%d lines: %q", len(lines), lines[3:])
	}
}

// TestLogThatWasRemoved: somebody removes the log of a process that runs, as people do when a disk
// is full. What is written meanwhile goes to a file without a name, which takes space that nobody
// finds; at the size at which it would be rotated there is a log again.
func TestLogThatWasRemoved(t *testing.T) {
	const most = 1000
	l, err := newLogs(t.TempDir(), most, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	f, err := l.acquire("p")
	if err != nil {
		t.Fatal(err)
	}
	defer l.release(f)
	line := strings.Repeat("x", 99)
	for round := range 3 {
		if err := os.Remove(l.path("p")); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		for range 2 * most / len(line) {
			if err := f.writeLine(line); err != nil {
				t.Fatal(err)
			}
		}
		info, err := os.Stat(l.path("p"))
		if err != nil || info.Size() > most {
			t.Fatalf("round %d: %v, %v", round, info, err)
		}
	}
}
