package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

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
