package tidy

import (
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// mapPage is the page with a row for each package.
const mapPage = "docs/architecture.md"

var (
	codeSpan = regexp.MustCompile("`([^`\n]+)`")
	braces   = regexp.MustCompile(`\{([^{}]*)\}`)
	// codeFile is how pages name files of the source.
	codeFile = regexp.MustCompile(`^[\w./*-]+\.(go|sh|proto)$`)
)

// alternatives turns a/{b,c}/d into a/b/d and a/c/d.
func alternatives(name string) []string {
	m := braces.FindStringSubmatchIndex(name)
	if m == nil {
		return []string{name}
	}
	var all []string
	for part := range strings.SplitSeq(name[m[2]:m[3]], ",") {
		all = append(all, alternatives(name[:m[0]]+part+name[m[1]:])...)
	}
	return all
}

// rows returns what the columns "package" of a page's tables name.
func rows(page string) []string {
	var all []string
	column := -1
	for line := range strings.Lines(page) {
		if !strings.HasPrefix(line, "|") {
			column = -1
			continue
		}
		cells := strings.Split(line, "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		if column < 0 {
			column = slices.Index(cells, "package")
		} else {
			for _, m := range codeSpan.FindAllStringSubmatch(cells[column], -1) {
				if !strings.HasSuffix(m[1], "/") { // a folder of packages
					all = append(all, alternatives(m[1])...)
				}
			}
		}
		if column < 0 {
			column = 0 // a table of something else; its first cell is empty
		}
	}
	return all
}

// TestEveryPackageIsOnTheMap: a reader finds each folder of code on the map, and no folder that is
// not there.
func TestEveryPackageIsOnTheMap(t *testing.T) {
	t.Parallel()
	packages := map[string]bool{}
	for _, name := range files(t, ".go") {
		if !strings.Contains(name, "testdata/") {
			packages[path.Dir(name)] = true
		}
	}
	named := map[string]bool{}
	for _, row := range rows(read(t, mapPage)) {
		if named[row] = true; !packages[row] {
			t.Errorf("%s: has a row for %s, which is no package", mapPage, row)
		}
	}
	for p := range packages {
		if !named[p] {
			t.Errorf("%s: has no row for package %s", mapPage, p)
		}
	}
}

// TestFilesNamedInPages: a page sends readers to files that are there. A file may be named by the
// end of its path.
func TestFilesNamedInPages(t *testing.T) {
	t.Parallel()
	all, named := files(t), 0
	for _, page := range files(t, ".md") {
		for _, m := range codeSpan.FindAllStringSubmatch(mdFence.ReplaceAllString(read(t, page), ""), -1) {
			for _, name := range alternatives(m[1]) {
				if !codeFile.MatchString(name) {
					continue
				}
				named++
				depth := strings.Count(name, "/")
				if slices.ContainsFunc(all, func(file string) bool {
					parts := strings.Split(file, "/")
					end := strings.Join(parts[max(0, len(parts)-1-depth):], "/")
					fits, err := path.Match(name, end)
					return fits && err == nil
				}) {
					continue
				}
				t.Errorf("%s: names %s, which is not there", page, name)
			}
		}
	}
	if named < 50 {
		t.Errorf("%d names of files: does this test look in the right place?", named)
	}
}
