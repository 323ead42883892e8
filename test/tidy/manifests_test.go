package tidy

import (
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// TestManifestsInPages: what a page has a reader apply is YAML with a kind and a name. A line that
// was wrapped or lost is seen here, and not by the reader.
func TestManifestsInPages(t *testing.T) {
	t.Parallel()
	const begin, end = "<<EOF\n", "EOF"
	n := 0
	for _, name := range files(t) {
		if !strings.HasSuffix(name, ".md") {
			continue
		}
		_, rest, more := strings.Cut(read(t, name), begin)
		for ; more; _, rest, more = strings.Cut(rest, begin) {
			manifest, complete := hereDocument(rest, end)
			if !complete {
				t.Errorf("%s: a manifest has no line %s", name, end)
				continue
			}
			for document := range strings.SplitSeq(manifest, "\n---\n") {
				n++
				var o struct {
					Kind     string
					Metadata struct{ Name string }
				}
				if err := yaml.Unmarshal([]byte(document), &o); err != nil {
					t.Errorf("%s: %v in\n%s", name, err, document)
				} else if o.Kind == "" || o.Metadata.Name == "" {
					t.Errorf("%s: no kind or no name in\n%s", name, document)
				}
			}
		}
	}
	if n < 4 {
		t.Fatalf("%d manifests were found: does this test look in the right place?", n)
	}
}

// hereDocument returns the lines up to the one that ends it, without the indent of the first.
func hereDocument(text, end string) (document string, complete bool) {
	indent := text[:len(text)-len(strings.TrimLeft(text, " "))]
	var lines []string
	for line := range strings.SplitSeq(text, "\n") {
		line = strings.TrimPrefix(line, indent)
		if line == end {
			return strings.Join(lines, "\n"), true
		}
		lines = append(lines, line)
	}
	return "", false
}
