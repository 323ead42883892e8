package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// oneTest is a test of a package as it ran without a mutant.
type oneTest struct {
	name string
	cpu  time.Duration
	// reaches are the mutants that it comes by.
	reaches map[int]bool
}

// bed runs the tests of one package.
type bed struct {
	dir, work, binary string
	args              []string
	tests             []*oneTest
	// unfit are tests that fail with the mutants compiled in although none is active.
	unfit []string
}

const (
	// quick is what a test takes that runs together with others.
	quick = 500 * time.Millisecond
	// slack is CPU time that a mutant may take above ten times what the tests take without it. A test
	// that runs into it has noticed: the mutant never ends.
	slack = 3 * time.Second
	// patience is how long a run may wait for something, on a machine with much else to do.
	patience = 90 * time.Second
	// memoryKiB bounds the address space, for mutants that never stop appending.
	memoryKiB = 12 << 20
)

// prepare finds out which tests there are, what they take, and which mutants they come by.
func prepare(s *subject, work string) (*bed, error) {
	binary, err := s.build(work)
	if err != nil {
		return nil, err
	}
	b := &bed{dir: s.dir, work: work, binary: binary}
	flags, _ := exec.Command(binary, "-h").CombinedOutput()
	if bytes.Contains(flags, []byte("rapid.nofailfile")) {
		b.args = append(b.args, "-rapid.nofailfile")
	}
	list := exec.Command(binary, "-test.list", ".")
	list.Dir = s.dir
	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("listing the tests of %s: %w", s.target.pkg, err)
	}
	for _, name := range strings.Fields(string(out)) {
		if strings.HasPrefix(name, "Benchmark") || s.leftOut(name) {
			continue
		}
		reached := filepath.Join(work, "reached")
		r := b.run([]string{name}, 0, reached, time.Minute)
		if r.failed {
			b.unfit = append(b.unfit, name)
			continue
		}
		t := &oneTest{name: name, cpu: r.cpu, reaches: map[int]bool{}}
		data, _ := os.ReadFile(reached) // none if the test comes by nothing
		for _, id := range strings.Fields(string(data)) {
			n, _ := strconv.Atoi(id)
			t.reaches[n] = true
		}
		_ = os.Remove(reached)
		b.tests = append(b.tests, t)
	}
	slices.SortStableFunc(b.tests, func(x, y *oneTest) int { return int(x.cpu - y.cpu) })
	return b, nil
}

// outcome is how a run of tests ended.
type outcome struct {
	failed, endless bool
	cpu             time.Duration
	// by is the test that failed.
	by string
}

var failure = regexp.MustCompile(`--- FAIL: (\w+)`)

// run runs tests with a mutant active, 0 for none.
func (b *bed) run(tests []string, id int, reached string, cpu time.Duration) outcome {
	ctx, stop := context.WithTimeout(context.Background(), patience+10*cpu)
	defer stop()
	limit := fmt.Sprintf(`ulimit -v %d; ulimit -t %d; exec "$@"`, memoryKiB, int((cpu+slack)/time.Second))
	args := append([]string{
		"-c", limit, "sh", b.binary, "-test.run", "^(" + strings.Join(tests, "|") + ")$", "-test.failfast",
		"-test.short=false",
		"-test.timeout", (patience + 5*cpu).String(),
	}, b.args...)
	cmd := exec.CommandContext(ctx, "sh", args...)
	cmd.Dir = b.dir
	cmd.Env = append(os.Environ(), fmt.Sprintf("MUTANT=%d", id), "MUTANTS_REACHED="+reached)
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	o := outcome{failed: err != nil}
	if cmd.ProcessState != nil {
		o.cpu = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	}
	var exit *exec.ExitError
	if o.failed && errors.As(err, &exit) {
		o.endless = !exit.Exited() || bytes.Contains(out, []byte("panic: test timed out"))
		if m := failure.FindSubmatch(out); m != nil {
			o.by = string(m[1])
		}
	}
	return o
}

// Verdicts about a mutant.
const (
	noticed   = "noticed"
	endless   = "never ends"
	survived  = "SURVIVED"
	unreached = "NOT REACHED"
)

// try says what the tests make of a mutant.
func (b *bed) try(m *mutant) (verdict, by string) {
	var together []string
	var slow []*oneTest
	total := time.Duration(0)
	for _, t := range b.tests {
		switch {
		case !t.reaches[m.id]:
		case t.cpu < quick:
			together, total = append(together, t.name), total+t.cpu
		default:
			slow = append(slow, t)
		}
	}
	if len(together) == 0 && len(slow) == 0 {
		return unreached, ""
	}
	runs := []func() outcome{}
	if len(together) > 0 {
		runs = append(runs, func() outcome { return b.run(together, m.id, "", 10*total) })
	}
	for _, t := range slow {
		runs = append(runs, func() outcome { return b.run([]string{t.name}, m.id, "", 10*t.cpu) })
	}
	for _, run := range runs {
		switch o := run(); {
		case o.endless:
			return endless, o.by
		case o.failed:
			return noticed, o.by
		}
	}
	return survived, ""
}
