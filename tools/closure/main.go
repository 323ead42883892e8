// Command closure says whether packages of the main module, or anything that they and their tests
// import from it, have changed since a commit.
//
//	closure -since COMMIT packages… [-- folders…]
//
// What counts are the files of those packages' folders with what lies below them in folders that
// are no packages (testdata, embedded files), the folders that are named, and what every run
// depends on: go.mod, go.sum, tools, .ci. Files that are not committed count too.
//
// Exit status 0: nothing has changed. 1: something has, or it cannot be told; the reason is
// printed.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// always are paths that every result depends on.
var always = []string{"go.mod", "go.sum", "tools", ".ci", "Makefile"}

func main() {
	since := flag.String("since", "", "the commit to compare with")
	flag.Parse()
	packages, folders := flag.Args(), []string(nil)
	if i := slices.Index(packages, "--"); i >= 0 {
		packages, folders = packages[:i], packages[i+1:]
	}
	changed, err := compare(".", *since, packages, folders)
	if err != nil {
		fmt.Println("not known whether anything has changed:", err)
		os.Exit(1)
	}
	if changed != "" {
		fmt.Printf("changed since %s: %s\n", *since, changed)
		os.Exit(1)
	}
}

// compare returns a file that has changed since a commit and that the packages depend on, "" if
// there is none. root is the top of the repository and of the module.
func compare(root, since string, packages, folders []string) (string, error) {
	if since == "" || len(packages) == 0 {
		return "", errors.New("a commit and packages are needed")
	}
	all, err := changes(root, since)
	if err != nil || len(all) == 0 {
		return "", err
	}
	everything, err := list(root, "./...")
	if err != nil {
		return "", err
	}
	needed, err := list(root, append([]string{"-deps", "-test"}, packages...)...)
	if err != nil {
		return "", err
	}
	for _, name := range all {
		if decides(name, everything, needed, slices.Concat(always, folders)) {
			return name, nil
		}
	}
	return "", nil
}

// decides tells whether a changed file matters to packages. everything and needed are folders of
// packages.
func decides(name string, everything, needed map[string]bool, folders []string) bool {
	for _, f := range folders {
		if name == f || strings.HasPrefix(name, strings.TrimSuffix(f, "/")+"/") {
			return true
		}
	}
	// The nearest folder above that is a package has it. A package that is gone has no importers.
	for dir := path.Dir(name); ; dir = path.Dir(dir) {
		if needed[dir] {
			return true
		}
		if everything[dir] || dir == "." {
			return false
		}
	}
}

// changes lists files that differ from a commit, those not committed included.
func changes(root, since string) ([]string, error) {
	if strings.HasPrefix(since, "-") {
		return nil, fmt.Errorf("%q is no commit", since)
	}
	changed, err := output(root, "git", "diff", "--name-only", "--no-renames", "-z", since, "--")
	if err != nil {
		return nil, err
	}
	fresh, err := output(root, "git", "ls-files", "--others", "--exclude-standard", "-z")
	if err != nil {
		return nil, err
	}
	names := strings.Split(changed+fresh, "\x00")
	return slices.DeleteFunc(names, func(n string) bool { return n == "" }), nil
}

// list returns the folders of packages, relative to the root.
func list(root string, args ...string) (map[string]bool, error) {
	out, err := output(root, "go", append([]string{"list", "-f", "{{if not .Standard}}{{.Dir}}{{end}}"}, args...)...)
	if err != nil {
		return nil, err
	}
	top, err := filepath.Abs(root)
	if err != nil {
		return nil, err
	}
	if top, err = filepath.EvalSymlinks(top); err != nil {
		return nil, err
	}
	dirs := map[string]bool{}
	for dir := range strings.Lines(out) {
		if dir = strings.TrimSpace(dir); dir == "" {
			continue // generated test programs have no folder
		}
		if rel, err := filepath.Rel(top, dir); err == nil && !strings.HasPrefix(rel, "..") {
			dirs[filepath.ToSlash(rel)] = true
		}
	}
	return dirs, nil
}

func output(dir, name string, args ...string) (string, error) {
	var said bytes.Buffer
	c := exec.Command(name, args...)
	c.Dir, c.Stderr = dir, &said
	out, err := c.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, bytes.TrimSpace(said.Bytes()))
	}
	return string(out), nil
}
