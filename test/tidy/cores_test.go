package tidy

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// cores are the packages of step cores. Whoever drives them decides what runs when; the simulator
// relies on it.
var cores = []string{
	"dataplane/engine", "dataplane/replica", "dataplane/wire", "dataplane/quorum", "dataplane/rebuild", "dataplane/chain",
	"dataplane/frontend", "dataplane/frontend/nbd", "dataplane/frontend/fuseloop",
}

// coreExceptions are keyed by file and what it does.
var coreExceptions = exceptions{
	"dataplane/chain/chain.go imports crypto/rand": "only the default source of stamps; Options.Rand injects another, " +
		"and the simulator does",
}

func TestStepCores(t *testing.T) {
	t.Parallel()
	r := newRule(t, "a step core has no goroutine, channel, lock, clock or blocking call inside, so that the same "+
		"code is fast under the production loop and deterministic in the simulator", coreExceptions)
	seen := map[string]bool{}
	for _, s := range sources(t) {
		if !slices.Contains(cores, s.dir()) || s.test {
			continue
		}
		seen[s.dir()] = true
		unsteppable(s, func(n ast.Node, what string) { r.broken(s.name+" "+what, "%s: %s", s.at(n), what) })
	}
	for _, c := range cores {
		if !seen[c] {
			t.Errorf("%s has no Go files: take it out of the table or correct it", c)
		}
	}
}

// unsteppable finds what a step core must not contain.
func unsteppable(s *source, found func(n ast.Node, what string)) {
	for _, imp := range s.ast.Imports {
		name, _ := strconv.Unquote(imp.Path.Value)
		if under(name, []string{"sync", "net", "context", "math/rand", "crypto/rand"}) && name != "net/netip" ||
			name == "os" {
			found(imp, "imports "+name)
		}
	}
	ast.Inspect(s.ast, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			found(n, "starts a goroutine")
		case *ast.ChanType:
			found(n, "uses a channel")
		case *ast.SelectStmt:
			found(n, "waits in a select")
		case *ast.SendStmt:
			found(n, "sends on a channel")
		case *ast.UnaryExpr:
			if n.Op == token.ARROW {
				found(n, "receives from a channel")
			}
		}
		if name, ok := selector(n, "time"); ok && slices.Contains(wallClock, name) {
			found(n, "uses time."+name)
		}
		return true
	})
}

// sleeps are pauses where nothing tells that a condition changed, and times that are what a test is
// about.
var sleeps = exceptions{
	"backup/lock/lock_test.go":           "how long an operation of the store takes, by a clock that is made up",
	"host/barethread/barethread_test.go": "what is tested is that timers of the runtime go on",
	"test/crash/faults_test.go":          "how long a fault lasts",
	"test/crash/keep_test.go":            "an engine is killed at any moment of its start",
	"test/crash/upkeep_test.go":          "how long it measures a volume that does nothing else",
	"test/powerdisk/watch.go":            "another process is watched, whose end nothing tells",
	"test/rig/journal.go":                "nothing may be answered for so long",
	"test/scale/bench_test.go":           "how long it measures an idle cluster",
}

// TestSleeps: tests wait for conditions, with package test/wait.
func TestSleeps(t *testing.T) {
	t.Parallel()
	r := newRule(
		t,
		"a sleep is too short on a slow machine and too long on a fast one; wait for a condition (test/wait)",
		sleeps,
	)
	for _, s := range sources(t) {
		if !s.test && !strings.HasPrefix(s.dir(), "test") && !strings.HasSuffix(s.dir(), "test") {
			continue
		}
		for _, n := range fixedSleeps(s.ast) {
			r.broken(s.name, "%s: sleeps", s.at(n))
		}
	}
}

// fixedSleeps are uses of time.Sleep, and receives from time.After that nothing else can end: those
// outside a select, and the only case of one. Simulated time, that of a test of testing/synctest,
// takes none, so whoever receives there does not sleep.
func fixedSleeps(file *ast.File) (found []ast.Node) {
	ended := map[ast.Node]bool{} // receives that something else can end
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			if name, ok := selector(n.Fun, "synctest"); ok && name == "Test" {
				markReceives(n, ended)
			}
		case *ast.SelectStmt:
			if len(n.Body.List) > 1 {
				for _, c := range n.Body.List {
					if comm := c.(*ast.CommClause).Comm; comm != nil {
						markReceives(comm, ended)
					}
				}
			}
		}
		if name, ok := selector(n, "time"); ok && name == "Sleep" || isTimeout(n) && !ended[n] {
			found = append(found, n)
		}
		return true
	})
	return found
}

func markReceives(within ast.Node, ended map[ast.Node]bool) {
	ast.Inspect(within, func(n ast.Node) bool {
		if isTimeout(n) {
			ended[n] = true
		}
		return true
	})
}

// isTimeout is a receive from time.After.
func isTimeout(n ast.Node) bool {
	receive, ok := n.(*ast.UnaryExpr)
	if !ok || receive.Op != token.ARROW {
		return false
	}
	call, ok := receive.X.(*ast.CallExpr)
	if !ok {
		return false
	}
	name, ok := selector(call.Fun, "time")
	return ok && name == "After"
}

