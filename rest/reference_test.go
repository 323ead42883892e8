package rest_test

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"

	"ankole.storage/rest/apitest"
	"ankole.storage/rest/resource"
)

// TestRoutesOfTheReference: each route and action of the reference is served, or known to be
// missing.
func TestRoutesOfTheReference(t *testing.T) {
	text, err := os.ReadFile("resource/testdata/rest_facts.json")
	if err != nil {
		t.Fatal(err)
	}
	var facts struct {
		Routes []struct{ Paths, Methods, Actions []string }
	}
	if err := json.Unmarshal(text, &facts); err != nil {
		t.Fatal(err)
	}
	served, mux := apitest.Routes(apitest.Tables()), http.NewServeMux()
	for path := range served {
		mux.Handle(path, http.NotFoundHandler())
	}
	checked, missing := 0, map[string]bool{}
	check := func(what string, served bool) {
		checked++
		key := strings.Replace(what, "{bundle}", "{name}", 1)
		if missing[key] = !served; served == (apitest.Tables().Later[key] != "") {
			t.Errorf("%s: served %v, waits for %q", what, served, apitest.Tables().Later[key])
		}
	}
	for _, r := range facts.Routes {
		if slices.Contains(r.Methods, "websocket") || strings.Contains(r.Paths[0], "shardgroups") {
			continue // streams are TestStreamsOfTheReference; shards belong to data engine v2
		}
		for _, path := range r.Paths {
			_, pattern := mux.Handler(httptest.NewRequest(http.MethodGet, strings.NewReplacer("{", "", "}", "").Replace(path),
				nil))
			found := served[pattern]
			for _, method := range r.Methods {
				if method == http.MethodPost && len(r.Actions) > 0 {
					continue
				}
				check(method+" "+path, found.Methods[method] != nil || found.Raw != nil)
			}
			for _, action := range r.Actions {
				check(action+" "+path, found.Actions[action] != nil)
			}
		}
	}
	if checked < 100 {
		t.Errorf("%d routes and actions: is the table read?", checked)
	}
	for what := range apitest.Tables().Later {
		if !missing[what] {
			t.Errorf("%s is no route of the reference that is missing", what)
		}
	}
}

// TestStreamsOfTheReference: each stream is there, and its list is of the type that its path names.
func TestStreamsOfTheReference(t *testing.T) {
	want := strings.Fields("settings volumes recurringjobs orphans nodes engineimages backingimages backupbackingimages " +
		"backupvolumes backuptargets backups systembackups systemrestores events volumeattachments")
	slices.Sort(want)
	if have := slices.Sorted(maps.Keys(apitest.Tables().Streams)); !slices.Equal(have, want) {
		t.Errorf("streams %v, want %v", have, want)
	}
	f := newFixture(t, oneOfEach()...)
	for _, name := range want {
		var first map[string]any
		if err := f.Follow("/v1/ws/" + name).ReadJSON(&first); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		typeID, _ := first["resourceType"].(string)
		if resource.Path(typeID) != name {
			t.Errorf("stream %s is of %q", name, typeID)
		}
	}
}

// TestLaterOperationsSayWhatIsMissing: an operation of the reference that is not built is refused
// with the name of what it needs, in the reference's shape; no object offers it, and nobody who is
// not let in hears of it.
func TestLaterOperationsSayWhatIsMissing(t *testing.T) {
	f := newFixture(t, oneOfEach()...)
	for operation, feature := range apitest.Tables().Later {
		what, path, _ := strings.Cut(operation, " ")
		url := strings.NewReplacer("{name}", "one", "{node}", "node-1").Replace(path)
		method := what
		if strings.ToUpper(what) != what {
			method, url = http.MethodPost, url+"?action="+what
		}
		if a := f.Do(method, url, "{}"); a.Status != http.StatusInternalServerError || !strings.Contains(a.Text, feature) ||
			!strings.Contains(a.Text, `"type":"error"`) {
			t.Errorf("%s %s: %d %s", method, url, a.Status, a.Text)
		}
		if strings.ToUpper(what) == what || !strings.HasPrefix(path, "/v1/volumes/") {
			continue
		}
		if a := f.Do(http.MethodGet, "/v1/volumes", ""); strings.Contains(a.Text, "?action="+what) {
			t.Errorf("a volume offers %s", what)
		}
		if a := f.Do(http.MethodGet, "/v1/schemas/volume", ""); !strings.Contains(a.Text, what) {
			t.Errorf("the schema of volumes does not declare %s", what)
		}
	}
	if a := f.Do(http.MethodPost, "/v1/volumes/one?action=nonsense", "{}"); a.Status != http.StatusNotFound {
		t.Errorf("an action that is none: %d", a.Status)
	}
	if a := f.Do(http.MethodPut, "/v1/events", "{}"); a.Status != http.StatusMethodNotAllowed {
		t.Errorf("a method that is none: %d", a.Status)
	}
}
