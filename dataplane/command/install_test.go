package command

import (
	"os"
	"path/filepath"
	"testing"
)

// TestInstall: a node gets the program, and the worker of backups that lies beside it; an image of
// before has none.
func TestInstall(t *testing.T) {
	program := filepath.Join(t.TempDir(), "backup-worker")
	t.Setenv("ANKOLE_BACKUP_WORKER", program)
	for _, there := range []bool{false, true} {
		if there {
			if err := os.WriteFile(program, []byte("worker"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		dir := filepath.Join(t.TempDir(), "new")
		for range 2 { // the second time over what the first left
			if err := install(dir); err != nil {
				t.Fatal(err)
			}
		}
		entries, err := os.ReadDir(dir)
		if err != nil || len(entries) != map[bool]int{false: 1, true: 2}[there] {
			t.Errorf("with a worker: %t: %v, %v", there, entries, err)
		}
		for _, e := range entries {
			if info, err := e.Info(); err != nil || info.Mode().Perm() != 0o755 || info.Size() == 0 {
				t.Errorf("%s: %v, %v", e.Name(), info, err)
			}
		}
		worker, err := os.ReadFile(filepath.Join(dir, "backup-worker"))
		if there && (err != nil || string(worker) != "worker") {
			t.Errorf("the worker is %q, %v", worker, err)
		}
	}
}
