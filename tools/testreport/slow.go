package main

import (
	"os"
	"regexp"
	"slices"
	"strings"
)

// slowTest is a test that failed only since it waited in vain, and what for.
type slowTest struct{ name, what string }

// slow returns the tests that failed, where every one of them failed only since a wait ran out, by
// the notes of package test/wait: lines "wait<TAB>test<TAB>what", or "final" for what is no matter
// of time. Else it returns none. failed has the names of all failed tests, those that contain
// others too; broken says that a package failed without a test of its own.
func slow(failed []string, broken bool, notes string) []slowTest {
	waited := map[string]string{}
	for line := range strings.Lines(notes) {
		fields := strings.SplitN(strings.TrimSpace(line), "\t", 3)
		if len(fields) != 3 || fields[0] != "wait" {
			return nil // "final", or notes that are damaged
		}
		if _, ok := waited[fields[1]]; !ok {
			waited[fields[1]] = fields[2]
		}
	}
	if broken {
		return nil
	}
	var tests []slowTest
	for _, name := range failed {
		contains := func(other string) bool { return strings.HasPrefix(other, name+"/") }
		if slices.ContainsFunc(failed, contains) {
			continue
		}
		what, ok := waited[name]
		if !ok {
			return nil
		}
		tests = append(tests, slowTest{name, what})
	}
	return tests
}

// writeSlow appends lines "pattern for go test -run<TAB>test<TAB>what" to a file.
func writeSlow(file string, tests []slowTest) error {
	var lines []string
	for _, t := range tests {
		lines = append(lines, pattern(t.name)+"\t"+t.name+"\t"+t.what)
	}
	return appendLines(file, lines)
}

// pattern is what go test -run takes for one test.
func pattern(test string) string {
	parts := strings.Split(test, "/")
	for i, p := range parts {
		parts[i] = "^" + regexp.QuoteMeta(p) + "$"
	}
	return strings.Join(parts, "/")
}

// notesOf reads the notes of waits; a run without any has no file.
func notesOf(file string) (string, error) {
	notes, err := os.ReadFile(file)
	if os.IsNotExist(err) {
		return "", nil
	}
	return string(notes), err
}
