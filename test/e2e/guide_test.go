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
	store := t.TempDir()
	defer c.target("")
	defer c.secret("aws-secret", map[string]string{"BACKUP_ENCRYPTION_KEY": encryptionKey(1)})()
	for _, page := range []struct {
		name string
		set  map[string]string
	}{
		{"recover-data.md", map[string]string{"DIR": dirs[0], "OTHER": dirs[1]}},
		{"backup.md", map[string]string{"STORE": "vfs://" + store, "VOLUME": "rescued",
			"SECRET": "aws-secret"}},
	} {
		typed(t, c, page.name, page.set)
	}
	c.holds("recovered", content)
	c.holds("restored", content)
}

// typed runs the commands of a page of the guide.
func typed(t *testing.T, c *cluster, page string, set map[string]string) {
	t.Helper()
	script, err := guide.Script(filepath.Join("..", "..", "docs", "guide", page), set)
	if err != nil {
		t.Fatal(err)
	}
	program, err := testcluster.Program()
	if err != nil {
		t.Fatal(err)
	}
	sh := exec.CommandContext(t.Context(), "bash", "-c", script)
	sh.Dir = t.TempDir()
	sh.Env = append(os.Environ(), "PATH="+filepath.Dir(program)+":"+os.Getenv("PATH"),
		"ANKOLE_SERVER="+c.API, "ANKOLE_TOKEN_FILE="+c.TokenFile)
	if out, err := sh.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", page, err, out)
	}
}

// holds attaches a volume, compares what it begins with, and removes it.
func (c *cluster) holds(volume string, content []byte) {
	c.t.Helper()
	defer c.remove(volume)
	f, err := os.Open(c.attach(volume, "node-2", 3))
	if err != nil {
		c.t.Fatal(err)
	}
	defer f.Close()
	got := make([]byte, len(content))
	if _, err := f.ReadAt(got, 0); err != nil || !bytes.Equal(got, content) {
		c.t.Errorf("volume %s has other content (%v)", volume, err)
	}
}
