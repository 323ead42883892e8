package demo

import (
	"strings"
	"testing"
)

// FuzzParseNBD: an endpoint that is understood has somewhere to connect to.
func FuzzParseNBD(f *testing.F) {
	for _, text := range []string{"nbd+unix:///v?socket=/run/x", "nbd://127.0.0.1:10809/v", "nbd://", "/dev/longhorn/v",
		"nbd+unix:///v", "%"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		address, _, err := parseNBD(text)
		if kind, where, _ := strings.Cut(address, ":"); err == nil && (where == "" || kind != "unix" && kind != "tcp") {
			t.Fatalf("%q is at %q", text, address)
		}
	})
}
