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
	// testRef is how documents name tests: TestX, TestX/case, TestX/group/case, TestX… for all that
	// begin so, Fuzz….
	testRef = regexp.MustCompile(`\b(Test|Fuzz|Benchmark)([A-Z][A-Za-z0-9_]*)?((?:/[A-Za-z0-9_]+)+|…)?`)
	// makeRef and phaseRef are how documents name entry points, in code: in a fence, indented, or
	// between backticks.
	makeRef    = regexp.MustCompile("(?m)(?:^    |`)make ([a-z0-9]+(?:-[a-z0-9]+)*)")
	makeLine   = regexp.MustCompile(`(?m)^[ \t]*make ([a-z0-9]+(?:-[a-z0-9]+)*)`)
	phaseRef   = regexp.MustCompile(`\btools/(test|hunt)\.sh((?: [a-z0-9]+)+)`)
	makeTarget = regexp.MustCompile(`(?m)^([a-z0-9-]+):`)
	// testPhase is a phase in the head of a script of phaseScripts; phaseScript is what runs it.
	testPhase   = regexp.MustCompile(`(?m)^#   ([a-z0-9]+) {2,}\S`)
	phaseScript = regexp.MustCompile(`(?m)^do_([a-z0-9]+)\(\)`)
	notWord     = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
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

// tests returns the names of all tests of the repository, and in which files they are.
func tests(t *testing.T) map[string][]string {
	t.Helper()
	found := map[string][]string{}
	for _, s := range sources(t) {
		if !s.test {
			continue
		}
		for name := range s.functions() {
			if testName.MatchString(name) {
				found[name] = append(found[name], s.name)
			}
		}
	}
	return found
}

// references returns the tests that a text names.
func references(text string) []string {
	return slices.DeleteFunc(testRef.FindAllString(text, -1), func(ref string) bool {
		return ref == "Test" || ref == "Fuzz" || ref == "Benchmark"
	})
}

// exists reports whether there is a test of that name; of TestX/case and TestX/group/case whether
// cases that begin so are written beside TestX.
func exists(t *testing.T, all map[string][]string, ref string) bool {
	t.Helper()
	if prefix, ok := strings.CutSuffix(ref, "…"); ok {
		for name := range all {
			if strings.HasPrefix(name, prefix) {
				return true
			}
		}
		return false
	}
	name, sub, _ := strings.Cut(ref, "/")
	return slices.ContainsFunc(all[name], func(file string) bool {
		for part := range strings.SplitSeq(sub, "/") {
			if part != "" && !regexp.MustCompile(`"`+part+`[" ]`).MatchString(read(t, file)) {
				return false
			}
		}
		return true
	})
}

// TestTestsNamedInDocs: a claim names the test that holds it, and that test exists.
func TestTestsNamedInDocs(t *testing.T) {
	t.Parallel()
	all := tests(t)
	for _, name := range append(files(t, ".md"), claimsFile) {
		text := read(t, name)
		for _, ref := range references(text) {
			if !exists(t, all, ref) {
				t.Errorf("%s: names %s, but there is no such test", name, ref)
			}
		}
		for _, m := range packageTest.FindAllStringSubmatch(text, -1) {
			if m[1] == "" || strings.HasSuffix(m[1], "/") {
				continue
			}
			if found, err := inPackage(all, m[1], m[2]); err == nil && len(found) == 0 {
				t.Errorf("%s: names %s.%s, but package %s has no such test", name, m[1], m[2], m[1])
			}
		}
	}
}

// phaseScripts are the scripts that run phases.
var phaseScripts = []string{"test", "hunt"}

// entryPoints returns the targets of make, and by script the phases, that a page tells its readers
// to run.
func entryPoints(text string) (targets []string, phases map[string][]string) {
	found := makeRef.FindAllStringSubmatch(mdFence.ReplaceAllString(text, ""), -1)
	for _, fence := range mdFence.FindAllString(text, -1) {
		found = append(found, makeLine.FindAllStringSubmatch(fence, -1)...)
	}
	for _, m := range found {
		targets = append(targets, m[1])
	}
	phases = map[string][]string{}
	for _, m := range phaseRef.FindAllStringSubmatch(text, -1) {
		phases[m[1]] = append(phases[m[1]], strings.Fields(m[2])...)
	}
	return targets, phases
}

