package rest_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/rest"
	"ankole.storage/rest/apitest"
	"ankole.storage/rest/resource"
	"ankole.storage/rest/resttest"
	"ankole.storage/rest/serve"
)

// bedForBadInput has one object of each kind, and a volume.
func bedForBadInput(t *testing.T) *fixture {
	t.Helper()
	job := &lh.RecurringJob{ObjectMeta: resttest.Meta("nightly"), Spec: lh.RecurringJobSpec{Name: "nightly",
		Task: "snapshot", Cron: "0 3 * * *", Retain: 1, Concurrency: 1}}
	return newFixture(t, resttest.Cluster(append(append(oneOfEach(), job), resttest.Volume("demo")...)...)...)
}

// objectOf is the object that a path with a name is tried on.
var objectOf = map[string]string{"volumes": "demo", "volumerates": "demo", "dataloss": "demo", "devicekeepers": "demo",
	"backupverifications": "demo-1a2b3c4d", "backupdamage": "demo", "nodes": "node-1",
	"backupimageverifications": "image-1a2b3c4d", "settings": "log-level", "backuptargets": "default",
	"backupvolumes": "demo-1a2b3c4d", "recurringjobs": "nightly",
	"backingimages": "image", "backupbackingimages": "image-1a2b3c4d"}

// requestOf is a request for an operation: method and path, for an object.
func requestOf(operation, object string) (method, path string) {
	verb, path, _ := strings.Cut(operation, " ")
	path = strings.ReplaceAll(strings.ReplaceAll(path, "{name}", object), "{node}", "node-1")
	if strings.ToUpper(verb) == verb {
		return verb, path
	}
	return http.MethodPost, path + "?action=" + verb
}

// badBodies are those that no operation takes.
var badBodies = map[string]string{
	"nothing": "", "blanks": " \n", "no JSON": "hello", "half": `{"name":"x"`, "two": `{} {}`, "a list": `["x"]`, "a number": `7`,
	"null": " null\n", "a text": `"x"`, "deep": strings.Repeat(`{"a":`, 20000) + "1" + strings.Repeat("}", 20000),
	"no UTF-8": "{\"name\":\"\xff\xfe\",\"size\":7}", "too long": `{"name":"` + strings.Repeat("x", (1<<20)) + `"}`,
}

// takesBody says whether an operation reads a body. Actions without input do not look at it, and
// detach takes what is no JSON for no input, as the reference does.
func takesBody(operation string) bool {
	verb, path, _ := strings.Cut(operation, " ")
	switch verb {
	case http.MethodPost, http.MethodPut:
		return true
	case http.MethodGet, http.MethodDelete, "stream", "detach":
		return false
	}
	typeOf := map[string]string{"/v1/volumes/{name}": resource.TypeVolume, "/v1/nodes/{name}": resource.TypeNode,
		"/v1/backuptargets/{name}": resource.TypeBackupTarget, "/v1/backupvolumes/{name}": resource.TypeBackupVolume,
		"/v1/backingimages/{name}": resource.TypeBackingImage}[path]
	t, _ := resource.Lookup(typeOf)
	for _, a := range t.Actions {
		if a.Name == verb {
			return a.Input != "" && verb != resource.ActionBackupListByVolume // which wants no input
		}
	}
	return true
}

// TestBadBodiesEverywhere holds every operation with a body against every body that is none: an
// error object, and nothing has changed.
func TestBadBodiesEverywhere(t *testing.T) {
	f := bedForBadInput(t)
	before := f.State()
	tried := 0
	for _, operation := range append(operations(f.Server), "POST /v1/session") {
		if !takesBody(operation) {
			continue
		}
		parts := strings.Split(operation, "/")
		method, path := requestOf(operation, objectOf[parts[2]])
		for name, body := range badBodies {
			tried++
			a := f.Do(method, path, body)
			if a.Status < 400 || a.JSON["type"] != "error" || a.Message() == "" || a.JSON["status"] != float64(a.Status) {
				t.Errorf("%s, %s: %d %.200s", operation, name, a.Status, a.Text)
			}
		}
	}
	if tried < 300 {
		t.Errorf("only %d requests were tried", tried)
	}
	if after := f.State(); after != before {
		t.Errorf("bad bodies changed something:\n%s", difference(before, after))
	}
}

