// Command testreport reads what `go test -json` prints and tells a person what came of it: a line
// per package in the form of `go test`, the whole output of every test that failed with the command
// that repeats it, the reason of every test that was skipped, and the sum. Every 30 s it names the
// tests that run.
//
// A line that a test logs with "sum: " at its beginning is shown whatever becomes of the test,
// "found: " is shown at once, as is a line it prints with "progress: ": a simulator that looks for
// minutes says what it has found.
//
// With -waits, the notes of package test/wait, the file of -slow gets tests that failed, if each of
// them failed only since a wait ran out.
//
//	go test -json ARGUMENTS | testreport [-v] [-module DIR] [-skipped FILE] [-failed FILE] [-waits FILE -slow FILE] -- ARGUMENTS
//	testreport -table FILE
//	testreport -table FILE -facts DIR
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
	"regexp"
	"slices"
	"strings"
	"time"
)

func main() {
	o := options{environment: os.Environ()}
	flag.BoolVar(&o.verbose, "v", false, "print the result of every test")
	flag.IntVar(&o.longest, "longest", 0, "name so many of the tests that took longest")
	flag.StringVar(&o.module, "module", ".", "folder of the module under test, for the command that repeats a test")
	skipped := flag.String("skipped", "", "file that gets a line for every test that was skipped")
	failed := flag.String("failed", "", "file that gets every test that failed, as the report's last lines name it")
	waits := flag.String("waits", "", "file with the notes of package test/wait")
	slowFile := flag.String("slow", "", "file that gets the tests that failed, if they did so only since they waited in vain")
	table := flag.String("table", "", "print that file of skipped tests as a table, and nothing else")
	facts := flag.String("facts", "", "folder of tables of facts: print those whose tests are in the file of -table instead")
	flag.Parse()
	if *table != "" {
		if err := printTable(*table, *facts); err != nil {
			fmt.Fprintln(os.Stderr, "testreport:", err)
			os.Exit(2)
		}
		return
	}
	o.args = flag.Args()
	r := newReport(os.Stdout, o)
	err := r.follow(os.Stdin, time.NewTicker(runningEvery).C)
	if err == nil && *skipped != "" {
		err = appendLines(*skipped, r.skips)
	}
	ok := err == nil && r.finish()
	if err == nil && *failed != "" {
		err = appendLines(*failed, r.failures)
	}
	if err == nil && *slowFile != "" {
		var notes string
		if notes, err = notesOf(*waits); err == nil {
			err = writeSlow(*slowFile, slow(r.failed, r.broken, notes))
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "testreport:", err)
		os.Exit(2)
	}
	if !ok {
		os.Exit(1)
	}
}

// printTable prints a file of skipped tests, or the facts that they hold.
func printTable(skipped, facts string) error {
	if facts != "" {
		return printHeldBySkipped(os.Stdout, facts, skipped)
	}
	return printSkipped(os.Stdout, skipped)
}

