package podlog

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func create(t testing.TB, path string, max int64) *File {
	t.Helper()
	l, err := Create(path, max)
	if err != nil {
		t.Fatal(err)
	}
	l.now = func() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 600, time.UTC) }
	return l
}

func read(t testing.TB, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestFormat(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pod", "main.log")
	l := create(t, path, MaxBytes)
	out, errs := l.Stream("stdout"), l.Stream("stderr")
	write := func(s *Stream, text string) {
		if n, err := s.Write([]byte(text)); n != len(text) || err != nil {
			t.Fatalf("wrote %d, %v", n, err)
		}
	}
	write(out, "one\ntw")
	write(errs, "oops\n")
	write(out, "o\n\nlast")
	out.Flush()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	const at = "2026-01-02T03:04:05.0000006Z "
	want := at + "stdout F one\n" + at + "stderr F oops\n" + at + "stdout F two\n" + at + "stdout F \n" + at +
		"stdout F last\n"
	if got := read(t, path); got != want {
		t.Errorf("log\n%s\nwant\n%s", got, want)
	}
	write(out, "after close\n") // is swallowed: a container may outlive its log for a moment
	if got := Tail(path, 100); got != "one\noops\ntwo\n\nlast\n" {
		t.Errorf("tail %q", got)
	}
	if got := Tail(path, 8); got != "\nlast\n" {
		t.Errorf("tail of 8 bytes %q", got)
	}
}

func TestPrevious(t *testing.T) {
	path := filepath.Join(t.TempDir(), "main.log")
	for _, text := range []string{"first\n", "second\n"} {
		l := create(t, path, MaxBytes)
		_, _ = l.Stream("stdout").Write([]byte(text))
		_ = l.Close()
	}
	if Tail(path, 100) != "second\n" || Tail(PreviousPath(path), 100) != "first\n" {
		t.Errorf("log %q, previous %q", Tail(path, 100), Tail(PreviousPath(path), 100))
	}
}

// TestRotation: the files together never exceed twice the bound, and the newest lines are kept.
func TestRotation(t *testing.T) {
	path := filepath.Join(t.TempDir(), "main.log")
	l := create(t, path, 1000)
	s := l.Stream("stdout")
	for range 100 {
		_, _ = s.Write([]byte(strings.Repeat("x", 50) + "\n"))
	}
	_, _ = s.Write([]byte("newest\n"))
	_ = l.Close()
	now, old := read(t, path), read(t, path+".1")
	if len(now) > 1000 || len(old) > 1000 || len(old) == 0 {
		t.Errorf("sizes %d and %d, bound 1000", len(now), len(old))
	}
	if !strings.HasSuffix(now, "newest\n") {
		t.Error("the newest line is not in the current file")
	}
}

// TestCutting: however output is cut into writes, the lines are the same, and nothing is lost.
func TestCutting(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(rt *rapid.T) {
		text := ""
		for range rapid.IntRange(0, 6).Draw(rt, "lines") {
			length := rapid.OneOf(rapid.IntRange(0, 5), rapid.IntRange(maxLine-3, maxLine+3),
				rapid.IntRange(0, 3*maxLine)).Draw(rt, "length")
			text += strings.Repeat("x", length) + rapid.SampledFrom([]string{"", "\n"}).Draw(rt, "end")
		}
		path := filepath.Join(dir, "main.log")
		l := create(t, path, 1<<30)
		s := l.Stream("stdout")
		for rest := text; rest != ""; {
			n := rapid.IntRange(1, len(rest)).Draw(rt, "cut")
			_, _ = s.Write([]byte(rest[:n]))
			rest = rest[n:]
		}
		s.Flush()
		_ = l.Close()
		got := ""
		for line := range strings.Lines(read(t, path)) {
			parts := strings.SplitN(strings.TrimSuffix(line, "\n"), " ", 4)
			if len(parts[3]) > maxLine {
				rt.Fatalf("line of %d bytes", len(parts[3]))
			}
			got += parts[3]
			if parts[2] == "F" {
				got += "\n"
			}
		}
		if want := strings.TrimSuffix(text, "\n"); strings.TrimSuffix(got, "\n") != want {
			rt.Fatalf("got %d bytes, want %d", len(got), len(text))
		}
	})
}
