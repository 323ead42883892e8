package sim

import (
	"cmp"
	"strings"
	"testing"
	"time"
)

// alone says how a fault is played by itself where two or three replicas and three plans are not
// enough: a start from a replica that was left behind loses what was written in a few milliseconds.
var alone = map[string]struct {
	replicas int
	tries    uint64
}{"left-behind": {replicas: 3, tries: 40}}

// TestEachFault plays plans in which one fault happens again and again, and engines die in between:
// it has to be possible, and survived.
func TestEachFault(t *testing.T) {
	for _, f := range Atlas {
		t.Run(f.Name, func(t *testing.T) {
			tries, happened := cmp.Or(alone[f.Name].tries, 3), 0
			for seed := uint64(1); seed <= tries; seed++ {
				p := PlanFor(seed)
				p.Replicas, p.Clients, p.Operations, p.Time, p.Drift, p.Faults, p.Chores = max(2+int(seed%2),
					alone[f.Name].replicas), 4, 600, 8*time.Second, make([]int64, 4), nil, 12
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
			if uint64(happened) < tries {
				t.Errorf("it happened %d times in %d plans: nothing was tried", happened, tries)
			}
		})
	}
}
