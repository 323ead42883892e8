package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// reviewed are the mutants of a package that change nothing a test could notice, by key, each with the reason.
type reviewed map[string]string

// reviewedFile is where a package's reviewed mutants are listed.
func reviewedFile(root, pkg string) string {
	return filepath.Join(root, "tools/mutate/reviewed", strings.ReplaceAll(pkg, "/", "-")+".txt")
}

// readReviewed reads the list of a package: lines with keys, and below one or several of them the reason, indented. No file
// is an empty list.
func readReviewed(path string) (reviewed, error) {
	list := reviewed{}
	data, err := os.ReadFile(path)
	if os.IsNotExist(err) {
		return list, nil
	}
	if err != nil {
		return nil, err
	}
	var open []string
	explained := true
	for i, line := range strings.Split(string(data), "\n") {
		text := strings.TrimSpace(line)
		switch {
		case text == "" || strings.HasPrefix(line, "# "):
		case text == line:
			if explained {
				open, explained = nil, false
			}
			if _, twice := list[text]; twice {
				return nil, fmt.Errorf("%s:%d: listed twice: %s", path, i+1, text)
			}
			list[text] = ""
			open = append(open, text)
		case len(open) == 0:
			return nil, fmt.Errorf("%s:%d: a reason without a mutant", path, i+1)
		default:
			explained = true
			for _, key := range open {
				list[key] = strings.TrimSpace(list[key] + " " + text)
			}
		}
	}
	if !explained {
		return nil, fmt.Errorf("%s: no reason is given for %s", path, open[0])
	}
	return list, nil
}

// stale returns entries that no mutant fits any more.
func (r reviewed) stale(all []*mutant) []string {
	there := map[string]bool{}
	for _, m := range all {
		there[m.key()] = true
	}
	var gone []string
	for key := range r {
		if !there[key] {
			gone = append(gone, key)
		}
	}
	return gone
}
