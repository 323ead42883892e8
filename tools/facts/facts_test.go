package main

import (
	"encoding/json"
	"strings"
	"testing"
)

const crdPage = "## Common facts\n\n| Condition object field | Type | Notes |\n|---|---|---|\n| type | string | |\n\n" +
	"## Volume\n\nplural `volumes`, singular `volume`, list kind `VolumeList`, short name `lhv`\n\n" +
	"Printer columns: State, Retain, Age (newer: Applied).\n\n" +
	"| Column | Type | jsonPath (current source) |\n|---|---|---|\n| State | string | `.status.state` |\n| Age | date " +
	"| `.metadata.creationTimestamp` |\n\n" +
	"Legacy fields:\n\n| JSON | Type | Meaning |\n|---|---|---|\n| status.old | map→object, nullable | text |\n\n" +
	"### Fields\n\n| JSON | Type | Enum / default / flags | Meaning |\n|---|---|---|---|\n" +
	"| spec.frontend | string | enum: blockdev, \"\"; default blockdev | text |\n" +
	"| spec.limit | integer | required; nullable; min 0; max 5 | text |\n\n" +
	"### Other\n\n| Field | Values |\n|---|---|\n| spec.other | a, b |\n"

func TestParseCRDs(t *testing.T) {
	got, err := parseCRDs(crdPage)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"condition":[{"path":"type","type":"string"}],"kinds":[{"kind":"Volume","plural":"volumes","singular":"volume",` +
		`"list":"VolumeList","shortName":"lhv","columns":[{"name":"State","type":"string","jsonPath":".status.state"},` +
		`{"name":"Retain"},{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}],"fields":[` +
		`{"path":"spec.frontend","type":"string","enum":["blockdev",""],"default":"blockdev"},` +
		`{"path":"spec.limit","type":"integer","minimum":"0","maximum":"5","required":true,"nullable":true},` +
		`{"path":"status.old","type":"map→object","nullable":true,"legacy":true}]}]}`
	if string(text) != want {
		t.Errorf("got  %s\nwant %s", text, want)
	}
	for _, cut := range []string{"plural `volumes`", "Printer columns: ", "| JSON |"} {
		if _, err := parseCRDs(strings.ReplaceAll(crdPage, cut, "x")); err == nil {
			t.Errorf("a page without %q is accepted", cut)
		}
	}
}

func TestParseSettings(t *testing.T) {
	const header = "| Name | Type | Default | Range / options | Flags | Detach / apply | Meaning " +
		"|\n|---|---|---|---|---|---|---|\n"
	got, err := parseSettings("## 3. Category `general`\n\n" + header +
		"| a | int | {\"v1\":\"3\"} | 1..20 | R J | - | x |\n| b | int | 5 | >= 0 | | - | x |\n" +
		"| c | string | \"\" | x, y (MiB) | R RO | - | x |\n| d | string | (set) |  |  | - | x |\n\n" +
		"## 4. Something else\n\n" + header + "| e | int | 5 | | | - | x |\n")
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	want := `[{"name":"a","category":"general","type":"int","default":"{\"v1\":\"3\"}","minimum":"1","maximum":"20","required":true,"dataEngineSpecific":true},` +
		`{"name":"b","category":"general","type":"int","default":"5","minimum":"0"},` +
		`{"name":"c","category":"general","type":"string","default":"","options":["x","y"],"required":true,"readOnly":true},` +
		`{"name":"d","category":"general","type":"string","default":""}]`
	if string(text) != want {
		t.Errorf("got  %s\nwant %s", text, want)
	}
	if _, err := parseSettings("## 1. Nothing\n"); err == nil {
		t.Error("a page without settings is accepted")
	}
}
