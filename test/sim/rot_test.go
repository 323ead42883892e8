package sim

import (
	"strings"
	"testing"
	"time"
)

// TestRotOnTwoReplicas plays plans in which snapshots of a small volume rot again and again, on two
// replicas in one mebibyte at times: scrubs put right what has rotted and spread nothing.
func TestRotOnTwoReplicas(t *testing.T) {
	first, n := number(t, "FROM", 1), number(t, "SEEDS", 12)
	pairs := 0
	for seed := first; seed < first+n; seed++ {
		p := PlanFor(seed)
		p.Size, p.Replicas, p.Clients, p.Operations, p.Time = 1<<20, 2+int(seed%2), 4, 600, 12*time.Second
		p.Drift, p.Faults, p.Chores = make([]int64, 4), nil, 20
		for i := range 9 {
			p.Faults = append(p.Faults, Planned{At: time.Duration(i+2) * time.Second, Name: "rot", Seed: seed<<8 + uint64(i)})
		}
		r := p.Play()
		if r.Err != nil {
			t.Fatalf("seed %d: %v\n%s\n%s", seed, r.Err, &p, strings.Join(r.History, "\n"))
		}
		pairs += r.By[rotTwice]
	}
	if uint64(pairs) < n/2 {
		t.Errorf("two replicas have rotted in one mebibyte %d times in %d plans: nothing was tried", pairs, n)
	}
}
