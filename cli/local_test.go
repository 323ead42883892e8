package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ankole.storage/test/lack"
)

func TestStandaloneIsLookedForBesideTheProgram(t *testing.T) {
	if _, err := os.Stat(standaloneBeside(t)); err == nil {
		lack.Unfit(t, "a standalone program lies beside the test binary")
	}
	if r := runArgs(t.Context(), "standalone", "--dir", "/x"); r.status != 1 ||
		!strings.Contains(r.err, "build it with: make build") {
		t.Errorf("%+v", r)
	}
}

func standaloneBeside(t *testing.T) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(filepath.Dir(self), standaloneProgram)
}
