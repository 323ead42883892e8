package sim

import (
	"slices"
	"testing"
	"time"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/chain"
	"ankole.storage/dataplane/engine"
	"ankole.storage/test/sim/register"
)

// trio is a volume of three replicas, b, a and x, in this order, without a control plane.
type trio struct {
	t       *testing.T
	w       *World
	v       *Volume
	b, a, x *Replica
}

func newTrio(t *testing.T, seed uint64) *trio {
	w := NewWorld(seed)
	v := NewVolume(w, 3, 12<<20)
	o := &trio{t, w, v, v.Replicas[0], v.Replicas[1], v.Replicas[2]}
	v.StartEngine(v.Nodes[3])
	o.until("all replicas serve", v.Healthy)
	return o
}

func (o *trio) until(what string, cond func() bool) {
	o.t.Helper()
	if !o.w.Until(time.Minute, cond) {
		o.t.Fatalf("%s: did not happen\n%s", what, o.v.History())
	}
}

// pass lets time pass.
func (o *trio) pass(d time.Duration) {
	end := o.w.Now().Add(d)
	o.w.Until(d, func() bool { return o.w.Now() >= end })
}

// write begins a write of one block that carries number n; answered tells whether it has succeeded.
func (o *trio) write(n uint64, off int64) (answered func() bool) {
	done := false
	o.v.Current.front.Submit(&Call{Kind: block.Write, FUA: true, Off: off, Len: block.Size, Fill: func(p []byte) {
		register.Stamp(p, n, off/block.SectorSize)
	},
		Done: func(code block.Code, _ []byte) { done = code == block.OK }})
	return func() bool { return done }
}

// restart starts what runs again after everything has been killed, and waits until these replicas
// serve.
func (o *trio) restart(serve ...*Replica) {
	o.t.Helper()
	o.v.KillEngine(o.v.Current)
	o.v.StartEngine(o.v.Nodes[3])
	o.until("replicas serve again", func() bool {
		e := o.v.Current
		return e.state.Serving && !slices.ContainsFunc(serve, func(r *Replica) bool { return e.mode(r.Addr()) != engine.RW })
	})
}

// lose takes the power of a replica's node, and writes to the volume so that the others go on
// without it.
func (o *trio) lose(r *Replica, n uint64) {
	o.t.Helper()
	o.v.PowerOff(r.Node)
	o.until("a write without "+r.Name, o.write(n, 0))
}

// holds returns the number in a block of a replica.
func (o *trio) holds(r *Replica, off int64) uint64 {
	p := make([]byte, block.Size)
	if _, err := r.Chain().ReadAt(p, off); err != nil {
		o.t.Fatal(err)
	}
	n, _ := register.Unstamp(p, off/block.SectorSize)
	return n
}

// A start writes to a replica what only another one had marked, since its mark was on the way when
// it died. It must be on the account of a third replica that is away and is rebuilt from the first
// one.
func TestAccountOfWhatAResyncWrites(t *testing.T) {
	const at = chain.RegionSize
	tried := 0
	for seed := uint64(1); seed < 400 && tried < 5; seed++ {
		o := newTrio(t, seed)
		o.lose(o.x, 1)
		o.restart(o.b, o.a)     // takes all marks away
		o.v.Witness.Down = true // so that the set without a is not agreed
		o.write(2, at)
		rnd := stream(seed, 9)
		o.pass(between(rnd, 0, time.Millisecond))
		o.a.Kill()
		o.pass(between(rnd, 0, time.Millisecond))
		o.b.Kill()
		o.v.KillEngine(o.v.Current)
		o.v.Witness.Down = false
		o.b.Start()
		o.a.Start()
		record, _ := o.b.Chain().Record()
		if marks, _ := o.a.Chain().Dirty(); o.holds(o.b, at) != 2 || o.holds(o.a, at) == 2 ||
			len(record.Members) != 2 || slices.Contains(marks, 1) {
			o.v.Close()
			continue
		}
		tried++
		o.restart(o.b, o.a)
		if o.holds(o.a, at) != 2 {
			t.Fatal("the first replica was not believed")
		}
		o.lose(o.b, 3)
		o.x.Node.PowerOn()
		o.x.Start()
		o.v.Current.Post(engine.AddReplica{Address: o.x.Addr(), Reply: func(error) {}})
		o.until("x is rebuilt", func() bool { return o.v.Current.mode(o.x.Addr()) == engine.RW })
		if got := o.holds(o.x, at); got != 2 {
			t.Errorf("seed %d: the replica that was away has write %d, the one it was rebuilt from write 2\n%s", seed,
				got, o.v.History())
		}
		o.v.Close()
	}
	if tried == 0 {
		t.Error("no mark was on its way: nothing was tried")
	}
}
