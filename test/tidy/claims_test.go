package tidy

import (
	"flag"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the tables of claims into the pages")

const (
	// claimsFile is the one table of claims and of the tests that hold them.
	claimsFile = "docs/claims.txt"
	claimsEnd  = "<!-- end -->\n"
)

var (
	claimsBegin = regexp.MustCompile(`<!-- claims: ([a-zA-Z0-9-]+) -->\n`)
	// packageTest is a test with its package: crash.TestRounds, controlplane/process/engine.TestX.
	packageTest = regexp.MustCompile(
		`(?:\b([a-z][a-z0-9]*(?:/[a-z][a-z0-9]*)*)\.)?\b((?:Test|Fuzz)[A-Z][A-Za-z0-9_]*(?:/[A-Za-z0-9_]+|…)?)`)
)

// claim is a line of the table.
type claim struct {
	views         []string
	text, holders string
}

func parseClaims(text string) ([]claim, error) {
	var all []claim
	for n, line := range strings.Split(text, "\n") {
		if strings.TrimSpace(line) == "" || strings.HasPrefix(line, "#") {
			continue
		}
		cells := strings.SplitN(line, " | ", 3)
		if len(cells) != 3 || strings.TrimSpace(cells[2]) == "" {
			return nil, fmt.Errorf("%s:%d: %q is not views, claim and what holds it", claimsFile, n+1, line)
		}
		all = append(all, claim{views: strings.Split(cells[0], ","), text: cells[1], holders: cells[2]})
	}
	return all, nil
}

// views are the tables of all claims, by name.
func views(all []claim) map[string]string {
	tables := map[string]string{}
	for _, c := range all {
		for _, v := range c.views {
			if tables[v] == "" {
				tables[v] = "| claim | held by |\n| --- | --- |\n"
			}
			tables[v] += "| " + c.text + " | " + c.holders + " |\n"
		}
	}
	return tables
}

// fillViews replaces the tables of a page, and returns which views it has.
func fillViews(page string, tables map[string]string) (string, []string, error) {
	var b strings.Builder
	var found []string
	for {
		at := claimsBegin.FindStringSubmatchIndex(page)
		if at == nil {
			b.WriteString(page)
			return b.String(), found, nil
		}
		name := page[at[2]:at[3]]
		_, after, ok := strings.Cut(page[at[1]:], claimsEnd)
		if !ok || tables[name] == "" {
			return "", nil, fmt.Errorf("the table of %q has no end, or there are no claims of that view", name)
		}
		found = append(found, name)
		b.WriteString(page[:at[1]] + tables[name] + claimsEnd)
		page = after
	}
}

// TestClaims compares the tables of the pages with docs/claims.txt.
func TestClaims(t *testing.T) {
	t.Parallel()
	all, err := parseClaims(read(t, claimsFile))
	if err != nil {
		t.Fatal(err)
	}
	tables := views(all)
	shown := map[string]string{}
	for _, name := range files(t, ".md") {
		have := read(t, name)
		want, found, err := fillViews(have, tables)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, v := range found {
			if shown[v] != "" {
				t.Errorf("the view %s is in %s and in %s", v, shown[v], name)
			}
			shown[v] = name
		}
		switch {
		case have == want:
		case *update:
			if err := os.WriteFile(filepath.Join(root, name), []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
		default:
			t.Errorf("%s is not what %s says; edit that, then: go test ./test/tidy -run TestClaims -update", name, claimsFile)
		}
	}
	for v := range tables {
		if shown[v] == "" {
			t.Errorf("no page shows the view %s", v)
		}
	}
	for i := 1; i <= 7; i++ {
		if p := fmt.Sprintf("P%d", i); shown[p] != "docs/guide/promise.md" {
			t.Errorf("promise %s is shown in %q, not in docs/guide/promise.md", p, shown[p])
		}
	}
}

// inPackage returns the files with a test that is written package.Test, nil if there is none.
// Several folders are an error: the name does not say which.
func inPackage(all map[string][]string, folder, test string) ([]string, error) {
	name, _, _ := strings.Cut(test, "/")
	prefix, many := strings.CutSuffix(name, "…")
	var found, folders []string
	for have, in := range all {
		if have != name && (!many || !strings.HasPrefix(have, prefix)) {
			continue
		}
		for _, f := range in {
			d := path.Dir(f)
			if d != folder && !strings.HasSuffix(d, "/"+folder) {
				continue
			}
			found = append(found, f)
			if !slices.Contains(folders, d) {
				folders = append(folders, d)
			}
		}
	}
	if len(folders) > 1 {
		slices.Sort(folders)
		return nil, fmt.Errorf("%s.%s may be any of %v: write the folder above too", folder, test, folders)
	}
	return found, nil
}

// TestHoldersAreNamedWithTheirPackage: where a page says what holds a claim, a reader finds it.
func TestHoldersAreNamedWithTheirPackage(t *testing.T) {
	t.Parallel()
	all := tests(t)
	named := 0
	for _, name := range []string{claimsFile, "docs/guide/promise.md", "docs/acceptance.md", "docs/design/mutations.md"} {
		for line := range strings.Lines(read(t, name)) {
			if !strings.Contains(line, "|") {
				continue
			}
			for _, m := range packageTest.FindAllStringSubmatch(line, -1) {
				if m[1] == "" {
					t.Errorf("%s: %s is named without its package, want package.%s: %.80s", name, m[2], m[2], line)
					continue
				}
				named++
				if _, err := inPackage(all, m[1], m[2]); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
		}
	}
	if named < 300 {
		t.Errorf("only %d tests are named: does this test look in the right places?", named)
	}
}

func TestPackageTestIsFound(t *testing.T) {
	t.Parallel()
	var got []string
	for _, m := range packageTest.FindAllStringSubmatch(
		"`crash.TestRounds`, x `a/engine.TestX/case`, TestBare, `offline.TestAll…` and sim.FuzzY", -1) {
		got = append(got, m[1]+":"+m[2])
	}
	want := []string{"crash:TestRounds", "a/engine:TestX/case", ":TestBare", "offline:TestAll…", "sim:FuzzY"}
	if !slices.Equal(got, want) {
		t.Errorf("found %v, want %v", got, want)
	}
	all := map[string][]string{"TestX": {"a/engine/x_test.go", "b/engine/x_test.go"}, "TestY": {"b/engine/y_test.go"}}
	for _, row := range []struct {
		folder, test string
		files        int
		wrong        bool
	}{
		{"engine", "TestX", 0, true}, {"a/engine", "TestX", 1, false}, {"engine", "TestY", 1, false},
		{"ngine", "TestY", 0, false}, {"engine", "TestY…", 1, false}, {"engine", "TestZ", 0, false},
	} {
		found, err := inPackage(all, row.folder, row.test)
		if len(found) != row.files || (err != nil) != row.wrong {
			t.Errorf("%s.%s: %v, %v; want %d files", row.folder, row.test, found, err, row.files)
		}
	}
}

func TestViewsAreFilled(t *testing.T) {
	t.Parallel()
	all, err := parseClaims("# a comment\n\nP1,engine | a claim | `x.TestA`\nP1 | another | `x.TestB` (so)\n")
	if err != nil {
		t.Fatal(err)
	}
	const head = "| claim | held by |\n| --- | --- |\n"
	page := "text\n<!-- claims: P1 -->\nstale\n<!-- end -->\nmore\n<!-- claims: engine -->\n<!-- end -->\n"
	want := "text\n<!-- claims: P1 -->\n" + head + "| a claim | `x.TestA` |\n| another | `x.TestB` (so) |\n<!-- end -->\nmore\n" +
		"<!-- claims: engine -->\n" + head + "| a claim | `x.TestA` |\n<!-- end -->\n"
	got, found, err := fillViews(page, views(all))
	if err != nil || got != want || !slices.Equal(found, []string{"P1", "engine"}) {
		t.Errorf("views %v, %v, page\n%s\nwant\n%s", found, err, got, want)
	}
	if _, _, err := fillViews("<!-- claims: P9 -->\n<!-- end -->\n", views(all)); err == nil {
		t.Error("a view without claims is taken")
	}
	if _, err := parseClaims("P1 | a claim without a holder\n"); err == nil {
		t.Error("a claim without a holder is taken")
	}
}
