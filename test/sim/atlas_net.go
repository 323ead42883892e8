package sim

import (
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"ankole.storage/dataplane/engine"
)

// pair chooses two nodes; the engine's is one of them as a rule.
func (r *run) pair(rnd *rand.Rand) (a, b *Node) {
	a = r.central(rnd)
	for b == nil || b == a {
		b = pick(rnd, r.v.Nodes...)
	}
	return a, b
}

// central chooses a node, the engine's as a rule.
func (r *run) central(rnd *rand.Rand) *Node {
	if e := r.v.Current; e != nil && rnd.IntN(4) > 0 {
		return e.node
	}
	return pick(rnd, r.v.Nodes...)
}

func netPair(r *run, rnd *rand.Rand) (func(), bool) {
	a, b := r.pair(rnd)
	r.v.log("%s and %s do not reach each other", a.Name, b.Name)
	return both(r.w.block(a, b), r.w.block(b, a)), true
}

func netOneWay(r *run, rnd *rand.Rand) (func(), bool) {
	a, b := r.pair(rnd)
	if rnd.IntN(2) == 0 {
		a, b = b, a
	}
	r.v.log("%s does not reach %s", a.Name, b.Name)
	return r.w.block(a, b), true
}

func both(all ...func()) func() {
	return func() {
		for _, f := range all {
			f()
		}
	}
}

func netSlow(r *run, rnd *rand.Rand) (func(), bool) {
	a, b := r.pair(rnd)
	slow := time.Duration(1<<rnd.IntN(10)) * time.Millisecond
	r.w.way(a, b).slow += slow
	r.v.log("%s reaches %s in %s", a.Name, b.Name, slow)
	return func() { r.w.way(a, b).slow -= slow }, true
}

// netCut breaks one of the engine's connections in the middle of the stream.
func netCut(r *run, rnd *rand.Rand) (func(), bool) {
	e := r.v.Current
	if e == nil || !e.alive || len(e.conns) == 0 {
		return nil, false
	}
	c := pick(rnd, sorted(e.conns)...)
	c.cut()
	return nil, true
}

// attacked has an attacker in the network who acts a few times.
func (r *run) attacked(rnd *rand.Rand, k *attack) (func(), bool) {
	if r.w.attacker != nil {
		return nil, false
	}
	a, stop := r.w.Attack(rnd, k, 1+rnd.IntN(3))
	return func() {
		stop()
		r.v.log("an attacker did: %s", strings.Join(a.acted, ", "))
	}, true
}

// netForged changes frames, sends them to where they came from, or lowers the versions of an
// initiation or a greeting.
func netForged(r *run, rnd *rand.Rand) (func(), bool) {
	return r.attacked(rnd, &forgeries[rnd.IntN(len(forgeries))])
}

// netReplayed repeats, leaves out or moves frames.
func netReplayed(r *run, rnd *rand.Rand) (func(), bool) {
	return r.attacked(rnd, &replays[rnd.IntN(len(replays))])
}

// netRelayed leads connections to other replicas than they are meant for.
func netRelayed(r *run, rnd *rand.Rand) (func(), bool) { return r.attacked(rnd, &relayed) }

// isolateNode takes a node out of the reach of all others and of the control plane, which replaces
// its engine after a while. What runs there goes on.
func isolateNode(r *run, rnd *rand.Rand) (func(), bool) {
	n := r.central(rnd)
	r.v.log("%s is cut off", n.Name)
	return both(r.hide(n), r.separate(n)), true
}

// leftBehind has the others agree, without the witness, that a replica is none of them any more.
// Then they are cut off, and the witness and the one that was dropped are back: an engine that
// starts now hears of the volume from those two alone.
func leftBehind(r *run, rnd *rand.Rand) (func(), bool) {
	e, x := r.v.Current, pick(rnd, r.v.Replicas...)
	if len(r.v.Replicas) < 3 || e == nil || !e.alive || e.node == x.Node || e.mode(x.Addr()) != engine.RW {
		return nil, false
	}
	r.v.log("%s is left behind", x.Name)
	r.v.Witness.down++
	undo := func() { r.v.Witness.down-- }
	x.Kill()
	// Its end has to be heard of, but nobody may add it again.
	r.w.After(5*time.Millisecond, func() {
		if undo != nil {
			undo = both(undo, r.separate(x.Node))
		}
	})
	r.w.After(between(rnd, 20*time.Millisecond, 100*time.Millisecond), func() {
		if undo == nil {
			return
		}
		undo()
		r.v.log("nobody but %s is within reach", x.Name)
		var cut []func()
		for _, o := range r.v.Replicas {
			if o != x {
				cut = append(cut, r.hide(o.Node), r.separate(o.Node))
			}
		}
		undo = both(cut...)
		for _, e := range slices.Clone(r.v.Engines) {
			r.v.KillEngine(e)
		}
	})
	return func() {
		undo()
		undo = nil
	}, true
}

// separate cuts a node off from all others.
func (r *run) separate(n *Node) (undo func()) {
	var all []func()
	for _, o := range r.v.Nodes {
		all = append(all, r.w.block(n, o), r.w.block(o, n))
	}
	return both(all...)
}

// hide takes a node out of the control plane's reach, and the witness out of the node's.
func (r *run) hide(n *Node) (undo func()) {
	r.v.Witness.cut[n]++
	return func() { r.v.Witness.cut[n]-- }
}

// stallNode lets a node stand still, until after its engine was replaced perhaps.
func stallNode(r *run, rnd *rand.Rand) (func(), bool) {
	n := r.central(rnd)
	r.v.log("%s stands still", n.Name)
	undo := []func(){r.hide(n)}
	for _, e := range r.v.Engines {
		if e.node == n {
			undo = append(undo, freeze(e.Process))
		}
	}
	for _, x := range r.v.Replicas {
		if x.Node == n && x.Alive() {
			undo = append(undo, freeze(x.proc))
		}
	}
	return both(undo...), true
}

func freeze(p *Process) (undo func()) {
	p.Freeze()
	return p.Thaw
}

// pauseEngine stops the engine alone, until after it was replaced perhaps: by one that its own
// node's replica has let in.
func pauseEngine(r *run, _ *rand.Rand) (func(), bool) {
	e := r.v.Current
	if e == nil || !e.alive {
		return nil, false
	}
	r.v.log("%s is paused", e.Name)
	return both(r.hide(e.node), freeze(e.Process)), true
}

func freezeEngine(r *run, _ *rand.Rand) (func(), bool) {
	if e := r.v.Current; e != nil && e.alive {
		return freeze(e.Process), true
	}
	return nil, false
}

func freezeReplica(r *run, rnd *rand.Rand) (func(), bool) {
	x := pick(rnd, r.v.Replicas...)
	if !x.Alive() {
		return nil, false
	}
	r.v.log("%s stands still", x.Name)
	return freeze(x.proc), true
}

func witnessDown(r *run, _ *rand.Rand) (func(), bool) {
	r.v.Witness.down++
	return func() { r.v.Witness.down-- }, true
}

func witnessSlow(r *run, rnd *rand.Rand) (func(), bool) {
	w := r.v.Witness
	if w.slow > 0 {
		return nil, false
	}
	w.slow = time.Duration(1<<rnd.IntN(11)) * time.Millisecond
	return func() { w.slow = 0 }, true
}

func witnessLossy(r *run, _ *rand.Rand) (func(), bool) {
	w := r.v.Witness
	if w.lossy {
		return nil, false
	}
	w.lossy = true
	return func() { w.lossy = false }, true
}
