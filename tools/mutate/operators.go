package main

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strings"
)

// The functions that a changed package calls; see the file that build adds.
const (
	isActive = "mutant__"
	choose   = "alternative__"
	zeroed   = "zeroed__"
)

func never(id, inner string) string  { return "((" + inner + ") && !" + isActive + "(" + id + "))" }
func always(id, inner string) string { return "((" + inner + ") || " + isActive + "(" + id + "))" }
func negate(id, inner string) string { return "((" + inner + ") != " + isActive + "(" + id + "))" }

// condition changes what an if, a loop or a case asks: always so and never so. What dropping an
// operand shows already is left out, and a loop without end.
func (f *finder) condition(x ast.Expr, both bool) {
	op := token.ILLEGAL
	if b, ok := ast.Unparen(x).(*ast.BinaryExpr); ok {
		op = b.Op
	}
	if op != token.LOR || !both {
		f.add("condition", x, "false", never)
	}
	if op != token.LAND && both {
		f.add("condition", x, "true", always)
	}
	f.done[ast.Unparen(x)] = true
}

// cases lets each case of a switch be passed over. A switch with a tag becomes one of conditions
// first.
func (f *finder) cases(s *ast.SwitchStmt) {
	if s.Init != nil && s.Tag != nil || s.Tag != nil && f.labelled() {
		return
	}
	for _, c := range s.Body.List {
		clause := c.(*ast.CaseClause)
		for _, x := range clause.List {
			if s.Tag == nil {
				f.condition(x, len(clause.List) == 1)
				continue
			}
			f.heads[s] = true
			f.done[x] = true
			f.add("case", x, "nothing", func(id, inner string) string { return inner + " && !" + isActive + "(" + id + ")" })
		}
	}
}

// labelled tells whether the current node has a label.
func (f *finder) labelled() bool {
	_, ok := f.parent().(*ast.LabeledStmt)
	return ok
}

// switches returns the edits that turn switches with tags into switches of conditions.
func (f *finder) switches() (tags, cases []edit) {
	for s := range f.heads {
		tags = append(tags, edit{f.offset(s.Tag.Pos()), f.offset(s.Tag.End()),
			func(inner string) string { return "tag__ := " + inner + ";" }})
		for _, c := range s.Body.List {
			for _, x := range c.(*ast.CaseClause).List {
				cases = append(cases, edit{f.offset(x.Pos()), f.offset(x.End()),
					func(inner string) string { return "tag__ == (" + inner + ")" }})
			}
		}
	}
	return tags, cases
}

// loop passes over the elements of a range.
func (f *finder) loop(n *ast.RangeStmt) {
	switch f.info.TypeOf(n.X).Underlying().(type) {
	case *types.Slice, *types.Map, *types.Array:
		f.add("range", n.X, "nothing", func(id, inner string) string { return zeroed + "(" + id + ", " + inner + ")" })
	}
}

var boundaries = map[token.Token]token.Token{token.LSS: token.LEQ, token.LEQ: token.LSS, token.GTR: token.GEQ,
	token.GEQ: token.GTR}

var arithmetic = map[token.Token]token.Token{token.ADD: token.SUB, token.SUB: token.ADD, token.MUL: token.ADD,
	token.QUO: token.MUL, token.REM: token.ADD}

func (f *finder) binary(n *ast.BinaryExpr) {
	if f.info.Types[n].Value != nil {
		return
	}
	switch n.Op {
	case token.LAND, token.LOR:
		for _, x := range []ast.Expr{n.X, n.Y} {
			if b, ok := ast.Unparen(x).(*ast.BinaryExpr); ok && b.Op == n.Op {
				continue
			}
			if n.Op == token.LAND {
				f.add("operand", x, "true", always)
			} else {
				f.add("operand", x, "false", never)
			}
			f.done[ast.Unparen(x)] = true
		}
	case token.LSS, token.LEQ, token.GTR, token.GEQ:
		f.other(n)
		if f.ofLength(n.X) && f.text(n.Y) == "0" {
			return
		}
		after := f.text(n.X) + " " + boundaries[n.Op].String() + " " + f.text(n.Y)
		f.add("boundary", n, after, func(id, inner string) string {
			return fmt.Sprintf("(%[1]s(%[2]s) && (%[3]s) || !%[1]s(%[2]s) && (%[4]s))", isActive, id, after, inner)
		})
	case token.EQL, token.NEQ:
		f.other(n)
	case token.ADD, token.SUB, token.MUL, token.QUO, token.REM:
		f.arithmetic(n)
	}
}

// other negates a comparison that is no condition and no operand.
func (f *finder) other(n ast.Expr) {
	if _, ok := f.parent().(*ast.ReturnStmt); ok || f.done[n] {
		return
	}
	f.add("negate", n, "!("+f.text(n)+")", negate)
}

func (f *finder) ofLength(x ast.Expr) bool {
	call, ok := x.(*ast.CallExpr)
	if !ok {
		return false
	}
	id, ok := call.Fun.(*ast.Ident)
	return ok && id.Name == "len"
}

func (f *finder) arithmetic(n *ast.BinaryExpr) {
	t, ok := f.info.TypeOf(n).Underlying().(*types.Basic)
	if !ok || t.Info()&types.IsNumeric == 0 || !f.pure(n) {
		return
	}
	after := f.text(n.X) + " " + arithmetic[n.Op].String() + " " + f.text(n.Y)
	f.add("arithmetic", n, after, func(id, inner string) string {
		return choose + "(" + id + ", " + inner + ", " + after + ")"
	})
}

