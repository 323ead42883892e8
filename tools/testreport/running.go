package main

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

const (
	// runningEvery is how often the tests that run are named.
	runningEvery = 30 * time.Second
	// named is how many of them are named at once, the oldest first.
	named = 6
)

// running are the tests that run now, by package and name, with the time at which each began or
// went on.
type running map[string]time.Time

// take notes what an event says of a test. One that waits for its turn (t.Parallel) does not run.
func (r running) take(e event, now time.Time) {
	if e.Test == "" {
		return
	}
	switch key := e.Package + " " + e.Test; e.Action {
	case "run", "cont":
		r[key] = now
	case "pause", "pass", "fail", "skip":
		delete(r, key)
	}
}

// String names the tests that run and for how long, "" if there are none. Of a test and its
// subtests the subtests are meant.
func (r running) String(now time.Time) string {
	var keys []string
	for key := range r {
		if !r.hasSubtest(key) {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, func(a, b string) int {
		if c := r[a].Compare(r[b]); c != 0 {
			return c
		}
		return strings.Compare(a, b)
	})
	var said []string
	for i, key := range keys {
		if i == named {
			said = append(said, fmt.Sprintf("and %d more", len(keys)-i))
			break
		}
		said = append(said, fmt.Sprintf("%s (%.0f s)", key, now.Sub(r[key]).Seconds()))
	}
	return strings.Join(said, ", ")
}

func (r running) hasSubtest(key string) bool {
	for other := range r {
		if strings.HasPrefix(other, key+"/") {
			return true
		}
	}
	return false
}
