package rebuild

import (
	"slices"
	"testing"

	"ankole.storage/test/seeded"
)

// flipped is a condition that alone makes certain knowledge uncertain.
type flipped struct {
	name string
	flip func(source, target *Side, same *bool)
}

// TestEachConditionOfALayerDecides begins with a layer that may be skipped, or of which only
// regions are compared, and breaks one condition after the other: each alone means that everything
// is compared.
func TestEachConditionOfALayerDecides(t *testing.T) {
	either := []flipped{
		{"nothing is known of the time before", func(_, _ *Side, same *bool) { *same = false }},
		{"the source's was changed", func(s, _ *Side, _ *bool) { s.Changed = append(s.Changed, "a", HeadName) }},
		{"the target's was changed", func(_, d *Side, _ *bool) { d.Changed = append(d.Changed, "a", HeadName) }},
		{"all of the source's were changed", func(s, _ *Side, _ *bool) { s.AllChanged = true }},
		{"all of the target's were changed", func(_, d *Side, _ *bool) { d.AllChanged = true }},
	}
	kept := append([]flipped{
		{"it was the source's head", func(s, _ *Side, _ *bool) { s.First = "a" }},
		{"it was the target's head", func(_, d *Side, _ *bool) { d.First = "a" }},
	}, either...)
	head := append([]flipped{
		{"the source's head is gone", func(s, _ *Side, _ *bool) { s.Gone = true }},
		{"the target's head is gone", func(_, d *Side, _ *bool) { d.Gone = true }},
		{"the source's head of that time is a snapshot", func(s, _ *Side, _ *bool) { s.First = "b" }},
		{"the target's head of that time is a snapshot", func(_, d *Side, _ *bool) { d.First = "b" }},
	}, either...)
	for _, c := range []struct {
		name   string
		layer  int
		want   Mode
		breaks []flipped
	}{{"a snapshot", 0, Skip, kept}, {"the head", 1, Regions, head}} {
		for i := range append(c.breaks, flipped{}) {
			source, target, same := Side{Names: []string{"a"}}, Side{Names: []string{"a"}}, true
			name, want := "nothing", c.want
			if i < len(c.breaks) {
				name, want = c.breaks[i].name, Compare
				c.breaks[i].flip(&source, &target, &same)
			}
			if got := Arrange(source, target, same).Modes[c.layer]; got != want {
				t.Errorf("%s, where %s: %v, want %v", c.name, name, got, want)
			}
		}
	}
}

// TestHeadsThatBecameOneSnapshot: a snapshot that was both heads may differ where the regions say,
// and nowhere else.
func TestHeadsThatBecameOneSnapshot(t *testing.T) {
	one := func() Side { return Side{Names: []string{"a", "b"}, First: "b"} }
	if got := Arrange(one(), one(), true).Modes; !slices.Equal(got, []Mode{Skip, Regions, Compare}) {
		t.Errorf("both: %v", got)
	}
	other := one()
	other.First = "a"
	if got := Arrange(one(), other, true).Modes; !slices.Equal(got, []Mode{Compare, Compare, Compare}) {
		t.Errorf("each another one: %v", got)
	}
}

// TestWhatIsLeftAlone asks for what Untouched and Delta say of arrangements.
func TestWhatIsLeftAlone(t *testing.T) {
	source := Side{Names: []string{"a", "b", "c"}}
	for _, c := range []struct {
		modes     []Mode
		untouched []string
		delta     bool
	}{
		{[]Mode{Skip, Copy, Skip, Regions}, []string{"a", "c"}, true},
		{[]Mode{Regions, Copy, Copy, Skip}, nil, true},
		{[]Mode{Skip, Compare, Copy, Regions}, []string{"a"}, false},
	} {
		a := Arrangement{Modes: c.modes}
		if got := a.Untouched(&source); !slices.Equal(got, c.untouched) || a.Delta() != c.delta {
			t.Errorf("%v: %v untouched, delta %v", c.modes, got, a.Delta())
		}
	}
	for m, want := range map[Mode]string{Skip: "skip", Regions: "regions", Compare: "compare", Copy: "copy"} {
		if m.String() != want {
			t.Errorf("mode %d is called %s", m, m)
		}
	}
}

