package node

import (
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/grpc/codes"

	"ankole.storage/csi/csitest"
)

// TestNothingOfTheNodeIsCopied: a PersistentVolume that somebody has made by hand, whose attributes
// no controller has seen, brings no file of the node into its volume.
func TestNothingOfTheNodeIsCopied(t *testing.T) {
	t.Parallel()
	b := newBed(t, 64*mib)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "secret"), []byte("of the node"), 0o600); err != nil {
		t.Fatal(err)
	}
	b.context = map[string]string{"mkfsParams": "-d " + dir}
	csitest.Wants(t, b.stage(csitest.Capability("ext4", csitest.Once)), codes.InvalidArgument)
	b.context = nil
	csitest.Wants(t, b.stage(csitest.Capability("ext4", csitest.Once, "journal_path="+dir)), codes.InvalidArgument)
	b.must(b.stage(csitest.Capability("ext4", csitest.Once)))
	if _, err := os.Stat(filepath.Join(b.staging(), "secret")); err == nil {
		t.Error("a file of the node is on the volume")
	}
}
