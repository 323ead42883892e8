package posix_test

import (
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"ankole.storage/dataplane/loop"
	"ankole.storage/dataplane/loop/posix"
	"ankole.storage/test/lack"
	"ankole.storage/test/wait"
)

// TestQuietIsTold: after the start and after each load, also if the loop has nothing to do from its
// end on; and not without one. What is done after that is told a few times, as a rest.
func TestQuietIsTold(t *testing.T) {
	lack.RealTime(t, "windows of 5 to 100 ms")
	var told, rests atomic.Int64
	l, err := posix.New(loop.NewArena(1<<20), posix.Options{TrimEvery: 5 * time.Millisecond,
		OnQuiet: func() { told.Add(1) }, OnRest: func() { rests.Add(1) }})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var done [64]loop.Done
	// All at once: a load is how much comes between two looks, and on a busy machine there may be a
	// look after each.
	calls := func(n int) {
		l.Submit(slices.Repeat([]loop.Op{{Kind: loop.Call, Handle: loop.None, Fn: func() any { return nil }}}, n))
		for left := n; left > 0; {
			left -= l.Reap(done[:], time.Second)
		}
	}
	await := func(n *atomic.Int64, above int64, what string) {
		t.Helper()
		wait.Until(t, what, func() bool {
			if n.Load() <= above {
				l.Reap(done[:], 20*time.Millisecond)
			}
			return n.Load() > above
		})
	}
	await(&told, 0, "the end of the start is told")
	calls(10)
	l.Reap(done[:], 100*time.Millisecond)
	if told.Load() != 1 {
		t.Fatal("a few operations were taken for a load")
	}
	for range 2 {
		before := told.Load()
		calls(500)
		await(&told, before, "the end of a load is told")
		l.Reap(done[:], 100*time.Millisecond)
		before = told.Load()
		rested := rests.Load()
		if l.Reap(done[:], 100*time.Millisecond); told.Load() != before || rests.Load() != rested {
			t.Fatal("told again although nothing was done")
		}
		calls(10)
		await(&rests, rested, "what is done after a load is told")
		for range 40 {
			calls(10)
			l.Reap(done[:], 10*time.Millisecond)
		}
		if n := rests.Load() - rested; n > 20 {
			t.Fatalf("%d rests were told after one load", n)
		}
	}
}
