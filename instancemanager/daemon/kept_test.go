package daemon

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"ankole.storage/instancemanager/keeper"
)

// TestDevicesOfAContainerAreNotKept: where mounts end with the instance manager no engine is named.
func TestDevicesOfAContainerAreNotKept(t *testing.T) {
	k := keeper.NewServer(slog.New(slog.DiscardHandler), 0)
	dir := t.TempDir()
	link := func(name, namespace string) string {
		path := filepath.Join(dir, name)
		if err := os.Symlink(namespace, path); err != nil {
			t.Fatal(err)
		}
		return path
	}
	host, same, other := link("host", "mnt:[1]"), link("same", "mnt:[1]"), link("other", "mnt:[2]")
	missing := filepath.Join(dir, "missing")
	for name, row := range map[string]struct {
		host, own string
		kept      bool
	}{
		"process node":               {missing, same, true},
		"the machine's namespace":    {host, same, true},
		"a container":                {host, other, false},
		"nobody knows which it is":   {host, missing, false},
		"a process node without any": {missing, missing, true},
	} {
		if got := keptBy(k, row.host, row.own)(); (got != nil) != row.kept {
			t.Errorf("%s: %v", name, got)
		}
	}
}
