package posix_test

import (
	"sync/atomic"
	"testing"
	"time"

	"ankole.storage/dataplane/loop"
	"ankole.storage/dataplane/loop/posix"
)

// TestQuietIsTold: after each load, also if the loop has nothing to do from its end on; and not
// without one.
func TestQuietIsTold(t *testing.T) {
	told := atomic.Int64{}
	l, err := posix.New(loop.NewArena(1<<20), posix.Options{TrimEvery: 5 * time.Millisecond, OnQuiet: func() {
		told.Add(1)
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var done [64]loop.Done
	// All at once: a load is how much comes between two looks, and on a busy machine there may be a
	// look after each.
	calls := func(n int) {
		ops := make([]loop.Op, n)
		for i := range ops {
			ops[i] = loop.Op{Kind: loop.Call, Handle: loop.None, Fn: func() any { return nil }}
		}
		l.Submit(ops)
		for left := n; left > 0; {
			left -= l.Reap(done[:], time.Second)
		}
	}
	calls(10)
	l.Reap(done[:], 100*time.Millisecond)
	if told.Load() != 0 {
		t.Fatal("a few operations were taken for a load")
	}
	for range 2 {
		before := told.Load()
		calls(5000)
		for deadline := time.Now().Add(10 * time.Second); told.Load() == before; {
			if time.Now().After(deadline) {
				t.Fatal("the end of a load is not told")
			}
			l.Reap(done[:], 20*time.Millisecond)
		}
		l.Reap(done[:], 100*time.Millisecond)
		before = told.Load()
		if l.Reap(done[:], 100*time.Millisecond); told.Load() != before {
			t.Fatal("told again although nothing was done")
		}
	}
}
