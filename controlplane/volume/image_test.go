package volume_test

import (
	"context"
	"testing"
	"time"
)

// TestReplacementWhileAnImageIsAwaited: an attached volume whose wanted image is on no node
// replaces a lost replica where its present image is.
func TestReplacementWhileAnImageIsAwaited(t *testing.T) {
	t.Parallel()
	w := attached(t, t.TempDir(), 4, 3)
	v := w.volume("v")
	v.Spec.Image = "ankole/engine:next"
	must(t, w.c.Update(context.Background(), v))
	var victim string
	for _, r := range w.replicas() {
		if r.Spec.NodeID != "n1" {
			victim = r.Spec.NodeID
		}
	}
	w.cut(victim)
	w.advance(11*time.Minute, time.Minute)
	w.rebuilt()
	w.settle()
	w.expect(`attached healthy at "n1"`)
}
