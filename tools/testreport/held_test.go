package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestFactsOfSkippedTests: what nothing held in a run is named with the reason; a test that another
// phase runs, and the same name in another package, are not meant.
func TestFactsOfSkippedTests(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		t.Helper()
		name = filepath.Join(dir, name)
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return name
	}
	write("a.txt", "# a table\na-1 | one | held: `e2e.TestA`, `e2e.TestB/D1`\na-2 | two | held: `e2e.TestB/D2`\n"+
		"a-3 | three | later: `e2e.TestA`\na-4 | four | held: `cli.TestA`, `controlplane/process/engine.TestC`\n")
	skipped := write("skipped", "x/test/e2e TestA: a_test.go:7: no device\nx/test/e2e TestB/D1: no room\n"+
		"x/controlplane/process/engine TestC: not in this form: make soak\nx/other TestB: no network\n"+
		"x/test/e2e TestA: not in the gate, tools/hunt.sh runs it: real time\n")
	var out strings.Builder
	if err := printHeldBySkipped(&out, dir, skipped); err != nil {
		t.Fatal(err)
	}
	want := "  a-1: e2e.TestA was skipped: no device\n  a-1: e2e.TestB/D1 was skipped: no room\n"
	if out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
	whole := write("whole", "x/test/e2e TestB: no device\n")
	out.Reset()
	if err := printHeldBySkipped(&out, dir, whole); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); strings.Count(got, "\n") != 2 || !strings.Contains(got, "a-2: e2e.TestB/D2") {
		t.Errorf("a test that is skipped with all its cases: %q", got)
	}
}
