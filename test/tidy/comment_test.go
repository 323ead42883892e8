package tidy

import (
	"go/ast"
	"go/token"
	"slices"
	"strings"
	"testing"
)

func TestPackageComments(t *testing.T) {
	t.Parallel()
	r := newRule(t, "a folder is a concept; its package comment teaches it before the API", exceptions{})
	comments, where, generatedOnly := map[string]string{}, map[string]*source{}, map[string]bool{}
	for _, s := range sources(t) {
		dir := s.dir()
		if _, ok := where[dir]; !ok {
			where[dir], generatedOnly[dir] = s, true
		}
		generatedOnly[dir] = generatedOnly[dir] && s.generated
		if s.ast.Doc != nil && len(s.ast.Doc.Text()) > len(comments[dir]) {
			comments[dir] = s.ast.Doc.Text()
		}
	}
	for dir, s := range where {
		text := comments[dir]
		switch name := strings.TrimSuffix(s.ast.Name.Name, "_test"); {
		case text == "" && generatedOnly[dir]:
			r.broken(dir, "%s holds generated code without a package comment; add a doc.go", dir)
		case text == "":
			r.broken(dir, "%s has no package comment", dir)
		case name == "main" && !strings.HasPrefix(text, "Command "):
			r.broken(dir, "%s: the comment of a program begins with \"Command \", not %.30q", dir, text)
		case name != "main" && !generatedOnly[dir] && !strings.HasPrefix(text, "Package "+name):
			r.broken(dir, "%s: the package comment begins with \"Package %s\", not %.30q", dir, name, text)
		}
	}
}

// selfEvident are methods whose meaning is that of an interface everybody knows.
var selfEvident = []string{"String", "Error", "Unwrap"}

// undocumented are exported symbols without a comment, keyed by file and name.
var undocumented = exceptions{}

func TestExportedSymbolsAreDocumented(t *testing.T) {
	t.Parallel()
	r := newRule(t, "whoever uses a symbol should not have to read its code: shapes, units, errors", undocumented)
	for _, s := range sources(t) {
		if s.generated || s.test || s.ast.Name.Name == "main" {
			continue
		}
		for _, d := range s.ast.Decls {
			for _, id := range bareSymbols(d) {
				r.broken(s.name+" "+id.Name, "%s: %s has no comment", s.at(id), id.Name)
			}
		}
	}
}

// bareSymbols returns the exported names of a declaration that nothing explains. A comment on a
// group explains what is in it, a type its constants; methods of unexported types are seen only
// through interfaces, which explain them.
func bareSymbols(d ast.Decl) []*ast.Ident {
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Name.IsExported() && d.Doc == nil && !slices.Contains(selfEvident, d.Name.Name) &&
			(d.Recv == nil || ast.IsExported(receiver(d.Recv.List[0].Type))) {
			return []*ast.Ident{d.Name}
		}
	case *ast.GenDecl:
		if d.Tok == token.IMPORT || d.Doc != nil && (d.Tok != token.TYPE || len(d.Specs) == 1) {
			return nil
		}
		var bare []*ast.Ident
		for _, spec := range d.Specs {
			if v, ok := spec.(*ast.ValueSpec); ok && d.Tok == token.CONST && v.Type != nil {
				continue
			}
			bare = append(bare, bareNames(spec)...)
		}
		return bare
	}
	return nil
}

func bareNames(spec ast.Spec) []*ast.Ident {
	var names []*ast.Ident
	switch spec := spec.(type) {
	case *ast.TypeSpec:
		if spec.Doc == nil && spec.Comment == nil {
			names = []*ast.Ident{spec.Name}
		}
	case *ast.ValueSpec:
		if spec.Doc == nil && spec.Comment == nil {
			names = spec.Names
		}
	}
	var exported []*ast.Ident
	for _, n := range names {
		if n.IsExported() {
			exported = append(exported, n)
		}
	}
	return exported
}

// receiver returns the name of a method's type.
func receiver(x ast.Expr) string {
	switch x := x.(type) {
	case *ast.StarExpr:
		return receiver(x.X)
	case *ast.IndexExpr:
		return receiver(x.X)
	case *ast.IndexListExpr:
		return receiver(x.X)
	case *ast.Ident:
		return x.Name
	}
	return ""
}
