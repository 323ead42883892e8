package blockdev_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ankole.storage/dataplane/frontend/fuseloop/blockdev"
)

func background() context.Context { return context.Background() }

// nothingLeft checks that no mount, node or loop device of cfg remains.
func nothingLeft(t *testing.T, cfg blockdev.Config) {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(mounts), cfg.RunDir) {
		t.Errorf("a mount under %s is left", cfg.RunDir)
	}
	if _, err := os.Lstat(filepath.Join(cfg.DeviceDir, cfg.Volume)); err == nil {
		t.Errorf("the node is left")
	}
	files, _ := filepath.Glob("/sys/block/loop*/loop/backing_file")
	for _, f := range files {
		if text, _ := os.ReadFile(f); strings.Contains(string(text), cfg.RunDir) {
			t.Errorf("%s is left on %s", f, text)
		}
	}
}
