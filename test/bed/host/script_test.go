package host

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"ankole.storage/standalone/statedir"
	"ankole.storage/test/lack"
)

// TestUpLeavesARunningBed: tools/cluster.sh refuses to start a bed where one runs, and changes
// nothing of it.
func TestUpLeavesARunningBed(t *testing.T) {
	if os.Geteuid() != 0 {
		lack.Skip(t, "tools/cluster.sh up needs root")
	}
	dir := t.TempDir()
	lock, _, err := statedir.Lock(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	for _, name := range []string{"ready", "up.log"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("of the bed that runs"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("../../../tools/cluster.sh", "up")
	cmd.Env = append(os.Environ(), "DIR="+dir)
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "a bed runs in "+dir+" (process ") {
		t.Errorf("%v: %s", err, out)
	}
	for _, name := range []string{"ready", "up.log"} {
		if text, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(text) != "of the bed that runs" {
			t.Errorf("%s was changed: %q, %v", name, text, err)
		}
	}
}
