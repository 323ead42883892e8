package main

import (
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
)

// statements leaves out statements, one at a time, and fills what is assigned from its neighbour.
func (f *finder) statements(list []ast.Stmt, around ast.Node) {
	if _, ok := f.parent().(*ast.SwitchStmt); ok {
		if _, body := around.(*ast.BlockStmt); body {
			return // clauses are no statements
		}
	}
	if _, ok := f.parent().(*ast.TypeSwitchStmt); ok {
		if _, body := around.(*ast.BlockStmt); body {
			return
		}
	}
	alone := len(list) == 1 && f.guarded(around)
	for i, s := range list {
		if f.canDrop(s) && !alone && !f.isLog(s) {
			f.add("statement", s, "nothing", func(id, inner string) string {
				return "if !" + isActive + "(" + id + ") { " + inner + " }"
			})
		}
		if a, ok := s.(*ast.AssignStmt); ok {
			f.assigned(list, i, a)
		}
	}
}

// guarded tells a block that a condition guards: to pass over its only statement is to pass over
// the block.
func (f *finder) guarded(around ast.Node) bool {
	switch p := f.parent().(type) {
	case *ast.IfStmt:
		return p.Body == around
	case *ast.ForStmt, *ast.RangeStmt:
		return true
	}
	_, ok := around.(*ast.CaseClause)
	return ok
}

func (f *finder) canDrop(s ast.Stmt) bool {
	switch s := s.(type) {
	case *ast.ExprStmt, *ast.IncDecStmt, *ast.SendStmt, *ast.GoStmt, *ast.DeferStmt, *ast.ReturnStmt:
		return true
	case *ast.AssignStmt:
		if id, ok := s.Lhs[0].(*ast.Ident); ok && len(s.Lhs) == 1 && id.Name == "_" {
			return false
		}
		return s.Tok != token.DEFINE
	case *ast.BranchStmt:
		return s.Tok == token.BREAK || s.Tok == token.CONTINUE
	}
	return false
}

// assigned fills what is assigned from the assignment after it, or before it, or from the other
// value of the same assignment.
func (f *finder) assigned(list []ast.Stmt, i int, a *ast.AssignStmt) {
	if a.Tok != token.ASSIGN {
		return
	}
	if len(a.Lhs) == 2 && len(a.Rhs) == 2 {
		if f.sameType(a.Rhs[0], a.Rhs[1]) {
			after := f.text(a.Lhs[0]) + ", " + f.text(a.Lhs[1]) + " = " + f.text(a.Rhs[1]) + ", " + f.text(a.Rhs[0])
			f.addStatement("neighbour", a, after)
		}
		return
	}
	if len(a.Lhs) != 1 {
		return
	}
	for _, k := range []int{i + 1, i - 1} {
		if k < 0 || k >= len(list) {
			continue
		}
		b, ok := list[k].(*ast.AssignStmt)
		if ok && b.Tok == token.ASSIGN && len(b.Lhs) == 1 && len(b.Rhs) == 1 && f.sameType(a.Rhs[0], b.Rhs[0]) {
			f.addStatement("neighbour", a, f.text(a.Lhs[0])+" = "+f.text(b.Rhs[0]))
			return
		}
	}
}

func (f *finder) addStatement(op string, s ast.Stmt, after string) {
	f.add(op, s, after, func(id, inner string) string {
		return "if " + isActive + "(" + id + ") { " + after + " } else { " + inner + " }"
	})
}

// sameType tells two expressions of one type with different texts, of which not both are constants.
func (f *finder) sameType(a, b ast.Expr) bool {
	x, y := f.info.Types[a], f.info.Types[b]
	return x.Type != nil && y.Type != nil && types.Identical(x.Type, y.Type) && !x.IsNil() && f.text(a) != f.text(b)
}

func isZero(tv types.TypeAndValue) bool {
	if tv.Value == nil {
		return false
	}
	switch tv.Value.Kind() {
	case constant.Bool:
		return !constant.BoolVal(tv.Value)
	case constant.String:
		return constant.StringVal(tv.Value) == ""
	case constant.Int, constant.Float:
		return constant.Sign(tv.Value) == 0
	}
	return false
}

// fields leaves fields of a literal out, and fills them from their neighbours.
func (f *finder) fields(lit *ast.CompositeLit) {
	if _, ok := f.info.TypeOf(lit).Underlying().(*types.Struct); !ok {
		return
	}
	values := make([]ast.Expr, len(lit.Elts))
	for i, e := range lit.Elts {
		values[i] = e
		if kv, ok := e.(*ast.KeyValueExpr); ok {
			values[i] = kv.Value
		}
	}
	for i, v := range values {
		f.emptied(lit.Elts[i], v)
		for _, k := range []int{i + 1, i - 1} {
			if k >= 0 && k < len(values) && f.sameType(v, values[k]) && f.pure(values[k]) &&
				f.filled(lit.Elts[i], v, values[k]) {
				break
			}
		}
	}
}

// label is how a key calls the element of a literal.
func (f *finder) label(element ast.Expr, value string) string {
	if kv, ok := element.(*ast.KeyValueExpr); ok {
		return f.text(kv.Key) + ": " + value
	}
	return value
}

func (f *finder) emptied(element, v ast.Expr) {
	tv := f.info.Types[v]
	if tv.IsNil() || isZero(tv) && tv.Value.Kind() != constant.Bool {
		return
	}
	before := f.label(element, f.text(v))
	if b, ok := tv.Type.Underlying().(*types.Basic); ok && b.Info()&types.IsBoolean != 0 {
		f.done[ast.Unparen(v)] = true
		f.addAs("field", v, before, f.label(element, "!("+f.text(v)+")"), f.edit(v, negate))
		return
	}
	if lit, ok := v.(*ast.CompositeLit); ok && len(lit.Elts) == 0 {
		return
	}
	explicit := ""
	if tv.Value != nil {
		explicit = f.typeName(tv.Type)
		if explicit == "" {
			return
		}
		explicit = "[" + explicit + "]"
	}
	f.addAs("field", v, before, f.label(element, "zero"), f.edit(v, func(id, inner string) string {
		return zeroed + explicit + "(" + id + ", " + inner + ")"
	}))
}

// filled reports whether a mutant was made.
func (f *finder) filled(element, v, other ast.Expr) bool {
	explicit := ""
	if f.info.Types[v].Value != nil && f.info.Types[other].Value != nil {
		name := f.typeName(f.info.TypeOf(v))
		if name == "" {
			return false
		}
		explicit = "[" + name + "]"
	}
	f.addAs("neighbour", v, f.label(element, f.text(v)), f.label(element, f.text(other)),
		f.edit(v, func(id, inner string) string {
			return choose + explicit + "(" + id + ", " + inner + ", " + f.text(other) + ")"
		}))
	return true
}
