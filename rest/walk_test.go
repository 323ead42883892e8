package rest_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/rest/apitest"
	"ankole.storage/rest/resttest"
)

// walker is a client that knows nothing but the rules by which clients of this kind of API find
// their way: it asks one URL, follows the header X-API-Schemas to the schema document, and makes a
// method of each collection, object and action that it is told of. It shares no code with package
// client or resource.
type walker struct {
	t *testing.T
	// schemas are those of the document by id. The others are methods, by the names that scripts call
	// them: "list_backing_image" and "list_backingImage" are the same.
	schemas map[string]walkedSchema
	list    map[string]func() (int, map[string]any)
	byID    map[string]func(id string) (int, map[string]any)
	create  map[string]func(body string) (int, map[string]any)
	update  map[string]func(id, body string) (int, map[string]any)
}

type walkedSchema struct {
	ID, Type                           string
	Links                              map[string]string
	CollectionMethods, ResourceMethods []string
	ResourceFields                     map[string]any
	ResourceActions                    map[string]any
}

var (
	wordBefore = regexp.MustCompile(`(.)([A-Z][a-z]+)`)
	wordAfter  = regexp.MustCompile(`([a-z0-9])([A-Z])`)
)

// snake is the other spelling of a name: backingImage is backing_image, snapshotCR snapshot_cr.
func snake(name string) string {
	return strings.ToLower(wordAfter.ReplaceAllString(wordBefore.ReplaceAllString(name, "${1}_${2}"), "${1}_${2}"))
}

// call sends a request as old clients do: empty Basic credentials, JSON without a content type.
func (w *walker) call(method, url, body string) (int, map[string]any, http.Header) {
	w.t.Helper()
	r, err := http.NewRequest(method, url, strings.NewReader(body))
	apitest.Must(w.t, err)
	r.SetBasicAuth("", "")
	r.Header.Set("Accept", "application/json")
	resp, err := http.DefaultClient.Do(r)
	apitest.Must(w.t, err)
	defer resp.Body.Close()
	var o map[string]any
	if json.NewDecoder(resp.Body).Decode(&o) != nil {
		o = nil
	}
	return resp.StatusCode, o, resp.Header
}

// connect begins at a URL.
func connect(t *testing.T, entry string) *walker {
	t.Helper()
	w := &walker{t: t, schemas: map[string]walkedSchema{}, list: map[string]func() (int, map[string]any){},
		byID: map[string]func(string) (int, map[string]any){}, create: map[string]func(string) (int, map[string]any){},
		update: map[string]func(string, string) (int, map[string]any){}}
	status, document, header := w.call(http.MethodGet, entry, "")
	to := header.Get("X-API-Schemas")
	if status != http.StatusOK || to == "" {
		t.Fatalf("%s: %d, schemas at %q", entry, status, to)
	}
	if to != entry {
		_, document, _ = w.call(http.MethodGet, to, "")
	}
	text, err := json.Marshal(document["data"])
	apitest.Must(t, err)
	var all []walkedSchema
	apitest.Must(t, json.Unmarshal(text, &all))
	for _, s := range all {
		if s.Type == "schema" {
			w.bind(s)
		}
	}
	return w
}

// bind makes the methods of a type, in both spellings.
func (w *walker) bind(s walkedSchema) {
	w.schemas[s.ID] = s
	collection := s.Links["collection"]
	for _, name := range []string{s.ID, snake(s.ID)} {
		if slices.Contains(s.CollectionMethods, http.MethodGet) {
			w.list[name] = func() (int, map[string]any) {
				status, o, _ := w.call(http.MethodGet, collection, "")
				return status, o
			}
			w.byID[name] = func(id string) (int, map[string]any) {
				status, o, _ := w.call(http.MethodGet, collection+"/"+id, "")
				return status, o
			}
		}
		if slices.Contains(s.CollectionMethods, http.MethodPost) {
			w.create[name] = func(body string) (int, map[string]any) {
				status, o, _ := w.call(http.MethodPost, collection, body)
				return status, o
			}
		}
		if slices.Contains(s.ResourceMethods, http.MethodPut) {
			w.update[name] = func(id, body string) (int, map[string]any) {
				status, o, _ := w.call(http.MethodPut, collection+"/"+id, body)
				return status, o
			}
		}
	}
}

// walkedFacts are the tables of the reference.
type walkedFacts struct {
	Routes        []struct{ Paths, Methods, Actions []string }
	VolumeActions map[string][]string
}

func readWalkedFacts(t *testing.T) (f walkedFacts) {
	t.Helper()
	text, err := os.ReadFile("resource/testdata/rest_facts.json")
	apitest.Must(t, err)
	apitest.Must(t, json.Unmarshal(text, &f))
	return f
}

// has says whether the reference has a method at a path, whatever the parameter is called there.
func (f walkedFacts) has(method, path string) bool {
	for _, r := range f.Routes {
		if slices.Contains(r.Paths, path) && slices.Contains(r.Methods, method) {
			return true
		}
	}
	return false
}

