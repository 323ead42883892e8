package tidy

import (
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
)

// loopOwned are the types of dataplane/replica, and of the chain, that belong to the loop's thread.
var loopOwned = []string{
	"ankole.storage/dataplane/replica.Replica", "ankole.storage/dataplane/replica.session",
	"ankole.storage/dataplane/replica.job",
	"ankole.storage/dataplane/replica.metaOp", "ankole.storage/dataplane/chain.Blocks",
	"ankole.storage/dataplane/chain.Chain",
	// parts of the replica
	"ankole.storage/dataplane/replica.sessions", "ankole.storage/dataplane/replica.requests",
	"ankole.storage/dataplane/replica.metaOps", "ankole.storage/dataplane/replica.syncs",
	"ankole.storage/dataplane/replica.whiteouts", "ankole.storage/dataplane/replica.space",
	"ankole.storage/dataplane/replica.losing", "ankole.storage/dataplane/replica.handover",
}

// workerOwned belongs to the metadata operations, of which one runs at a time away from that
// thread.
var workerOwned = []string{"ankole.storage/dataplane/replica.worker", "ankole.storage/dataplane/replica.sidecarSet",
	"ankole.storage/dataplane/chain.Files", "ankole.storage/dataplane/chain.Sidecars"}

// isOperation tells the fields that hold what runs on a worker.
func isOperation(field string) bool {
	return slices.Contains([]string{"run", "note", "both", "Fn"}, field)
}

// TestWorkers: what a worker thread touches and what the loop owns are different types.
func TestWorkers(t *testing.T) {
	t.Parallel()
	r := newRule(t, "two threads that change the block map lose bits of it, and with them acknowledged data: a "+
		"function that runs on a worker "+
		"gets values from the loop and returns values, and the loop leaves the worker's files alone", exceptions{})
	found := workersAndLoop(t, packageReplica(t), func(where *source, n ast.Node, what string) {
		r.broken(where.name+" "+what, "%s: %s", where.at(n), what)
	})
	if found < 20 {
		t.Errorf("only %d functions for workers found: is this test looking in the right place?", found)
	}
}

// The rule above must see what it is there to see.
func TestWorkersAreSeen(t *testing.T) {
	t.Parallel()
	for change, want := range map[[2]string]string{
		{"\t\tfound, err := look()\n", "\t\tfound, err := look()\n\t\tx.r.blocks.Found(found)\n"}: "reaches for x",
		{"look := x.r.blocks.Look(off, n)",
			"look := x.r.blocks.Look(off, n)\n\t_ = x.r.ops.worker.files.SizeBytes()"}: "the loop uses files",
		{"\t\tfound, err := look()\n", "\t\tfound, err := look()\n\t\tj.code = 0\n"}: "reaches for j",
	} {
		list := packageReplica(t)
		at := slices.IndexFunc(list, func(s *source) bool { return s.name == "dataplane/replica/job.go" })
		text := strings.Replace(read(t, list[at].name), change[0], change[1], 1)
		fset := list[at].fset // types are checked with one set of positions
		file, err := parser.ParseFile(fset, list[at].name, text, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		list[at] = &source{name: list[at].name, fset: fset, ast: file}
		var all []string
		workersAndLoop(t, list, func(_ *source, _ ast.Node, what string) { all = append(all, what) })
		if !strings.Contains(strings.Join(all, "\n"), want) {
			t.Errorf("after %q: %q does not say %q", change[1], all, want)
		}
	}
}

// packageReplica is the sources of dataplane/replica without its tests.
func packageReplica(t *testing.T) (list []*source) {
	for _, s := range sources(t) {
		if s.dir() == "dataplane/replica" && !s.test {
			list = append(list, s)
		}
	}
	return list
}

// workersAndLoop checks package replica and returns how many functions run on workers.
func workersAndLoop(t *testing.T, list []*source, broken func(where *source, n ast.Node, what string)) (found int) {
	info := typesOf(t, list)
	for _, s := range list {
		c := &workerCheck{info: info, found: func(n ast.Node, what string) { broken(s, n, what) }}
		ast.Inspect(s.ast, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.KeyValueExpr:
				if key, ok := n.Key.(*ast.Ident); ok && isOperation(key.Name) {
					found += c.worker(n.Value)
				}
			case *ast.AssignStmt:
				for i, left := range n.Lhs {
					if sel, ok := left.(*ast.SelectorExpr); ok && isOperation(sel.Sel.Name) && i < len(n.Rhs) &&
						c.isFunction(n.Rhs[i]) {
						found += c.worker(n.Rhs[i])
					}
				}
			case *ast.CallExpr: // functions that are handed on to become an operation's
				for _, arg := range n.Args {
					if f, ok := arg.(*ast.FuncLit); ok && c.takesWorker(f) {
						found += c.worker(f)
					}
				}
			case *ast.FuncDecl:
				if n.Body != nil && !c.ofWorker(n) {
					c.loop(n.Body)
				}
			}
			return true
		})
	}
	return found
}

