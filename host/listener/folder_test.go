package listener

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestOwnFolder: a folder for sockets is made, and found again. One of which somebody else is the
// owner, to which others may write, or that is none, is refused.
func TestOwnFolder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	for range 2 {
		if err := OwnFolder(path); err != nil {
			t.Fatal(err)
		}
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("it has mode %v, %v", info.Mode(), err)
	}
	refused := map[string]func(path string) error{
		"writable for others": func(path string) error { return errors.Join(os.Mkdir(path, 0o700), os.Chmod(path, 0o703)) },
		"a link":              func(other string) error { return os.Symlink(path, other) },
		"a file":              func(path string) error { return os.WriteFile(path, nil, 0o600) },
	}
	if os.Geteuid() == 0 {
		refused["somebody else's"] = func(path string) error {
			return errors.Join(os.Mkdir(path, 0o700), os.Chown(path, 12345, 0))
		}
	}
	for name, put := range refused {
		other := filepath.Join(t.TempDir(), "other")
		if err := put(other); err != nil {
			t.Fatal(err)
		}
		if err := OwnFolder(other); err == nil || !strings.Contains(err.Error(), other) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
