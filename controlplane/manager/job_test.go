package manager

import (
	"os"
	"path/filepath"
	"testing"

	"k8s.io/client-go/rest"
)

// TestTokensOf: a token that is renewed while a job runs is the one that is shown.
func TestTokensOf(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	api := &rest.Config{BearerToken: "first", BearerTokenFile: file}
	for _, want := range []string{"first", "second"} {
		if err := os.WriteFile(file, []byte(want+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := tokensOf(api)(t.Context()); got != want || err != nil {
			t.Errorf("%q, %v, want %q", got, err, want)
		}
	}
	if got, err := tokensOf(&rest.Config{BearerToken: "fixed"})(t.Context()); got != "fixed" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if tokensOf(&rest.Config{}) != nil {
		t.Error("a token without one")
	}
}
