package tidy

import (
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// factsDir has the tables of what clients of the reference system rely on.
const factsDir = "docs/facts"

// factID is the number of a fact: letters of its table, then digits.
var factID = regexp.MustCompile(`^[a-z]+-[0-9]+$`)

// fact is a line of a table: "id | fact | state: text". States are held (by tests), partly (by
// tests, and what they do not show), later (belongs to a feature that is named and not built yet),
// other (Ankole does not do it so, and why) and missing (what has to be built).
type fact struct{ id, text, state, what string }

func parseFacts(text string) ([]fact, error) {
	var all []fact
	for n, line := range strings.Split(text, "\n") {
		if strings.TrimSpace(line) == "" || strings.HasPrefix(line, "#") {
			continue
		}
		cells := strings.SplitN(line, " | ", 3)
		if len(cells) != 3 {
			return nil, fmt.Errorf("line %d: %q is not id, fact and state", n+1, line)
		}
		state, what, _ := strings.Cut(cells[2], ": ")
		known := slices.Contains([]string{"held", "partly", "later", "other", "missing"}, state)
		if !factID.MatchString(cells[0]) || strings.TrimSpace(cells[1]) == "" || !known || strings.TrimSpace(what) == "" {
			return nil, fmt.Errorf("line %d: %q is not id, fact and held, partly, later, other or missing with a text", n+1, line)
		}
		all = append(all, fact{cells[0], cells[1], state, what})
	}
	return all, nil
}

// TestFacts: each fact that clients rely on is held by a test that there is, or the table says why
// not.
func TestFacts(t *testing.T) {
	t.Parallel()
	known, ids, states := tests(t), map[string]string{}, map[string]int{}
	for _, name := range files(t, ".txt") {
		if !strings.HasPrefix(filepath.ToSlash(name), factsDir+"/") {
			continue
		}
		all, err := parseFacts(read(t, name))
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for _, f := range all {
			if ids[f.id] != "" {
				t.Errorf("%s: %s is in %s too", name, f.id, ids[f.id])
			}
			ids[f.id] = name
			states[f.state]++
			if f.state == "held" || f.state == "partly" {
				heldFact(t, known, name, &f)
			}
		}
	}
	if len(ids) < 100 {
		t.Errorf("%d facts: does this test look in the right place?", len(ids))
	}
	var sum []string
	for _, state := range slices.Sorted(maps.Keys(states)) {
		sum = append(sum, fmt.Sprintf("%d %s", states[state], state))
	}
	t.Logf("sum: %d facts: %s", len(ids), strings.Join(sum, ", "))
}

func heldFact(t *testing.T, known map[string][]string, name string, f *fact) {
	t.Helper()
	named := packageTest.FindAllStringSubmatch(f.what, -1)
	if len(named) == 0 {
		t.Errorf("%s: %s is held by %q, want package.Test", name, f.id, f.what)
	}
	for _, m := range named {
		switch found, err := inPackage(known, m[1], m[2]); {
		case m[1] == "":
			t.Errorf("%s: %s: %s is named without its package", name, f.id, m[2])
		case err != nil:
			t.Errorf("%s: %s: %v", name, f.id, err)
		case len(found) == 0:
			t.Errorf("%s: %s is held by %s.%s, which does not exist", name, f.id, m[1], m[2])
		}
	}
}

// TestWordsAreInTheirTests: words that clients compare are written in the files of the tests that
// are said to hold them.
func TestWordsAreInTheirTests(t *testing.T) {
	t.Parallel()
	name := filepath.FromSlash("docs/facts/words.txt")
	all, err := parseFacts(read(t, name))
	if err != nil {
		t.Fatal(err)
	}
	known, quoted := tests(t), regexp.MustCompile("`([^`]+)`")
	for _, f := range all {
		words := quoted.FindStringSubmatch(f.text)
		if f.state != "held" {
			continue
		}
		if words == nil {
			t.Errorf("%s: %s quotes no words", name, f.id)
			continue
		}
		for _, m := range packageTest.FindAllStringSubmatch(f.what, -1) {
			in, _ := inPackage(known, m[1], m[2]) // TestFacts says what is wrong with it
			for _, piece := range strings.Split(words[1], "…") {
				if !slices.ContainsFunc(in, func(file string) bool { return strings.Contains(read(t, file), piece) }) {
					t.Errorf("%s: %s: no file of %s.%s has %q", name, f.id, m[1], m[2], piece)
				}
			}
		}
	}
}

func TestFactsAreParsed(t *testing.T) {
	t.Parallel()
	good := "# a comment\n\nsched-1 | nodes that are down are avoided | held: `schedule.TestX`\nsched-2 | more | missing: all\n"
	if all, err := parseFacts(good); err != nil || len(all) != 2 || all[1].what != "all" {
		t.Errorf("%v, %v", all, err)
	}
	for _, bad := range []string{
		"sched-1 | a fact", "1 | a fact | held: x.TestX", "sched-1 | a fact | done: x", "sched-1 | a fact | held",
	} {
		if _, err := parseFacts(bad); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}
