// Command testreport reads what `go test -json` prints and tells a person what came of it: a line
// per package in the form of `go test`, the whole output of every test that failed, the reason of
// every test that was skipped, and the sum. A line that a test logs with "sum: " at its beginning
// is shown whatever becomes of the test.
//
//	go test -json ./... | testreport [-v]
//
// The exit status is 1 when anything failed or when no test ran at all.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"
)

func main() {
	verbose := flag.Bool("v", false, "print the result of every test")
	flag.Parse()
	r := newReport(os.Stdout, *verbose)
	if err := r.read(os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, "testreport:", err)
		os.Exit(2)
	}
	if !r.finish() {
		os.Exit(1)
	}
}

// event is one line of `go test -json`; see `go doc test2json`.
type event struct {
	Action      string
	Package     string
	ImportPath  string // of build output
	Test        string
	Elapsed     float64 // seconds
	Output      string
	FailedBuild string
}

// maxLine bounds one event: a test may log a long line, but not a gigabyte.
const maxLine = 16 << 20

// sumMark begins what a test wants to say about itself, after the place where testing.T.Log says it
// was.
const sumMark = ": sum: "

// report collects results by package.
type report struct {
	w        io.Writer
	verbose  bool
	began    time.Time
	packages map[string]*result
	builds   map[string][]string // output of the compiler, by import path
	failures []string            // names of what failed
	skips    []string
	tests    counts
}

// counts of tests, subtests included.
type counts struct{ passed, failed, skipped int }

func (c counts) sum() int { return c.passed + c.failed + c.skipped }

func (c *counts) add(d counts) {
	c.passed += d.passed
	c.failed += d.failed
	c.skipped += d.skipped
}

// result of a package under test.
type result struct {
	counts
	output map[string][]string // by test; "" is the package's own
}

func newReport(w io.Writer, verbose bool) *report {
	return &report{w: w, verbose: verbose, began: time.Now(), packages: map[string]*result{},
		builds: map[string][]string{}}
}

// read takes events until the input ends. Lines that are no events are passed through: they are
// what go itself says.
func (r *report) read(in io.Reader) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		var e event
		if json.Unmarshal(lines.Bytes(), &e) != nil || e.Action == "" {
			fmt.Fprintln(r.w, lines.Text())
			continue
		}
		r.take(e)
	}
	return lines.Err()
}

func (r *report) take(e event) {
	if e.Action == "build-output" {
		r.builds[e.ImportPath] = append(r.builds[e.ImportPath], e.Output)
		return
	}
	if e.Package == "" {
		return
	}
	p := r.packages[e.Package]
	if p == nil {
		p = &result{output: map[string][]string{}}
		r.packages[e.Package] = p
	}
	switch {
	case e.Action == "output":
		p.output[e.Test] = append(p.output[e.Test], e.Output)
		if _, line, ok := strings.Cut(e.Output, sumMark); ok {
			fmt.Fprint(r.w, "     \t"+line)
		}
	case e.Test != "":
		r.test(p, e)
	default:
		r.ended(p, e)
	}
}

// test takes the end of a test.
func (r *report) test(p *result, e event) {
	switch e.Action {
	case "pass":
		p.passed++
		delete(p.output, e.Test)
	case "fail":
		p.failed++
		r.failures = append(r.failures, e.Package+" "+e.Test)
	case "skip":
		p.skipped++
		r.skips = append(r.skips, e.Package+" "+e.Test+": "+reason(p.output[e.Test]))
		delete(p.output, e.Test)
	default:
		return
	}
	if r.verbose {
		fmt.Fprintf(r.w, "    %-4s %s (%.2fs)\n", e.Action, e.Test, e.Elapsed)
	}
}

// reason is what a skipped test said, without the lines that frame it.
func reason(output []string) string {
	var said []string
	for _, line := range output {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "=== ") && !strings.HasPrefix(line, "--- ") {
			said = append(said, line)
		}
	}
	if len(said) == 0 {
		return "no reason given"
	}
	return strings.Join(said, " ")
}

// ended takes the end of a package.
func (r *report) ended(p *result, e event) {
	switch e.Action {
	case "pass":
		fmt.Fprintf(r.w, "ok  \t%s\t%.3fs\t%d tests\n", e.Package, e.Elapsed, p.sum())
	case "skip":
		fmt.Fprintf(r.w, "?   \t%s\t[no test files]\n", e.Package)
	case "fail":
		if p.failed == 0 {
			r.failures = append(r.failures, e.Package)
		}
		for _, line := range r.builds[e.FailedBuild] {
			fmt.Fprint(r.w, line)
		}
		r.dump(p)
		fmt.Fprintf(r.w, "FAIL\t%s\t%.3fs\t%d tests, %d failed\n", e.Package, e.Elapsed, p.sum(), p.failed)
	default:
		return
	}
	r.tests.add(p.counts)
	delete(r.packages, e.Package)
}

// dump prints what is left of a package's output: that of failed tests, of tests that never ended,
// and its own.
func (r *report) dump(p *result) {
	names := make([]string, 0, len(p.output))
	for name := range p.output {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		for _, line := range p.output[name] {
			fmt.Fprint(r.w, line)
		}
	}
}

// finish prints the sum and reports whether all is well.
func (r *report) finish() bool {
	for name, p := range r.packages { // go test was killed
		r.failures = append(r.failures, name+" did not end")
		r.dump(p)
	}
	for _, s := range r.skips {
		fmt.Fprintln(r.w, "skipped:", s)
	}
	for _, f := range r.failures {
		fmt.Fprintln(r.w, "FAILED:", f)
	}
	word := "ok"
	ok := len(r.failures) == 0 && r.tests.sum() > 0
	if !ok {
		word = "FAIL"
	}
	fmt.Fprintf(r.w, "%s: %d tests passed, %d failed, %d skipped in %.1f s\n",
		word, r.tests.passed, r.tests.failed, r.tests.skipped, time.Since(r.began).Seconds())
	return ok
}