func difference(before, after string) string {
	old := strings.Split(before, "\n")
	return strings.Join(slices.DeleteFunc(strings.Split(after, "\n"), func(l string) bool {
		return slices.Contains(old, l)
	}), "\n")
}

// inputsOf are the types of inputs that the schema document does not declare, or misspells.
var inputsOf = map[string]any{
	"PUT /v1/nodes/{name}": resource.NodeInput{}, "PUT /v1/settings/{name}": resource.SettingInput{},
	"POST /v1/session": resource.SessionInput{}, "POST /v1/dataloss/{name}": resource.AcceptDataLossInput{},
	"POST /v1/devicekeepers/{name}":            resource.DeviceKeepersInput{},
	"POST /v1/backupverifications/{name}":      resource.VerifyBackupsInput{},
	"POST /v1/backupimageverifications/{name}": resource.VerifyBackupsInput{},
	"POST /v1/backupdamage/{name}":             resource.BackupDamageInput{},
	"POST /v1/volumes":                         resource.Volume{}, "POST /v1/recurringjobs": resource.RecurringJob{},
	"PUT /v1/recurringjobs/{name}": resource.RecurringJob{}, "POST /v1/backuptargets": resource.BackupTarget{},
	"POST /v1/engineimages":                            resource.EngineImage{},
	"POST /v1/backingimages":                           resource.BackingImage{},
	"PUT /v1/backuptargets":                            resource.SyncBackupResource{},
	"PUT /v1/backupvolumes":                            resource.SyncBackupResource{},
	"updateReplicaAutoBalance /v1/volumes/{name}":      resource.UpdateReplicaAutoBalanceInput{},
	"updateBackupCompressionMethod /v1/volumes/{name}": resource.UpdateBackupCompressionInput{},
}

// inputs are the operations that read a body, each with the type that it reads it into.
func inputs(t *testing.T, s *serve.Server) map[string]reflect.Type {
	t.Helper()
	all, served := map[string]reflect.Type{}, apitest.Routes(s.Table())
	for operation, of := range inputsOf {
		all[operation] = reflect.TypeOf(of)
	}
	for _, typeID := range []string{resource.TypeVolume, resource.TypeNode, resource.TypeBackupTarget,
		resource.TypeBackupVolume, resource.TypeBackingImage} {
		shown, _ := resource.Lookup(typeID)
		for _, a := range shown.Actions {
			operation := a.Name + " /v1/" + resource.Path(typeID) + "/{name}"
			built := served["/v1/"+resource.Path(typeID)+"/{name}"].Actions[a.Name] != nil
			if !built || a.Input == "" || !takesBody(operation) || all[operation] != nil {
				continue
			}
			input, declared := resource.Lookup(a.Input)
			if !declared {
				t.Errorf("%s: no type %s is declared: add it to inputsOf", operation, a.Input)
				continue
			}
			all[operation] = reflect.TypeOf(input.Of)
		}
	}
	for _, operation := range operations(s) {
		if verb, _, _ := strings.Cut(operation, " "); (verb == http.MethodPost || verb == http.MethodPut) &&
			all[operation] == nil {
			t.Errorf("%s: add the type of its input to inputsOf", operation)
		}
	}
	return all
}

// wrong are JSON values that a type cannot take, at any depth.
func wrong(of reflect.Type) (values []string) {
	switch of.Kind() {
	case reflect.String:
		return []string{`7`, `true`, `{}`, `[]`}
	case reflect.Bool:
		return []string{`"true"`, `1`, `{}`}
	case reflect.Int, reflect.Int32, reflect.Int64:
		return []string{`"7"`, `1.5`, `{}`, `99999999999999999999`, `-99999999999999999999`, `1e400`}
	case reflect.Float64:
		return []string{`"7"`, `true`, `{}`, `1e400`}
	case reflect.Pointer:
		return wrong(of.Elem())
	case reflect.Slice:
		values = []string{`7`, `"x"`, `{}`}
		for _, v := range wrong(of.Elem()) {
			values = append(values, "["+v+"]")
		}
	case reflect.Map:
		values = []string{`7`, `"x"`, `[]`}
		for _, v := range wrong(of.Elem()) {
			values = append(values, `{"x":`+v+`}`)
		}
	case reflect.Struct:
		values = append([]string{`7`, `"x"`, `[]`}, wrongFields(of)...)
	}
	return values // of an interface none: it takes everything
}

