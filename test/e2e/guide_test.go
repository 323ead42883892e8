package e2e

import (
	"bytes"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ankole.storage/test/guide"
	"ankole.storage/test/lack"
	"ankole.storage/test/testcluster"
)

// guidePages: the commands of the guide that need no real nodes do what the guide says.
func guidePages(t *testing.T, c *cluster) {
	const size = 32 << 20
	c.create("rescued", size, 2)
	endpoint := c.attach("rescued", "node-1", 2)
	defer c.remove("rescued")
	if strings.HasPrefix(endpoint, "nbd+unix:") {
		lack.Skip(t, "there is no block device here to write an image to: the endpoint is ", endpoint)
	}
	content := bytes.Repeat([]byte("what was on the volume\n"), size/23)
	if err := os.WriteFile(endpoint, content, 0); err != nil {
		t.Fatal(err)
	}
	c.detach("rescued")
	dirs := slices.Sorted(maps.Values(c.replicaDirs("rescued")))
	script, err := guide.Script(filepath.Join("..", "..", "docs", "guide", "recover-data.md"),
		map[string]string{"DIR": dirs[0], "OTHER": dirs[1]})
	if err != nil {
		t.Fatal(err)
	}
	program, err := testcluster.Program()
	if err != nil {
		t.Fatal(err)
	}
	defer c.remove("recovered")
	sh := exec.CommandContext(t.Context(), "bash", "-c", script)
	sh.Dir = t.TempDir()
	sh.Env = append(os.Environ(), "PATH="+filepath.Dir(program)+":"+os.Getenv("PATH"),
		"ANKOLE_SERVER="+c.API, "ANKOLE_TOKEN_FILE="+c.TokenFile)
	if out, err := sh.CombinedOutput(); err != nil {
		t.Fatalf("recover-data.md: %v\n%s", err, out)
	}
	device := c.attach("recovered", "node-2", 3)
	got := make([]byte, len(content))
	f, err := os.Open(device)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.ReadAt(got, 0); err != nil || !bytes.Equal(got, content) {
		t.Errorf("the recovered volume has other content (%v)", err)
	}
}
