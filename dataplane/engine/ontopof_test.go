package engine

import (
	"fmt"
	"testing"

	"ankole.storage/dataplane/wire"
)

// TestOnTopOf: the snapshots that read through one, on every branch, parents first.
func TestOnTopOf(t *testing.T) {
	layers := []wire.Layer{{Name: "", Parent: "d"}, {Name: "d", Parent: "c"}, {Name: "x", Parent: "b"},
		{Name: "c", Parent: "b", Removed: true}, {Name: "b", Parent: "a"}, {Name: "a"}}
	for base, want := range map[string]string{"a": "[b x d]", "b": "[x d]", "c": "[d]", "d": "[]", "x": "[]"} {
		if got := fmt.Sprint(onTopOf(layers, base)); got != want {
			t.Errorf("on top of %s: %s, want %s", base, got, want)
		}
	}
}
