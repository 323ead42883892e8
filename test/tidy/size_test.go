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
	// maxFunction is the length of a function that still fits a screen and a head. More needs a
	// reason.
	maxFunction = 70
)

// longFiles are longer than usual, keyed by name.
var longFiles = exceptions{}

func TestFileSize(t *testing.T) {
	t.Parallel()
	r := newRule(t, "a file is one thought; a long one has grown out of shape", longFiles)
	for _, s := range sources(t) {
		switch {
		case s.generated:
		case s.lines > maxLines:
			t.Errorf("%s has %d lines, more than %d: split it by concept", s.name, s.lines, maxLines)
		case s.lines > usualLines:
			r.broken(s.name, "%s has %d lines, more than %d: split it by concept, or say in longFiles why not", s.name,
				s.lines, usualLines)
		}
	}
}

// tables returns how many lines of a test are tables of cases, which are read as data, and
// subtests, which are functions of their own.
func tables(s *source, f ast.Node) int {
	if !s.test {
		return 0
	}
	lines := 0
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CompositeLit:
			lines += s.span(n) - 1
			return false
		case *ast.CallExpr:
			if sub := subtest(n); sub != nil {
				lines += s.span(sub) - 1
				return false
			}
		}
		return true
	})
	return lines
}

// subtest returns the function that a call of t.Run is given, nil of other calls.
func subtest(call *ast.CallExpr) *ast.FuncLit {
	sel, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || sel.Sel.Name != "Run" || len(call.Args) != 2 {
		return nil
	}
	body := call.Args[1]
	if made, ok := body.(*ast.CallExpr); ok && len(made.Args) > 0 { // f(how, func…) makes the subtest of a function
		body = made.Args[len(made.Args)-1]
	}
	lit, _ := body.(*ast.FuncLit) // nil of a function with a name
	return lit
}

// longFunctions are longer than allowed, keyed by file and name.
var longFunctions = exceptions{}

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
			check := func(n ast.Node, lines int) {
				if lines > maxFunction {
					r.broken(s.name+" "+f.Name.Name, "%s: %s has %d lines, more than %d", s.at(n), f.Name.Name, lines, maxFunction)
				}
			}
			check(f, s.span(f)-tables(s, f))
			ast.Inspect(f, func(n ast.Node) bool {
				if call, ok := n.(*ast.CallExpr); ok && s.test {
					if sub := subtest(call); sub != nil {
						check(sub, s.span(sub)-tables(s, sub.Body))
					}
				}
				return true
			})
		}
	}
}
