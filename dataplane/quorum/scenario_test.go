package quorum

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write what happens into the scenarios, to be read before it is committed")

// TestScenarios plays the histories in testdata: lines of prose begin with "#", a line of command
// is followed by what comes of it, indented.
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			p, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			want := string(p)
			got := play(t, want)
			if got == want {
				return
			}
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o666); err != nil {
					t.Fatal(err)
				}
				return
			}
			t.Errorf("%s: it happens otherwise (-update writes it down):\n%s", file, firstDifference(got, want))
		})
	}
}

const indent = "    "

func play(t *testing.T, text string) string {
	h := newHistory()
	var out strings.Builder
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		switch {
		case strings.HasPrefix(line, indent):
			continue
		case strings.TrimSpace(line) == "" || strings.HasPrefix(line, "#"):
			out.WriteString(line + "\n")
			continue
		}
		out.WriteString(line + "\n")
		said, err := h.do(line)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		for _, l := range strings.Split(said, "\n") {
			if l != "" {
				out.WriteString(indent + l + "\n")
			}
		}
	}
	for _, w := range h.wrong {
		t.Error(w)
	}
	return out.String()
}

func firstDifference(got, want string) string {
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	i := 0
	for i < len(g) && i < len(w) && g[i] == w[i] {
		i++
	}
	around := func(lines []string) string {
		return strings.Join(lines[max(0, min(i, len(lines))-6):min(len(lines), i+4)], "\n")
	}
	return "happens:\n" + around(g) + "\n\nwritten:\n" + around(w)
}
