package engine

import (
	"testing"

	"pgregory.net/rapid"
)

// lockModel is the rule said plainly: requests in order of arrival, each granted as soon as none before it that conflicts
// is still there.
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

// The locks do exactly what the rule says: nothing that conflicts runs at once, nobody waits without need, nobody is
// overtaken.
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
				k.lock(r.off, r.n, r.write, func() {
					if r.granted {
						t.Fatal("granted twice")
					}
					r.granted = true
				})
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
		if len(k.active)+len(k.waiting) != 0 {
			t.Fatalf("%d active, %d waiting at the end", len(k.active), len(k.waiting))
		}
	})
}

// A grant may unlock and lock again before it returns, as a request that fails at once does.
func TestRangeLocksBearGrantsThatEndAtOnce(t *testing.T) {
	var k rangeLocks
	k.lock(0, 4096, true, func() {})
	order := []int{}
	for i := range 5 {
		k.lock(0, 4096, true, func() {
			order = append(order, i)
			k.unlock(0, 4096, true)
		})
	}
	k.unlock(0, 4096, true)
	if len(order) != 5 || len(k.active)+len(k.waiting) != 0 {
		t.Fatalf("granted %v, %d active, %d waiting", order, len(k.active), len(k.waiting))
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
	k.lock(0, 4096, true, func() {})
	k.unlock(0, 4096, false)
}
