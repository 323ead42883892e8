package tidy

import (
	"go/ast"
	"strings"
	"testing"
)

// TestDrawnTestsCanBeRepeated: a test that draws random numbers says its rule, its seed and the
// command that repeats it when it fails, which package test/seeded does.
func TestDrawnTestsCanBeRepeated(t *testing.T) {
	t.Parallel()
	const content = "content that is the same in every run; nothing is drawn"
	r := newRule(t, "a failure that cannot be had again is not understood: draw from test/seeded", exceptions{
		"dataplane/chain/chain_test.go":            "names of files, the same in every run",
		"dataplane/engine/scrub_test.go":           content,
		"dataplane/engine/zeroes_test.go":          content,
		"dataplane/replica/race_test.go":           "the race detector looks at threads; what is drawn is the same in every run",
		"dataplane/wire/conn_test.go":              content,
		"test/crash/memory_test.go":                "a load; what it reads is not looked at",
		"test/powerloss/record_test.go":            "of the history's seed, which the test names",
		"test/powerloss/replay_test.go":            "of the trial's seed, which the trial names",
		"test/powerloss/volume_test.go":            "of the history's seed, which the test names",
		"controlplane/simulated/simulated_test.go": "of the history's seed, which names the test",
	})
	looked := 0
	for _, s := range sources(t) {
		if !s.test || strings.HasPrefix(s.name, "test/seeded/") {
			continue
		}
		looked++
		ast.Inspect(s.ast, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			f, ok := call.Fun.(*ast.SelectorExpr)
			if !ok || f.Sel.Name != "New" {
				return true
			}
			if x, ok := f.X.(*ast.Ident); ok && x.Name == "rand" {
				r.broken(s.name, "%s: random numbers that do not come from test/seeded", s.at(call))
			}
			return true
		})
	}
	if looked < 300 {
		t.Errorf("only %d test files were looked at", looked)
	}
}
