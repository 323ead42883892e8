package sim

import (
	"strings"
	"testing"
	"time"
)

// TestClones: snapshots are cloned while engines and replicas of the source die and both sides are
// written to. A clone that is complete holds what the snapshot held.
func TestClones(t *testing.T) {
	const tries = 10
	made := 0
	for seed := uint64(1); seed <= tries; seed++ {
		p := PlanFor(seed)
		p.Replicas, p.Drift, p.Chores, p.Time, p.Faults = 3, make([]int64, 4), 150, 6*time.Second, nil
		p.Timeouts.Replica, p.Timeouts.Lease = time.Second, 500*time.Millisecond
		for i := range 4 {
			p.Faults = append(p.Faults, Planned{At: time.Duration(i+1) * time.Second,
				Name: []string{"kill-engine", "kill-replica"}[i%2], Seed: seed<<8 + uint64(i)})
		}
		r := p.Play()
		if r.Err != nil {
			t.Fatalf("seed %d: %v\n%s\n%s", seed, r.Err, &p, strings.Join(r.History, "\n"))
		}
		made += r.Chores["clone"]
	}
	if made < tries/2 {
		t.Errorf("%d clones were made: too little was tried", made)
	}
	t.Logf("%d clones", made)
}
