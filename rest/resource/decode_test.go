package resource

import (
	"encoding/json"
	"testing"
)

// FuzzDecode: no body makes the decoder panic, and what it accepts it decodes the same way again.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{`{}`, `{"Name":"demo","SIZE":"1Gi"}`, `{"name":null}`, `[]`,
		`{"disks":{"a":{"path":"/x"}}}`, "\x00",
		`{"name":"\ud800"}`, `{"recurringJobSelector":[{"name":"a","isGroup":true}]}`, `{"engineManagerCPURequest":1}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, into := range []func() any{
			func() any { return &Volume{} },
			func() any { return &DiskUpdateInput{} },
			func() any { return &AttachInput{} },
			func() any { return &NodeInput{} },
		} {
			first := into()
			if Decode(body, first) != nil {
				continue
			}
			text, err := json.Marshal(first)
			if err != nil {
				t.Fatalf("decoded %q but cannot encode it: %v", body, err)
			}
			second := into()
			if err := Decode(text, second); err != nil {
				t.Fatalf("own output %q is refused: %v", text, err)
			}
			again, err := json.Marshal(second)
			if err != nil || string(again) != string(text) {
				t.Fatalf("%q decodes to something else the second time: %q", text, again)
			}
		}
	})
}