func TestSleepsAreFound(t *testing.T) {
	t.Parallel()
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, "x_test.go", `package x
func TestA(t *testing.T) {
	time.Sleep(1) // found
	<-time.After(1) // found
	for !done() { <-time.After(1) } // found
	for ; !done(); <-time.After(1) { } // found
	now := <-time.After(1) // found
	select { case <-time.After(1): } // found
	select { case <-c: case <-time.After(1): t.Fatal("a deadline") }
	select { case <-c: <-time.After(1); case <-d: } // found
	synctest.Test(t, func(t *testing.T) { <-time.After(1) })
	late := time.After(1)
}`, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	var want, got []int
	for _, c := range file.Comments {
		want = append(want, fset.Position(c.Pos()).Line)
	}
	for _, n := range fixedSleeps(file) {
		got = append(got, fset.Position(n.Pos()).Line)
	}
	if !slices.Equal(got, want) {
		t.Errorf("found in lines %v, want %v", got, want)
	}
}

// standardOutputs may use the standard output or error of a process in the data plane or the
// instance manager.
var standardOutputs = exceptions{
	"dataplane/command/command.go": "verbs that ask an engine end after one answer; whoever serves " +
		"has a logwriter.Writer",
	"instancemanager/daemon/config.go": "instances' output, through a logwriter.Writer " +
		"(instancemanager/process)",
	"instancemanager/instancetest/instancetest.go": "plays instances in tests",
}

// TestNobodyWaitsForALog: only package logwriter writes to the standard error of processes that
// serve.
func TestNobodyWaitsForALog(t *testing.T) {
	t.Parallel()
	r := newRule(t, "a pipe that nobody reads holds up whoever writes to it, with the locks that are held and the "+
		"volume that is served", standardOutputs)
	for _, s := range sources(t) {
		if s.test || !strings.HasPrefix(s.name, "dataplane/") && !strings.HasPrefix(s.name, "instancemanager/") {
			continue
		}
		ast.Inspect(s.ast, func(n ast.Node) bool {
			if name, ok := selector(n, "os"); ok && (name == "Stderr" || name == "Stdout") {
				r.broken(s.name, "%s: uses os.%s", s.at(n), name)
			}
			return true
		})
	}
}

// skippers may skip by themselves.
var skippers = exceptions{
	"test/lack/lack.go": "it is how the others skip",
}

// TestSkips: a test that does not run says why, through the package that knows where that is a
// failure.
func TestSkips(t *testing.T) {
	t.Parallel()
	r := newRule(t, "what is not tested must not look like what passed: use package test/lack", skippers)
	for _, s := range sources(t) {
		for _, call := range skips(s.ast) {
			r.broken(s.name, "%s: skips by itself", s.at(call))
		}
	}
}

// skips are calls that skip a test. An action of a property test (*rapid.T) that cannot be done now
// is not meant.
func skips(file *ast.File) (found []ast.Node) {
	var stack []ast.Node
	ast.Inspect(file, func(n ast.Node) bool {
		if n == nil {
			stack = stack[:len(stack)-1]
			return true
		}
		stack = append(stack, n)
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		sel, ok := call.Fun.(*ast.SelectorExpr)
		if ok && slices.Contains([]string{"Skip", "Skipf", "SkipNow"}, sel.Sel.Name) && isTestVariable(sel.X) &&
			!ofRapid(sel.X, stack) {
			found = append(found, n)
		}
		return true
	})
	return found
}

// ofRapid reports whether the innermost function around that has a parameter of the name gets a
// *rapid.T.
func ofRapid(x ast.Expr, stack []ast.Node) bool {
	id, ok := x.(*ast.Ident)
	for i := len(stack) - 1; i >= 0 && ok; i-- {
		var f *ast.FuncType
		switch n := stack[i].(type) {
		case *ast.FuncLit:
			f = n.Type
		case *ast.FuncDecl:
			f = n.Type
		default:
			continue
		}
		for _, p := range f.Params.List {
			if !slices.ContainsFunc(p.Names, func(name *ast.Ident) bool { return name.Name == id.Name }) {
				continue
			}
			star, pointer := p.Type.(*ast.StarExpr)
			if !pointer {
				return false
			}
			name, found := selector(star.X, "rapid")
			return found && name == "T"
		}
	}
	return false
}

// isTestVariable is a test's variable, or that of a struct which has one.
func isTestVariable(x ast.Expr) bool {
	if sel, ok := x.(*ast.SelectorExpr); ok {
		x = sel.Sel
	}
	id, ok := x.(*ast.Ident)
	return ok && slices.Contains([]string{"t", "tb", "b", "f"}, id.Name)
}

func TestSkipsAreFound(t *testing.T) {
	t.Parallel()
	file, err := parser.ParseFile(token.NewFileSet(), "x_test.go", `package x
func TestA(t *testing.T) {
	t.Skip("a")
	rapid.Check(t, func(t *rapid.T) { t.Skip("an action"); func() { t.Skipf("another") }() })
	t.Run("b", func(t *testing.T) { t.SkipNow() })
	r.t.Skipf("c")
	lack.Skip(t, "d")
}`, 0)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(skips(file)); n != 3 {
		t.Errorf("%d calls found, want 3", n)
	}
}
