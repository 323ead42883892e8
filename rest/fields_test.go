package rest

import (
	"encoding/json"
	"flag"
	"fmt"
	"net/http/httptest"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/rest/resource"
)

var writeFields = flag.Bool("write-fields", false, "write testdata/fields.txt")

// fieldsPage says of every field of an object which fields of its conversion change when it does.
// It is written by the test and read by people: a field that is filled from its neighbour, or not
// at all, is a line that says so.
const fieldsPage = "testdata/fields.txt"

// TestEveryFieldIsConverted sets one field after the other, each alone, and compares what that
// changes in the conversion with the page.
func TestEveryFieldIsConverted(t *testing.T) {
	q := &Request{Request: httptest.NewRequest("GET", "http://example/v1", nil), server: &Server{}}
	var b strings.Builder
	wish := resource.VolumeSpec{Name: "demo", Size: "1Gi"}
	section(&b, "a client's volume, as an object", resource.Volume{VolumeSpec: wish},
		func(in resource.Volume) any {
			v, err := newVolume("ns", in)
			if err != nil {
				t.Fatal(err)
			}
			return map[string]any{"name": v.Name, "labels": v.Labels, "spec": v.Spec}
		})
	section(&b, "a volume, as a client sees it", lh.Volume{}, func(v lh.Volume) any {
		return volumeView(q, volumeParts{volume: &v})
	})
	section(&b, "an engine, as a part of a volume", lh.Engine{}, func(e lh.Engine) any {
		return volumeView(q, volumeParts{volume: &lh.Volume{}, engines: []lh.Engine{e}})
	})
	section(&b, "a replica, as a part of a volume", lh.Replica{}, func(r lh.Replica) any {
		return volumeView(q, volumeParts{volume: &lh.Volume{}, replicas: []lh.Replica{r}})
	})
	section(&b, "an attachment, as a part of a volume", lh.VolumeAttachment{}, func(a lh.VolumeAttachment) any {
		return volumeView(q, volumeParts{volume: &lh.Volume{}, attachment: &a})
	})
	node := lh.Node{}
	node.Spec.Disks = map[string]lh.DiskSpec{word: {}}
	section(&b, "a node, as a client sees it", node, func(n lh.Node) any { return nodeView(q, &n, nil) })
	section(&b, "an engine image, as a client sees it", lh.EngineImage{}, func(e lh.EngineImage) any {
		return engineImageView(q, &e, "default")
	})
	section(&b, "an instance manager, as a client sees it", lh.InstanceManager{}, func(im lh.InstanceManager) any {
		return instanceManagerView(q, &im)
	})
	kindSections(&b, q)
	if *writeFields {
		if err := os.WriteFile(fieldsPage, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(fieldsPage)
	if err != nil {
		t.Fatal(err)
	}
	have, wanted := strings.Split(b.String(), "\n"), strings.Split(string(want), "\n")
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
		t.Logf("read each line, then write %s with: go test ./rest -run TestEveryFieldIsConverted -write-fields", fieldsPage)
	}
}

// kindSections writes the sections of kinds that are shown by themselves.
func kindSections(b *strings.Builder, q *Request) {
	section(b, "a recurring job, as a client sees it", lh.RecurringJob{}, func(j lh.RecurringJob) any {
		return recurringJobView(q, &j)
	})
	section(b, "a backup target, as a client sees it", lh.BackupTarget{}, func(o lh.BackupTarget) any {
		return backupTargetView(q, &o)
	})
	section(b, "a backup volume, as a client sees it", lh.BackupVolume{}, func(o lh.BackupVolume) any {
		return backupVolumeView(q, &o)
	})
	section(b, "a backup, as a client sees it", lh.Backup{}, func(o lh.Backup) any { return backupView(q, &o) })
	section(b, "the backup of a backing image, as a client sees it", lh.BackupBackingImage{},
		func(o lh.BackupBackingImage) any { return backupBackingImageView(q, &o) })
	section(b, "a backing image, as a client sees it", lh.BackingImage{}, func(o lh.BackingImage) any {
		return backingImageView(q, &o)
	})
	section(b, "a system backup, as a client sees it", lh.SystemBackup{}, func(o lh.SystemBackup) any {
		return systemBackupView(q, &o)
	})
	section(b, "a system restore, as a client sees it", lh.SystemRestore{}, func(o lh.SystemRestore) any {
		return systemRestoreView(q, &o)
	})
	section(b, "a support bundle, as a client sees it", lh.SupportBundle{}, func(o lh.SupportBundle) any {
		return supportBundleView(q, &o)
	})
}

// section writes what each field of an object changes in its conversion, if anything.
func section[T any](b *strings.Builder, title string, blank T, convert func(T) any) {
	fmt.Fprintf(b, "# %s\n", title)
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
		fmt.Fprintf(b, "%s: %s\n", strings.Join(path, "."), text)
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

// word and number are what fields are set to. The word is a size and a name, too.
const (
	word   = "4096"
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
		key.SetString(word)
		v.SetMapIndex(key, element)
	case reflect.String:
		v.SetString(word)
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
