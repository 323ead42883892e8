package daemon

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// TestShortSocketPath: where a volume's socket has too long a path, its short one is in a folder of
// this user's, whoever else has such clusters on the machine. A folder to which others may write is
// not used.
func TestShortSocketPath(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	deep := filepath.Join(t.TempDir(), strings.Repeat("x", 120))
	path, err := socketIn(deep, "vol")
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Dir(path)
	if filepath.Dir(dir) != tmp || !strings.HasSuffix(dir, "-"+strconv.Itoa(os.Geteuid())) {
		t.Errorf("it is at %s", path)
	}
	if other, err := socketIn(deep, "other"); err != nil || other == path {
		t.Errorf("another volume's is at %s, %v", other, err)
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if path, err := socketIn(deep, "vol"); err == nil {
		t.Errorf("it is at %s, where anybody can take it away", path)
	}
}
