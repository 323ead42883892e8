package quorum

import "testing"

// A person's word for any replicas, whatever record each of them holds, either says what is wrong
// with it or starts from some of those named.
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
