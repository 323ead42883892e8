// Command facts turns the tables of the interface description, two Markdown pages, into JSON files
// that the tests of the API types and of the settings compare with. It is run by hand when the
// description changes:
//
//	go -C tools run ./facts crds     <crds.md>     > api/longhorn/v1beta2/testdata/crd_facts.json
//	go -C tools run ./facts settings <settings.md> > controlplane/setting/testdata/settings_facts.json
//
// Only names, types, values and flags are taken over, no text.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: facts crds|settings <page.md>")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "facts:", err)
		os.Exit(1)
	}
}

func run(what, path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var facts any
	switch what {
	case "crds":
		facts, err = parseCRDs(string(text))
	case "settings":
		facts, err = parseSettings(string(text))
	default:
		err = fmt.Errorf("unknown page kind %q, want crds or settings", what)
	}
	if err != nil {
		return err
	}
	out := json.NewEncoder(os.Stdout)
	out.SetEscapeHTML(false)
	out.SetIndent("", " ")
	return out.Encode(facts)
}

// section is a part of a page under a heading of level two.
type section struct {
	title string
	lines []string
}

func sections(page string) []section {
	var all []section
	for line := range strings.SplitSeq(page, "\n") {
		if title, ok := strings.CutPrefix(line, "## "); ok {
			all = append(all, section{title: title})
		} else if len(all) > 0 {
			last := &all[len(all)-1]
			last.lines = append(last.lines, line)
		}
	}
	return all
}

// tables returns the rows of every table whose header begins with the given cells.
func (s section) tables(header ...string) [][]string {
	var rows [][]string
	inside := false
	for _, line := range s.lines {
		cells := split(line)
		switch {
		case cells == nil:
			inside = false
		case !inside:
			inside = matches(cells, header)
		case strings.HasPrefix(cells[0], "---"):
		default:
			rows = append(rows, cells)
		}
	}
	return rows
}

func matches(cells, header []string) bool {
	if len(cells) < len(header) {
		return false
	}
	for i := range header {
		if cells[i] != header[i] {
			return false
		}
	}
	return true
}

// split returns the cells of a table line, or nil for any other line.
func split(line string) []string {
	line = strings.TrimSpace(line)
	if !strings.HasPrefix(line, "|") || !strings.HasSuffix(line, "|") {
		return nil
	}
	cells := strings.Split(strings.Trim(line, "|"), "|")
	for i := range cells {
		cells[i] = strings.TrimSpace(cells[i])
	}
	return cells
}