// walkedWorld has objects of every kind that a list shows.
func walkedWorld() []client.Object {
	event := &corev1.Event{ObjectMeta: resttest.Meta("demo.1"), Type: "Warning", Reason: "Faulted",
		InvolvedObject: corev1.ObjectReference{APIVersion: "longhorn.io/v1beta2", Kind: "Volume", Name: "demo"}}
	orphan := &lh.Orphan{ObjectMeta: resttest.Meta("orphan-1"), Spec: lh.OrphanSpec{NodeID: "node-1"}}
	job := &lh.RecurringJob{ObjectMeta: resttest.Meta("nightly"), Spec: lh.RecurringJobSpec{Name: "nightly",
		Task: "snapshot", Cron: "0 3 * * *", Retain: 1, Concurrency: 1}}
	more := append(append(oneOfEach(), event, orphan, job, resttest.InstanceManager("instance-manager-1", "node-1")),
		resttest.Volume("detached")...)
	open := resttest.Volume("attached")
	resttest.Attach(open, "node-1", "/dev/longhorn/attached")
	return resttest.Cluster(append(more, open...)...)
}

// TestWalk goes through everything that the schema document declares, from both entries, in a
// cluster with objects and in an empty one.
func TestWalk(t *testing.T) {
	facts := readWalkedFacts(t)
	for world, objects := range map[string][]client.Object{"full": walkedWorld(), "empty": nil} {
		f := newFixture(t, objects...)
		for _, entry := range []string{"/v1", "/v1/schemas"} {
			w := connect(t, f.URL+entry)
			before, lists := f.State(), 0
			for id, s := range w.schemas {
				path := strings.TrimPrefix(s.Links["collection"], f.URL)
				served := facts.has(http.MethodGet, path)
				if served {
					lists++
				}
				w.walkList(s, path, served, world == "full")
				w.walkUnknown(s, path, facts)
				if w.list[snake(id)] == nil || w.byID[snake(id)] == nil {
					t.Errorf("%s has no method list_%[1]s", snake(id))
				}
			}
			if lists != 18 {
				t.Errorf("%d lists are served, want 18", lists)
			}
			for name := range w.create {
				if status, o := w.create[name]("{}"); status != 500 || o["type"] != "error" || o["message"] == "" {
					t.Errorf("create_%s: %d %v", name, status, o)
				}
			}
			if len(w.create) == 0 || len(w.update) == 0 {
				t.Error("nothing can be created or updated")
			}
			if after := f.State(); after != before {
				t.Errorf("the walk has changed\n%s", difference(before, after))
			}
		}
	}
}

// mayLack are fields that the reference leaves out when they are empty.
var mayLack = map[string]bool{"schema resourceActions": true, "systemBackup version": true,
	"systemBackup managerImage": true, "systemBackup state": true, "systemRestore state": true}

// walkList lists a type and looks at each member by its id and by its link. What the reference
// declares and does not serve, such as the inputs of actions, is 404 here too.
func (w *walker) walkList(s walkedSchema, path string, served, full bool) {
	w.t.Helper()
	status, list := w.list[s.ID]()
	if !served {
		if status != http.StatusNotFound {
			w.t.Errorf("list_%s: %d, no list of the reference", s.ID, status)
		}
		return
	}
	data, ok := list["data"].([]any)
	if status != http.StatusOK || list["type"] != "collection" || list["resourceType"] != s.ID || !ok ||
		list["links"] == nil {
		w.t.Errorf("list_%s: %d %v", s.ID, status, list)
		return
	}
	if full && len(data) == 0 {
		w.t.Errorf("list_%s: the list is empty", s.ID)
	}
	for _, raw := range data {
		o := raw.(map[string]any)
		w.walkObject(s, o)
		id, links := o["id"].(string), o["links"].(map[string]any)
		if s.ID == "supportBundle" || s.ID == "event" {
			continue // the path of one has two names, and events have none
		}
		for _, get := range []func() (int, map[string]any){
			func() (int, map[string]any) { return w.byID[snake(s.ID)](id) },
			func() (int, map[string]any) {
				status, o, _ := w.call(http.MethodGet, links["self"].(string), "")
				return status, o
			},
		} {
			status, one := get()
			delete(one, "resourceVersion") // of volumes, docs/additions.md
			if status != http.StatusOK || !reflect.DeepEqual(one, o) {
				w.t.Errorf("%s %s: %d\n%v, in the list\n%v", path, id, status, one, o)
			}
		}
	}
}

