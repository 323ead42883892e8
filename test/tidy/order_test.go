package tidy

import (
	"go/ast"
	"testing"
)

// TestMapLiteralsDecideNothing: a loop over a map literal that returns, breaks or appends does
// something else in each run: which of two faults is told, in which order files are removed.
func TestMapLiteralsDecideNothing(t *testing.T) {
	t.Parallel()
	r := newRule(t, "a map has no order: range over a slice of pairs", exceptions{})
	looked := 0
	for _, s := range sources(t) {
		if s.test {
			continue
		}
		ast.Inspect(s.ast, func(n ast.Node) bool {
			loop, ok := n.(*ast.RangeStmt)
			if !ok {
				return true
			}
			looked++
			literal, ok := loop.X.(*ast.CompositeLit)
			if !ok {
				return true
			}
			if _, ok := literal.Type.(*ast.MapType); ok && decides(loop.Body) {
				r.broken(s.name, "%s: the loop over a map literal decides something", s.at(loop))
			}
			return true
		})
	}
	if looked < 1000 {
		t.Errorf("only %d loops were looked at", looked)
	}
}

// decides tells whether a body returns, breaks or appends; functions within it do not count.
func decides(body ast.Node) bool {
	found := false
	ast.Inspect(body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			return false
		case *ast.ReturnStmt:
			found = true
		case *ast.BranchStmt:
			found = found || n.Tok.String() == "break"
		case *ast.CallExpr:
			if f, ok := n.Fun.(*ast.Ident); ok && f.Name == "append" {
				found = true
			}
		}
		return !found
	})
	return found
}
