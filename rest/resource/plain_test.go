package resource

import (
	"strings"
	"testing"
)

// TestPlain: a value of the wrong type is told in words of users, with what to write.
func TestPlain(t *testing.T) {
	var into struct {
		Name  string         `json:"name"`
		Count int            `json:"count"`
		Share float64        `json:"share"`
		On    bool           `json:"on"`
		Tags  []string       `json:"tags"`
		Disks map[string]any `json:"disks"`
	}
	for text, want := range map[string]string{
		`{"name":1}`:                     "name is a number; write a string",
		`{"count":"1"}`:                  "count is a string; write a whole number",
		`{"count":1.5}`:                  "count is 1.5; write a whole number of at most 64 bits",
		`{"count":99999999999999999999}`: "count is 99999999999999999999; write a whole number of at most 64 bits",
		`{"share":"x"}`:                  "share is a string; write a number",
		`{"on":"yes"}`:                   "on is a string; write true or false",
		`{"tags":{}}`:                    "tags is a set of fields; write a list",
		`{"disks":[]}`:                   "disks is a list; write a set of fields",
		`{"disks":true}`:                 "disks is true or false; write a set of fields",
		`[]`:                             "it is a list; write a set of fields",
		`{"name"`:                        "unexpected end of JSON input",
	} {
		if err := Decode([]byte(text), &into); err == nil || !strings.HasSuffix(err.Error(), ": "+want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}
