package quorum

import (
	"strings"
	"testing"
)

// After 999 sub-epochs there is no number left: the successor asks the witness, which knows of
// nobody newer, or ends.
func TestSuccessorWithoutANumberLeft(t *testing.T) {
	const last = 2*GrantStep - 1
	rec := Record{Epoch: last, Generation: 7, Members: []string{"a", "b"}, Agreed: true}
	for name, c := range map[string]struct {
		witness WitnessRecord
		ends    string
	}{
		"the next grant": {witness: WitnessRecord{Epoch: GrantStep, Engine: "e", Record: rec}},
		"another engine": {witness: WitnessRecord{Epoch: 2 * GrantStep, Engine: "other", Record: rec},
			ends: "engine other of epoch 2 has taken over"},
	} {
		t.Run(name, func(t *testing.T) {
			core := New(Config{Engine: "e", InstanceManager: "im", Candidates: 2, Takeover: true, Successor: true})
			core.Take()
			core.Succeed(last)
			if a := core.Take(); len(a) != 1 || a[0].Kind != AskWitness {
				t.Fatalf("wants %v", a)
			}
			core.WitnessRead(c.witness)
			if c.ends != "" {
				if core.Phase() != Stopped || !strings.Contains(core.Reason(), c.ends) {
					t.Errorf("%s: %s", core.Phase(), core.Reason())
				}
				return
			}
			a := core.Take()
			if len(a) != 1 || a[0].Kind != SwapWitness || a[0].Next.Epoch != 2*GrantStep {
				t.Fatalf("wants %v", a)
			}
			core.WitnessSwapped(true, a[0].Next)
			for _, m := range rec.Members {
				core.Answered(Answer{Member: m, Record: rec})
			}
			if core.Phase() != Committing || core.Epoch() != 2*GrantStep {
				t.Errorf("%s with epoch %d: %s", core.Phase(), core.Epoch(), core.Reason())
			}
		})
	}
}
