package tidy

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"slices"
	"strings"
	"testing"
)

// maxMethods is how many methods a type may have.
const maxMethods = 60

// manyMethods are the types that have more, by package folder and name, and how many they have. The
// figures only fall: whoever takes methods away lowers them, and nobody adds a type.
var manyMethods = map[string]int{
	"rest/client.Client": 89,
}

// TestMethods: methods of a type share all of its fields, so whoever reads one has to know what the
// others do to them. A type that is too large is made of parts, each of which owns its fields.
func TestMethods(t *testing.T) {
	t.Parallel()
	counted := countMethods(sources(t))
	if len(counted) < 500 {
		t.Errorf("only %d types with methods found: is this test looking in the right place?", len(counted))
	}
	for _, problem := range tooMany(counted, manyMethods) {
		t.Error(problem)
	}
}

// countMethods counts the methods of each type in product code.
func countMethods(all []*source) map[string]int {
	counted := map[string]int{}
	for _, s := range all {
		if s.test || s.generated || strings.HasPrefix(s.name, "test/") {
			continue
		}
		for _, d := range s.ast.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv != nil {
				counted[s.dir()+"."+receiver(f.Recv.List[0].Type)]++
			}
		}
	}
	return counted
}

// tooMany says what is wrong with the figures in a list of exceptions.
func tooMany(counted, except map[string]int) (problems []string) {
	names := slices.Sorted(maps.Keys(counted))
	for name := range except {
		if counted[name] == 0 {
			problems = append(problems, name+" has no methods: take it out of manyMethods")
		}
	}
	for _, name := range names {
		n, known := counted[name], except[name]
		switch {
		case n <= maxMethods && known > 0:
			problems = append(problems, name+" is no exception any more: take it out of manyMethods")
		case n > max(maxMethods, known):
			problems = append(problems, name+" has too many methods: make it of parts that own their fields")
		case n < known:
			problems = append(problems, name+" has fewer methods than manyMethods says: lower the figure")
		}
	}
	return problems
}

func TestTooManyMethodsAreSeen(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name            string
		counted, except map[string]int
		want            string
	}{
		{"as many as allowed", map[string]int{"p.T": maxMethods}, nil, ""},
		{"one more", map[string]int{"p.T": maxMethods + 1}, nil, "too many"},
		{"an exception", map[string]int{"p.T": 70}, map[string]int{"p.T": 70}, ""},
		{"it has grown", map[string]int{"p.T": 71}, map[string]int{"p.T": 70}, "too many"},
		{"it has shrunk", map[string]int{"p.T": 69}, map[string]int{"p.T": 70}, "lower the figure"},
		{"it is small now", map[string]int{"p.T": 60}, map[string]int{"p.T": 70}, "no exception any more"},
		{"it is gone", nil, map[string]int{"p.T": 70}, "has no methods"},
	} {
		got := strings.Join(tooMany(tt.counted, tt.except), "\n")
		if tt.want == "" && got != "" || !strings.Contains(got, tt.want) {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
	file, err := parser.ParseFile(token.NewFileSet(), "p/t.go",
		"package p\nfunc (t *T) A() {}\nfunc (t T) B() {}\nfunc (*G[K]) C() {}\nfunc (g G[K, V]) D() {}\nfunc f() {}\n", 0)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]int{"p.T": 2, "p.G": 2}
	if got := countMethods([]*source{{name: "p/t.go", ast: file}}); !maps.Equal(got, want) {
		t.Errorf("methods are %v, want %v", got, want)
	}
}
