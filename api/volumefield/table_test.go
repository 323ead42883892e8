package volumefield

import (
	"cmp"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/api/longhorn/v1beta2/crd"
)

// TestRows: no column contradicts another one.
func TestRows(t *testing.T) {
	seen := map[string]bool{}
	once := func(what, name string) {
		if key := what + " " + strings.ToLower(name); seen[key] {
			t.Errorf("%s %s is there twice", what, name)
		} else {
			seen[key] = true
		}
	}
	for i := range All {
		f := &All[i]
		once("field", f.Name)
		if Get(f.Name) != f {
			t.Errorf("%s: Get returns another row", f.Name)
		}
		if (f.Kind == Word) != (len(f.Words) > 0) || f.Kind != Word && f.NotBuilt != nil {
			t.Errorf("%s: a word has choices, and nothing else has", f.Name)
		}
		if (f.Kind == Number) != (f.Most > f.Least) || f.Kind != Number && f.Unit != "" {
			t.Errorf("%s: a number has bounds, and nothing else has", f.Name)
		}
		if (f.Kind == Word || f.Change != nil) && f.What == "" {
			t.Errorf("%s: messages do not know what to call it", f.Name)
		}
		if f.Default != "" && f.Setting != "" || f.Kind == Word && f.Default != "" && f.Check(f.Default) != nil {
			t.Errorf("%s: default %q, of setting %q", f.Name, f.Default, f.Setting)
		}
		if f.Default != "" && f.Kind != Word && f.Kind != Text || f.Setting != "" && f.Kind != Word && f.Kind != Number {
			t.Errorf("%s: admission cannot fill in its default", f.Name)
		}
		if f.Kind == Own && (f.Type == "" || f.Change != nil || f.Default+f.Setting != "") {
			t.Errorf("%s: nothing but its type and its doors is known of a field that is converted by hand", f.Name)
		}
		if f.Change != nil {
			once("action", f.Change.Action)
			once("input", f.InputType())
			if f.Change.When == 0 || f.Kind == Flag || f.Kind == Tags || f.Change.Quantity && f.Kind != Number {
				t.Errorf("%s: action %s cannot be run from the table", f.Name, f.Change.Action)
			}
		}
		if f.Parameter != nil {
			once("parameter", f.ParameterName())
		}
		if f.Flag != nil {
			once("flag", f.Flag.Name)
		}
	}
}

// schemaOf is the schema of spec of a Volume.
func schemaOf(t *testing.T) apiextensionsv1.JSONSchemaProps {
	all, err := crd.All()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range all {
		if c.Spec.Names.Kind == "Volume" {
			return c.Spec.Versions[len(c.Spec.Versions)-1].Schema.OpenAPIV3Schema.Properties["spec"]
		}
	}
	t.Fatal("no CRD of Volume")
	return apiextensionsv1.JSONSchemaProps{}
}

// TestRowsMatchTheSchema: the object has a field for each row, which takes the choices of the row
// and no other, and nothing beyond its bounds.
func TestRowsMatchTheSchema(t *testing.T) {
	spec, object := schemaOf(t), reflect.TypeFor[v1beta2.VolumeSpec]()
	for i := range All {
		f := &All[i]
		inObject, ok := object.FieldByName(f.GoName())
		if !ok {
			if f.Kind != Own {
				t.Errorf("%s: the object has no field %s", f.Name, f.GoName())
			}
			continue
		}
		name, _, _ := strings.Cut(inObject.Tag.Get("json"), ",")
		if !strings.EqualFold(name, f.Name) {
			t.Errorf("%s is %s in the object", f.Name, name)
		}
		schema, ok := spec.Properties[name]
		if !ok {
			t.Errorf("%s: the schema has no %s", f.Name, name)
		}
		want := slices.Clone(f.Words)
		for word := range f.NotBuilt {
			want = append(want, word)
		}
		var have []string
		for _, e := range schema.Enum {
			var word string
			if err := json.Unmarshal(e.Raw, &word); err != nil {
				t.Fatal(err)
			}
			if word != "" { // nothing is no choice
				have = append(have, word)
			}
		}
		slices.Sort(want)
		slices.Sort(have)
		if f.Kind != Size && !slices.Equal(have, want) {
			t.Errorf("%s: the schema takes %q, the table %q", f.Name, have, want)
		}
		for _, bound := range []*float64{schema.Minimum, schema.Maximum} {
			if bound != nil && int64(*bound) != f.Least && int64(*bound) != f.Most {
				t.Errorf("%s: the schema has the bound %v, the table %d to %d", f.Name, *bound, f.Least, f.Most)
			}
		}
	}
}

func TestCheck(t *testing.T) {
	locality, frontend := Get("dataLocality"), Get("frontend")
	for _, c := range []struct {
		f          *Field
		word, want string
	}{
		{locality, "best-effort", ""}, {frontend, "blockdev", ""},
		{locality, "near", `invalid data locality mode: "near"; use one of disabled, best-effort, strict-local`},
		{locality, "", `invalid data locality mode: ""; use one of disabled, best-effort, strict-local`},
		{frontend, "iscsi", `invalid volume frontend specified: "iscsi": this version has no iSCSI target; use one of blockdev`},
	} {
		have := ""
		if err := c.f.Check(c.word); err != nil {
			have = err.Error()
		}
		if have != c.want {
			t.Errorf("%s %q: %s, want %s", c.f.Name, c.word, cmp.Or(have, "accepted"), cmp.Or(c.want, "accepted"))
		}
	}
	if n := Get("numberOfReplicas"); n.Within(0) || !n.Within(1) || !n.Within(20) || n.Within(21) {
		t.Error("a volume has 1 to 20 replicas")
	}
}
