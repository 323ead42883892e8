package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// contents lists what is in an image, as a software bill of materials: every file with its
// checksum, the Go modules that programs are built of, and the distribution's packages.
func contents(context string, t *target, files tree) (string, error) {
	var out strings.Builder
	modules := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		e := files[name]
		if e.from == "" || e.mode.IsDir() || e.mode&fs.ModeSymlink != 0 {
			continue
		}
		data, err := os.ReadFile(e.from)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&out, "file /%s sha256:%x\n", name, sha256.Sum256(data))
		info, err := buildinfo.ReadFile(e.from)
		if err != nil {
			continue // not a Go program
		}
		modules["go "+info.GoVersion] = true
		for _, d := range info.Deps {
			for d.Replace != nil {
				d = d.Replace
			}
			if d.Version != "" {
				modules["module "+d.Path+" "+d.Version] = true
			}
		}
	}
	for _, c := range t.copies {
		list := filepath.Join(context, strings.TrimSuffix(c.from, "/")+".list")
		text, err := os.ReadFile(list)
		if err != nil {
			continue // not a folder of packages
		}
		for line := range strings.Lines(string(text)) {
			modules["package "+strings.TrimSpace(line)] = true
		}
	}
	for _, m := range slices.Sorted(maps.Keys(modules)) {
		fmt.Fprintln(&out, m)
	}
	return out.String(), nil
}
