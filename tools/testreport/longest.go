package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// timed is a test and how long it took, in seconds, its subtests included.
type timed struct {
	name    string
	seconds float64
}

// longest returns the n tests that took longest, each without its subtests, longest first. Subtests
// that run side by side may take longer than their test, which then has no time of its own.
func longest(tests []timed, n int) []timed {
	inside := map[string]float64{}
	for _, t := range tests {
		if i := strings.LastIndexByte(t.name, '/'); i >= 0 {
			inside[t.name[:i]] += t.seconds
		}
	}
	own := slices.Clone(tests)
	for i := range own {
		own[i].seconds -= inside[own[i].name]
	}
	slices.SortStableFunc(own, func(a, b timed) int { return cmp.Compare(b.seconds, a.seconds) })
	return own[:min(n, len(own))]
}

// longestLine names tests and their times.
func longestLine(tests []timed) string {
	said := make([]string, len(tests))
	for i, t := range tests {
		said[i] = fmt.Sprintf("%s %.0f s", t.name, t.seconds)
	}
	return strings.Join(said, ", ")
}
