package tidy

import (
	"go/ast"
	"testing"
)

const (
	// usualLines is what nearly every file stays below; more needs a reason.
	usualLines = 500
	// maxLines no file may exceed.
	maxLines = 800
	// maxFunction is the length of a function that still fits a screen and a head. More needs a reason.
	maxFunction = 70
)

// longFiles are longer than usual, keyed by name.
var longFiles = exceptions{
	"controlplane/volume/scenario_test.go": "scenarios read one after the other, as a specification",
}

func TestFileSize(t *testing.T) {
	t.Parallel()
	r := newRule(t, "a file is one thought; a long one has grown out of shape", longFiles)
	for _, s := range sources(t) {
		switch {
		case s.generated:
		case s.lines > maxLines:
			t.Errorf("%s has %d lines, more than %d: split it by concept", s.name, s.lines, maxLines)
		case s.lines > usualLines:
			r.broken(s.name, "%s has %d lines, more than %d: split it by concept, or say in longFiles why not", s.name, s.lines, usualLines)
		}
	}
}

// longFunctions are longer than allowed, keyed by file and name.
var longFunctions = exceptions{}

// tables returns how many lines of a test are tables of cases: they are read as data.
func tables(s *source, f *ast.FuncDecl) int {
	if !s.test {
		return 0
	}
	lines := 0
	ast.Inspect(f, func(n ast.Node) bool {
		lit, ok := n.(*ast.CompositeLit)
		if ok {
			lines += s.span(lit) - 1
		}
		return !ok
	})
	return lines
}

func TestFunctionSize(t *testing.T) {
	t.Parallel()
	r := newRule(t, "a function that does not fit a screen cannot be checked by eye", longFunctions)
	for _, s := range sources(t) {
		if s.generated {
			continue
		}
		for _, d := range s.ast.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Body == nil {
				continue
			}
			if n := s.span(f) - tables(s, f); n > maxFunction {
				r.broken(s.name+" "+f.Name.Name, "%s: %s has %d lines, more than %d", s.at(f), f.Name.Name, n, maxFunction)
			}
		}
	}
}
