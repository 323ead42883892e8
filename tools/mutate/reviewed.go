package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// reviewed are the mutants of a package that change nothing a test could notice, by key, each with
// the reason.
type reviewed map[string]string

// reviewedFile is where a package's reviewed mutants are listed.
func reviewedFile(root, pkg string) string {
	return filepath.Join(root, "tools/mutate/reviewed", strings.ReplaceAll(pkg, "/", "-")+".txt")
}

// readReviewed reads the list of a package: lines with keys, and below one or several of them the
// reason, indented. No file is an empty list.
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

// openFile is where the mutants of a package are listed that no test notices and nobody has looked
// at.
func openFile(root, pkg string) string {
	return filepath.Join(root, "tools/mutate/open", strings.ReplaceAll(pkg, "/", "-")+".txt")
}

// readOpen reads such a list, a key on each line. No file is an empty list.
func readOpen(path string) (reviewed, error) {
	list := reviewed{}
	data, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	for line := range strings.Lines(string(data)) {
		if key := strings.TrimSpace(line); key != "" {
			list[key] = "open"
		}
	}
	return list, nil
}

// writeOpen writes the list; an empty one is no file.
func writeOpen(path string, left []*mutant) error {
	if len(left) == 0 {
		if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
			return err
		}
		return nil
	}
	slices.SortFunc(left, func(a, b *mutant) int { return a.id - b.id })
	var b strings.Builder
	for _, m := range left {
		b.WriteString(m.key() + "\n")
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(b.String()), 0o644)
}
