package tidy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// module is the path of the main module.
const module = "ankole.storage"

// root of the repository, seen from this package's folder.
const root = "../.."

// tracked lists every file that is or could be committed, with slashes, relative to the root. What
// git ignores is not part of the repository.
var tracked = sync.OnceValues(func() ([]string, error) {
	out, err := command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	if err != nil {
		return nil, err
	}
	var files []string
	for name := range strings.SplitSeq(string(out), "\x00") {
		if name == "" {
			continue
		}
		if fi, err := os.Lstat(filepath.Join(root, name)); err == nil && fi.Mode().IsRegular() {
			files = append(files, name)
		}
	}
	slices.Sort(files)
	return files, nil
})

// command runs a program in the root and returns what it printed.
func command(name string, args ...string) ([]byte, error) {
	c := exec.Command(name, args...)
	c.Dir = root
	var stderr bytes.Buffer
	c.Stderr = &stderr
	out, err := c.Output()
	if err != nil {
		return out, fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, stderr.String())
	}
	return out, nil
}

// files returns the tracked files whose names end in one of the suffixes, all of them without a
// suffix.
func files(t *testing.T, suffixes ...string) []string {
	t.Helper()
	all, err := tracked()
	if err != nil {
		t.Fatal(err)
	}
	if len(suffixes) == 0 {
		return all
	}
	var some []string
	for _, f := range all {
		if slices.ContainsFunc(suffixes, func(s string) bool { return strings.HasSuffix(f, s) }) {
			some = append(some, f)
		}
	}
	if len(some) == 0 {
		t.Fatalf("the repository has no file ending in %v: is this test looking in the right place?", suffixes)
	}
	return some
}

func read(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// source is one parsed Go file.
type source struct {
	name string // relative to the root
	fset *token.FileSet
	ast  *ast.File
	// lines is how long the file is.
	lines     int
	generated bool
	test      bool // part of tests only
}

// dir is the file's folder, "." for the root.
func (s *source) dir() string { return path.Dir(s.name) }

// at names a place in the file, as compilers do.
func (s *source) at(n ast.Node) string {
	return fmt.Sprintf("%s:%d", s.name, s.fset.Position(n.Pos()).Line)
}

// span is the number of lines a node takes.
func (s *source) span(n ast.Node) int {
	return s.fset.Position(n.End()).Line - s.fset.Position(n.Pos()).Line + 1
}

var parseAll = sync.OnceValues(func() ([]*source, error) {
	all, err := tracked()
	if err != nil {
		return nil, err
	}
	var sources []*source
	fset := token.NewFileSet()
	for _, name := range all {
		if !strings.HasSuffix(name, ".go") || strings.Contains(name, "/testdata/") {
			continue
		}
		data, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			return nil, err
		}
		file, err := parser.ParseFile(fset, name, data, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		sources = append(sources, &source{name: name, fset: fset, ast: file, lines: bytes.Count(data, []byte("\n")),
			generated: ast.IsGenerated(file), test: strings.HasSuffix(name, "_test.go")})
	}
	return sources, nil
})

// sources returns every Go file, parsed.
func sources(t *testing.T) []*source {
	t.Helper()
	all, err := parseAll()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// pkg is what `go list` says about a package.
type pkg struct {
	ImportPath string
	Standard   bool
	Imports    []string
	Module     *struct {
		Path, Version, Dir string
		Main               bool
	}
}

// list runs `go list -deps` in a folder of the repository.
func list(dir string, args ...string) (map[string]*pkg, error) {
	args = append([]string{"-C", dir, "list", "-deps", "-json=ImportPath,Standard,Imports,Module"}, args...)
	out, err := command("go", args...)
	if err != nil {
		return nil, err
	}
	packages := map[string]*pkg{}
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		p := &pkg{}
		if err := dec.Decode(p); err == io.EOF {
			return packages, nil
		} else if err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		packages[p.ImportPath] = p
	}
}

// The import graphs: of the programs of the main module, of it with its tests, and of the
// standalone module.
var (
	mainGraph       = sync.OnceValues(func() (map[string]*pkg, error) { return list(".", "./...") })
	mainTestGraph   = sync.OnceValues(func() (map[string]*pkg, error) { return list(".", "-test", "./...") })
	standaloneGraph = sync.OnceValues(func() (map[string]*pkg, error) { return list("standalone", "./...") })
)

func graph(t *testing.T, g func() (map[string]*pkg, error)) map[string]*pkg {
	t.Helper()
	packages, err := g()
	if err != nil {
		t.Fatal(err)
	}
	return packages
}

// exceptions are places where a rule does not hold, with the reason why that is right.
type exceptions map[string]string

// rule collects what breaks it, and sees to it that no exception outlives its cause.
type rule struct {
	t      *testing.T
	why    string
	except exceptions
	used   map[string]bool
}

func newRule(t *testing.T, why string, except exceptions) *rule {
	r := &rule{t: t, why: why, except: except, used: map[string]bool{}}
	t.Cleanup(func() {
		whole := !t.Failed() // otherwise not everything may have been looked at
		for key, reason := range except {
			if reason == "" {
				t.Errorf("exception %q has no reason", key)
			}
			if whole && !r.used[key] {
				t.Errorf("exception %q (%s) is not needed any more; take it out", key, reason)
			}
		}
		if t.Failed() {
			t.Logf("why: %s", why)
		}
	})
	return r
}

// broken reports a violation unless its key is an exception.
func (r *rule) broken(key, format string, args ...any) {
	r.t.Helper()
	if _, ok := r.except[key]; ok {
		r.used[key] = true
		return
	}
	r.t.Errorf(format, args...)
}

// functions returns the functions of a file by name, methods left out.
func (s *source) functions() map[string]*ast.FuncDecl {
	found := map[string]*ast.FuncDecl{}
	for _, d := range s.ast.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil {
			found[f.Name.Name] = f
		}
	}
	return found
}