// TestNamesInAnotherOrderAreNotKept: layers that are in another order were never the same chain.
func TestNamesInAnotherOrderAreNotKept(t *testing.T) {
	for _, c := range []struct{ source, target, kept []string }{
		{[]string{"a", "b", "c"}, []string{"a", "c"}, []string{"a", "c"}},
		{[]string{"a", "b"}, []string{"b", "a"}, nil},
		{[]string{"a", "b"}, []string{"a", "a"}, nil},
		{[]string{"a", "b"}, []string{"x", "a", "y", "b"}, []string{"a", "b"}},
		{nil, []string{"a"}, nil},
	} {
		if got := keptOf(c.source, c.target); !slices.Equal(got, c.kept) {
			t.Errorf("of %v %v keeps %v, want %v", c.source, c.target, got, c.kept)
		}
	}
}

// TestPieceSet compares a set of pieces with a list of them.
func TestPieceSet(t *testing.T) {
	const size = 300 * PieceSize
	src := seeded.New(t, "a set of pieces is what was put into it")
	for range src.Seeds(200) {
		r := src.Rand(0)
		s, model := newPieceSet(size), map[int64]bool{}
		for range 1 + r.IntN(4) {
			off := r.Int64N(size - 1)
			n := 1 + r.Int64N(min(size-off, 5*PieceSize))
			if r.IntN(2) == 0 { // ends where a piece does
				n = max(PieceSize-off%PieceSize, n-(off+n)%PieceSize)
			}
			news := int64(0)
			for p := off / PieceSize; p <= (off+n-1)/PieceSize; p++ {
				if !model[p] {
					news++
				}
				model[p] = true
			}
			if got := s.add(off, n); got != news {
				t.Fatalf("[%d,+%d) adds %d pieces, want %d", off, n, got, news)
			}
		}
		for p := int64(-2); p < 310; p++ {
			want := int64(-1)
			for q := max(p, 0); q < 310 && want < 0; q++ {
				if model[q] {
					want = q
				}
			}
			if got := s.from(p); got != want {
				t.Fatalf("the first piece from %d on is %d, want %d", p, got, want)
			}
		}
	}
	for _, pieces := range []int64{1, 63, 64, 65, 128} {
		if s := newPieceSet(pieces * PieceSize); s.add((pieces-1)*PieceSize, PieceSize) != 1 || s.from(0) != pieces-1 {
			t.Errorf("the last of %d pieces is not in the set", pieces)
		}
	}
}

// TestProgressCountsWhatIsKnown: what is to be brought is the layers that are copied or compared,
// and the pieces in which they may differ, each once.
func TestProgressCountsWhatIsKnown(t *testing.T) {
	layers := []Layer{{Mode: Skip, Size: testSize, Allocated: 1 << 10}, {Mode: Copy, Size: testSize, Allocated: 1 << 20},
		{Mode: Compare, Size: testSize, Allocated: 1 << 30}, {Mode: Regions, Size: testSize, Allocated: 1 << 40}}
	p := New(testSize, layers, false)
	total := func() int64 { _, _, n := p.Progress(); return n }
	if total() != 1<<20+1<<30 {
		t.Errorf("%d bytes to bring", total())
	}
	p.Differs(0, PieceSize+1)
	p.Differs(PieceSize, 1)
	if got := total() - (1<<20 + 1<<30); got != 2*PieceSize {
		t.Errorf("%d bytes to bring for two pieces of one layer", got)
	}
	p.Differs(testSize-1, 10*PieceSize)
	if got := total() - (1<<20 + 1<<30); got != 3*PieceSize {
		t.Errorf("%d bytes to bring for a range that ends behind the volume", got)
	}
}

// TestComparedIsNoted: what one attempt compares in full the next one does too, though its source
// knows of no change, since the target has noted it.
func TestComparedIsNoted(t *testing.T) {
	for name, changed := range map[string][]string{
		"a snapshot": {"a"}, "the snapshot below the head": {"b"}, "the head": {HeadName}, "both": {"a", "b", HeadName},
	} {
		first, second, target := Side{Names: []string{"a", "b"}, Changed: changed}, Side{Names: []string{"a", "b"}},
			Side{Names: []string{"a", "b"}}
		before := Arrange(first, target, true)
		target.Changed = before.Compared(&first)
		if !slices.Equal(target.Changed, changed) {
			t.Errorf("%s: compared are %v", name, target.Changed)
		}
		if after := Arrange(second, target, true); !slices.Equal(after.Modes, before.Modes) {
			t.Errorf("%s: %v, and %v before", name, after.Modes, before.Modes)
		}
	}
}
