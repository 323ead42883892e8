package tidy

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

// maxFolders is how many folders a reader of the root meets.
const maxFolders = 18

// maxFiles is how many product files a package has whose parts can still be found by their names.
const maxFiles = 30

// flat are packages with more, and how many they may have: the numbers only fall.
var flat = map[string]int{
	"dataplane/chain": 53, "dataplane/engine": 54,
}

// folder returns the top-level folder of a package of this module, "" if it is of another one.
func folder(importPath string) string {
	name, ours := strings.CutPrefix(importPath, module+"/")
	if !ours {
		return ""
	}
	top, _, _ := strings.Cut(name, "/")
	return top
}

// testSupport says whether a package is for tests: suites, stand-ins and what they share.
func testSupport(importPath string) bool {
	return folder(importPath) == "test" || strings.HasSuffix(importPath, "test")
}

func TestFoldersOfTheRoot(t *testing.T) {
	t.Parallel()
	tops := map[string]bool{}
	for _, f := range files(t) {
		if top, _, below := strings.Cut(f, "/"); below && !strings.HasPrefix(top, ".") {
			tops[top] = true
		}
	}
	if len(tops) > maxFolders {
		t.Errorf("the root has %d folders, more than %d: %v", len(tops), maxFolders, slices.Sorted(maps.Keys(tops)))
	}
}

// TestFoldersHaveNoCircle: what a folder is built on can be read without it. Tests may look at what
// is above them.
func TestFoldersHaveNoCircle(t *testing.T) {
	t.Parallel()
	edges := map[string]map[string]string{} // from, to, an example
	for name, p := range graph(t, mainGraph) {
		from := folder(name)
		if from == "" || testSupport(name) {
			continue
		}
		for _, imported := range p.Imports {
			to := folder(imported)
			if to == "" || to == from {
				continue
			}
			if testSupport(imported) {
				t.Errorf("%s imports %s: no product imports what is for tests", name, imported)
			}
			if edges[from] == nil {
				edges[from] = map[string]string{}
			}
			edges[from][to] = name + " imports " + imported
		}
	}
	if len(edges) < 8 {
		t.Fatalf("%d folders import others: does this test look in the right place?", len(edges))
	}
	for from := range edges {
		if way := wayBack(edges, from, from, map[string]bool{}); way != nil {
			t.Errorf("folder %s is built on itself:\n%s", from, strings.Join(way, "\n"))
		}
	}
}

// wayBack returns the imports that lead from a folder to another one, nil if there are none.
func wayBack(edges map[string]map[string]string, at, to string, seen map[string]bool) []string {
	for next, example := range edges[at] {
		if next == to {
			return []string{example}
		}
		if seen[next] {
			continue
		}
		seen[next] = true
		if way := wayBack(edges, next, to, seen); way != nil {
			return append([]string{example}, way...)
		}
	}
	return nil
}

func TestFlatPackages(t *testing.T) {
	t.Parallel()
	count := map[string]int{}
	for _, s := range sources(t) {
		if !s.test && !s.generated {
			count[s.dir()]++
		}
	}
	for dir, n := range count {
		switch limit := max(flat[dir], maxFiles); {
		case n > limit:
			t.Errorf("%s has %d product files, more than %d: split it by theme", dir, n, limit)
		case flat[dir] > max(n, maxFiles):
			t.Errorf("%s has %d product files: write that into the list, where it has %d", dir, n, flat[dir])
		case flat[dir] > 0 && n <= maxFiles:
			t.Errorf("%s has %d product files: take it out of the list", dir, n)
		}
	}
}