// wrongFields are JSON objects with one field each that a struct cannot take.
func wrongFields(of reflect.Type) (values []string) {
	for i := range of.NumField() {
		f := of.Field(i)
		if f.Anonymous {
			values = append(values, wrongFields(f.Type)...)
			continue
		}
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "-" {
			continue
		}
		for _, v := range wrong(f.Type) {
			values = append(values, fmt.Sprintf(`{%q:%s}`, name, v))
		}
	}
	return values
}

// TestWrongTypesEverywhere gives each field of each input, at every depth, what it cannot take. The
// refusal is of the body: an operation that does not look at a field cannot pass by refusing the
// rest.
func TestWrongTypesEverywhere(t *testing.T) {
	f := bedForBadInput(t)
	before := f.State()
	tried := map[string]int{}
	for operation, input := range inputs(t, f.Server) {
		parts := strings.Split(operation, "/")
		method, path := requestOf(operation, objectOf[parts[2]])
		for _, body := range wrong(input) {
			tried[operation]++
			a := f.Do(method, path, body)
			if a.Status < 400 || a.JSON["type"] != "error" ||
				!strings.Contains(a.Message(), "the request body is not the JSON object expected: ") {
				t.Errorf("%s %s: %d %.200s", operation, body, a.Status, a.Text)
			}
		}
	}
	if len(tried) < 40 || tried[resource.ActionDiskUpdate+" /v1/nodes/{name}"] < 30 {
		t.Errorf("only these were tried: %v", tried)
	}
	if after := f.State(); after != before {
		t.Errorf("wrong types changed something:\n%s", difference(before, after))
	}
}

// answeredAlways are operations that answer for an object which does not exist, as clients rely on.
var answeredAlways = []string{"GET /v1/schemas/{name}", "GET /v1/backupvolumes/{name}",
	"backupList /v1/backupvolumes/{name}",
	"backupListByVolume /v1/backupvolumes/{name}", "backupDelete /v1/backupvolumes/{name}",
	"DELETE /v1/engineimages/{name}"}

// TestUnknownObjectsAndActions: what does not exist is refused by each operation on it, under names
// of every kind, and nothing comes into being.
func TestUnknownObjectsAndActions(t *testing.T) {
	f := bedForBadInput(t)
	before := f.State()
	names := []string{"nope", "UPPER", "a.b", "-", "%20", "%C3%A9", strings.Repeat("x", 300), "%2e%2e", "..%2f..%2fdemo",
		"demo%2f", "demo%00", "demo%0a", "$(reboot)", "'%20or%201=1", "{name}", "*"}
	for _, operation := range operations(f.Server) {
		if !strings.Contains(operation, "{name}") || slices.Contains(answeredAlways, operation) {
			continue
		}
		for _, name := range names {
			method, path := requestOf(operation, name)
			a := f.Do(method, path, `{"name":"x","value":"x","hostId":"node-1","members":["x"]}`)
			plain := a.Status == 404 && (a.Text == "" || strings.HasPrefix(a.Text, "404 page not found"))
			if a.Status < 400 || !plain && a.JSON["type"] != "error" {
				t.Errorf("%s of %q: %d %.200s", operation, name, a.Status, a.Text)
			}
		}
	}
	for path, object := range objectOf {
		if slices.Contains([]string{"volumerates", "dataloss", "devicekeepers", "backupverifications", "backupdamage",
			"backupimageverifications", "settings", "recurringjobs"}, path) {
			continue // they have no actions
		}
		for _, action := range []string{"nope", "", "Attach", "attach%00", "attach&action=detach", "../attach"} {
			if action == "attach&action=detach" && path == "volumes" {
				continue // the first one counts
			}
			a := f.Do(http.MethodPost, "/v1/"+path+"/"+object+"?action="+action, `{}`)
			if a.Status != 404 || !strings.HasPrefix(a.Text, "404 page not found") {
				t.Errorf("action %q of %s: %d %s", action, path, a.Status, a.Text)
			}
		}
	}
	if after := f.State(); after != before {
		t.Errorf("unknown names changed something:\n%s", difference(before, after))
	}
}

