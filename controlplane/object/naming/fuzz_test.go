package naming

import (
	"strings"
	"testing"
)

// FuzzParseCloneSource: a source that is understood is what the names would be written as.
func FuzzParseCloneSource(f *testing.F) {
	for _, text := range []string{"vol://v", "snap://v/s", "vol://", "snap://v", "snap:///s", "snap://v/s/t",
		"vol://a/b", ""} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		volume, snapshot, ok := ParseCloneSource(text)
		if !ok {
			return
		}
		back := "vol://" + volume
		if snapshot != "" {
			back = CloneFromSnapshot(volume, snapshot)
		}
		if back != text || volume == "" || strings.Contains(volume+snapshot, "/") {
			t.Fatalf("%q is volume %q, snapshot %q", text, volume, snapshot)
		}
	})
}
