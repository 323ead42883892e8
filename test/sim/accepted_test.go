package sim

import (
	"strings"
	"testing"
	"time"

	"ankole.storage/dataplane/chain"
	"ankole.storage/dataplane/engine"
)

// add has a replica rebuilt, which may have moved and may not be possible at once.
func (o *trio) add(r *Replica) {
	o.t.Helper()
	o.until(r.Name+" is rebuilt", func() bool {
		if m := o.v.Current.mode(r.Addr()); m == engine.RW {
			return true
		} else if m != engine.WO {
			o.v.Current.Post(engine.AddReplica{Address: r.Addr(), Reply: func(error) {}})
			o.pass(50 * time.Millisecond)
		}
		return false
	})
}

// accept goes on with what one replica has: everything else is killed, and a person gives the word
// for it.
func (o *trio) accept(r *Replica) {
	o.t.Helper()
	o.v.KillEngine(o.v.Current)
	o.v.Trust = []string{r.Name}
	o.v.StartEngine(o.v.Nodes[3])
	o.until(r.Name+" serves on a person's word", func() bool { return o.v.Current.state.Serving })
	o.v.Trust = nil
}

// same checks that two replicas hold the same in a block.
func (o *trio) same(x, y *Replica, off int64) {
	o.t.Helper()
	if m, n := o.holds(x, off), o.holds(y, off); m != n {
		o.t.Errorf("%s has write %d and %s write %d\n%s", x.Name, m, y.Name, n, o.v.History())
	}
}

// A person goes on with a replica that has stored the record of the others. What went on without it
// is on nobody's account who is left: the one that comes back is compared in full.
func TestDataLossAcceptedWithAVoter(t *testing.T) {
	const at = chain.RegionSize
	o := newTrio(t, 1)
	defer o.v.Close()
	o.lose(o.x, 1)
	o.v.Witness.Down = true
	o.b.Kill()
	held := o.write(2, at)
	o.b.Start()
	o.until("b agrees that a goes on alone", func() bool {
		o.v.Current.Post(engine.AddReplica{Address: o.b.Addr(), Reply: func(error) {}})
		o.pass(50 * time.Millisecond)
		return held()
	})
	o.v.Witness.Down = false
	o.b.Kill()
	o.pass(5 * time.Minute) // marks are taken away
	if marks, _ := o.a.Chain().Dirty(); len(marks) > 0 {
		t.Fatalf("marks %v stay", marks)
	}
	o.a.Kill()
	o.b.Start()
	if r, _ := o.b.Chain().Record(); len(r.Members) != 1 || r.Members[0].Name != o.a.Name {
		t.Fatalf("b has the record %+v", r)
	}
	o.accept(o.b)
	o.a.Start()
	o.add(o.a)
	o.same(o.a, o.b, at)
}

// A rebuild brings a replica what another one has, and is interrupted; a person goes on with a
// third one that lacks it.
func TestDataLossAcceptedAfterAnInterruptedRebuild(t *testing.T) {
	const at = chain.RegionSize
	tried := 0
	for seed := uint64(1); seed < 100 && tried < 5; seed++ {
		o := newTrio(t, seed)
		o.lose(o.x, 1)
		o.lose(o.b, 2)
		o.until("a write that only a has", o.write(3, at))
		o.restart(o.a) // takes all marks away
		o.x.Node.PowerOn()
		o.x.Start()
		o.v.Current.Post(engine.AddReplica{Address: o.x.Addr(), Reply: func(error) {}})
		o.until("x is written to", func() bool { return o.x.Chain() != nil && o.holds(o.x, at) == 3 })
		record, _ := o.x.Chain().Record()
		o.x.Kill()
		o.a.Kill()
		if len(record.Members) > 0 {
			o.v.Close()
			continue
		}
		tried++
		o.b.Node.PowerOn()
		o.b.Start()
		o.accept(o.b)
		o.x.Start()
		o.add(o.x)
		o.same(o.x, o.b, at)
		o.v.Close()
	}
	if tried == 0 {
		t.Error("no rebuild was interrupted: nothing was tried")
	}
}

// Whatever is lost, comes back, is rebuilt or is interrupted around starts on a person's word: in
// the end all replicas hold the same.
func TestDataLossAcceptedInAnyHistory(t *testing.T) {
	accepted := 0
	for seed := range uint64(150) {
		o := newTrio(t, seed)
		rnd := stream(seed, 11)
		for n := range uint64(20) {
			r := o.v.Replicas[rnd.IntN(3)]
			switch rnd.IntN(8) {
			case 0, 1:
				r.Kill()
			case 2, 3:
				o.begin(r)
				o.pass(between(rnd, 0, 10*time.Millisecond))
			case 4:
				o.write(n+1, rnd.Int64N(3)*chain.RegionSize)
				o.pass(between(rnd, 0, 20*time.Second))
			case 5:
				o.pass(3 * time.Minute) // marks are taken away
			case 6:
				o.v.Witness.Down = !o.v.Witness.Down
			case 7:
				o.v.KillEngine(o.v.Current)
				o.v.Trust = []string{r.Name}
				o.v.StartEngine(o.v.Nodes[3])
				o.v.Trust = nil
				o.pass(between(rnd, 0, 20*time.Second))
			}
		}
		o.v.Witness.Down = false
		for _, r := range o.v.Replicas {
			o.begin(r)
		}
		for i := 0; i < 4 && (i == 0 || !o.v.Current.state.Serving); i++ {
			// None is trusted first: all are there, so that only an incomplete copy needs another word.
			o.v.KillEngine(o.v.Current)
			o.v.Trust = [][]string{nil, {o.b.Name}, {o.a.Name}, {o.x.Name}}[i]
			o.v.StartEngine(o.v.Nodes[3])
			o.v.Trust = nil
			o.w.Until(time.Minute, func() bool { return o.v.Current.state.Serving || o.v.Current.state.Fatal })
		}
		for _, r := range o.v.Replicas {
			o.add(r)
		}
		for off := int64(0); off < o.v.Size; off += chain.RegionSize {
			o.same(o.a, o.b, off)
			o.same(o.x, o.b, off)
		}
		accepted += strings.Count(o.v.History(), " data-loss-accepted ")
		o.v.Close()
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	if accepted == 0 {
		t.Error("no loss was accepted: nothing was tried")
	}
}

// begin starts a replica that does not run and asks for it to be rebuilt; nobody waits for that.
func (o *trio) begin(r *Replica) {
	if !r.Alive() {
		r.Start()
	}
	o.v.Current.Post(engine.AddReplica{Address: r.Addr(), Reply: func(error) {}})
}
