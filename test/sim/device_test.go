package sim

import (
	"slices"
	"strings"
	"testing"
	"time"

	"ankole.storage/dataplane/engine"
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

// TestLateStartEndsNothing: an engine that was cut off during its start hears the answers it waited
// for when another one serves already. What that one was asked goes on.
func TestLateStartEndsNothing(t *testing.T) {
	t.Parallel()
	var served []string
	v := &Volume{Witness: &Witness{}, Serves: func(e *EngineProcess) { served = append(served, e.Name) }}
	for _, e := range []struct {
		name  string
		epoch uint64
	}{{"e2", 2}, {"e1", 1}, {"e3", 3}} {
		v.changed(&EngineProcess{Process: &Process{Name: e.name}}, engine.State{Serving: true, Epoch: e.epoch})
	}
	if want := []string{"e2", "e3"}; !slices.Equal(served, want) {
		t.Errorf("%v follow those before them, want %v: e1 served after e2", served, want)
	}
}
