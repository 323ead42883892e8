package sim

import (
	"strings"
	"testing"
	"time"
)

// TestReplicasThatEnd plays histories in which replicas are asked to end again and again, while
// snapshots are taken and requests are under way on disks that fail. A clean stop that says too
// much shows as zeroes in place of what a snapshot holds.
func TestReplicasThatEnd(t *testing.T) {
	var ends Ends
	for seed := uint64(1); seed <= endSeeds; seed++ {
		p := PlanFor(seed)
		p.Replicas, p.Clients, p.Operations, p.Time = 1+int(seed%2), 4, 1500, 13*time.Second
		p.Drift, p.Chores, p.OnlyChore, p.Faults, p.Style = make([]int64, 4), 40, "snapshot", nil, StyleMixed
		p.HealEvery, p.ReplaceAfter = 20*time.Millisecond, 50*time.Millisecond
		for at := time.Second / 4; at < p.Time; at += time.Second / 4 {
			p.Faults = append(p.Faults, Planned{At: at, Name: "end-replica", For: time.Second / 8, Seed: seed<<8 + uint64(at)})
		}
		r := p.Play()
		if r.Err != nil {
			t.Fatalf("seed %d: %v\n%s\n%s", seed, r.Err, &p, strings.Join(r.History, "\n"))
		}
		ends.InOrder += r.Ends.InOrder
		ends.TooSlow += r.Ends.TooSlow
	}
	t.Logf("%+v", ends)
	if ends.InOrder < endSeeds || ends.TooSlow < endSeeds {
		t.Errorf("%+v in %d plans: nothing was tried", ends, endSeeds)
	}
}

// endSeeds is how many plans are played. A stop that is wrongly taken for clean shows in an eighth
// of them.
const endSeeds = 40
