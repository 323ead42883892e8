package demo

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
)

// TestNotThere: an endpoint that nobody serves yet is told from one that cannot be used.
func TestNotThere(t *testing.T) {
	dir := t.TempDir()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, "left"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	socket := func(name string) string { return fmt.Sprintf("nbd+unix:///v?socket=%s", filepath.Join(dir, name)) }
	for endpoint, want := range map[string]bool{
		filepath.Join(dir, "node"): true, socket("absent"): true, socket("left"): true, socket("file"): true,
		filepath.Join(dir, "file", "node"): false,
	} {
		s, err := openStore(t.Context(), endpoint)
		if err == nil {
			s.Close()
			t.Errorf("%s is opened", endpoint)
		}
		if notThere(err) != want {
			t.Errorf("%s: %v", endpoint, err)
		}
	}
	if notThere(nil) {
		t.Error("no error says that nothing is there")
	}
}
