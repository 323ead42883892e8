package resource

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// facts mirrors what the restfacts command writes.
type facts struct {
	Declared []string `json:"declared"`
	Schemas  []struct {
		ID                string      `json:"id"`
		Plural            string      `json:"plural"`
		CollectionMethods []string    `json:"collectionMethods"`
		ResourceMethods   []string    `json:"resourceMethods"`
		Fields            []factField `json:"fields"`
	} `json:"schemas"`
	Routes []struct {
		Paths   []string `json:"paths"`
		Methods []string `json:"methods"`
		Actions []string `json:"actions"`
	} `json:"routes"`
	VolumeActions map[string][]string `json:"volumeActions"`
}

type factField struct {
	Name     string  `json:"name"`
	Type     string  `json:"type"`
	Nullable bool    `json:"nullable"`
	Create   bool    `json:"create"`
	Update   bool    `json:"update"`
	Required bool    `json:"required"`
	Unique   bool    `json:"unique"`
	Default  *string `json:"default"`
}

func readFacts(t *testing.T) facts {
	t.Helper()
	text, err := os.ReadFile("testdata/rest_facts.json")
	if err != nil {
		t.Fatal(err)
	}
	var f facts
	if err := json.Unmarshal(text, &f); err != nil {
		t.Fatal(err)
	}
	return f
}

func every(string) bool { return true }

func TestEveryDeclaredSchemaExists(t *testing.T) {
	f := readFacts(t)
	if len(f.Declared) != 88 {
		t.Fatalf("fact table declares %d schemas, want 88: was it regenerated?", len(f.Declared))
	}
	var have []string
	for _, typ := range Types {
		have = append(have, typ.ID)
	}
	if !slices.Equal(have, f.Declared) {
		t.Errorf("schemas differ from the reference\n have %v\n want %v", have, f.Declared)
	}
}

// additions are fields of ours, see docs/additions.md.
var additions = map[string]bool{"cloneStatus progress": true, "volume deleteSnapshotsWithVolume": true,
	"snapshotCR orderedByCSI": true, "node engineManagerCPURequest": true,
	"node replicaManagerCPURequest": true, "instanceManager conditions": true,
	"volume waitsFor": true, "node waitsFor": true, "instanceManager waitsFor": true, "engineImage waitsFor": true,
	"backingImage waitsFor": true}

func TestSchemasMatchTheReference(t *testing.T) {
	// How many fields each table of the reference has, so that a parser that reads nothing cannot
	// pass.
	rows := map[string]int{"volume": 65, "controller": 16, "replica": 13, "node": 11, "diskInfo": 16, "setting": 4,
		"settingDefinition": 11, "engineImage": 19, "instanceManager": 10, "backup": 21, "snapshotCR": 16}
	for _, want := range readFacts(t).Schemas {
		t.Run(want.ID, func(t *testing.T) {
			if n, ok := rows[want.ID]; ok && n != len(want.Fields) {
				t.Fatalf("fact table has %d fields, want %d", len(want.Fields), n)
			}
			typ, ok := Lookup(want.ID)
			if !ok {
				t.Fatal("not declared")
			}
			have := typ.Schema(every)
			if want.Plural != "" {
				if have.PluralName != want.Plural {
					t.Errorf("plural %q, want %q", have.PluralName, want.Plural)
				}
				if !slices.Equal(have.CollectionMethods, want.CollectionMethods) ||
					!slices.Equal(have.ResourceMethods, want.ResourceMethods) {
					t.Errorf("methods %v %v, want %v %v", have.CollectionMethods, have.ResourceMethods,
						want.CollectionMethods, want.ResourceMethods)
				}
			}
			for _, f := range want.Fields {
				got, ok := have.ResourceFields[f.Name]
				if !ok {
					t.Errorf("field %s is missing", f.Name)
					continue
				}
				wanted := SchemaField{FieldType: f.Type, Nullable: f.Nullable, Create: f.Create, Update: f.Update,
					Required: f.Required, Unique: f.Unique}
				plain := got
				plain.Default = nil
				if plain != wanted {
					t.Errorf("field %s: %+v, want %+v", f.Name, plain, wanted)
				}
				if (f.Default == nil) != (got.Default == nil) || f.Default != nil && *f.Default != fmt.Sprint(got.Default) {
					t.Errorf("field %s: default %v, want %v", f.Name, got.Default, f.Default)
				}
			}
			for name := range have.ResourceFields {
				if additions[want.ID+" "+name] {
					continue
				}
				if len(want.Fields) > 0 && !slices.ContainsFunc(want.Fields, func(f factField) bool { return f.Name == name }) {
					t.Errorf("field %s is not in the reference", name)
				}
			}
		})
	}
}

