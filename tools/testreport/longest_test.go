package main

import "testing"

// TestLongest: a test with subtests counts for what it does outside them.
func TestLongest(t *testing.T) {
	t.Parallel()
	tests := []timed{{"TestA/x", 7}, {"TestA/y", 2}, {"TestA", 12}, {"TestB", 4}, {"TestC/p", 9}, {"TestC/q", 8},
		{"TestC", 9}}
	const want = "TestC/p 9 s, TestC/q 8 s, TestA/x 7 s, TestB 4 s, TestA 3 s"
	if got := longestLine(longest(tests, 5)); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got := longest(nil, 5); len(got) != 0 {
		t.Errorf("of no tests: %v", got)
	}
}
