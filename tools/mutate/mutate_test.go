package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// sample is the package in testdata, a module of its own.
func sample(t *testing.T) (options, *subject) {
	t.Helper()
	root, err := filepath.Abs("testdata/sample")
	if err != nil {
		t.Fatal(err)
	}
	all, err := load(root, []target{{pkg: "shop"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := all[0].leaveOut(); err != nil {
		t.Fatal(err)
	}
	return options{root: root, workers: 2}, all[0]
}

// TestOperators compares the mutants of the sample with the list beside it.
func TestOperators(t *testing.T) {
	_, s := sample(t)
	var b strings.Builder
	for _, m := range s.mutants {
		fmt.Fprintf(&b, "%d %s\n", m.line, m.key())
	}
	const golden = "testdata/sample/mutants.txt"
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(golden, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if b.String() != string(want) {
		t.Errorf("the mutants are not those of %s (UPDATE=1 writes it):\n%s", golden, b.String())
	}
}

// TestVerdicts tries the sample: it has one rule that its test does not hold, one function that no
// test calls, and one loop that a mutant makes endless.
func TestVerdicts(t *testing.T) {
	o, s := sample(t)
	b, err := prepare(s, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	var sum summary
	left := b.tryAll(o, s.mutants, time.Time{}, &sum)
	var keys []string
	for _, m := range left {
		keys = append(keys, m.key())
	}
	slices.Sort(keys)
	want := []string{
		"in Price: boundary: n >= discountFrom => n > discountFrom",
		`in Unused: return: "x" => ""`,
	}
	if !slices.Equal(keys, want) {
		t.Errorf("not noticed: %q, want %q", keys, want)
	}
	if sum.endless == 0 || sum.noticed == 0 || sum.survived != 1 || sum.unreached != 1 {
		t.Errorf("summary %v", sum)
	}
}

// TestSeedRotates shows that the order depends on the seed and on nothing else.
func TestSeedRotates(t *testing.T) {
	order := func(seed string, from ...string) []string {
		shuffle(from, seed, func(s string) string { return s })
		return from
	}
	first, again := order("a", "1", "2", "3", "4", "5"), order("a", "5", "3", "1", "2", "4")
	if !slices.Equal(first, again) {
		t.Errorf("one seed, two orders: %v %v", first, again)
	}
	if other := order("b", "1", "2", "3", "4", "5"); slices.Equal(first, other) {
		t.Errorf("two seeds, one order: %v", first)
	}
}

// TestListsFitTheCode loads every target and finds each listed mutant.
func TestListsFitTheCode(t *testing.T) {
	const root = "../.."
	abs, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	listed, err := choosePackages(nil)
	if err != nil {
		t.Fatal(err)
	}
	all, err := load(abs, listed)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		known[filepath.Base(reviewedFile(abs, s.target.pkg))] = true
		sum := summary{target: s.target}
		if _, err := sum.choose(options{root: abs}, s.mutants); err != nil {
			t.Error(err)
		}
		if sum.stale > 0 {
			t.Errorf("%s: %d entries of the lists fit no mutant: say why it is equivalent, test it, or remove it",
				s.target.pkg, sum.stale)
		}
	}
	for _, folder := range []string{"reviewed", "open"} {
		files, _ := filepath.Glob(folder + "/*.txt")
		for _, f := range files {
			if !known[filepath.Base(f)] {
				t.Errorf("%s belongs to no target", f)
			}
		}
	}
}

// TestReviewedList reads lists with and without mistakes.
func TestReviewedList(t *testing.T) {
	read := func(text string) (reviewed, error) {
		path := filepath.Join(t.TempDir(), "list.txt")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return readReviewed(path)
	}
	list, err := read("# a comment\nin f: a\nin g: b\n\tone reason\n\tfor both\nin h: c\n\tanother\n")
	if err != nil || list["in f: a"] != "one reason for both" || list["in g: b"] != "one reason for both" ||
		list["in h: c"] != "another" {
		t.Errorf("%q, %v", list, err)
	}
	for name, text := range map[string]string{
		"no reason": "in f: a\n", "no mutant": "\ta reason\n", "twice": "in f: a\n\tx\nin f: a\n\ty\n",
	} {
		if _, err := read(text); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
}
