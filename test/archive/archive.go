// Package archive unpacks archives of test data.
package archive

import (
	"os"
	"os/exec"
	"testing"

	"ankole.storage/test/lack"
)

// Unpack unpacks the members, all without any, of a packed archive of sparse files into a folder.
// It opens the archive itself: what tar opened would be no input of the test that Go knows of, and
// results of another archive would count (docs/design/testing.md).
func Unpack(t testing.TB, file, dir string, members ...string) {
	t.Helper()
	tar, err := exec.LookPath("tar")
	if err != nil {
		lack.Skip(t, "the tar program, needed to unpack sparse files, is not installed")
	}
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	cmd := exec.Command(tar, append([]string{"-xzSf", "-", "-C", dir}, members...)...)
	cmd.Stdin = f
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("tar: %v: %s", err, out)
	}
}
