package resttest

import (
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"ankole.storage/rest/resource"
	"ankole.storage/rest/serve"
)

var writeFields = flag.Bool("write-fields", false, "write testdata/fields.txt")

// fieldsPage says of every field of an object which fields of its conversion change when it does.
// It is written by the test and read by people: a field that is filled from its neighbour, or not
// at all, is a line that says so.
const fieldsPage = "testdata/fields.txt"

// Fields collects the sections of such a page: one field after the other is set, each alone.
type Fields struct{ text strings.Builder }

// Compare compares what was collected with the page.
func (p *Fields) Compare(t *testing.T) {
	t.Helper()
	if *writeFields {
		if err := os.WriteFile(fieldsPage, []byte(p.text.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(fieldsPage)
	if err != nil {
		t.Fatal(err)
	}
	have, wanted := strings.Split(p.text.String(), "\n"), strings.Split(string(want), "\n")
	for _, line := range have {
		if !slices.Contains(wanted, line) {
			t.Errorf("not on the page: %s", line)
		}
	}
	for _, line := range wanted {
		if !slices.Contains(have, line) {
			t.Errorf("on the page only: %s", line)
		}
	}
	if t.Failed() {
		t.Logf("read each line, then write %s with: go test . -run TestEveryFieldIsConverted -write-fields", fieldsPage)
	}
}

// Request is one that views are made for, of a server without objects.
func Request(t *testing.T) (q *serve.Request) {
	t.Helper()
	ask := func(asked *serve.Request) (any, error) {
		q = asked.WithoutBase()
		return nil, nil
	}
	s, err := serve.New(serve.Config{Client: fake.NewFakeClient(), Open: true},
		serve.Table{Routes: []serve.Route{{Path: "/v1/view", Methods: serve.Get(ask)}}})
	if err != nil {
		t.Fatal(err)
	}
	s.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/v1/view", nil))
	return q
}

// Section writes what each field of an object changes in its conversion, if anything.
func Section[T any](p *Fields, title string, blank T, convert func(T) any) {
	fmt.Fprintf(&p.text, "# %s\n", title)
	without := flat(convert(blank))
	for _, path := range leaves(reflect.TypeOf(blank), nil) {
		object := reflect.New(reflect.TypeOf(blank)).Elem()
		object.Set(reflect.ValueOf(cloned(blank)))
		set(object, path)
		with := flat(convert(object.Interface().(T)))
		var changed []string
		for key, value := range with {
			// What comes along with an element is empty, and says nothing.
			old, there := without[key]
			if old != value && (there || !slices.Contains([]string{`""`, "0", "false", "null"}, value)) {
				changed = append(changed, key+"="+value)
			}
		}
		if len(changed) == 0 {
			continue
		}
		slices.Sort(changed)
		text := strings.Join(changed, ", ")
		fmt.Fprintf(&p.text, "%s: %s\n", strings.Join(path, "."), text)
	}
}

// cloned copies by way of JSON, so that no map is shared.
func cloned[T any](x T) T {
	data, err := json.Marshal(x)
	if err != nil {
		panic(err)
	}
	var y T
	if err := json.Unmarshal(data, &y); err != nil {
		panic(err)
	}
	return y
}

// flat lists the values of an object as JSON, by path.
func flat(x any) map[string]string {
	data, err := json.Marshal(x)
	if err != nil {
		panic(err)
	}
	var tree any
	if err := json.Unmarshal(data, &tree); err != nil {
		panic(err)
	}
	out := map[string]string{}
	var walk func(path string, x any)
	walk = func(path string, x any) {
		switch x := x.(type) {
		case map[string]any:
			for k, v := range x {
				walk(path+"/"+k, v)
			}
		case []any:
			for i, v := range x {
				walk(fmt.Sprintf("%s/%d", path, i), v)
			}
		default:
			text, err := json.Marshal(x)
			if err != nil {
				panic(err)
			}
			out[path] = string(text)
		}
	}
	walk("", tree)
	return out
}

// kept are the fields of an object's metadata that conversions look at.
var kept = []string{"Name", "CreationTimestamp"}

// leaves lists the paths to the fields of a type that hold one value. An element of a list or map
// is "*".
func leaves(t reflect.Type, at []string) [][]string {
	if t == reflect.TypeFor[metav1.Time]() || t == reflect.TypeFor[time.Time]() {
		return [][]string{at}
	}
	below := func(name string) []string { return append(slices.Clone(at), name) }
	switch t.Kind() {
	case reflect.Struct:
		var all [][]string
		for i := range t.NumField() {
			f := t.Field(i)
			meta := t == reflect.TypeFor[metav1.ObjectMeta]() && !slices.Contains(kept, f.Name)
			if meta || !f.IsExported() || f.Type == reflect.TypeFor[metav1.TypeMeta]() || f.Name == "Resource" {
				continue
			}
			if f.Type == reflect.TypeFor[resource.VolumeSpec]() { // its fields are the volume's
				all = append(all, leaves(f.Type, at)...)
				continue
			}
			all = append(all, leaves(f.Type, below(f.Name))...)
		}
		return all
	case reflect.Slice, reflect.Map:
		if all := leaves(t.Elem(), below("*")); len(all) > 0 {
			return all
		}
	case reflect.Pointer:
		return leaves(t.Elem(), at)
	case reflect.Interface, reflect.Func:
		return nil
	}
	return [][]string{at}
}

// Word and number are what fields are set to. The word is a size and a name, too.
const (
	Word   = "4096"
	number = 4 << 20
)

// set gives one field a value.
func set(v reflect.Value, path []string) {
	if v.Type() == reflect.TypeFor[metav1.Time]() {
		v.Set(reflect.ValueOf(metav1.Unix(1e9, 0)))
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		set(v.Elem(), path)
	case reflect.Struct:
		set(v.FieldByName(path[0]), path[1:])
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		set(v.Index(0), path[1:])
	case reflect.Map:
		element := reflect.New(v.Type().Elem()).Elem()
		set(element, path[1:])
		if v.IsNil() {
			v.Set(reflect.MakeMap(v.Type()))
		}
		key := reflect.New(v.Type().Key()).Elem()
		key.SetString(Word)
		v.SetMapIndex(key, element)
	case reflect.String:
		v.SetString(Word)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(number)
	case reflect.Float64:
		v.SetFloat(number)
	case reflect.Uint8, reflect.Uint64, reflect.Uint32:
		v.SetUint(7)
	default:
		panic(fmt.Sprintf("no value for a %s", v.Type()))
	}
}
