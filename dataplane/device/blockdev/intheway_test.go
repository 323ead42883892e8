package blockdev_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ankole.storage/dataplane/device/blockdev"
)

func TestWhatIsInTheWayIsLeftAlone(t *testing.T) {
	needDevices(t)
	for name, put := range map[string]func(path string) error{
		"a folder":             func(p string) error { return os.Mkdir(p, 0o700) },
		"another device":       func(p string) error { return unix.Mknod(p, unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3))) },
		"another block device": func(p string) error { return unix.Mknod(p, unix.S_IFBLK|0o600, int(unix.Mkdev(254, 0))) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			cfg := victimConfig(dir)
			if err := os.MkdirAll(cfg.DeviceDir, 0o700); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(cfg.DeviceDir, "vol")
			if err := put(path); err != nil {
				t.Fatal(err)
			}
			d, err := blockdev.Open(t.Context(), cfg)
			if err == nil {
				d.Close(t.Context(), false)
				t.Fatal("it was accepted")
			}
			if _, err := os.Lstat(path); err != nil {
				t.Error("it was removed")
			}
		})
	}
}

// TestFileInTheWayIsMoved: what a program wrote to the path while there was no device is kept
// beside it; a second one is in the way.
func TestFileInTheWayIsMoved(t *testing.T) {
	needDevices(t)
	cfg := victimConfig(t.TempDir())
	path, aside := filepath.Join(cfg.DeviceDir, "vol"), filepath.Join(cfg.DeviceDir, ".vol.file")
	put := func() {
		t.Helper()
		if err := errors.Join(os.MkdirAll(cfg.DeviceDir, 0o700), os.WriteFile(path, []byte("mine"), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	put()
	d, err := blockdev.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if st, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) { // no device yet: nobody serves it
		t.Errorf("still there: %v, %v", st, err)
	}
	if text, err := os.ReadFile(aside); err != nil || string(text) != "mine" {
		t.Errorf("%q, %v", text, err)
	}
	if err := d.Close(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	put()
	if d, err := blockdev.Open(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "look at both") {
		t.Errorf("%v, %v", d, err)
	}
}
