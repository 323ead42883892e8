package tidy

import (
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestFuzzTargets compares docs/design/fuzzing.md with the targets there are.
func TestFuzzTargets(t *testing.T) {
	t.Parallel()
	have := map[string]bool{}
	for _, s := range sources(t) {
		if !s.test || strings.HasPrefix(s.name, "standalone/") {
			continue
		}
		for name := range s.functions() {
			if strings.HasPrefix(name, "Fuzz") {
				have[path.Dir(s.name)+" "+name] = true
			}
		}
	}
	if len(have) < 20 {
		t.Errorf("found only %d fuzz targets: is this test looking in the right place?", len(have))
	}
	listed := map[string]bool{}
	row := regexp.MustCompile("\\| `([^`]+)` `(Fuzz[A-Za-z0-9_]*)` \\|")
	for _, m := range row.FindAllStringSubmatch(read(t, "docs/design/fuzzing.md"), -1) {
		listed[m[1]+" "+m[2]] = true
	}
	for _, name := range slices.Sorted(maps.Keys(have)) {
		if !listed[name] {
			t.Errorf("docs/design/fuzzing.md does not list %s: say what it decodes", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(listed)) {
		if !have[name] {
			t.Errorf("docs/design/fuzzing.md lists %s, which is not there", name)
		}
	}
}
