package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/types"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/tools/go/packages"
)

// subject is a package with its mutants.
type subject struct {
	target
	// path is the import path, dir the folder.
	path, dir string
	files     []*sourceFile
	mutants   []*mutant
	pkg       *packages.Package
	imports   map[string]*types.Package
}

// sourceFile is a file of the package. With tags and cases its switches become switches of
// conditions, which the mutants of cases need.
type sourceFile struct {
	name        string
	src         []byte
	tags, cases []edit
}

// helperFile is what every changed package gets: it reads from the environment which mutant is
// active, and writes to a file which mutants the tests come by.
const helperFile = `package %s

import (
	"os"
	"strconv"
	"sync"
)

var (
	mutantActive__, _ = strconv.Atoi(os.Getenv("MUTANT"))
	mutantRecord__    = os.Getenv("MUTANTS_REACHED")
	mutantSeen__      sync.Map
)

func mutant__(id int) bool {
	if mutantRecord__ != "" {
		if _, twice := mutantSeen__.LoadOrStore(id, true); !twice {
			f, err := os.OpenFile(mutantRecord__, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
			if err == nil {
				_, err = f.WriteString(strconv.Itoa(id) + "\n")
			}
			if err == nil {
				err = f.Close()
			}
			if err != nil {
				panic(err)
			}
		}
	}
	return id == mutantActive__
}

func alternative__[T any](id int, is, instead T) T {
	if mutant__(id) {
		return instead
	}
	return is
}

func zeroed__[T any](id int, is T) T {
	var zero T
	return alternative__(id, is, zero)
}
`

// helperName is the name of the file.
const helperName = "zz_mutants.go"

// load reads packages of the module in root and finds their mutants.
func load(root string, targets []target) ([]*subject, error) {
	patterns := []string{"os", "strconv", "sync"}
	for _, t := range targets {
		patterns = append(patterns, "./"+t.pkg)
	}
	pkgs, err := packages.Load(&packages.Config{
		Dir: root,
		Mode: packages.NeedName | packages.NeedFiles | packages.NeedSyntax | packages.NeedTypes | packages.NeedTypesInfo |
			packages.NeedImports | packages.NeedExportFile | packages.NeedModule,
	}, patterns...)
	if err != nil {
		return nil, err
	}
	byPath := map[string]*packages.Package{}
	for _, p := range pkgs {
		if len(p.Errors) > 0 {
			return nil, fmt.Errorf("%s: %v", p.PkgPath, p.Errors[0])
		}
		byPath[p.PkgPath] = p
	}
	var all []*subject
	for _, t := range targets {
		i := slices.IndexFunc(pkgs, func(p *packages.Package) bool {
			return p.Module != nil &&
				p.PkgPath == p.Module.Path+"/"+t.pkg
		})
		if i < 0 {
			return nil, fmt.Errorf("there is no package %s", t.pkg)
		}
		s := &subject{target: t, path: pkgs[i].PkgPath, pkg: pkgs[i], dir: filepath.Join(root, t.pkg),
			imports: map[string]*types.Package{}}
		for _, name := range patterns[:3] {
			s.imports[name] = byPath[name].Types
		}
		for _, p := range s.pkg.Imports {
			s.imports[p.PkgPath] = p.Types
		}
		if err := s.find(); err != nil {
			return nil, fmt.Errorf("%s: %w", t.pkg, err)
		}
		all = append(all, s)
	}
	return all, nil
}

// Import implements types.Importer for the changed package.
func (s *subject) Import(path string) (*types.Package, error) {
	if path == "unsafe" {
		return types.Unsafe, nil
	}
	if p := s.imports[path]; p != nil {
		return p, nil
	}
	return nil, fmt.Errorf("the package does not import %s", path)
}

