// Package lack is how a test says that it does not run, or not whole: every test that skips does it
// here, as a rule in tidy/ sees to.
//
// What the machine lacks (a device, a program, a permission) is a reason to skip for a user who
// runs the tests on whatever there is. In CI it is a failure: a test that cannot run there must not
// look like one that passed. The exceptions, what a machine of CI cannot have, stand in absent.txt
// beside this file.
package lack

import (
	_ "embed"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
)

// Variable of the environment that is set where nothing may be missing. The script of CI sets it.
const Variable = "ANKOLE_CI"

//go:embed absent.txt
var list string

// absence is something that a machine of CI cannot have.
type absence struct {
	what *regexp.Regexp // in what a test says is missing
	why  string
}

// parse reads lines "pattern: reason"; those that begin with # are comments.
func parse(list string) ([]absence, error) {
	var all []absence
	for line := range strings.Lines(list) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		pattern, why, ok := strings.Cut(line, ": ")
		if !ok || strings.TrimSpace(why) == "" {
			return nil, fmt.Errorf("%q says no reason", line)
		}
		re, err := regexp.Compile(pattern)
		if err != nil {
			return nil, err
		}
		all = append(all, absence{re, why})
	}
	return all, nil
}

// Tester is the part of testing.TB that this package uses.
type Tester interface {
	Helper()
	Fatalf(format string, args ...any)
	Skipf(format string, args ...any)
	Logf(format string, args ...any)
}

var _ Tester = testing.TB(nil)

// Skip ends a test that needs something the machine does not have: it is skipped, in CI it fails.
// what, printed as fmt.Sprint does, says what is missing and how to get it.
func Skip(t Tester, what ...any) {
	t.Helper()
	missing(t, t.Skipf, "", fmt.Sprint(what...))
}

// Less goes on with a test that leaves something out since the machine lacks something; in CI the
// test fails.
func Less(t Tester, what ...any) {
	t.Helper()
	missing(t, t.Logf, "less than all is tested: ", fmt.Sprint(what...))
}

func missing(t Tester, otherwise func(string, ...any), effect, what string) {
	t.Helper()
	if os.Getenv(Variable) == "" {
		otherwise("%s%s", effect, what)
		return
	}
	all, err := parse(list)
	if err != nil {
		t.Fatalf("test/lack/absent.txt: %v", err)
	}
	for _, a := range all {
		if a.what.MatchString(what) {
			otherwise("%s%s (%s)", effect, what, a.why)
			return
		}
	}
	t.Fatalf(
		"%s%s: in CI nothing may be missing (install it in .ci/run, or say in test/lack/absent.txt why CI cannot have it)",
		effect, what,
	)
}

// Later ends a test that takes too long for this form of the run; how says what runs it.
func Later(t Tester, how string) {
	t.Helper()
	t.Skipf("not in this form: %s", how)
}

// Unfit ends a case of a suite that makes no sense for what the suite is given, and says why.
func Unfit(t Tester, why string) {
	t.Helper()
	t.Skipf("not for this one: %s", why)
}

// GateVariable of the environment is set where tests decide about a change: tools/test.sh sets it.
const GateVariable = "ANKOLE_GATE"

// RealTime ends a test whose verdict depends on real time, on memory, or on what the kernel happens
// to do, where tests decide about a change: there the same sources must get the same verdict on any
// machine, however busy. Everywhere else the test runs. why names what it measures or waits for.
func RealTime(t Tester, why string) {
	t.Helper()
	if Deciding() {
		t.Skipf("not in the gate, tools/hunt.sh runs it: %s", why)
	}
}

// Deciding reports whether tests decide about a change: then a bound of time or memory is told and
// fails nothing.
func Deciding() bool { return os.Getenv(GateVariable) != "" }
