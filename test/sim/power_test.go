package sim

import (
	"strings"
	"testing"
	"time"

	"ankole.storage/dataplane/block"
	"ankole.storage/test/sim/register"
)

// TestWhatWasReadElsewhereStays: a node loses power while a write is not flushed, the engine has
// not noticed yet, and somebody reads the write from another replica. The next engine must not take
// the content of the node that lost it.
func TestWhatWasReadElsewhereStays(t *testing.T) {
	lost := 0
	for seed := range uint64(20) {
		w := NewWorld(seed)
		v := NewVolume(w, 2, 1<<20)
		v.Timeouts.Lease = time.Millisecond
		v.StartEngine(v.Nodes[2])
		if !w.Until(time.Minute, v.Healthy) {
			t.Fatal("does not start")
		}
		ask := func(c *Call) (data []byte) {
			done := false
			c.Done = func(code block.Code, p []byte) { done, data = code == block.OK, append(data, p...) }
			v.Current.front.Submit(c)
			if !w.Until(time.Second, func() bool { return done }) {
				return nil
			}
			return data
		}
		ask(&Call{Kind: block.Write, Len: block.Size, Fill: func(p []byte) { register.Stamp(p, 7, 0) }})
		v.PowerOff(v.Nodes[0])
		// Reads go to each in turn; that of the node without power has no answer.
		seen := false
		for range 2 {
			if p := ask(&Call{Kind: block.Read, Len: block.Size}); p != nil {
				n, ok := register.Unstamp(p, 0)
				seen = seen || ok && n == 7
			}
		}
		if !seen {
			t.Fatal("nobody has read it")
		}
		v.KillEngine(v.Current)
		v.Nodes[0].PowerOn()
		v.Replicas[0].Start()
		p := make([]byte, block.Size)
		if _, err := v.Replicas[0].Chain().ReadAt(p, 0); err != nil {
			t.Fatal(err)
		}
		if n, _ := register.Unstamp(p, 0); n != 7 {
			lost++
		}
		v.StartEngine(v.Nodes[2])
		if !w.Until(time.Minute, v.Healthy) {
			t.Fatalf("does not start again\n%s", v.History())
		}
		for range 2 {
			if n, ok := register.Unstamp(ask(&Call{Kind: block.Read, Len: block.Size}), 0); n != 7 || !ok {
				t.Fatalf("seed %d: what was read is gone: %d %v\n%s", seed, n, ok, v.History())
			}
		}
		v.Close()
	}
	if lost == 0 {
		t.Error("the disk has never lost the write: nothing was tried")
	}
}

// TestFlushedStaysWhenPowerIsLost: clients that flush much, and everything loses power again and
// again. A flush that was answered covers every write that was acknowledged before it, also where
// another flush was under way.
func TestFlushedStaysWhenPowerIsLost(t *testing.T) {
	const tries = 12
	lost := 0
	for seed := uint64(1); seed <= tries; seed++ {
		p := PlanFor(seed)
		p.Style, p.Clients, p.Operations, p.Time, p.Chores = StyleSyncs, 24, 3000, 4*time.Second, 0
		p.Replicas, p.Drift, p.Faults, p.Memory = 1+int(seed%2), make([]int64, 3), nil, plentyOfMemory
		for i := range 8 {
			p.Faults = append(p.Faults, Planned{At: time.Duration(i+1) * 400 * time.Millisecond, Name: "power-all",
				For: 10 * time.Millisecond, Seed: seed<<8 + uint64(i)})
		}
		r := p.Play()
		if r.Err != nil {
			t.Fatalf("seed %d: %v\n%s\n%s", seed, r.Err, &p, strings.Join(r.History, "\n"))
		}
		lost += r.By["power-all"]
	}
	if lost < 4*tries {
		t.Errorf("power was lost %d times in %d plans", lost, tries)
	}
}
