package main

import (
	"fmt"
	"slices"
	"strings"
)

// mutant is one small change of a package.
type mutant struct {
	// id is its number in the package, from 1 on. It selects the mutant in the test binary.
	id int
	// file is the name of the file without its folder; line is where the change begins; decl is the
	// index of the declaration in the file that holds it.
	file       string
	line, decl int
	// fn is the function or the variable at the top level of the package, such as Place or
	// (Core).propose.
	fn string
	// op is the operator, before the text that is changed, and after what takes its place, both on one
	// line.
	op, before, after string
	// nth tells apart what is otherwise the same: 1 for the first in the order of the files' names and
	// of the text.
	nth   int
	edits []edit
}

// edit replaces the text between two offsets of a file. It holds both the code as it is and the
// changed code; a test of the mutant's id chooses.
type edit struct {
	from, to int
	// wrap gets the text with the edits inside it applied.
	wrap func(inner string) string
}

// key identifies a mutant across changes of the code around it.
func (m *mutant) key() string {
	key := fmt.Sprintf("in %s: %s: %s => %s", m.fn, m.op, m.before, m.after)
	if m.nth > 1 {
		key += fmt.Sprintf(" #%d", m.nth)
	}
	return key
}

// number gives mutants their ids and tells apart those that are the same otherwise.
func number(all []*mutant) {
	seen := map[string]int{}
	for _, m := range all {
		m.nth = 1
		seen[m.key()]++
		m.nth = seen[m.key()]
	}
}

// longest is how much of a text a key holds.
const longest = 110

// line brings a text onto one line and shortens it.
func oneLine(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if r := []rune(text); len(r) > longest {
		return string(r[:longest]) + "…"
	}
	return text
}

// render applies edits to a text. Edits lie beside each other or within each other; of those with
// the same place the first is the outermost.
func render(src []byte, edits []edit) string {
	sorted := slices.Clone(edits)
	slices.SortStableFunc(sorted, func(a, b edit) int {
		if a.from != b.from {
			return a.from - b.from
		}
		return b.to - a.to
	})
	text, rest := renderRange(src, 0, len(src), sorted)
	if len(rest) > 0 {
		panic(fmt.Sprintf("edit of bytes %d to %d of %d crosses another", rest[0].from, rest[0].to, len(src)))
	}
	return text
}

// renderRange renders src[from:to] and returns the edits that begin after it.
func renderRange(src []byte, from, to int, edits []edit) (string, []edit) {
	var b strings.Builder
	at := from
	for len(edits) > 0 && edits[0].to <= to && edits[0].from < to {
		e := edits[0]
		var inner string
		b.Write(src[at:e.from])
		inner, edits = renderRange(src, e.from, e.to, edits[1:])
		b.WriteString(e.wrap(inner))
		at = e.to
	}
	b.Write(src[at:to])
	return b.String(), edits
}
