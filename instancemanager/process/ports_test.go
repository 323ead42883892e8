package process

import (
	"errors"
	"testing"

	"pgregory.net/rapid"
)

func TestParsePortRange(t *testing.T) {
	for _, row := range []struct {
		in   string
		want PortRange
		ok   bool
	}{
		{"10000-20000", PortRange{10000, 20000}, true},
		{"1-65535", PortRange{1, 65535}, true},
		{"7-7", PortRange{7, 7}, true},
		{"", PortRange{}, false},
		{"7", PortRange{}, false},
		{"0-9", PortRange{}, false},
		{"9-8", PortRange{}, false},
		{"1-65536", PortRange{}, false},
		{"-5-9", PortRange{}, false},
		{"a-b", PortRange{}, false},
	} {
		got, err := ParsePortRange(row.in)
		if got != row.want || (err == nil) != row.ok {
			t.Errorf("%q: %v %v", row.in, got, err)
		}
	}
}

// TestNextFit follows the search: on from the last end, around once, never across the end of the
// range.
func TestNextFit(t *testing.T) {
	m := newPortMap(PortRange{100, 109})
	take := func(n, want int) PortRange {
		t.Helper()
		r, err := m.take(n)
		if err != nil || r.Start != want || r.Len() != n {
			t.Fatalf("take %d: %v %v, want start %d", n, r, err, want)
		}
		return r
	}
	first := take(4, 100)
	take(1, 104)
	m.release(first)
	take(4, 105) // not the ones just freed
	take(3, 100) // one is left at the end: around
	take(1, 103) // on from there
	take(1, 109) // over what is in use
	if _, err := m.take(1); !errors.Is(err, ErrNoPorts) {
		t.Errorf("a full range gave %v", err)
	}
	if r, err := m.take(0); err != nil || r.Len() != 0 {
		t.Errorf("no ports: %v %v", r, err)
	}
}

// TestPortMapProperties: runs never overlap, stay within bounds, an allocation fails only when no
// run is free, and everything can be taken again after everything was released.
func TestPortMapProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(1, 40).Draw(t, "size")
		m := newPortMap(PortRange{1000, 1000 + size - 1})
		taken := map[int]bool{}
		var held []PortRange
		t.Repeat(map[string]func(*rapid.T){
			"take": func(t *rapid.T) {
				n := rapid.IntRange(1, 12).Draw(t, "n")
				r, err := m.take(n)
				if err != nil {
					if hasFreeRun(taken, size, n) {
						t.Fatalf("no room for %d in %v", n, taken)
					}
					return
				}
				if r.Len() != n || r.Start < 1000 || r.End >= 1000+size {
					t.Fatalf("%v for %d ports", r, n)
				}
				for p := r.Start; p <= r.End; p++ {
					if taken[p] {
						t.Fatalf("port %d given twice", p)
					}
					taken[p] = true
				}
				held = append(held, r)
			},
			"release": func(t *rapid.T) {
				if len(held) == 0 {
					t.Skip("nothing is held")
				}
				i := rapid.IntRange(0, len(held)-1).Draw(t, "i")
				for p := held[i].Start; p <= held[i].End; p++ {
					delete(taken, p)
				}
				m.release(held[i])
				held = append(held[:i], held[i+1:]...)
			},
			"": func(t *rapid.T) {
				if m.inUse != len(taken) {
					t.Fatalf("%d in use, want %d", m.inUse, len(taken))
				}
			},
		})
		for _, r := range held {
			m.release(r)
		}
		if _, err := m.take(size); err != nil {
			t.Fatalf("all released, but: %v", err)
		}
	})
}

func hasFreeRun(taken map[int]bool, size, n int) bool {
	run := 0
	for p := 1000; p < 1000+size; p++ {
		if taken[p] {
			run = 0
		} else if run++; run == n {
			return true
		}
	}
	return false
}
