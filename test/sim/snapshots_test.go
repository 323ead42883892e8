package sim

import "testing"

// TestChoresAreDone keeps the operators of the simulation from failing at everything without
// anybody noticing.
func TestChoresAreDone(t *testing.T) {
	done := map[string]int{}
	for seed := range uint64(20) {
		r := Run(seed)
		if r.Err != nil {
			t.Fatalf("seed %d: %v", seed, r.Err)
		}
		for name, n := range r.Chores {
			done[name] += n
		}
	}
	for _, c := range Chores {
		if done[c.Name] == 0 {
			t.Errorf("nobody has managed to %s in 20 seeds: %v", c.Name, done)
		}
	}
}
