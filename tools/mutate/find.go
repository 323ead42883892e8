package main

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"strings"
)

// finder looks for the mutants of one file.
type finder struct {
	src  []byte
	name string
	fset *token.FileSet
	file *ast.File
	info *types.Info
	pkg  *types.Package

	// fn and decl are the declaration that is looked at, and stack the nodes around the current one,
	// outermost first.
	fn    string
	decl  int
	stack []ast.Node
	// next is the id of the next mutant of the package.
	next  *int
	found []*mutant
	// heads are the tags of switches that were rewritten so that each case is a condition.
	heads map[*ast.SwitchStmt]bool
	// done are nodes that an operator higher up has taken care of.
	done map[ast.Node]bool
}

// find returns the mutants of the file in the order of its text, and the edits that belong to no
// mutant.
func (f *finder) find() {
	f.heads, f.done = map[*ast.SwitchStmt]bool{}, map[ast.Node]bool{}
	for i, d := range f.file.Decls {
		f.decl = i
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Body != nil {
				f.fn = funcName(d)
				f.walk(d.Body)
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				if v, ok := spec.(*ast.ValueSpec); ok && d.Tok == token.VAR {
					f.fn = v.Names[0].Name
					for _, x := range v.Values {
						f.walk(x)
					}
				}
			}
		}
	}
}

func funcName(d *ast.FuncDecl) string {
	if d.Recv == nil {
		return d.Name.Name
	}
	t := d.Recv.List[0].Type
	if star, ok := t.(*ast.StarExpr); ok {
		t = star.X
	}
	if x, ok := t.(*ast.IndexExpr); ok {
		t = x.X
	}
	return fmt.Sprintf("(%s).%s", types.ExprString(t), d.Name.Name)
}

func (f *finder) walk(root ast.Node) {
	f.stack = f.stack[:0]
	ast.Inspect(root, func(n ast.Node) bool {
		if n == nil {
			f.stack = f.stack[:len(f.stack)-1]
			return true
		}
		if skipped(n) || f.isLog(n) {
			return false
		}
		f.visit(n)
		f.stack = append(f.stack, n)
		return true
	})
}

// skipped are nodes in which a constant must stay one, and types.
func skipped(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.GenDecl:
		return n.Tok == token.CONST || n.Tok == token.TYPE
	case *ast.ArrayType, *ast.FuncType, *ast.MapType, *ast.StructType, *ast.InterfaceType, *ast.ChanType, *ast.SelectStmt:
		return true
	}
	return false
}

func (f *finder) visit(n ast.Node) {
	switch n := n.(type) {
	case *ast.BlockStmt:
		f.statements(n.List, n)
	case *ast.CaseClause:
		f.statements(n.Body, n)
	case *ast.IfStmt:
		f.condition(n.Cond, true)
	case *ast.ForStmt:
		if n.Cond != nil {
			f.condition(n.Cond, false)
		}
	case *ast.RangeStmt:
		f.loop(n)
	case *ast.SwitchStmt:
		f.cases(n)
	case *ast.BinaryExpr:
		f.binary(n)
	case *ast.ReturnStmt:
		f.returned(n)
	case *ast.CompositeLit:
		f.fields(n)
	case *ast.CallExpr:
		f.call(n)
	case *ast.BasicLit:
		f.number(n)
	case *ast.Ident:
		f.truth(n)
	}
}

// parent is the node around the current one, without parentheses; nil at the top.
func (f *finder) parent() ast.Node {
	for i := len(f.stack) - 1; i >= 0; i-- {
		if _, ok := f.stack[i].(*ast.ParenExpr); !ok {
			return f.stack[i]
		}
	}
	return nil
}

// results are the types that the innermost function around the current node returns.
func (f *finder) results() *types.Tuple {
	for i := len(f.stack) - 1; i >= 0; i-- {
		if lit, ok := f.stack[i].(*ast.FuncLit); ok {
			return f.info.TypeOf(lit).(*types.Signature).Results()
		}
	}
	d, ok := f.file.Decls[f.decl].(*ast.FuncDecl)
	if !ok {
		return nil
	}
	return f.info.Defs[d.Name].Type().(*types.Signature).Results()
}

func (f *finder) offset(p token.Pos) int { return f.fset.Position(p).Offset }

// text is a node's source.
func (f *finder) text(n ast.Node) string { return string(f.src[f.offset(n.Pos()):f.offset(n.End())]) }

// add adds a mutant whose only edit is of node n. wrap gets the id and the node's text.
func (f *finder) add(op string, n ast.Node, after string, wrap func(id, inner string) string) {
	f.addAs(op, n, f.text(n), after, f.edit(n, wrap))
}

// addAs adds a mutant with the given edits, of which each still waits for its id.
func (f *finder) addAs(op string, n ast.Node, before, after string, edits ...func(id int) edit) {
	*f.next++
	m := &mutant{
		id: *f.next, file: f.name, line: f.fset.Position(n.Pos()).Line, decl: f.decl, fn: f.fn,
		op: op, before: oneLine(before), after: oneLine(after),
	}
	for _, e := range edits {
		m.edits = append(m.edits, e(m.id))
	}
	f.found = append(f.found, m)
}

func (f *finder) edit(n ast.Node, wrap func(id, inner string) string) func(int) edit {
	return func(id int) edit {
		return edit{
			from: f.offset(n.Pos()), to: f.offset(n.End()),
			wrap: func(inner string) string { return wrap(fmt.Sprint(id), inner) },
		}
	}
}

// typeName is how the file calls a type, "" if it cannot.
func (f *finder) typeName(t types.Type) string {
	known := true
	name := types.TypeString(t, func(p *types.Package) string {
		if p == f.pkg {
			return ""
		}
		for _, spec := range f.file.Imports {
			if strings.Trim(spec.Path.Value, `"`) != p.Path() {
				continue
			}
			if spec.Name != nil {
				return spec.Name.Name
			}
			return p.Name()
		}
		known = false
		return p.Name()
	})
	if !known || strings.Contains(name, "untyped") || strings.Contains(name, "invalid") {
		return ""
	}
	return name
}

// isLog tells calls that only write to a log.
func (f *finder) isLog(n ast.Node) bool {
	call, ok := n.(*ast.CallExpr)
	if s, isStmt := n.(*ast.ExprStmt); isStmt {
		call, ok = s.X.(*ast.CallExpr)
	}
	if !ok {
		return false
	}
	sel, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	o := f.info.Uses[sel.Sel]
	if o == nil || o.Pkg() == nil {
		return false
	}
	path := o.Pkg().Path()
	return path == "log" || path == "log/slog" || path == "github.com/go-logr/logr"
}

// pureCalls are packages whose functions may be called twice.
var pureCalls = map[string]bool{"strings": true, "strconv": true, "path": true, "math": true, "fmt": true, "time": true}

// pure tells an expression that may be evaluated twice.
func (f *finder) pure(x ast.Expr) bool {
	ok := true
	ast.Inspect(x, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			ok = false
		case *ast.UnaryExpr:
			ok = ok && n.Op != token.ARROW
		case *ast.CallExpr:
			ok = ok && f.pureCall(n)
		}
		return ok
	})
	return ok
}

func (f *finder) pureCall(call *ast.CallExpr) bool {
	if tv := f.info.Types[call.Fun]; tv.IsType() || tv.IsBuiltin() {
		return true
	}
	sel, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	o := f.info.Uses[sel.Sel]
	return o != nil && o.Pkg() != nil && pureCalls[o.Pkg().Path()] && sel.Sel.Name != "Now"
}
