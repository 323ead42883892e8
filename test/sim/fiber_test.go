package sim

import (
	"strings"
	"testing"
	"time"
)

// TestMetadataTakesTime: snapshots, reverts, purges and scrubs under many writers, while replicas
// and nodes die in the middle of them. What a blocking call does between two changes of the disk is
// seen by everything beside it, and by the next process after it.
func TestMetadataTakesTime(t *testing.T) {
	const tries = 24
	chores, midway := 0, 0
	for seed := uint64(1); seed <= tries; seed++ {
		p := PlanFor(seed)
		p.Style, p.Clients, p.Operations, p.Time, p.Chores = StyleMixed, 8, 1500, 3*time.Second, 200
		p.Replicas, p.Drift, p.Faults = 2, make([]int64, 3), nil
		p.OnlyChore = []string{"", "snapshot", "expand"}[seed%3]
		p.HealEvery = 20 * time.Millisecond
		for i := range 40 {
			p.Faults = append(p.Faults, Planned{At: time.Duration(i+1) * 70 * time.Millisecond, Name: "kill-midway",
				For: 60 * time.Millisecond, Seed: seed<<8 + uint64(i)})
		}
		r := p.Play()
		if r.Err != nil {
			t.Fatalf("seed %d: %v\n%s\n%s", seed, r.Err, &p, strings.Join(r.History, "\n"))
		}
		for _, n := range r.Chores {
			chores += n
		}
		midway += r.Midway
	}
	if chores < 3*tries || midway < 3*tries {
		t.Errorf("%d chores, %d blocking calls cut short by a death: too little was tried", chores, midway)
	}
	t.Logf("%d chores, %d blocking calls cut short by a death", chores, midway)
}
