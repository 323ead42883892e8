package tidy

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	mdLink   = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	mdTitle  = regexp.MustCompile(`(?m)^#+ +(.+?) *#*$`)
	mdFence  = regexp.MustCompile("(?ms)^```.*?^```")
	docsPath = regexp.MustCompile(`\bdocs/[A-Za-z0-9_/-]+\.md\b`)
	testName = regexp.MustCompile(`\b(?:Test|Fuzz|Benchmark)[A-Z][A-Za-z0-9_]*`)
	notWord  = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// anchors returns the anchors of a page's titles, as forges build them.
func anchors(text string) map[string]bool {
	found := map[string]bool{}
	for _, m := range mdTitle.FindAllStringSubmatch(mdFence.ReplaceAllString(text, ""), -1) {
		slug := strings.ReplaceAll(notWord.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-")
		found[slug] = true
	}
	return found
}

func TestLinks(t *testing.T) {
	t.Parallel()
	for _, name := range files(t, ".md") {
		text := mdFence.ReplaceAllString(read(t, name), "")
		for _, m := range mdLink.FindAllStringSubmatch(text, -1) {
			target, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
				continue
			}
			page := name
			if target != "" {
				page = path.Join(path.Dir(name), target)
				if _, err := os.Stat(filepath.Join(root, page)); err != nil {
					t.Errorf("%s: link to %s, which is not there", name, m[1])
					continue
				}
			}
			if anchor != "" && strings.HasSuffix(page, ".md") && !anchors(read(t, page))[anchor] {
				t.Errorf("%s: link to %s, but %s has no such title", name, m[1], page)
			}
		}
	}
}

// TestPagesNamedInCode: comments send readers to pages of docs/.
func TestPagesNamedInCode(t *testing.T) {
	t.Parallel()
	r := newRule(t, "a comment that points nowhere costs everyone who follows it", exceptions{})
	for _, name := range files(t) {
		if isBinary(t, name) || strings.Contains(name, "testdata/") {
			continue
		}
		for _, page := range docsPath.FindAllString(read(t, name), -1) {
			if _, err := os.Stat(filepath.Join(root, page)); err != nil {
				r.broken(name+" "+page, "%s: names %s, which is not there", name, page)
			}
		}
	}
}

// tests returns the names of all tests of the repository, by folder.
func tests(t *testing.T) map[string][]string {
	t.Helper()
	found := map[string][]string{}
	for _, s := range sources(t) {
		if !s.test {
			continue
		}
		for name := range s.functions() {
			if testName.MatchString(name) {
				found[name] = append(found[name], s.dir())
			}
		}
	}
	return found
}

// TestTestsNamedInDocs: a claim names the test that holds it, and that test exists.
func TestTestsNamedInDocs(t *testing.T) {
	t.Parallel()
	all := tests(t)
	for _, name := range files(t, ".md") {
		for _, test := range testName.FindAllString(read(t, name), -1) {
			if all[test] == nil {
				t.Errorf("%s: names %s, but there is no such test", name, test)
			}
		}
	}
}

// TestPagesAreListed: every page can be found from docs/README.md.
func TestPagesAreListed(t *testing.T) {
	t.Parallel()
	index := read(t, "docs/README.md")
	for _, name := range files(t, ".md") {
		rel, ok := strings.CutPrefix(name, "docs/")
		if ok && rel != "README.md" && !strings.Contains(index, "("+rel+")") {
			t.Errorf("docs/README.md has no link to %s", rel)
		}
	}
}

// states that a scenario can have in docs/acceptance.md.
const (
	stateHolds  = "holds"
	statePartly = "partly"
	stateNot    = "not yet"
)

// scenario is a row of docs/acceptance.md.
type scenario struct{ number, title, tests, state string }

func scenarios(t *testing.T) []scenario {
	t.Helper()
	var rows []scenario
	row := regexp.MustCompile(`^\| ([A-F][0-9]+) \|`)
	for line := range strings.Lines(read(t, "docs/acceptance.md")) {
		if !row.MatchString(line) {
			continue
		}
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != 4 {
			t.Errorf("docs/acceptance.md: %q has %d cells, not number, title, tests and state", line, len(cells))
			continue
		}
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		rows = append(rows, scenario{cells[0], cells[1], cells[2], cells[3]})
	}
	return rows
}

// TestAcceptance compares the page with the list of scenarios and with the tests of the repository.
func TestAcceptance(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("testdata/scenarios.txt")
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Fields(string(data))
	var have []string
	all := tests(t)
	for _, s := range scenarios(t) {
		have = append(have, s.number)
		named := testName.FindAllString(s.tests, -1)
		state, _, _ := strings.Cut(s.state, ":")
		switch state {
		case stateHolds:
			number := regexp.MustCompile(`[a-z_]?` + s.number + `(?:[^0-9]|$)`)
			if !slices.ContainsFunc(named, func(n string) bool { return number.MatchString(n) }) {
				t.Errorf("%s holds, says the page, but no test with its number is named", s.number)
			}
		case statePartly:
			if len(named) == 0 {
				t.Errorf("%s holds partly, says the page, but no test is named", s.number)
			}
			if s.state == statePartly {
				t.Errorf("%s: after %q say what is missing", s.number, statePartly+":")
			}
		case stateNot:
		default:
			t.Errorf("%s: state %q is none of %s, %s, %s", s.number, s.state, stateHolds, statePartly, stateNot)
		}
		for _, n := range named {
			if all[n] == nil {
				t.Errorf("%s names %s, but there is no such test", s.number, n)
			}
		}
	}
	if !slices.Equal(have, want) {
		t.Errorf("the page lists\n%v\nthe scenarios are\n%v", have, want)
	}
}
