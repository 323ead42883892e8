package boundedlog

import (
	"os"
	"path/filepath"
	"testing"
)

// TestBound: a file that would become too large is put aside, whatever it held when it was opened;
// a line is never cut, and one that is larger than the bound has a file for itself.
func TestBound(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sub", "a.log")
	l := &File{Path: path, MaxBytes: 8}
	is := func(what, now, old string) {
		t.Helper()
		for name, want := range map[string]string{path: now, path + ".1": old} {
			text, err := os.ReadFile(name)
			if string(text) != want || err != nil && !os.IsNotExist(err) {
				t.Errorf("%s: %s is %q, %v; want %q", what, filepath.Base(name), text, err, want)
			}
		}
	}
	write := func(text string) {
		t.Helper()
		if n, err := l.Write([]byte(text)); n != len(text) || err != nil {
			t.Fatal(n, err)
		}
	}
	if err := l.Open(); err != nil {
		t.Fatal(err)
	}
	is("opened", "", "")
	write("one\n")
	write("two\n")
	is("full", "one\ntwo\n", "")
	write("3\n")
	is("put aside", "3\n", "one\ntwo\n")
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	l = &File{Path: path, MaxBytes: 8}
	write("four\n")
	is("opened again", "3\nfour\n", "one\ntwo\n")
	write("a long line\n")
	is("long", "a long line\n", "3\nfour\n")
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	write("5\n")
	is("written after the end", "5\n", "a long line\n")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	write("6789012\n")
	is("removed by somebody", "6789012\n", "a long line\n")
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}
