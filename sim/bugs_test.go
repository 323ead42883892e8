package sim

import (
	"strings"
	"testing"
	"time"
)

// TestBugsAreFound makes mistakes on purpose: a simulation that does not find them would not find their like in the cores.
func TestBugsAreFound(t *testing.T) {
	for _, c := range []struct {
		bug  Bug
		want string // in the message of the violation
		plan func(p *Plan)
	}{
		{bugUnequalLeases, "came after it and before the read", func(p *Plan) {
			p.Timeouts = Timeouts{Replica: 30 * time.Second, NoReplica: 8 * time.Second, Lease: 50 * time.Millisecond}
			p.Faults = []Planned{{At: 300 * time.Millisecond, Name: "isolate-node", For: 15 * time.Second, Seed: p.Seed}}
		}},
	} {
		t.Run(string(c.bug), func(t *testing.T) {
			const tries = 100
			for seed := uint64(1); seed <= tries; seed++ {
				p := PlanFor(seed)
				p.Bug, p.Replicas, p.Clients, p.Operations, p.Time, p.Drift = c.bug, 3, 6, 2000, 16*time.Second, make([]int64, 4)
				p.HealEvery, p.ReplaceAfter = 20*time.Millisecond, 50*time.Millisecond
				c.plan(&p)
				if r := p.Play(); r.Err != nil {
					if !strings.Contains(r.Err.Error(), c.want) {
						t.Fatalf("seed %d: %v\n%s\n%s", seed, r.Err, &p, strings.Join(r.History, "\n"))
					}
					t.Logf("seed %d: %v", seed, r.Err)
					return
				}
			}
			t.Fatalf("not found in %d seeds", tries)
		})
	}
}