// TestEntryPointsNamedInDocs: what a page says to run is there to be run.
func TestEntryPointsNamedInDocs(t *testing.T) {
	t.Parallel()
	names := func(file string, name *regexp.Regexp) (all []string) {
		for _, m := range name.FindAllStringSubmatch(read(t, file), -1) {
			all = append(all, m[1])
		}
		return all
	}
	targets, phases := names("Makefile", makeTarget), map[string][]string{}
	for _, script := range phaseScripts {
		phases[script] = names("tools/"+script+".sh", testPhase)
	}
	named := 0
	for _, name := range files(t, ".md") {
		t1, p1 := entryPoints(read(t, name))
		named += len(t1)
		for _, target := range t1 {
			if !slices.Contains(targets, target) {
				t.Errorf("%s: names make %s; the targets are %v", name, target, targets)
			}
		}
		for script, list := range p1 {
			named += len(list)
			for _, phase := range list {
				if !slices.Contains(phases[script], phase) {
					t.Errorf("%s: names the phase %s of tools/%s.sh; there are %v", name, phase, script, phases[script])
				}
			}
		}
	}
	if named < 10 {
		t.Errorf("only %d entry points are named: does this test look in the right places?", named)
	}
}

// TestPhasesAreDocumented: the head of a script lists the phases that there are.
func TestPhasesAreDocumented(t *testing.T) {
	t.Parallel()
	for _, script := range phaseScripts {
		text := read(t, "tools/"+script+".sh")
		var listed, found []string
		for _, m := range testPhase.FindAllStringSubmatch(text, -1) {
			listed = append(listed, m[1])
		}
		for _, m := range phaseScript.FindAllStringSubmatch(text+read(t, "tools/phases.sh"), -1) {
			found = append(found, m[1])
		}
		slices.Sort(listed)
		slices.Sort(found)
		if !slices.Equal(listed, found) {
			t.Errorf("tools/%s.sh lists the phases %v and has %v", script, listed, found)
		}
	}
}

func TestEntryPointsAreFound(t *testing.T) {
	t.Parallel()
	targets, phases := entryPoints("Text that would make sense.\nmake room\n\n    make run   # it\n\n```\nmake sim " +
		"SEED=1\n  make bench\n```\nand `make test-twice`, `tools/test.sh build unit`, `tools/hunt.sh sim`.")
	if want := []string{"run", "test-twice", "sim", "bench"}; !slices.Equal(targets, want) {
		t.Errorf("targets %v, want %v", targets, want)
	}
	if want := []string{"build", "unit"}; !slices.Equal(phases["test"], want) {
		t.Errorf("phases %v, want %v", phases, want)
	}
	if want := []string{"sim"}; !slices.Equal(phases["hunt"], want) {
		t.Errorf("phases %v, want %v", phases, want)
	}
}

// TestPagesAreListed: every page can be found from the README of its folder.
func TestPagesAreListed(t *testing.T) {
	t.Parallel()
	for _, name := range files(t, ".md") {
		dir, page := path.Split(name)
		if !strings.HasPrefix(name, "docs/") || page == "README.md" {
			continue
		}
		if index := dir + "README.md"; !strings.Contains(read(t, index), "("+page+")") {
			t.Errorf("%s has no link to %s", index, page)
		}
	}
}

// Pictures of the web UI, which ui/browser/pictures.mjs takes, and the page that shows them.
const (
	pictures     = "docs/guide/ui/"
	picturesPage = "docs/guide/ui.md"
	maxPicture   = 60_000 // bytes
)

// TestPictures: a picture is small, and shown. That those which are shown are there is seen to by
// TestLinks.
func TestPictures(t *testing.T) {
	t.Parallel()
	text := read(t, picturesPage)
	for _, name := range files(t, ".webp", ".png") {
		if shown := "](" + strings.TrimPrefix(name, "docs/guide/") + ")"; !strings.Contains(text, shown) {
			t.Errorf("%s does not show %s", picturesPage, name)
		}
		if n := len(read(t, name)); n >= maxPicture {
			t.Errorf("%s has %d bytes, %d are too many", name, n, maxPicture)
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

// TestAcceptance compares the page with the list of scenarios; what holds has a test that runs the
// programs. That the tests it names exist is
// seen to by TestTestsNamedInDocs.
func TestAcceptance(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("testdata/scenarios.txt")
	if err != nil {
		t.Fatal(err)
	}
	want, known := strings.Fields(string(data)), tests(t)
	var have []string
	for _, s := range scenarios(t) {
		have = append(have, s.number)
		named := references(s.tests)
		state, _, _ := strings.Cut(s.state, ":")
		switch state {
		case stateHolds:
			number := regexp.MustCompile(`(Test|/)` + s.number + `(?:[^0-9]|$)`)
			if !slices.ContainsFunc(named, func(n string) bool { return number.MatchString(n) }) {
				t.Errorf("%s holds, says the page, but no test with its number is named", s.number)
			}
			if !withProcesses(known, s.tests) {
				t.Errorf("%s holds, says the page, but none of its tests runs the programs", s.number)
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
	}
	if !slices.Equal(have, want) {
		t.Errorf("the page lists\n%v\nthe scenarios are\n%v", have, want)
	}
}
