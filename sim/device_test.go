package sim

import (
	"strings"
	"testing"
	"time"
)

// TestKeptDevices: engines are killed again and again, while they move between nodes, and their
// devices are kept. What users had asked for is sent again to the next engine on the node, and
// never carried out after another engine has served.
func TestKeptDevices(t *testing.T) {
	const tries = 12
	adopted, ended := 0, 0
	for seed := uint64(1); seed <= tries; seed++ {
		p := PlanFor(seed)
		p.Keeps, p.Style, p.Clients, p.Operations, p.Time, p.Chores = true, StyleSpot, 16, 4000, 4*time.Second, 4
		p.Replicas, p.Drift, p.Faults = 2, make([]int64, 3), nil
		p.HealEvery, p.ReplaceAfter, p.Timeouts.Lease = 10*time.Millisecond, 20*time.Millisecond, 50*time.Millisecond
		for i := range 24 {
			p.Faults = append(p.Faults, Planned{At: time.Duration(i+1) * 150 * time.Millisecond, Name: "kill-engine",
				Seed: seed<<8 + uint64(i)})
		}
		r := p.Play()
		if r.Err != nil {
			t.Fatalf("seed %d: %v\n%s\n%s", seed, r.Err, &p, strings.Join(r.History, "\n"))
		}
		adopted += r.Adopted
		ended += r.DevicesEnded
	}
	if adopted < tries || ended < tries {
		t.Errorf("%d requests were sent again, %d devices ended: too little was tried", adopted, ended)
	}
	t.Logf("%d requests were sent again, %d devices ended", adopted, ended)
}
