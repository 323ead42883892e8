package volume_test

import (
	"context"
	"testing"
)

// TestConcurrencyOfRebuildsReachesTheEngine: that of the volume, else that of the setting, while
// the volume is in use and from the start.
func TestConcurrencyOfRebuildsReachesTheEngine(t *testing.T) {
	t.Parallel()
	w := attached(t, t.TempDir(), 3, 2)
	expect := func(want int) {
		t.Helper()
		w.settle()
		if e := w.engine(); e.Spec.RebuildConcurrentSyncLimit != want || e.Status.RebuildConcurrentSyncLimit != want {
			t.Errorf("wanted %d, in effect %d, want %d", e.Spec.RebuildConcurrentSyncLimit,
				e.Status.RebuildConcurrentSyncLimit, want)
		}
	}
	expect(1)
	w.set("replica-rebuild-concurrent-sync-limit", `{"v1":"3"}`)
	expect(3)
	v := w.volume("v")
	v.Spec.RebuildConcurrentSyncLimit = 5
	must(t, w.c.Update(context.Background(), v))
	expect(5)
	w.set("replica-rebuilding-bandwidth-limit", "7")
	w.settle()
	w.killProcess(isEngine) // the next one begins with 1, and no bound
	expect(5)
	for _, m := range w.engines {
		if b := m.options.RebuildBandwidth; b == nil || *b != 7<<20 {
			t.Errorf("the engine may send %v bytes per second", b)
		}
	}
	v = w.volume("v")
	v.Spec.RebuildConcurrentSyncLimit = 0
	must(t, w.c.Update(context.Background(), v))
	expect(3)
}
