package sim

import (
	"os"
	"strings"
	"testing"
)

// TestPageListsTheTables keeps docs/design/simulation.md complete.
func TestPageListsTheTables(t *testing.T) {
	data, err := os.ReadFile("../../docs/design/simulation.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(data)
	var names []string
	for _, f := range Atlas {
		names = append(names, f.Name)
	}
	for _, a := range Actions {
		names = append(names, a.Name)
	}
	for _, c := range Chores {
		names = append(names, c.Name)
	}
	for _, c := range Checks {
		names = append(names, c.Name)
	}
	for _, n := range names {
		if !strings.Contains(page, "\n| "+n+" |") {
			t.Errorf("docs/design/simulation.md has no row for %q", n)
		}
	}
}
