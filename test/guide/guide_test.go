package guide

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestScript(t *testing.T) {
	page := filepath.Join(t.TempDir(), "page.md")
	text := "Words.\n\n```sh\nNODE=node-1   # yours\necho $NODE\n```\n\n```\nshown\n```\n\n```sh\ntrue\n```\n"
	if err := os.WriteFile(page, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := Script(page, map[string]string{"NODE": "it's"})
	if want := "set -eux\nNODE='it'\\''s'\necho $NODE\ntrue\n"; err != nil || got != want {
		t.Errorf("%q %v, want %q", got, err, want)
	}
	if _, err := Script(page, map[string]string{"POD": "x"}); err == nil || !strings.Contains(err.Error(), "POD") {
		t.Errorf("a name that the page does not set: %v", err)
	}
	if err := os.WriteFile(page, []byte("Words.\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Script(page, nil); err == nil {
		t.Error("a page without commands gives a script")
	}
}
