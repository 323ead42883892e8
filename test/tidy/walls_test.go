package tidy

import (
	"go/ast"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// wall says what must not be imported.
type wall struct {
	// from are packages relative to the module; a trailing "/..." takes all below it.
	from []string
	// far follows imports to the end; otherwise only what the packages themselves import counts.
	far bool
	// forbid are import paths; each stands for everything below it too. "std" is the standard
	// library, "ours" this module.
	forbid []string
	// but are exceptions to forbid.
	but []string
	// why the wall stands.
	why string
}

var kubernetes = []string{"k8s.io", "sigs.k8s.io", "ours/api/longhorn", "ours/controlplane"}

var walls = []wall{
	{from: []string{"cmd/engine", "cmd/instance-manager", "cmd/backing-image-manager"}, far: true, forbid: kubernetes,
		why: "the data plane outlives the control plane: I/O goes on while Kubernetes is down or being upgraded, and " +
			"an engine stays small"},
	{from: []string{"rest/client", "cli/demo"}, far: true, forbid: kubernetes,
		why: "clients of the /v1 API know that and nothing else, and stay small"},
	{from: []string{"cmd/ankole", "cli"}, forbid: kubernetes,
		why: "the command line talks to the /v1 API, and reads replica directories, and nothing else; what it needs of " +
			"Kubernetes to get there is in cli/kube"},
	{from: []string{"cmd/ankole", "cli/..."}, far: true,
		forbid: []string{"k8s.io/client-go/kubernetes", "k8s.io/client-go/informers", "k8s.io/client-go/discovery",
			"k8s.io/apiserver", "sigs.k8s.io/controller-runtime", "ours/api/longhorn", "ours/controlplane"},
		why: "the way through a Kubernetes API server is a kubeconfig and a forwarded port (docs/design/decisions/001): clients of " +
			"its objects would make the program several times as large, and objects are the API's business"},
	{from: []string{"rest/resource"}, forbid: []string{"k8s.io", "sigs.k8s.io", "ours"},
		but: []string{"ours/rest/resource", "ours/api/volumefield"},
		why: "the shapes of the API are shared by server and clients, and clients stay small"},
	{from: []string{"api/volumefield"}, far: true, forbid: []string{"k8s.io", "sigs.k8s.io", "ours"},
		but: []string{"ours/api/volumefield"},
		why: "the table of volume fields is read by clients of the API and by admission, and is at the bottom of both"},
	{from: []string{"controlplane/..."}, far: true, forbid: []string{"ours/dataplane"},
		why: "the control plane reaches a volume through the interface of its engine, so that both can be of " +
			"different versions"},
	{from: []string{"rest", "rest/serve", "rest/volume", "rest/node", "rest/backup", "rest/backingimage", "rest/system"},
		forbid: []string{"ours/controlplane"},
		but: []string{"ours/controlplane/setting", "ours/controlplane/object/naming", "ours/controlplane/admission",
			"ours/controlplane/volume/clone", "ours/controlplane/object/condition", "ours/controlplane/object/conflict",
			"ours/controlplane/volume/dataloss", "ours/controlplane/volume/restore",
			"ours/controlplane/process/engineupgrade", "ours/controlplane/object/index"},
		why: "REST is a view of objects; what it shares with controllers are tables and rules, not behaviour"},
	{from: []string{"controlplane/...", "rest/...", "cmd/..."}, forbid: []string{"k8s.io/client-go/util/retry"},
		why: "its RetryOnConflict says that a change was made when the time for it was up; controlplane/object/conflict does not"},
	{from: []string{"dataplane/quorum", "controlplane/schedule", "dataplane/backingimage"},
		forbid: []string{"net", "os", "io/fs", "syscall", "golang.org/x/sys"},
		why:    "pure: what decides about data must be testable by tables and simulation"},
	{from: []string{"dataplane/quorum"}, forbid: []string{"ours"},
		why: "the membership protocol knows of nothing but itself"},
	{from: []string{"dataplane/block", "dataplane/clock"}, forbid: []string{"ours"},
		why: "vocabulary: everything may import it, so it imports nothing"},
	{from: []string{"dataplane/disk"}, forbid: []string{"ours"}, but: []string{"ours/dataplane/block"},
		why: "vocabulary, with the words of package block"},
	{from: []string{"dataplane/wire"}, forbid: []string{"ours"},
		but: []string{"ours/dataplane/block", "ours/dataplane/loop"},
		why: "frames are bytes that a loop carries; what they ask for is another matter"},
	{from: []string{"dataplane/chain"}, forbid: []string{"ours"},
		but: []string{"ours/dataplane/block", "ours/dataplane/disk", "ours/dataplane/chain", "ours/dataplane/qcow2"},
		why: "a replica directory is a format; it can be read without replica, engine or loop"},
	{from: []string{"dataplane/replica", "cmd/engine"}, far: true,
		forbid: []string{"github.com/aws", "github.com/Azure", "cloud.google.com"},
		why: "replicas run by the hundred and touch no backup target: the clients of stores are in cmd/backup-worker, and " +
			"cost each idle process that has them half a megabyte"},
	{from: []string{"backup/..."}, far: true, forbid: []string{"k8s.io", "sigs.k8s.io", "ours"},
		but: []string{"ours/backup"},
		why: "a backup store outlives clusters and engines: what is backed up and where it is restored to are interfaces, " +
			"and whoever has the store can read it"},
	{from: []string{"cmd/engine", "cmd/instance-manager", "cmd/backing-image-manager", "cmd/manager", "cmd/ankole"},
		far: true, forbid: []string{"testing"},
		why: "test support does not belong into programs"},
}

// expand turns the short names of a wall into import paths.
func expand(short []string) []string {
	long := make([]string, len(short))
	for i, s := range short {
		if rest, ok := strings.CutPrefix(s, "ours"); ok {
			s = module + rest
		}
		long[i] = s
	}
	return long
}

// under reports whether an import path is one of the given ones or lies below it.
func under(importPath string, tops []string) bool {
	return slices.ContainsFunc(tops, func(top string) bool {
		return importPath == top || strings.HasPrefix(importPath, top+"/")
	})
}

// matches reports whether a package is meant by a pattern.
func matches(importPath, pattern string) bool {
	pattern = path.Join(module, pattern)
	if top, ok := strings.CutSuffix(pattern, "/..."); ok {
		return under(importPath, []string{top})
	}
	return importPath == pattern
}

func TestWalls(t *testing.T) {
	t.Parallel()
	packages := graph(t, mainGraph)
	names := slices.Sorted(maps.Keys(packages))
	for _, w := range walls {
		t.Run(strings.ReplaceAll(strings.Join(w.from, ","), "/", "."), func(t *testing.T) {
			t.Parallel()
			forbid, but := expand(w.forbid), expand(w.but)
			for _, pattern := range w.from {
				found := false
				for _, name := range names {
					if matches(name, pattern) {
						found = true
						if chain := forbiddenImport(packages, name, w.far, forbid, but); chain != nil {
							t.Errorf("%s\nmust not be: %s", strings.Join(chain, "\n  imports "), w.why)
						}
					}
				}
				if !found {
					t.Errorf("no package matches %s: take it out of the table or correct it", pattern)
				}
			}
		})
	}
}

// forbiddenImport returns the shortest way from a package to what it must not import, nil if there
// is none.
func forbiddenImport(packages map[string]*pkg, from string, far bool, forbid, but []string) []string {
	came := map[string]string{from: ""}
	for queue := []string{from}; len(queue) > 0; queue = queue[1:] {
		for _, next := range packages[queue[0]].Imports {
			if _, seen := came[next]; seen || packages[next] == nil {
				continue
			}
			came[next] = queue[0]
			if under(next, forbid) && !under(next, but) {
				var chain []string
				for at := next; at != ""; at = came[at] {
					chain = append(chain, at)
				}
				slices.Reverse(chain)
				return chain
			}
			if far {
				queue = append(queue, next)
			}
		}
	}
	return nil
}

// TestStandaloneStaysApart: its dependencies must never reach the main module.
func TestStandaloneStaysApart(t *testing.T) {
	t.Parallel()
	for name, p := range graph(t, mainTestGraph) {
		if p.Module != nil && p.Module.Main && forbiddenImport(map[string]*pkg{name: p, "k8s.io/kubernetes": {}}, name,
			false, []string{"k8s.io/kubernetes", module + "/standalone"}, nil) != nil {
			t.Errorf("%s imports the embedded Kubernetes or the module standalone; only standalone/ may", name)
		}
	}
}

// wallClock are functions of package time that read or wait for the machine's clock.
var wallClock = []string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker"}

// TestDecisionsArePure looks at the files in which controllers decide.
func TestDecisionsArePure(t *testing.T) {
	t.Parallel()
	r := newRule(t,
		"a decision is a function of what was gathered and of the time it is told, so that tables can test it", exceptions{})
	found := 0
	for _, s := range sources(t) {
		pure := strings.HasPrefix(s.name, "controlplane/schedule/") || strings.HasPrefix(s.name, "dataplane/quorum/") ||
			strings.HasPrefix(s.name, "controlplane/") && strings.HasSuffix(s.name, "decide.go")
		if !pure || s.test {
			continue
		}
		found++
		for _, imp := range s.ast.Imports {
			name, _ := strconv.Unquote(imp.Path.Value)
			if under(name, []string{"net", "os", "syscall", "io/fs", "golang.org/x/sys", "math/rand", "k8s.io/client-go"}) {
				r.broken(s.name+" "+name, "%s: imports %s", s.at(imp), name)
			}
		}
		ast.Inspect(s.ast, func(n ast.Node) bool {
			if name, ok := selector(n, "time"); ok && slices.Contains(wallClock, name) {
				r.broken(s.name+" time."+name, "%s: uses time.%s", s.at(n), name)
			}
			if name, ok := selector(n, "client"); ok && !strings.HasPrefix(name, "Object") { // Object, ObjectKey: words
				r.broken(s.name+" client."+name, "%s: uses client.%s", s.at(n), name)
			}
			return true
		})
	}
	if found < 5 {
		t.Errorf("found only %d files that decide: is this test looking in the right place?", found)
	}
}

// selector returns the name selected from a package.
func selector(n ast.Node, from string) (string, bool) {
	sel, ok := n.(*ast.SelectorExpr)
	if !ok {
		return "", false
	}
	id, ok := sel.X.(*ast.Ident)
	return sel.Sel.Name, ok && id.Name == from
}
