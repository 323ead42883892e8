package rest_test

import (
	"cmp"
	"flag"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"ankole.storage/rest/access"
	"ankole.storage/rest/apitest"
	"ankole.storage/rest/resource"
)

var writeRoutes = flag.Bool("write-routes", false, "write docs/guide/rest-routes.md")

// routePage is what people read of the table of routes, and of the reference's beside it.
const routePage = "../docs/guide/rest-routes.md"

const routePageHead = `# Routes and actions

Written by ` + "`go test ./rest -run TestRoutePage -args -write-routes`" + ` from the table of routes, that of rights, the
schema document and the tables of the reference. A line is an operation of the reference or of ours; *state* says
whether it is served, what a refused one needs, or that it is ours ([additions.md](../additions.md)). An action of a
volume is offered in the states named.

| path | operation | input → output | offered | right | state |
| --- | --- | --- | --- | --- | --- |
`

// whenNames are the sets of states of the table of volume actions.
var whenNames = []struct {
	when resource.When
	name string
}{{resource.WhenAlways, "always"}, {resource.WhenSound, "not faulted"}, {resource.WhenFaulted, "faulted"},
	{resource.WhenDetached, "detached"}, {resource.WhenAttaching, "attaching"}, {resource.WhenAttached, "attached"},
	{resource.WhenOther, "other"}}

func whenName(w resource.When) string {
	var names []string
	for _, n := range whenNames {
		if w&n.when == n.when {
			names = append(names, n.name)
			w &^= n.when
		}
	}
	return strings.Join(names, ", ")
}

// actionColumns are what the schema document says of an action, and when it is offered.
func actionColumns(path, name string) (types, offered string) {
	for _, t := range resource.Types {
		for _, a := range t.Actions {
			if "/v1/"+resource.Path(t.ID)+"/{name}" == path && a.Name == name {
				return strings.TrimSpace(cmp.Or(a.Input, "–") + " → " + cmp.Or(a.Output, "–")), whenName(a.When)
			}
		}
	}
	return "", ""
}

func rightsColumn(operation string) string {
	var out []string
	for _, n := range apitest.Tables().Rights[operation] {
		if n == (access.Need{}) {
			return "to be let in"
		}
		out = append(out, strings.TrimSuffix(n.Verb+" "+n.Resource, " "))
	}
	return strings.Join(out, ", ")
}

// referenceOperations are those of the reference's table, by path as ours are.
func referenceOperations(t *testing.T) map[string]bool {
	all := map[string]bool{}
	for _, r := range readWalkedFacts(t).Routes {
		if strings.Contains(r.Paths[0], "shardgroups") || slices.Contains(r.Methods, "websocket") {
			continue // of data engine v2; streams are added
		}
		for _, path := range r.Paths {
			path = strings.NewReplacer("{bundle}", "{name}", "{id}", "{name}").Replace(path)
			for _, m := range r.Methods {
				if m != http.MethodPost || len(r.Actions) == 0 {
					all[m+" "+path] = true
				}
			}
			for _, a := range r.Actions {
				all[a+" "+path] = true
			}
		}
	}
	for name := range apitest.Tables().Streams {
		all["stream "+name] = true
	}
	return all
}

// TestRoutePage compares the page with the tables. Nothing of the reference is without a line.
func TestRoutePage(t *testing.T) {
	s := newFixture(t).Server
	routes := apitest.Routes(s.Table())
	reference, served := referenceOperations(t), map[string]bool{}
	for _, operation := range operations(s) {
		served[operation] = true
	}
	for path, r := range routes {
		for method := range r.Methods {
			served[method+" "+strings.TrimSuffix(path, "{$}")] = true
		}
		if r.Raw != nil && !strings.Contains(path, "{stream}") {
			served["GET "+path] = true
		}
	}
	type line struct{ path, operation, text string }
	var lines []line
	for operation := range union(reference, served) {
		what, path, _ := strings.Cut(operation, " ")
		types, offered, state := "", "", "served"
		if strings.ToUpper(what) != what && what != "stream" {
			types, offered = actionColumns(path, what)
			if path != "/v1/volumes/{name}" {
				offered = ""
			}
		}
		right := rightsColumn(operation)
		if r := routes[path]; r.Open || path == "/" {
			right = "open"
		}
		if what == "stream" {
			path = "/v1/ws/[{period}/]" + path
		}
		switch {
		case apitest.Tables().Later[operation] != "":
			state = "needs " + apitest.Tables().Later[operation]
		case !served[operation]:
			t.Errorf("%s is neither served nor known to be missing", operation)
		case !reference[operation]:
			state = "ours"
		}
		text := fmt.Sprintf("| `%s` | %s | %s | %s | %s | %s |\n", path, what, types, offered, right, state)
		lines = append(lines, line{path, what, text})
	}
	slices.SortFunc(lines, func(a, b line) int {
		return cmp.Or(strings.Compare(a.path, b.path), strings.Compare(a.operation, b.operation))
	})
	var page strings.Builder
	page.WriteString(routePageHead)
	for _, l := range lines {
		page.WriteString(l.text)
	}
	if *writeRoutes {
		apitest.Must(t, os.WriteFile(routePage, []byte(page.String()), 0o644))
	}
	have, err := os.ReadFile(routePage)
	apitest.Must(t, err)
	if string(have) != page.String() {
		t.Errorf("%s is stale: write it anew with -args -write-routes\n%s", routePage,
			difference(string(have), page.String()))
	}
}

func union(sets ...map[string]bool) map[string]bool {
	all := map[string]bool{}
	for _, s := range sets {
		for k := range s {
			all[k] = true
		}
	}
	return all
}