// returned returns something else: the other truth, zero, or no error.
func (f *finder) returned(n *ast.ReturnStmt) {
	results := f.results()
	if results == nil || len(n.Results) != results.Len() {
		return
	}
	failed := f.fails(n, results)
	for i, x := range n.Results {
		tv, t := f.info.Types[x], results.At(i).Type()
		if failed && i+1 < len(n.Results) {
			f.done[ast.Unparen(x)] = true // nobody looks at a result beside an error
			continue
		}
		if b, ok := t.Underlying().(*types.Basic); ok && b.Info()&types.IsBoolean != 0 {
			f.done[ast.Unparen(x)] = true
			f.add("return", x, "!("+f.text(x)+")", negate)
			continue
		}
		zero := f.zero(t)
		if tv.IsNil() || isZero(tv) || zero == "" || zero == f.text(x) {
			continue
		}
		if lit, ok := x.(*ast.CompositeLit); ok && len(lit.Elts) == 0 {
			continue
		}
		f.done[x] = true
		instead := make([]string, len(n.Results))
		for k, r := range n.Results {
			instead[k] = f.text(r)
		}
		instead[i] = zero
		f.addAs("return", x, f.text(x), zero, f.edit(n, func(id, inner string) string {
			return "if " + isActive + "(" + id + ") { return " + strings.Join(instead, ", ") + " } else { " + inner + " }"
		}))
	}
}

// fails tells a return of several results of which the last is an error.
func (f *finder) fails(n *ast.ReturnStmt, results *types.Tuple) bool {
	last := results.Len() - 1
	return last > 0 && types.Identical(results.At(last).Type(), types.Universe.Lookup("error").Type()) &&
		!f.info.Types[n.Results[last]].IsNil()
}

// zero is the zero value of a type as the file writes it, "" if it cannot.
func (f *finder) zero(t types.Type) string {
	switch u := t.Underlying().(type) {
	case *types.Pointer, *types.Interface, *types.Slice, *types.Map, *types.Signature, *types.Chan:
		return "nil"
	case *types.Basic:
		switch {
		case u.Info()&types.IsNumeric != 0:
			return "0"
		case u.Info()&types.IsString != 0:
			return `""`
		}
	}
	if name := f.typeName(t); name != "" {
		return "*new(" + name + ")"
	}
	return ""
}

// number adds one to a number.
func (f *finder) number(n *ast.BasicLit) {
	if n.Kind != token.INT || f.done[n] {
		return
	}
	switch p := f.parent().(type) {
	case *ast.KeyValueExpr:
		if p.Key == n {
			return
		}
	case *ast.BinaryExpr:
		if _, ordered := boundaries[p.Op]; ordered || n.Value == "0" && f.ofLength(p.X) {
			return // the boundary is moved already, or it is asked whether something is empty
		}
	}
	name := f.typeName(f.info.TypeOf(n))
	if name == "" {
		return
	}
	after := n.Value + " + 1"
	f.add("constant", n, after, func(id, inner string) string {
		return choose + "[" + name + "](" + id + ", " + inner + ", " + after + ")"
	})
}

// truth turns true and false around.
func (f *finder) truth(n *ast.Ident) {
	if n.Name != "true" && n.Name != "false" || f.info.Uses[n] != types.Universe.Lookup(n.Name) || f.done[n] {
		return
	}
	if p, ok := f.parent().(*ast.CallExpr); ok && p.Fun == n {
		return
	}
	f.add("constant", n, "!"+n.Name, negate)
}

// call swaps arguments of one type that stand beside each other, and min and max.
func (f *finder) call(n *ast.CallExpr) {
	if id, ok := n.Fun.(*ast.Ident); ok && (id.Name == "min" || id.Name == "max") && f.info.Types[n.Fun].IsBuiltin() {
		f.minMax(n, id)
		return
	}
	sig, ok := f.info.TypeOf(n.Fun).Underlying().(*types.Signature)
	if !ok || f.info.Types[n.Fun].IsType() || f.symmetric(n) {
		return
	}
	for i := 0; i+1 < len(n.Args); i++ {
		a, b := n.Args[i], n.Args[i+1]
		if sig.Variadic() && i+1 >= sig.Params().Len()-1 || i+1 >= sig.Params().Len() {
			return
		}
		same := types.Identical(sig.Params().At(i).Type(), sig.Params().At(i+1).Type()) &&
			types.Identical(f.info.TypeOf(a), f.info.TypeOf(b))
		if !same || f.text(a) == f.text(b) || !f.pure(a) || !f.pure(b) {
			continue
		}
		swap := func(x, y ast.Expr) func(int) edit {
			return f.edit(x, func(id, inner string) string { return choose + "(" + id + ", " + inner + ", " + f.text(y) + ")" })
		}
		f.addAs("arguments", a, f.text(a)+", "+f.text(b), f.text(b)+", "+f.text(a), swap(a, b), swap(b, a))
	}
}

func (f *finder) minMax(n *ast.CallExpr, id *ast.Ident) {
	if !f.pure(n) || f.info.Types[n].Value != nil {
		return
	}
	other := map[string]string{"min": "max", "max": "min"}[id.Name]
	after := other + string(f.src[f.offset(n.Lparen):f.offset(n.End())])
	f.add("minmax", n, after, func(id, inner string) string {
		return choose + "(" + id + ", " + inner + ", " + after + ")"
	})
}

// symmetric tells functions that do not care about the order of their arguments.
func (f *finder) symmetric(n *ast.CallExpr) bool {
	name := ""
	switch fun := n.Fun.(type) {
	case *ast.Ident:
		name = fun.Name
	case *ast.SelectorExpr:
		name = fun.Sel.Name
	}
	return slices.Contains([]string{"Equal", "EqualFold", "DeepEqual", "Union", "union"}, name)
}
