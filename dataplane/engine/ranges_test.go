package engine

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"ankole.storage/dataplane/block"
)

// lockModel is the rule said plainly: requests in order of arrival, each granted as soon as none
// before it that conflicts is still there.
type lockModel struct{ all []*lockRequest }

type lockRequest struct {
	off, n  int64
	write   bool
	granted bool // by the code under test
}

func (a *lockRequest) conflicts(b *lockRequest) bool {
	for block := a.off / 4096; block <= (a.off+a.n-1)/4096; block++ {
		if block >= b.off/4096 && block <= (b.off+b.n-1)/4096 {
			return a.write || b.write
		}
	}
	return false
}

func (m *lockModel) check(t *rapid.T) {
	for i, r := range m.all {
		want := true
		for _, before := range m.all[:i] {
			if before.conflicts(r) {
				want = false
			}
		}
		if r.granted != want {
			t.Fatalf("request %d of %d (%+v): granted %v, the rule says %v", i, len(m.all), *r, r.granted, want)
		}
	}
}

// The locks do exactly what the rule says: nothing that conflicts runs at once, nobody waits
// without need, nobody is overtaken.
func TestRangeLocksFollowTheRule(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var k rangeLocks
		m := &lockModel{}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			var running []int
			for i, r := range m.all {
				if r.granted {
					running = append(running, i)
				}
			}
			if len(running) > 0 && rapid.Bool().Draw(t, "unlock") {
				i := rapid.SampledFrom(running).Draw(t, "which")
				r := m.all[i]
				m.all = append(m.all[:i:i], m.all[i+1:]...)
				k.unlock(r.off, r.n, r.write)
			} else {
				r := &lockRequest{off: 512 * rapid.Int64Range(0, 100).Draw(t, "off"), n: 512 * rapid.Int64Range(1, 40).Draw(t, "n"),
					write: rapid.Bool().Draw(t, "write")}
				m.all = append(m.all, r)
				k.lock(r.off, r.n, r.write, grantFunc(func() {
					if r.granted {
						t.Fatal("granted twice")
					}
					r.granted = true
				}))
			}
			m.check(t)
		}
		for len(m.all) > 0 {
			r := m.all[0]
			if !r.granted {
				t.Fatalf("the first request waits: %+v", *r)
			}
			m.all = m.all[1:]
			k.unlock(r.off, r.n, r.write)
			m.check(t)
		}
		if k.root != nil || len(k.reads) > 0 {
			t.Fatalf("left at the end: %+v, reads %+v", k.root, k.reads)
		}
	})
}

// A grant may unlock and lock again before it returns, as a request that fails at once does.
func TestRangeLocksBearGrantsThatEndAtOnce(t *testing.T) {
	var k rangeLocks
	k.lock(0, 4096, true, grantFunc(func() {}))
	order := []int{}
	for i := range 5 {
		k.lock(0, 4096, true, grantFunc(func() {
			order = append(order, i)
			k.unlock(0, 4096, true)
		}))
	}
	k.unlock(0, 4096, true)
	if len(order) != 5 || k.root != nil {
		t.Fatalf("granted %v, left %v", order, k.root)
	}
	for i, got := range order {
		if got != i {
			t.Fatalf("granted in order %v", order)
		}
	}
}

func TestUnlockOfWhatIsNotLockedPanics(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	var k rangeLocks
	k.lock(0, 4096, true, grantFunc(func() {}))
	k.unlock(0, 4096, false)
}

// A trim of 4 GiB is 1,024 ranges, several at once are as many times that. Each lock looks at what
// it overlaps, not at all there are.
func TestRangeLocksLookAtWhatOverlaps(t *testing.T) {
	var k rangeLocks
	const n = 1 << 14
	for i := range int64(n) {
		k.lock(i*zeroWindow, zeroWindow, true, grantFunc(func() {}))
	}
	depth := func() int {
		var deep func(r *lockedRange) int
		deep = func(r *lockedRange) int {
			if r == nil {
				return 0
			}
			return 1 + max(deep(r.left), deep(r.right))
		}
		return deep(k.root)
	}()
	// A treap of 16,384 nodes is about 2 × 1.39 × log2 n deep at most; a list would be 16,384.
	if depth > 60 {
		t.Errorf("%d ranges in order make a tree of depth %d", n, depth)
	}
	granted := false
	k.lock(7*zeroWindow, 4096, false, grantFunc(func() { granted = true }))
	if granted {
		t.Error("a read was let into a range that is being trimmed")
	}
	k.unlock(7*zeroWindow, zeroWindow, true)
	if !granted {
		t.Error("the read waits for a range that is free")
	}
}

func BenchmarkRangeLocks(b *testing.B) {
	for _, n := range []int64{1, 128, 1 << 14} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			var k rangeLocks
			for i := range n {
				k.lock(i<<20, 4096, true, grantFunc(func() {}))
			}
			b.ReportAllocs()
			for i := int64(0); b.Loop(); i++ {
				k.unlock(i%n<<20, 4096, true)
				k.lock(i%n<<20, 4096, true, grantFunc(func() {}))
			}
		})
	}
}

// BenchmarkReadLocks takes and gives back the lock of one read of 4 KiB while 63 others are in
// flight.
func BenchmarkReadLocks(b *testing.B) {
	const depth, blocks = 64, 1 << 18
	k := rangeLocks{}
	offsets := make([]int64, 1<<14)
	for i := range offsets {
		offsets[i] = int64(i) * 40503 % blocks * block.Size // scattered: 2^16 divided by the golden ratio
	}
	grant := grantFunc(func() {})
	for i := range depth {
		k.lock(offsets[i], block.Size, false, grant)
	}
	for i := 0; b.Loop(); i++ {
		k.unlock(offsets[i%len(offsets)], block.Size, false)
		k.lock(offsets[(i+depth)%len(offsets)], block.Size, false, grant)
	}
}
