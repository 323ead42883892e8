package sim

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestRegressions plays the seeds of testdata/regressions.txt: "<seed> <what it found>" per line.
// What a seed does changes with the tables of this package, so each defect has a test of its own
// besides.
func TestRegressions(t *testing.T) {
	f, err := os.Open("testdata/regressions.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	n := 0
	for lines := bufio.NewScanner(f); lines.Scan(); {
		line := lines.Text()
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		var seed uint64
		if _, err := fmt.Sscan(line, &seed); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		n++
		if r := Run(seed); r.Err != nil {
			t.Errorf("%s: %v\n%s", line, r.Err, strings.Join(r.History, "\n"))
		}
	}
	if n == 0 {
		t.Error("no seeds")
	}
}