// TestActionsInTheWrongState: an action that a volume does not offer now and that is asked for all
// the same is refused, or changes nothing.
func TestActionsInTheWrongState(t *testing.T) {
	faulted := resttest.Volume("demo")
	faulted[0].(*lh.Volume).Status.Robustness = lh.VolumeRobustnessFaulted
	for name, objects := range map[string][]client.Object{"detached": resttest.Volume("demo"),
		"attached": resttest.Attached(),
		"faulted":  faulted} {
		f := newFixture(t, resttest.Cluster(objects...)...)
		offered := f.Get("/v1/volumes/demo")["actions"].(map[string]any)
		before, tried := f.State(), 0
		for action := range actionsOfVolumes() {
			if offered[action] != nil || action == resource.ActionSnapshotCRCreate { // which is an order that waits
				continue
			}
			tried++
			a := f.Do(http.MethodPost, "/v1/volumes/demo?action="+action, `{}`)
			if a.Status != 200 && a.JSON["type"] != "error" {
				t.Errorf("%s, %s: %d %s", name, action, a.Status, a.Text)
			}
			if after := f.State(); after != before {
				t.Errorf("%s, %s, which is not offered: %d, and it changed\n%s", name, action, a.Status,
					difference(before, after))
				before = after
			}
		}
		if tried == 0 && name != "attached" {
			t.Errorf("%s: every action is offered", name)
		}
	}
}

// FuzzRequest sends any request to a server: it answers in one of the forms that there are, and a
// refusal has changed nothing.
func FuzzRequest(f *testing.F) {
	f.Add("GET", "/v1/volumes", "", "", "")
	f.Add("POST", "/v1/volumes", "", `{"name":"x","size":"1Gi"}`, "Basic Og==")
	f.Add("POST", "/v1/volumes/demo", "action=attach", `{"hostId":"node-1"}`, "Bearer of-admin")
	f.Add("POST", "/v1/nodes/node-1", "action=diskUpdate", `{"disks":{"a":{"path":"/x"}}}`, "")
	f.Add("PUT", "/v1/settings/log-level", "", `{"value":"debug"}`, "Bearer of-reader")
	f.Add("DELETE", "/v1/volumes/../volumes/demo", "", "", "")
	f.Add("DELETE", "/v1/volumes/demo", "resourceVersion=1", "", "Bearer of-admin") // which has changed since
	f.Add("POST", "/v1/volumes/demo", "action=attach", `{"hostId":"node-1","withdrawals":5}`, "Bearer of-admin")
	f.Add("GET", "/v1/ws/1s/volumes", "_format=html", "", "Bearer x")
	f.Add("POST", "/v1/volumes/demo", "action=attach", `{"hostId":"node-1"}`, "bEARER  of-admin ")
	f.Add("POST", "/v1/session", "", `{"token":"of-admin"}`, "")
	stored := func(t testing.TB) (*fixture, string) {
		s := guarded(t, &resttest.Reviews{Rights: apitest.Users}, "read-only", apitest.Same)
		return s, s.State()
	}
	s, before := stored(f)
	f.Fuzz(func(t *testing.T, method, path, query, body, authorization string) {
		r, err := http.NewRequest(method, "http://localhost/", strings.NewReader(body))
		if err != nil {
			return // no server gets a request without a method
		}
		r.URL.Path, r.URL.RawQuery = path, query
		r.Header.Set("Authorization", authorization)
		r.RemoteAddr = "127.0.0.1:1"
		s.T = t
		cfg := s.Fixture.Config
		apitest.Judge(&cfg) // each request is the first one: it is not refused for what others have asked
		server, err := rest.New(cfg)
		apitest.Must(t, err)
		w := httptest.NewRecorder()
		server.ServeHTTP(w, r)
		switch w.Code {
		case 200, 301, 401, 403, 404, 405, 409, 500:
		default:
			t.Errorf("%s %q %q: %d %s", method, path, query, w.Code, w.Body)
		}
		after := s.State()
		if after == before {
			return
		}
		scheme, token, _ := strings.Cut(strings.TrimSpace(authorization), " ")
		token = strings.TrimSpace(token)
		may := strings.EqualFold(scheme, "Bearer") && (token == "of-admin" || token == "of-owner")
		if w.Code != 200 || method == "GET" || !may {
			t.Errorf("%s %q %q by %q: %d, and it changed\n%s", method, path, query, authorization, w.Code,
				difference(before, after))
		}
		s, before = stored(t)
	})
}
