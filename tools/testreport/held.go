package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// heldBy is a test as the tables of facts name it: package.TestX or package.TestX/case.
var heldBy = regexp.MustCompile("`([a-z][a-z0-9/]*)\\.((?:Test|Fuzz)[A-Za-z0-9_/]+)`")

// elsewhere begins the reasons of tests that another phase runs, or that make no sense for what
// their suite is given.
var elsewhere = []string{"not in this form: ", "not for this one: ", "not in the gate, "}

// skippedTest is a line of the file of skipped tests.
type skippedTest struct{ pkg, name, reason string }

// readSkipped reads lines "package test: reason", without those that run elsewhere.
func readSkipped(file string) ([]skippedTest, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var all []skippedTest
next:
	for line := range strings.Lines(string(data)) {
		what, reason, _ := strings.Cut(strings.TrimSpace(line), ": ")
		pkg, name, ok := strings.Cut(what, " ")
		reason = place.ReplaceAllString(reason, "")
		for _, mark := range elsewhere {
			if strings.HasPrefix(reason, mark) {
				continue next
			}
		}
		if ok {
			all = append(all, skippedTest{pkg, name, reason})
		}
	}
	return all, nil
}

// holds says whether a fact is held by this test, or by a case of it.
func (s skippedTest) holds(pkg, name string) bool {
	return strings.HasSuffix(s.pkg, "/"+pkg) && (s.name == name || strings.HasPrefix(name, s.name+"/"))
}

// printHeldBySkipped prints the facts of a folder of tables ("id | fact | held: `package.Test`")
// whose tests were skipped: nothing held them in this run.
func printHeldBySkipped(w io.Writer, folder, skipped string) error {
	tests, err := readSkipped(skipped)
	if err != nil {
		return err
	}
	tables, err := filepath.Glob(filepath.Join(folder, "*.txt"))
	if err != nil {
		return err
	}
	for _, table := range tables {
		data, err := os.ReadFile(table)
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(data)) {
			cells := strings.SplitN(strings.TrimSpace(line), " | ", 3)
			if len(cells) != 3 || !strings.HasPrefix(cells[2], "held: ") {
				continue
			}
			for _, m := range heldBy.FindAllStringSubmatch(cells[2], -1) {
				for _, s := range tests {
					if s.holds(m[1], m[2]) {
						fmt.Fprintf(w, "  %s: %s.%s was skipped: %s\n", cells[0], m[1], m[2], s.reason)
					}
				}
			}
		}
	}
	return nil
}
