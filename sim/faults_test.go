package sim

import (
	"strings"
	"testing"
	"time"
)

// TestEachFault plays plans in which one fault happens again and again, and engines die in between:
// it has to be possible, and survived.
func TestEachFault(t *testing.T) {
	const tries = 3
	for _, f := range Atlas {
		t.Run(f.Name, func(t *testing.T) {
			happened := 0
			for seed := uint64(1); seed <= tries; seed++ {
				p := PlanFor(seed)
				p.Replicas, p.Clients, p.Operations, p.Time, p.Drift, p.Faults, p.Chores = 2+int(seed%2), 4, 600,
					8*time.Second, make([]int64, 4), nil, 12
				for i := range 4 {
					at := time.Duration(2*i+1) * time.Second
					p.Faults = append(p.Faults, Planned{At: at, Name: f.Name, For: min(f.Longest, time.Second),
						Seed: seed<<8 + uint64(i)},
						Planned{At: at + time.Second/2, Name: "kill-engine"})
				}
				r := p.Play()
				if r.Err != nil {
					t.Fatalf("seed %d: %v\n%s\n%s", seed, r.Err, &p, strings.Join(r.History, "\n"))
				}
				happened += r.By[f.Name]
			}
			if happened < tries {
				t.Errorf("it happened %d times in %d plans: nothing was tried", happened, tries)
			}
		})
	}
}
