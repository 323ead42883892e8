package engine

import (
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"ankole.storage/dataplane/wire"
)

// Copies are written as their content and what their checksum says: "A+" good, "A?" unknown, "A-"
// rotten, "!" unreadable.
func copiesOf(s string) (out []copyOf) {
	for _, f := range strings.Fields(s) {
		c := copyOf{sum: []byte(f[:1])}
		switch {
		case f == "!":
			c.sum, c.verdict = nil, wire.VerdictRotten
		case f[1] == '+':
			c.verdict = wire.VerdictGood
		case f[1] == '-':
			c.verdict = wire.VerdictRotten
		default:
			c.verdict = wire.VerdictUnknown
		}
		out = append(out, c)
	}
	return out
}

func TestDecide(t *testing.T) {
	for _, c := range []struct {
		copies string
		source int
		repair []int
	}{
		{"A+ B-", 0, []int{1}},
		{"A- B+", 1, []int{0}},
		{"A? B-", 0, []int{1}}, // proven wrong: anything else is better
		{"A+ !", 0, []int{1}},
		{"! A?", 1, []int{0}},
		{"A+ B+", -1, nil},
		{"A? B?", -1, nil},
		{"A+ B?", -1, nil}, // the checksum may be of content that had rotted before
		{"A- B-", -1, nil},
		{"! !", -1, nil},
		{"! B-", -1, nil},
		{"A? A? B?", 0, []int{2}},
		{"B? A? A?", 1, []int{0}},
		{"A? A+ B?", 1, []int{2}},
		{"A? A? B+", -1, nil}, // majority against a checksum
		{"A+ A+ B+", -1, nil},
		{"A+ A+ B-", 0, []int{2}},
		{"A- B- C+", 2, []int{0, 1}},
		{"A- B? C?", -1, nil},
		{"A? B? C?", -1, nil},
		{"A? B? !", -1, nil},
		{"A+ A- B-", 0, []int{2}}, // a copy with the right content needs nothing, whatever its checksum says
		{"A? A? A? B? B-", 0, []int{3, 4}},
		{"A? A? B? B?", -1, nil},
	} {
		d := decide(copiesOf(c.copies))
		if d.source != c.source || !reflect.DeepEqual(d.repair, c.repair) || (d.source < 0) != (d.why != "") {
			t.Errorf("%s: %+v, want source %d repair %v", c.copies, d, c.source, c.repair)
		}
	}
}

// A copy that is what its checksum says is never overwritten, and what overwrites others never
// contradicts its own.
func TestDecideOverwritesNothingGood(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{"A+", "A?", "A-", "B+", "B?", "B-", "C?", "!"}), 1,
			6).Draw(t, "copies"), " ")
		copies := copiesOf(s)
		d := decide(copies)
		for _, i := range d.repair {
			if copies[i].verdict == wire.VerdictGood || d.source < 0 || string(copies[i].sum) == string(copies[d.source].sum) {
				t.Fatalf("%s: %+v", s, d)
			}
		}
		if d.source >= 0 && copies[d.source].rotten() {
			t.Fatalf("%s: %+v", s, d)
		}
	})
}
