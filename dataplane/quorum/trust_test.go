package quorum

import (
	"slices"
	"testing"
)

// A person's decision for any replicas, whatever record each of them holds, either says what is
// wrong with it or starts from some of those named.
func TestTrustedStartsOrSaysWhy(t *testing.T) {
	var states []Answer
	for _, members := range [][]string{nil, {"a"}, {"b"}, {"c"}, {"a", "b"}, {"a", "c"}, {"b", "c"}, {"a", "b", "c"}} {
		for gen := uint64(1); gen <= 2; gen++ {
			states = append(states, Answer{Record: Record{Epoch: GrantStep, Generation: gen, Members: members}},
				Answer{Record: Record{Epoch: GrantStep, Generation: gen, Members: members}, Rebuilding: true})
		}
	}
	states = append(states, Answer{Blank: true, Empty: true})
	for _, b := range states {
		for _, c := range states {
			b.Member, c.Member = "b", "c"
			for _, names := range [][]string{{"b"}, {"c"}, {"b", "c"}} {
				answers := []Answer{b, c}
				d := trust(Record{Epoch: GrantStep, Generation: 3, Members: []string{"a"}}, answers, names)
				switch {
				case d.Verdict == Refuse && d.Reason != "":
				case d.Verdict != Serve, len(d.Fresh) == 0, len(without(d.Fresh, names)) > 0:
					t.Errorf("trust in %v of %v and %v: %+v", names, b, c, d)
				}
			}
		}
	}
}

// A record that begins with a person's decision counts once it is known to be agreed. Without the
// witness nobody knows, and the start is refused, whoever is there.
func TestDecisionThatMayNotBeAgreedNeedsTheWitness(t *testing.T) {
	agreed := Record{Epoch: GrantStep, Generation: 2, Members: []string{"a"}, Agreed: true}
	accepted := Record{Epoch: 2 * GrantStep, Generation: 3, Members: []string{"b"}, Replaces: []string{"a"},
		Accepted: true}
	answers := []Answer{{Member: "a", Record: agreed}, {Member: "b", Record: accepted}}
	for name, c := range map[string]struct {
		known Known
		fresh []string
	}{
		"no witness": {Known{Void: true, Answers: answers}, nil},
		"the witness never knew": {Known{Witness: WitnessRecord{Epoch: 2 * GrantStep, Record: agreed},
			Answers: answers}, []string{"a"}},
		"the witness has it": {Known{Witness: WitnessRecord{Epoch: 2 * GrantStep, Record: accepted},
			Answers: answers}, []string{"b"}},
		"a member knows it": {Known{Void: true, Answers: []Answer{{Member: "b", Record: accepted.agreed()}}},
			[]string{"b"}},
	} {
		d := Decide(c.known)
		if !slices.Equal(d.Fresh, c.fresh) || (d.Verdict == Refuse) != (c.fresh == nil) ||
			d.Verdict == Refuse && d.Reason == "" {
			t.Errorf("%s: %+v", name, d)
		}
	}
}
