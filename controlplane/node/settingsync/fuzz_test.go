package settingsync

import (
	"testing"

	"ankole.storage/controlplane/setting"
)

// Whatever an administrator writes into the ConfigMap, only values that settings can take come out,
// in stored form.
func FuzzParseOverrides(f *testing.F) {
	for _, seed := range []string{
		"", "auto-salvage: false", "default-replica-count: 2\nlog-level: debug", "a: [1, 2]", "{", "- x",
		"auto-salvage: {v1: true}",
		"default-replica-count: '{\"v1\":\"3\",\"v2\":\"4\"}'", "taint-toleration: k=v:NoSchedule",
		"storage-network: a/b\nstorage-network: c/d",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		values, _ := parseOverrides(text)
		for name, value := range values {
			if err := setting.Validate(name, value); err != nil {
				t.Fatalf("%q gives %s=%q: %v", text, name, value, err)
			}
			if again := setting.Normalize(name, value); again != value {
				t.Fatalf("%q gives %s=%q, which is not in stored form (%q)", text, name, value, again)
			}
		}
	})
}
