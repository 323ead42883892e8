package k8stest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"ankole.storage/test/guide"
)

// guidePages: the commands of the guide do what the guide says, with kubectl and the plugin.
func guidePages(b *bed) {
	dir := b.t.TempDir()
	kubectl := fmt.Sprintf(`#!/bin/sh
[ "$1" != ankole ] || { shift; exec "%s/kubectl-ankole" "$@"; }
exec "%s" kubectl "$@"
`, dir, b.program)
	if err := os.WriteFile(filepath.Join(dir, "kubectl"), []byte(kubectl), 0o700); err != nil {
		b.t.Fatal(err)
	}
	err := os.Symlink(filepath.Join(filepath.Dir(b.program), "ankole"), filepath.Join(dir, "kubectl-ankole"))
	if err != nil {
		b.t.Fatal(err)
	}
	for _, page := range []struct {
		name string
		set  map[string]string
	}{
		{"first-volume.md", map[string]string{"IMAGE": tools}},
		{"drain.md", map[string]string{"NODE": "node-2"}},
	} {
		script, err := guide.Script(filepath.Join("..", "..", "..", "docs", "guide", page.name), page.set)
		if err != nil {
			b.t.Fatal(err)
		}
		cmd := exec.CommandContext(context.Background(), "bash", "-c", script)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "KUBECONFIG="+b.Path("kubeconfig"))
		if out, err := cmd.CombinedOutput(); err != nil {
			b.t.Fatalf("%s: %v\n%s", page.name, err, out)
		}
	}
	b.managersRun()
}