type workerCheck struct {
	info  *types.Info
	found func(n ast.Node, what string)
}

// named is the name of the type behind pointers.
func named(t types.Type) string {
	if p, ok := t.(*types.Pointer); ok {
		t = p.Elem()
	}
	n, ok := types.Unalias(t).(*types.Named)
	if !ok || n.Obj().Pkg() == nil {
		return ""
	}
	return n.Obj().Pkg().Path() + "." + n.Obj().Name()
}

func (c *workerCheck) isFunction(x ast.Expr) bool {
	_, ok := c.info.TypeOf(x).Underlying().(*types.Signature)
	return ok
}

func (c *workerCheck) takesWorker(f *ast.FuncLit) bool {
	params := c.info.TypeOf(f).(*types.Signature).Params()
	return params.Len() > 0 && slices.Contains(workerOwned, named(params.At(0).Type()))
}

// ofWorker tells whether a function is the worker's: a method of it or of what it has, or one that
// is given or makes it.
func (c *workerCheck) ofWorker(f *ast.FuncDecl) bool {
	sig := c.info.Defs[f.Name].Type().(*types.Signature)
	if recv := sig.Recv(); recv != nil {
		return !slices.Contains(loopOwned, named(recv.Type()))
	}
	for _, list := range []*types.Tuple{sig.Params(), sig.Results()} {
		for v := range list.Variables() {
			if slices.Contains(workerOwned, named(v.Type())) {
				return true
			}
		}
	}
	return false
}

// worker checks a function that runs on a worker: it must not get at anything of the loop's. It
// returns 1.
func (c *workerCheck) worker(x ast.Expr) int {
	f, literal := x.(*ast.FuncLit)
	if !literal {
		if sel, ok := x.(*ast.SelectorExpr); ok {
			if s := c.info.Selections[sel]; s != nil && s.Kind() == types.MethodVal &&
				slices.Contains(loopOwned, named(s.Recv())) {
				c.found(x, "runs a method of "+named(s.Recv())+" on a worker")
			}
		}
		return 1
	}
	ast.Inspect(f.Body, func(n ast.Node) bool {
		id, ok := n.(*ast.Ident)
		if !ok {
			return true
		}
		v, ok := c.info.Uses[id].(*types.Var)
		if !ok || v.IsField() || f.Pos() <= v.Pos() && v.Pos() < f.End() {
			return true
		}
		if slices.Contains(loopOwned, named(v.Type())) {
			c.found(id, fmt.Sprintf("a function for a worker reaches for %s, a %s of the loop's", id.Name, named(v.Type())))
		}
		return true
	})
	return 1
}

// loop checks what runs on the loop's thread, which is all but functions for workers: it must not
// use what workers have.
func (c *workerCheck) loop(body *ast.BlockStmt) {
	ast.Inspect(body, func(n ast.Node) bool {
		if f, ok := n.(*ast.FuncLit); ok {
			if c.takesWorker(f) || len(f.Type.Params.List) == 0 && f.Type.Results != nil {
				return false // run or Fn
			}
		}
		sel, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if tv, ok := c.info.Types[sel.X]; ok && tv.IsValue() && slices.Contains(workerOwned, named(tv.Type)) {
			c.found(sel, fmt.Sprintf("the loop uses %s of a %s", sel.Sel.Name, named(tv.Type)))
		}
		return true
	})
}

// exportsOfReplica is where the compiler has put what the packages declare that dataplane/replica
// imports.
var exportsOfReplica = sync.OnceValues(func() (map[string]string, error) {
	out, err := command("go", "list", "-export", "-deps", "-f", "{{.ImportPath}}={{.Export}}", "./dataplane/replica")
	exports := map[string]string{}
	for line := range strings.Lines(string(out)) {
		name, file, _ := strings.Cut(strings.TrimSpace(line), "=")
		exports[name] = file
	}
	return exports, err
})

// typesOf checks package replica with what the compiler knows of those it imports.
func typesOf(t *testing.T, list []*source) *types.Info {
	t.Helper()
	exports, err := exportsOfReplica()
	if err != nil {
		t.Fatal(err)
	}
	fset := list[0].fset
	files := make([]*ast.File, len(list))
	for i, s := range list {
		files[i] = s.ast
	}
	info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Uses: map[*ast.Ident]types.Object{},
		Defs:       map[*ast.Ident]types.Object{},
		Selections: map[*ast.SelectorExpr]*types.Selection{}}
	conf := types.Config{Importer: importer.ForCompiler(token.NewFileSet(), "gc",
		func(name string) (io.ReadCloser, error) {
			return os.Open(exports[name])
		})}
	if _, err := conf.Check(module+"/dataplane/replica", fset, files, info); err != nil {
		t.Fatal(err)
	}
	return info
}