func TestActionsMatchTheReference(t *testing.T) {
	f := readFacts(t)
	typ, _ := Lookup(TypeVolume)
	if len(f.VolumeActions) != 44 || len(typ.Actions) != 44 {
		t.Fatalf("reference has %d volume actions, table %d, want 44", len(f.VolumeActions), len(typ.Actions))
	}
	columns := map[string]When{"faulted": WhenFaulted, "any non-faulted": WhenOther,
		"detached": WhenDetached, "attaching": WhenAttaching, "attached": WhenAttached, "always": 0}
	for _, a := range typ.Actions {
		var want When
		for _, column := range f.VolumeActions[a.Name] {
			bit, ok := columns[column]
			if !ok {
				t.Fatalf("unknown column %q", column)
			}
			want |= bit
		}
		if a.When != want {
			t.Errorf("%s is offered in %05b, want %05b", a.Name, a.When, want)
		}
	}
	for _, r := range f.Routes {
		if !slices.Contains(r.Methods, "POST") {
			continue
		}
		segment := strings.Split(r.Paths[0], "/")[2]
		i := slices.IndexFunc(Types, func(t Type) bool { return Path(t.ID) == segment })
		if i < 0 {
			t.Fatalf("no type for path %s", r.Paths[0])
		}
		for _, name := range r.Actions {
			if !slices.ContainsFunc(Types[i].Actions, func(a Action) bool { return a.Name == name }) {
				t.Errorf("%s lacks the action %s", Types[i].ID, name)
			}
		}
	}
}

func TestOfferedWhen(t *testing.T) {
	for _, c := range []struct {
		state, robustness string
		want              When
	}{
		{"detached", "unknown", WhenDetached},
		{"attached", "degraded", WhenAttached},
		{"attaching", "unknown", WhenAttaching},
		{"detaching", "healthy", WhenOther},
		{"creating", "", WhenOther},
		{"deleting", "unknown", WhenOther},
		{"detached", "faulted", WhenFaulted},
		{"attached", "faulted", WhenFaulted},
	} {
		if got := OfferedWhen(c.state, c.robustness); got != c.want {
			t.Errorf("OfferedWhen(%s, %s) = %05b, want %05b", c.state, c.robustness, got, c.want)
		}
	}
}

func TestPlural(t *testing.T) {
	for id, want := range map[string]string{"volume": "volumes", "backingImage": "backingImages",
		"detachInput":      "detachInputs",
		"kubernetesStatus": "kubernetesStatuses", "attach": "attaches", "index": "indexes"} {
		if got := Plural(id); got != want {
			t.Errorf("Plural(%s) = %s, want %s", id, got, want)
		}
	}
}

// A nested envelope is null, a top-level one is not: clients crash on the wrong one.
func TestNestedEnvelopeIsNull(t *testing.T) {
	text, err := json.Marshal(Volume{RebuildStatus: []RebuildStatus{{Replica: "v-r-1"}}})
	if err != nil {
		t.Fatal(err)
	}
	var v struct {
		RebuildStatus    []map[string]any `json:"rebuildStatus"`
		VolumeAttachment map[string]any   `json:"volumeAttachment"`
	}
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatal(err)
	}
	for _, nested := range []map[string]any{v.RebuildStatus[0], v.VolumeAttachment} {
		links, ok := nested["links"]
		if !ok || links != nil {
			t.Errorf("links = %v (present %v), want null", links, ok)
		}
		if _, ok := nested["type"]; ok {
			t.Error("a nested object has a type")
		}
	}
}

// Every tag is well formed: deriving all schemas panics otherwise, and no two fields share a name.
func TestTablesAreWellFormed(t *testing.T) {
	for _, typ := range Types {
		typ.Schema(every)
		seen := map[string]bool{}
		rt := reflect.TypeOf(typ.Of)
		for i := range rt.NumField() {
			name, _, _ := strings.Cut(rt.Field(i).Tag.Get("json"), ",")
			if name != "" && seen[name] {
				t.Errorf("%s declares %s twice", typ.ID, name)
			}
			seen[name] = true
		}
	}
	// A field of the table that Volume has once more would be hidden by that.
	volume := reflect.TypeFor[Volume]()
	for _, f := range reflect.VisibleFields(reflect.TypeFor[VolumeSpec]()) {
		if shown, ok := volume.FieldByName(f.Name); !ok || len(shown.Index) != 2 {
			t.Errorf("Volume hides %s of VolumeSpec", f.Name)
		}
	}
}
