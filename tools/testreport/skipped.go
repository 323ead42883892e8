package main

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
)

func appendLines(file string, lines []string) error {
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	for _, l := range lines {
		if _, err := fmt.Fprintln(f, l); err != nil {
			f.Close()
			return err
		}
	}
	return f.Close()
}

// place is where a test said why it was skipped.
var place = regexp.MustCompile(`^[A-Za-z0-9_.-]+\.go:[0-9]+: `)

// printSkipped prints the tests of a file of lines "package test: reason", the reason with the most
// tests first.
func printSkipped(w io.Writer, file string) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	tests := map[string][]string{}
	for line := range strings.Lines(string(data)) {
		test, reason, ok := strings.Cut(strings.TrimSpace(line), ": ")
		if !ok {
			continue
		}
		reason = place.ReplaceAllString(reason, "")
		tests[reason] = append(tests[reason], test)
	}
	var reasons []string
	for reason := range tests {
		reasons = append(reasons, reason)
	}
	slices.SortFunc(reasons, func(a, b string) int {
		return cmp.Or(cmp.Compare(len(tests[b]), len(tests[a])), strings.Compare(a, b))
	})
	for _, reason := range reasons {
		fmt.Fprintf(
			w,
			"%6d %s\n         %s\n",
			len(tests[reason]),
			reason,
			strings.Join(firstOf(tests[reason], 3), ", "),
		)
	}
	return nil
}

// firstOf are the first n names, with what became of the others.
func firstOf(names []string, n int) []string {
	if len(names) <= n {
		return names
	}
	return append(slices.Clone(names[:n]), fmt.Sprintf("and %d more", len(names)-n))
}
