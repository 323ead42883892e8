package rest_test

import (
	"crypto/tls"
	"encoding/json"
	"flag"
	"net/http/httptest"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"ankole.storage/rest"
	"ankole.storage/rest/apitest"
	"ankole.storage/rest/resource"
	"ankole.storage/rest/resttest"
	"ankole.storage/ui"
)

var writeSchemas = flag.Bool("write-schemas", false, "write "+uiSchemas)

// uiSchemas is what the types of the web UI are made of.
const uiSchemas = "../ui/schemas.json"

var browser = []string{"User-Agent", "Mozilla/5.0", "Accept", "text/html,*/*;q=0.8"}

// TestSchemasOfTheUI: the web UI is written against the schema document that is served, so that a
// field which vanishes breaks its type check.
func TestSchemasOfTheUI(t *testing.T) {
	var document struct {
		Data []struct {
			ID              string                    `json:"id"`
			ResourceFields  map[string]map[string]any `json:"resourceFields"`
			ResourceActions map[string]map[string]any `json:"resourceActions"`
		} `json:"data"`
	}
	apitest.Must(t, json.Unmarshal([]byte(newFixture(t).Do("GET", "/v1/schemas", "").Text), &document))
	want, err := json.MarshalIndent(document.Data, "", " ")
	apitest.Must(t, err)
	if *writeSchemas {
		apitest.Must(t, os.WriteFile(uiSchemas, append(want, '\n'), 0o644))
	}
	have, err := os.ReadFile(uiSchemas)
	apitest.Must(t, err)
	if string(have) != string(want)+"\n" {
		t.Errorf("%s is stale: go test ./rest -run TestSchemasOfTheUI -args -write-schemas, then npm run types in ui/\n%s",
			uiSchemas, difference(string(have), string(want)))
	}
}

// TestUIAtTheRoot: browsers get the web UI, which runs nothing but its own files; programs get what
// they always got; _format asks for the explorer's page or JSON.
func TestUIAtTheRoot(t *testing.T) {
	f := newFixture(t)
	a := f.Do("GET", "/", "", browser...)
	if a.Status != 200 || !strings.HasPrefix(a.Header.Get("Content-Type"), "text/html") ||
		!strings.Contains(a.Text, "<title>Ankole</title>") || a.Header.Get("Cache-Control") != "no-cache" {
		t.Errorf("a browser gets %d %v %.300s", a.Status, a.Header, a.Text)
	}
	policy := a.Header.Get("Content-Security-Policy")
	if !strings.Contains(policy, "default-src 'none'") || strings.Contains(policy, "unsafe") ||
		strings.Contains(policy, "*") {
		t.Errorf("policy %q", policy)
	}
	if strings.Contains(a.Text, "://") || strings.Contains(a.Text, `="/`) {
		t.Errorf("the page names a host, or a path that is not relative to it: %s", a.Text)
	}
	for _, path := range []string{"/", "/?_format=json"} {
		if a := f.Do("GET", path, ""); a.JSON["resourceType"] != "apiVersion" {
			t.Errorf("a program gets %s at %s", a.Text, path)
		}
	}
	if a := f.Do("GET", "/?_format=html", "", browser...); !strings.Contains(a.Text, "apiVersion") {
		t.Errorf("the explorer shows %.300s", a.Text)
	}
	f.Refused(f.Do("GET", "/"+ui.Folder+"/absent.js", ""), 404, "has no file absent.js")
}

// TestSessionTellsWhatMayBeDone: pages show nobody a button that the server would refuse.
func TestSessionTellsWhatMayBeDone(t *testing.T) {
	f := guarded(t, &resttest.Reviews{Rights: map[string][]string{"viewer": {"list volumes"},
		"editor": {"update volumeattachments", "create volumes"}}}, "none", apitest.Same)
	operations := func(user string) (out []any) {
		headers := []string{}
		if user != "" {
			headers = apitest.Bearer(user)
		}
		a := f.Do("GET", "/v1/session", "", headers...)
		out, ok := a.JSON["operations"].([]any)
		if a.Status != 200 || !ok {
			t.Fatalf("%s: %d %s", user, a.Status, a.Text)
		}
		return out
	}
	for _, user := range []string{"", "viewer"} {
		if got := operations(user); len(got) != 0 {
			t.Errorf("%q may do %v", user, got)
		}
	}
	got := operations("editor")
	want := []any{"POST /v1/volumes", "attach /v1/volumes/{name}", "detach /v1/volumes/{name}"}
	if len(got) != len(want) || got[0] != want[0] || got[1] != want[1] || got[2] != want[2] {
		t.Errorf("editor may do %v, want %v", got, want)
	}
	everybody := newFixture(t).Get("/v1/session")["operations"].([]any)
	if len(everybody) < 50 {
		t.Errorf("on an open server everybody may do %v", everybody)
	}
}

// TestUITravelsAsTokensDo: a page that asks for tokens does not come by plaintext from elsewhere,
// where programs are still told the versions.
func TestUITravelsAsTokensDo(t *testing.T) {
	f := newFixtureWith(t, interceptor.Funcs{}, func(c *rest.Config) { c.TLS = &tls.Config{} })
	ask := func(from string, headers ...string) *httptest.ResponseRecorder {
		r, w := httptest.NewRequest("GET", "http://10.0.0.1:9500/", nil), httptest.NewRecorder()
		r.RemoteAddr = from + ":1234"
		for i := 0; i+1 < len(headers); i += 2 {
			r.Header.Set(headers[i], headers[i+1])
		}
		f.Server.ServeHTTP(w, r)
		return w
	}
	if w := ask("10.0.0.9", browser...); w.Code != 403 || !strings.Contains(w.Body.String(), "https://") {
		t.Errorf("a browser elsewhere gets %d %s", w.Code, w.Body)
	}
	if w := ask("127.0.0.1", browser...); w.Code != 200 || !strings.Contains(w.Body.String(), "<title>Ankole</title>") {
		t.Errorf("a browser here gets %d %s", w.Code, w.Body)
	}
	if w := ask("10.0.0.9"); w.Code != 200 || !strings.Contains(w.Body.String(), "apiVersion") {
		t.Errorf("a program elsewhere gets %d %s", w.Code, w.Body)
	}
}

// TestObjectsOfTheUI: the objects of ours that the schema document does not have are written by
// hand in the web UI, and have the fields that are served.
func TestObjectsOfTheUI(t *testing.T) {
	text, err := os.ReadFile("../ui/src/api/wire.ts")
	apitest.Must(t, err)
	for _, object := range []any{resource.BackupVerification{}, resource.VerifiedBackup{}, resource.BackupFault{},
		resource.BackupDamage{}, resource.VolumeRates{}} {
		served := reflect.TypeOf(object)
		_, body, found := strings.Cut(string(text), "export interface "+served.Name()+" {\n")
		body, _, _ = strings.Cut(body, "}")
		var want, have []string
		for i := range served.NumField() {
			want = append(want, served.Field(i).Tag.Get("json"))
		}
		for line := range strings.Lines(body) {
			name, _, _ := strings.Cut(strings.TrimSpace(line), ":")
			have = append(have, name)
		}
		if !found || !slices.Equal(have, want) {
			t.Errorf("%s has %v in the web UI, %v is served", served.Name(), have, want)
		}
	}
}
