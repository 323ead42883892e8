package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// build compiles the tests of a package with all its mutants in it, none of them active. The tree
// is not touched: the changed files are laid over it.
func (s *subject) build(work string) (binary string, err error) {
	replace := map[string]string{}
	put := func(name, text string) error {
		to := filepath.Join(work, name)
		replace[filepath.Join(s.dir, name)] = to
		return os.WriteFile(to, []byte(text), 0o600)
	}
	for _, f := range s.files {
		if err := put(f.name, s.text(f, s.mutants)); err != nil {
			return "", err
		}
	}
	if err := put(helperName, fmt.Sprintf(helperFile, s.pkg.Types.Name())); err != nil {
		return "", err
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	path := filepath.Join(work, "overlay.json")
	if err := os.WriteFile(path, overlay, 0o600); err != nil {
		return "", err
	}
	binary = filepath.Join(work, "tests")
	cmd := exec.Command("go", "test", "-c", "-vet=off", "-overlay", path, "-o", binary, ".")
	cmd.Dir = s.dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the tests of %s: %w\n%s", s.target.pkg, err, out)
	}
	return binary, nil
}
