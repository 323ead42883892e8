package tidy

import (
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const (
	// proposalsFile says of every statement of the five proposals what holds it; proposalsPage is made
	// of it.
	proposalsFile = factsDir + "/proposals.txt"
	proposalsPage = "docs/design/proposals.md"
)

// laterFeatures are the features that a statement of a proposal may belong to and that are not
// built yet; of real nodes, the scenario of docs/acceptance.md that will be run on them is named.
var laterFeatures = regexp.MustCompile(
	`^(?:UI|backing images|backup store|real nodes: [A-F][0-9]+, .+)$`)

// otherReason is why something of a proposal is not held: it is listed as no goal
// (sentences_test.go looks), it leaves room, or it demands nothing.
var otherReason = regexp.MustCompile(`^(?:non-goal|reading|context): .`)

// processPackages are the folders whose tests start the programs. A statement that only others hold
// is not held: it has state partly.
var processPackages = regexp.MustCompile(`(?:^|/)(?:test/[a-z0-9]+|test/bed/k8stest|instancemanager/daemon)$`)

// withProcesses tells whether one of the tests that are named starts processes.
func withProcesses(known map[string][]string, what string) bool {
	for _, m := range packageTest.FindAllStringSubmatch(what, -1) {
		files, _ := inPackage(known, m[1], m[2]) // TestFacts says what is wrong with it
		for _, file := range files {
			if processPackages.MatchString(path.Dir(filepath.ToSlash(file))) {
				return true
			}
		}
	}
	return false
}

// section is a proposal.
type section struct {
	title string
	facts []fact
}

// proposals reads the sections of the table.
func proposals(text string) ([]section, error) {
	_, text, _ = strings.Cut(text, "\n\n") // what the table is
	var all []section
	for _, part := range strings.Split("\n"+text, "\n# ")[1:] {
		title, lines, _ := strings.Cut(part, "\n")
		facts, err := parseFacts(lines)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", title, err)
		}
		all = append(all, section{title, facts})
	}
	return all, nil
}

// unfounded says what is wrong with the state of a statement: it must be held, or have one of the
// reasons that are allowed.
func unfounded(f *fact) string {
	switch {
	case f.state == "missing":
		return "a statement of a proposal is held, or there is a reason"
	case f.state == "later" && !laterFeatures.MatchString(f.what):
		return "no feature that is known to come later"
	case f.state == "other" && !otherReason.MatchString(f.what):
		return "neither a non-goal of the proposal nor a reading of it, nor context"
	case f.state == "other" && strings.HasPrefix(f.what, "reading: ") && !packageTest.MatchString(f.what) &&
		!strings.Contains(f.what, "second phase"):
		return "a reading without a test of what holds instead"
	}
	return ""
}

// sum counts the states of statements: "3 held, 1 later".
func sum(facts []fact) string {
	states := map[string]int{}
	for _, f := range facts {
		states[f.state]++
	}
	var text []string
	for _, state := range slices.Sorted(maps.Keys(states)) {
		text = append(text, fmt.Sprintf("%d %s", states[state], state))
	}
	return strings.Join(text, ", ")
}

// renderProposals makes the page.
func renderProposals(all []section) string {
	var b strings.Builder
	b.WriteString(`# The five proposals, sentence by sentence

What the proposals state, and what holds it. Made of ` + "`" + proposalsFile + "`" + `, which says how;
scenario by scenario see [acceptance.md](../acceptance.md).

Each line quotes the proposal, and each sentence of a proposal has a line. *Held*: by tests, of which one runs the
programs. *Partly*: what no test of running programs shows. *Later*: a feature that is not built yet, or a scenario on
real Kubernetes nodes. *Other*: a non-goal that the proposal lists, a reading of a place where it leaves room, with what
holds instead, or context that demands nothing.
`)
	for _, s := range all {
		fmt.Fprintf(&b, "\n## %s\n\n%d statements: %s.\n\n| # | statement | state |\n| --- | --- | --- |\n", s.title,
			len(s.facts), sum(s.facts))
		for _, f := range s.facts {
			fmt.Fprintf(&b, "| %s | %s | %s: %s |\n", f.id, f.text, f.state, f.what)
		}
	}
	return b.String()
}

// TestProposals: every statement of a proposal is held by tests or has a reason, and the page says
// so. TestFacts and TestTestsNamedInDocs see to it that the tests exist.
func TestProposals(t *testing.T) {
	t.Parallel()
	all, err := proposals(read(t, proposalsFile))
	if err != nil {
		t.Fatalf("%s: %v", proposalsFile, err)
	}
	if len(all) != 5 {
		t.Errorf("%s: %d sections, want one for each of the five proposals", proposalsFile, len(all))
	}
	known := tests(t)
	for _, s := range all {
		for i := range s.facts {
			if f := &s.facts[i]; f.state == "held" && !withProcesses(known, f.what) {
				t.Errorf("%s: %s: held needs a test that runs the programs, else it is partly", proposalsFile, f.id)
			}
			if why := unfounded(&s.facts[i]); why != "" {
				t.Errorf("%s: %s: %s", proposalsFile, s.facts[i].id, why)
			}
		}
		t.Logf("sum: %s: %s", s.title, sum(s.facts))
	}
	switch want := renderProposals(all); {
	case read(t, proposalsPage) == want:
	case *update:
		if err := os.WriteFile(filepath.Join(root, proposalsPage), []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("%s is not what %s says; edit that, then: go test ./test/tidy -run TestProposals -update", proposalsPage,
			proposalsFile)
	}
}

func TestReasonsAreJudged(t *testing.T) {
	t.Parallel()
	for state, ok := range map[string]bool{
		"held: `x.TestA`": true, "later: UI": true, "later: real nodes: A9, a drain": true,
		"other: non-goal: it says so": true, "other: reading: an integer (`x.TestA`)": true,
		"other: reading: the second phase is prepared": true, "partly: not for long (`x.TestA`)": true,
		"other: context: the state before": true, "other: context: ": false,
		"later: some day": false, "later: real nodes": false, "other: no": false, "other: reading: else": false,
		"missing: x": false,
	} {
		all, err := proposals("# what it is\n\n# A proposal\na-1 | it says | " + state + "\n")
		if err != nil || len(all) != 1 || len(all[0].facts) != 1 {
			t.Fatalf("%v, %v", all, err)
		}
		if why := unfounded(&all[0].facts[0]); (why == "") != ok {
			t.Errorf("%q: %q", state, why)
		}
	}
}