// options of a report.
type options struct {
	verbose bool
	longest int // so many of the tests that took longest are named at the end
	// module, args and environment are those of go test, for the command that repeats a test.
	module      string
	args        []string
	environment []string
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

// What a test wants to say about itself begins with one of these, after the place where
// testing.T.Log says it was.
const (
	sumMark   = ": sum: "
	foundMark = ": found: "
	// progressMark begins a line that a test prints.
	progressMark = "progress: "
)

// kept ends the line of a package whose results are those of an earlier run.
const kept = "\t(cached)\n"

// report collects results by package.
type report struct {
	w io.Writer
	options
	began    time.Time
	packages map[string]*result
	builds   map[string][]string // output of the compiler, by import path
	failures []string            // what failed, as the last lines say it
	failed   []string            // names of tests that failed
	broken   bool                // a package failed, and none of its tests
	skips    []string
	tests    counts
	times    []timed
	running  running
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

func newReport(w io.Writer, o options) *report {
	return &report{w: w, options: o, began: time.Now(), packages: map[string]*result{}, builds: map[string][]string{},
		running: running{}}
}

// follow takes lines until the input ends, and at every tick names the tests that run.
func (r *report) follow(in io.Reader, ticks <-chan time.Time) error {
	lines, failed := make(chan []byte), make(chan error, 1)
	go func() {
		defer close(lines)
		scan := bufio.NewScanner(in)
		scan.Buffer(nil, maxLine)
		for scan.Scan() {
			lines <- slices.Clone(scan.Bytes())
		}
		failed <- scan.Err()
	}()
	for {
		select {
		case line, ok := <-lines:
			if !ok {
				return <-failed
			}
			r.line(line, time.Now())
		case now := <-ticks:
			if text := r.running.String(now); text != "" {
				fmt.Fprintf(r.w, "     \t%.0f s, running: %s\n", now.Sub(r.began).Seconds(), text)
			}
		}
	}
}

// line takes an event. A line that is none is passed through: it is what go itself says.
func (r *report) line(line []byte, now time.Time) {
	var e event
	if json.Unmarshal(line, &e) != nil || e.Action == "" {
		fmt.Fprintln(r.w, string(line))
		return
	}
	r.running.take(e, now)
	r.take(e)
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
		if line, ok := strings.CutPrefix(e.Output, progressMark); ok {
			fmt.Fprint(r.w, "     \t"+line)
		}
		for _, mark := range []string{sumMark, foundMark} {
			if _, line, ok := strings.Cut(e.Output, mark); ok {
				fmt.Fprint(r.w, "     \t"+line)
			}
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
		r.failed = append(r.failed, e.Test)
		r.failures = append(r.failures, e.Package+" "+e.Test+r.explained(p, e))
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
	r.times = append(r.times, timed{e.Test, e.Elapsed})
}

// explained is what the last lines of a report tell of a failed test. A test of which a subtest has
// failed leaves that to the subtest: what it says itself is the state that all of it was in.
func (r *report) explained(p *result, e event) string {
	if slices.ContainsFunc(r.failed, func(f string) bool { return strings.HasPrefix(f, e.Test+"/") }) {
		return ""
	}
	return digest(p.output[e.Test]) + "\n  again: " + r.again(e.Package, e.Test)
}

// said is what a test printed, without the lines that frame it.
func said(output []string) []string {
	var lines []string
	for _, line := range output {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "=== ") && !strings.HasPrefix(line, "--- ") {
			lines = append(lines, line)
		}
	}
	return lines
}

// reason is what a skipped test said.
func reason(output []string) string {
	lines := said(output)
	if len(lines) == 0 {
		return "no reason given"
	}
	return strings.Join(lines, " ")
}

// What the last lines of a report repeat of a failed test: its first messages and its last ones, of
// each so many lines, cut to a width.
const (
	digestHead  = 2
	digestTail  = 5
	digestLines = 3
	digestWidth = 240 // bytes
)

// logged is how a line begins that a test logs, the place in the code, or that the runtime prints
// last. Other lines belong to the message before.
var logged = regexp.MustCompile(`^([\w-]+\.go:\d+: |panic: |fatal error: )`)

// messages are what a failed test said, one entry per call of its log, each cut to its first lines.
func messages(output []string) (list [][]string) {
	for _, line := range said(output) {
		switch last := len(list) - 1; {
		case last < 0 || logged.MatchString(line):
			list = append(list, []string{line})
		case len(list[last]) < digestLines:
			list[last] = append(list[last], line)
		}
	}
	return list
}

// digest is the beginning and the end of what a failed test said, each line on a line of its own.
func digest(output []string) string {
	list := messages(output)
	if len(list) > digestHead+digestTail {
		list = slices.Concat(list[:digestHead], list[len(list)-digestTail:])
	}
	var b strings.Builder
	for _, line := range slices.Concat(list...) {
		b.WriteString("\n  | ")
		b.WriteString(strings.ToValidUTF8(line[:min(len(line), digestWidth)], ""))
	}
	return b.String()
}

// ended takes the end of a package.
func (r *report) ended(p *result, e event) {
	switch e.Action {
	case "pass":
		took := fmt.Sprintf("%.3fs", e.Elapsed)
		if slices.ContainsFunc(p.output[""], func(line string) bool { return strings.HasSuffix(line, kept) }) {
			took = strings.TrimSpace(kept)
		}
		fmt.Fprintf(r.w, "ok  \t%s\t%s\t%d tests\n", e.Package, took, p.sum())
	case "skip":
		fmt.Fprintf(r.w, "?   \t%s\t[no test files]\n", e.Package)
	case "fail":
		if p.failed == 0 {
			r.broken = true
			r.failures = append(r.failures, e.Package+"\n  again: "+r.again(e.Package, ""))
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
		r.broken = true
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
	if r.longest > 0 && len(r.times) > 0 {
		fmt.Fprintln(r.w, "longest:", longestLine(longest(r.times, r.longest)))
	}
	fmt.Fprintf(r.w, "%s: %d tests passed, %d failed, %d skipped in %.1f s\n",
		word, r.tests.passed, r.tests.failed, r.tests.skipped, time.Since(r.began).Seconds())
	return ok
}