// walkObject holds an object against its schema: its fields and no others, its links and actions,
// and nothing that clients fail on.
func (w *walker) walkObject(s walkedSchema, o map[string]any) {
	w.t.Helper()
	if o["type"] != s.ID || o["id"] == "" || o["links"] == nil || o["actions"] == nil {
		w.t.Errorf("%s: %v", s.ID, o)
	}
	for key := range o {
		if s.ResourceFields[key] == nil && !slices.Contains([]string{"id", "type", "links", "actions"}, key) {
			w.t.Errorf("%s %v has the field %s, which its schema does not declare", s.ID, o["id"], key)
		}
	}
	for key := range s.ResourceFields {
		if _, has := o[key]; !has && !mayLack[s.ID+" "+key] {
			w.t.Errorf("%s %v lacks the field %s", s.ID, o["id"], key)
		}
	}
	for name, link := range o["actions"].(map[string]any) {
		if s.ResourceActions[name] == nil || link != o["links"].(map[string]any)["self"].(string)+"?action="+name {
			w.t.Errorf("%s %v: action %s at %v", s.ID, o["id"], name, link)
		}
	}
	if s.ID != "volume" { // whose actions depend on its state: TestWalkOfActions
		for name := range s.ResourceActions {
			path := "/v1/" + strings.Split(o["links"].(map[string]any)["self"].(string), "/v1/")[1]
			path = path[:strings.LastIndex(path, "/")] + "/{name}"
			if offered := o["actions"].(map[string]any)[name] != nil; offered == (apitest.Tables().Later[name+" "+path] != "") {
				w.t.Errorf("%s %v: action %s is offered: %t", s.ID, o["id"], name, offered)
			}
		}
	}
	for key, value := range o {
		w.walkNested(s.ID+" "+key, value)
	}
}

// walkNested looks for what clients take for an object of the API and fail on: a type whose links
// are null.
func (w *walker) walkNested(where string, value any) {
	switch v := value.(type) {
	case []any:
		for _, one := range v {
			w.walkNested(where, one)
		}
	case map[string]any:
		links, has := v["links"]
		if _, typed := v["type"].(string); typed && has && links == nil {
			w.t.Errorf("%s has a type and no links", where)
		}
		for key, one := range v {
			w.walkNested(where+" "+key, one)
		}
	}
}

// walkUnknown asks for an object that does not exist: clients take 404 for "none", and every other
// error for a failure. It is changed where the reference has a way to, and 405 elsewhere.
func (w *walker) walkUnknown(s walkedSchema, path string, facts walkedFacts) {
	w.t.Helper()
	want := http.StatusNotFound
	switch s.ID {
	case "setting":
		want = http.StatusInternalServerError // scripts tell by it that a setting is not known
	case "backupVolume", "schema":
		want = http.StatusOK
	}
	if status, _ := w.byID[s.ID]("none-such"); status != want {
		w.t.Errorf("by_id_%s of none: %d, want %d", s.ID, status, want)
	}
	put := w.update[s.ID]
	if put == nil {
		return
	}
	status, o := put("none-such", "{}")
	if served := facts.has(http.MethodPut, path+"/{name}"); !served && status != http.StatusMethodNotAllowed ||
		served && (status < 400 || o["type"] != "error") {
		w.t.Errorf("update_by_id_%s of none: %d %v", s.ID, status, o)
	}
}

// TestWalkOfActions: a volume in each state and robustness offers the actions that the reference
// offers there, but for those that are not built, and no other; each that it offers is served.
func TestWalkOfActions(t *testing.T) {
	facts, tried := readWalkedFacts(t), 0
	var objects []client.Object
	type state struct{ state, robustness string }
	states := map[string]state{}
	for _, s := range strings.Fields("creating attached detached attaching detaching deleting") {
		for _, r := range strings.Fields("unknown healthy degraded faulted") {
			name := s + "-" + r
			states[name] = state{s, r}
			parts := resttest.Volume(name)
			v := parts[0].(*lh.Volume)
			v.Status.State, v.Status.Robustness = lh.VolumeState(s), lh.VolumeRobustness(r)
			objects = append(objects, parts...)
		}
	}
	f := newFixture(t, resttest.Cluster(objects...)...)
	w := connect(t, f.URL+"/v1")
	for name, in := range states {
		_, v := w.byID["volume"](name)
		columns := []string{"always"}
		switch {
		case v["state"] != in.state || v["robustness"] != in.robustness:
			t.Fatalf("%s: %v %v", name, v["state"], v["robustness"])
		case in.robustness == "faulted":
			columns = append(columns, "faulted")
		default:
			columns = append(columns, "any non-faulted", in.state)
		}
		actions := v["actions"].(map[string]any)
		for action, offered := range facts.VolumeActions {
			want := slices.ContainsFunc(columns, func(c string) bool { return slices.Contains(offered, c) }) &&
				apitest.Tables().Later[action+" /v1/volumes/{name}"] == ""
			if have := actions[action] != nil; have != want {
				t.Errorf("%s: %s offered %t, want %t", name, action, have, want)
			}
		}
		for action := range maps.Keys(actions) {
			tried++
			if facts.VolumeActions[action] == nil {
				t.Errorf("%s offers %s, which is no action", name, action)
			}
			status, _, _ := w.call(http.MethodPost, fmt.Sprint(actions[action]), "[]")
			if status == http.StatusNotFound || status == http.StatusMethodNotAllowed {
				t.Errorf("%s: %s: %d", name, action, status)
			}
		}
	}
	if tried < 300 {
		t.Errorf("%d actions were tried", tried)
	}
}
