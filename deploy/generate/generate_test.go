package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"text/template"

	"sigs.k8s.io/yaml"

	"ankole.storage/deploy"
)

// TestFresh: what is committed is what the templates give today.
func TestFresh(t *testing.T) {
	files, err := generate("../..")
	if err != nil {
		t.Fatal(err)
	}
	var known []string
	for name, want := range files {
		path := filepath.Join("..", name)
		known = append(known, filepath.Clean(path))
		got, err := os.ReadFile(path)
		if err != nil || string(got) != string(want) {
			t.Errorf("deploy/%s is stale (%v); run make generate", name, err)
		}
	}
	for _, dir := range whole {
		present, err := filepath.Glob(filepath.Join("..", dir, "*"))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range present {
			if !slices.Contains(known, path) {
				t.Errorf("%s is not generated any more; run make generate", path)
			}
		}
	}
}

// TestValuesAreDefaults: the chart's values are those of the plain manifest.
func TestValuesAreDefaults(t *testing.T) {
	files, err := generate("../..")
	if err != nil {
		t.Fatal(err)
	}
	var values map[string]any
	if err := yaml.UnmarshalStrict(files["chart/values.yaml"], &values); err != nil {
		t.Fatal(err)
	}
	d := deploy.DefaultValues()
	if values["managerImage"] != d.ManagerImage || values["imagePullPolicy"] != d.ImagePullPolicy ||
		values["namespace"] != nil {
		t.Errorf("values %v", values)
	}
	for name := range values {
		if !strings.Contains(string(files["chart/values.schema.json"]), `"`+name+`"`) {
			t.Errorf("the schema does not know %s", name)
		}
	}
	for name, text := range files {
		if strings.HasPrefix(name, "chart/templates/") && (strings.Contains(string(text), "kind: Namespace") ||
			strings.Contains(string(text), ".Values.Namespace") || value.Match(text)) {
			t.Errorf("%s is not a chart's template", name)
		}
	}
}

// TestChartGivesTheSame: the chart with its default values makes the objects of the plain manifest,
// but for the namespace, which Helm makes. The engine is Helm's, Go's templates, with the functions
// in use.
func TestChartGivesTheSame(t *testing.T) {
	files, err := generate("../..")
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]any{}
	if err := yaml.UnmarshalStrict(files["chart/values.yaml"], &values); err != nil {
		t.Fatal(err)
	}
	functions := template.FuncMap{
		"quote":  func(s string) string { return fmt.Sprintf("%q", s) },
		"toJson": func(v any) (string, error) { text, err := json.Marshal(v); return string(text), err },
	}
	render := func(values map[string]any) (docs []string) {
		for _, name := range slices.Sorted(maps.Keys(files)) {
			if !strings.HasPrefix(name, "chart/templates/") {
				continue
			}
			tmpl, err := template.New(name).Option("missingkey=error").Funcs(functions).Parse(string(files[name]))
			if err != nil {
				t.Fatal(err)
			}
			var out strings.Builder
			data := map[string]any{"Values": values, "Release": map[string]any{"Namespace": "longhorn-system"}}
			if err := tmpl.Execute(&out, data); err != nil {
				t.Fatal(err)
			}
			for doc := range strings.SplitSeq(out.String(), "\n---\n") {
				if strings.TrimSpace(doc) != "" {
					docs = append(docs, doc)
				}
			}
		}
		return docs
	}
	plain, err := deploy.Render(deploy.DefaultValues())
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, d := range plain {
		if !strings.Contains(string(d), "kind: Namespace\n") {
			want = append(want, string(d))
		}
	}
	if got := render(values); !slices.EqualFunc(got, want, func(a, b string) bool {
		return strings.TrimSpace(a) == strings.TrimSpace(b)
	}) {
		t.Errorf("the chart gives\n%s\nthe plain manifest has\n%s", strings.Join(got, "\n---\n"),
			strings.Join(want, "\n---\n"))
	}
	values["tolerations"] = []any{map[string]any{"key": "storage"}}
	values["nodeSelector"] = map[string]any{"kind": "storage"}
	values["defaultSettings"] = map[string]any{"storage-network": "kube-system/storage"}
	all := strings.Join(render(values), "\n---\n")
	// The manager and four sidecars.
	if strings.Count(all, `{"key":"storage"}`) != 5 ||
		strings.Count(all, `nodeSelector: {"kind":"storage"}`) != 5 ||
		!strings.Contains(all, `storage-network: "kube-system/storage"`) {
		t.Errorf("values do not reach the objects:\n%s", all)
	}
}
