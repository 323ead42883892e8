package rig

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"ankole.storage/test/lack"
)

// In a shallow clone the older commits are missing: the tool says so, and how to get them.
func TestFrozenSaysThatACloneIsShallow(t *testing.T) {
	script, err := fromRoot("tools/frozen.sh")
	if err != nil {
		t.Fatal(err)
	}
	root := filepath.Dir(filepath.Dir(script))
	dir := t.TempDir()
	run := func(name string, args ...string) (string, error) {
		c := exec.Command(name, args...)
		c.Dir = dir
		c.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL="+os.DevNull)
		out, err := c.CombinedOutput()
		return string(out), err
	}
	if out, err := run("git", "clone", "-q", "--no-checkout", "--depth", "1", "file://"+root, "clone"); err != nil {
		lack.Skip(t, fmt.Sprintf("this is no clone that can be cloned: %v %s", err, out))
	}
	// The tool of now, beside the clone's own history.
	tools := filepath.Join(dir, "clone", "tools")
	if err := os.MkdirAll(tools, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"frozen.sh", "lib.sh"} {
		p, err := os.ReadFile(filepath.Join(root, "tools", name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(tools, name), p, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	out, err := run("sh", filepath.Join(tools, "frozen.sh"), BeforeProxy)
	exit, ok := err.(*exec.ExitError)
	if !ok || exit.ExitCode() != exitUnavailable {
		t.Fatalf("ended with %v, want exit status %d; said: %s", err, exitUnavailable, out)
	}
	if !strings.Contains(out, "shallow") || !strings.Contains(out, "git fetch --unshallow") {
		t.Errorf("does not say what to do: %s", out)
	}
}
