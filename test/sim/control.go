package sim

import (
	"slices"

	"ankole.storage/dataplane/engine"
)

// Heal does what the control plane would: it starts dead replicas, adds those the engine has
// dropped, ends engines that were replaced, and starts one where none runs or none can be reached.
// It makes at most one change, of what it can reach.
func (v *Volume) Heal() {
	for _, r := range v.Replicas {
		if !r.Alive() && v.reached(r.Node) {
			if r.Begin(); r.Broken == nil {
				return
			}
		}
	}
	for _, e := range v.Engines {
		if e != v.Current && v.reached(e.node) && (v.upgrade == nil || e != v.upgrade.new) {
			v.KillEngine(e)
			return
		}
	}
	e := v.Current
	if e == nil || !e.Alive() || v.reached(e.node) && e.state.Fatal || v.givenUp(e.node) {
		if e != nil && v.reached(e.node) {
			v.KillEngine(e)
		}
		if n := v.place(); n != nil {
			v.StartEngine(n)
		}
		return
	}
	if v.reached(e.node) && e.state.Serving {
		v.addReplica(e)
	}
}

// reached tells whether the control plane reaches a node.
func (v *Volume) reached(n *Node) bool { return !n.off && v.Witness.cut[n] == 0 }

// givenUp tells whether a node has been out of reach for so long that its engine is replaced.
func (v *Volume) givenUp(n *Node) bool {
	if v.reached(n) {
		delete(v.cut, n)
		return false
	}
	if _, ok := v.cut[n]; !ok {
		v.cut[n] = v.W.now
	}
	return v.W.now >= v.cut[n].Add(v.ReplaceAfter)
}

// place chooses a node for an engine.
func (v *Volume) place() *Node {
	var can []*Node
	for _, n := range v.Nodes {
		if v.reached(n) {
			can = append(can, n)
		}
	}
	if len(can) == 0 {
		return nil
	}
	if e := v.Current; v.Keeps && e != nil && v.W.Rand.IntN(2) == 0 && v.reached(e.node) {
		return e.node // where the users are
	}
	return can[v.W.Rand.IntN(len(can))]
}

// addReplica lets the engine forget a replica that is no longer where it was, or rebuild one that
// it has dropped.
func (v *Volume) addReplica(e *EngineProcess) {
	for _, x := range e.state.Replicas {
		if x.Mode == engine.ERR && !slices.ContainsFunc(v.Replicas, func(r *Replica) bool { return r.Addr() == x.Address }) {
			e.Post(engine.RemoveReplica{Address: x.Address, Reply: func(error) {}})
			return
		}
	}
	busy := false
	for _, x := range e.state.Replicas {
		busy = busy || x.Mode == engine.WO || (x.Mode == engine.Unknown && x.Rebuild != nil)
	}
	for _, r := range v.Replicas {
		if r.Ready() && v.reached(r.Node) && !busy && e.mode(r.Addr()) != engine.RW {
			e.Post(engine.AddReplica{Address: r.Addr(), Reply: func(error) {}})
			return
		}
	}
}

// Healthy reports that one engine runs and every replica is RW.
func (v *Volume) Healthy() bool {
	e := v.Current
	if e == nil || !e.Alive() || !e.state.Serving || len(v.Engines) != 1 {
		return false
	}
	for _, r := range v.Replicas {
		if !r.Ready() || e.mode(r.Addr()) != engine.RW {
			return false
		}
	}
	return true
}

// mode is the mode of the replica at an address, Unknown if the engine has none there.
func (e *EngineProcess) mode(addr string) engine.Mode {
	for i := range e.state.Replicas {
		if e.state.Replicas[i].Address == addr {
			return e.state.Replicas[i].Mode
		}
	}
	return engine.Unknown
}
