package deploy

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"ankole.storage/test/lack"
)

// TestProgramsNameNoFolder: nothing in the programs of the images tells where they were built, so
// that the same sources give the same images in every folder.
func TestProgramsNameNoFolder(t *testing.T) {
	bin := os.Getenv("ANKOLE_BIN")
	if bin == "" {
		lack.Later(t, "tools/test.sh unit")
	}
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"engine", "instance-manager", "manager", "csi", "ankole"} {
		text, err := os.ReadFile(filepath.Join(bin, name))
		if err != nil {
			t.Fatal(err)
		}
		if at := bytes.Index(text, []byte(root+"/")); at >= 0 {
			t.Errorf("%s names %.80q", name, text[at:])
		}
	}
}
