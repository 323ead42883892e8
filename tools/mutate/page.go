package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// summary counts what became of the mutants of a package.
type summary struct {
	target
	// all is how many there are; equivalent are listed as such and not tried, open are listed as not
	// noticed by any test yet.
	all, equivalent, open                 int
	noticed, endless, survived, unreached int
	// stale are entries of the list that fit no mutant.
	stale int
}

func (s *summary) count(verdict string) {
	switch verdict {
	case noticed:
		s.noticed++
	case endless:
		s.endless++
	case survived:
		s.survived++
	case unreached:
		s.unreached++
	}
}

func (s summary) tried() int { return s.noticed + s.endless + s.survived + s.unreached }

func (s summary) String() string {
	const form = "%s: %d mutants, %d equivalent, %d open, %d tried: %d noticed, %d endless, %d survived, %d not reached"
	return fmt.Sprintf(form,
		s.pkg, s.all, s.equivalent, s.open, s.tried(), s.noticed, s.endless, s.survived, s.unreached)
}

func total(sums []summary, of func(summary) int) int {
	n := 0
	for _, s := range sums {
		n += of(s)
	}
	return n
}

const (
	tableBegins = "<!-- begin: written by tools/mutate.sh -page -->\n"
	tableEnds   = "<!-- end -->"
)

// table shows the packages in the order of their names.
func table(sums []summary) string {
	var b strings.Builder
	b.WriteString("| package | mutants | noticed | equivalent | open at first | open |\n")
	b.WriteString("| --- | --: | --: | --: | --: | --: |\n")
	slices.SortFunc(sums, func(x, y summary) int { return strings.Compare(x.pkg, y.pkg) })
	all := summary{target: target{pkg: "all"}}
	for _, s := range append(sums, all) {
		if s.pkg == all.pkg {
			s = all
		}
		name := "`" + s.pkg + "`"
		if len(s.files) > 0 {
			name += " (" + strings.Join(s.files, ", ") + ")"
		}
		fmt.Fprintf(&b, "| %s | %d | %d | %d | %d | %d |\n",
			name, s.all, s.noticed+s.endless, s.equivalent, s.first, s.open+s.survived+s.unreached)
		all.all, all.noticed, all.endless = all.all+s.all, all.noticed+s.noticed, all.endless+s.endless
		all.equivalent, all.first = all.equivalent+s.equivalent, all.first+s.first
		all.open, all.survived, all.unreached = all.open+s.open, all.survived+s.survived, all.unreached+s.unreached
	}
	return b.String()
}

// writePage puts the table into the page.
func writePage(root string, sums []summary) error {
	page := filepath.Join(root, "docs/mutation-testing.md")
	data, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	before, rest, ok := strings.Cut(string(data), tableBegins)
	_, after, ok2 := strings.Cut(rest, tableEnds)
	if !ok || !ok2 {
		return fmt.Errorf("%s has no place for the table", page)
	}
	return os.WriteFile(page, []byte(before+tableBegins+table(sums)+tableEnds+after), 0o644)
}