// find finds the mutants, among them those that do not compile.
func (s *subject) find() error {
	next := 0
	for _, file := range s.pkg.Syntax {
		path := s.pkg.Fset.Position(file.Package).Filename
		src, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		f := &finder{
			src: src, name: filepath.Base(path), fset: s.pkg.Fset, file: file, info: s.pkg.TypesInfo, pkg: s.pkg.Types,
			next: &next,
		}
		one := &sourceFile{name: f.name, src: src}
		s.files = append(s.files, one)
		if !s.wanted(f.name) || ast.IsGenerated(file) {
			continue
		}
		f.find()
		one.tags, one.cases = f.switches()
		s.mutants = append(s.mutants, f.found...)
	}
	number(s.mutants)
	return nil
}

// text is a file with the given mutants in it.
func (s *subject) text(f *sourceFile, with []*mutant) string {
	var edits []edit
	for _, m := range with {
		if m.file == f.name {
			edits = append(edits, m.edits...)
		}
	}
	if len(edits) > 0 {
		edits = slices.Concat(f.tags, edits, f.cases)
	}
	return render(f.src, edits)
}

// leaveOut removes mutants that do not compile. Most do, so all of them are checked together first;
// then those of the declarations with an error in halves.
func (s *subject) leaveOut() error {
	for {
		broken, err := s.check(s.mutants)
		if len(broken) == 0 {
			return nil
		}
		var good []*mutant
		doubtful := map[place][]*mutant{}
		for _, m := range s.mutants {
			if at := (place{m.file, m.decl}); broken[at] {
				doubtful[at] = append(doubtful[at], m)
			} else {
				good = append(good, m)
			}
		}
		before := len(s.mutants)
		for _, some := range doubtful {
			good = append(good, s.compiling(some)...)
		}
		slices.SortFunc(good, func(a, b *mutant) int { return a.id - b.id })
		if s.mutants = good; len(good) == before {
			return fmt.Errorf("mutants that compile alone do not compile together: %w", err)
		}
	}
}

// compiling returns those that compile.
func (s *subject) compiling(some []*mutant) []*mutant {
	broken, _ := s.check(some)
	switch {
	case len(broken) == 0:
		return some
	case len(some) == 1:
		return nil
	}
	half := len(some) / 2
	return append(slices.Clone(s.compiling(some[:half])), s.compiling(some[half:])...)
}

// place is a declaration at the top level of a file.
type place struct {
	file string
	decl int
}

// check compiles the package with the given mutants and returns the declarations with errors and
// the first error.
func (s *subject) check(with []*mutant) (map[place]bool, error) {
	fset := s.pkg.Fset
	broken := map[place]bool{}
	var first error
	changed := map[string]bool{}
	for _, m := range with {
		changed[m.file] = true
	}
	parsed := map[string]*ast.File{}
	parse := func(name, text string) {
		f, err := parser.ParseFile(fset, name, text, parser.SkipObjectResolution)
		if err != nil {
			panic(fmt.Sprintf("%s: %v\n%s", name, err, text))
		}
		parsed[name] = f
	}
	parse(helperName, fmt.Sprintf(helperFile, s.pkg.Types.Name()))
	for i, f := range s.files {
		if changed[f.name] {
			parse(f.name, s.text(f, with))
		} else {
			parsed[f.name] = s.pkg.Syntax[i]
		}
	}
	var files []*ast.File
	for _, name := range slices.Sorted(maps.Keys(parsed)) {
		files = append(files, parsed[name])
	}
	conf := types.Config{Importer: s, Sizes: types.SizesFor("gc", "amd64"), Error: func(err error) {
		var e types.Error
		if !errors.As(err, &e) || e.Soft && strings.Contains(e.Msg, "imported and not used") {
			return
		}
		if first == nil {
			first = fmt.Errorf("%s: %s", fset.Position(e.Pos), e.Msg)
		}
		name := filepath.Base(fset.Position(e.Pos).Filename)
		for i, d := range parsed[name].Decls {
			if d.Pos() <= e.Pos && e.Pos <= d.End() {
				broken[place{name, i}] = true
			}
		}
	}}
	_, _ = conf.Check(s.path, fset, files, nil)
	return broken, first
}
