package engine

import (
	"fmt"

	"ankole.storage/dataplane/clock"
)

// noReplica is an engine without any replica left.
type noReplica struct {
	e *Engine
	// since is when the last one was lost, Never otherwise.
	since clock.Ticks
}

// due is when an engine without a replica ends: when its users have waited long enough, or at
// once where they wait for the next engine anyway.
func (n *noReplica) due() clock.Ticks {
	e := n.e
	switch {
	case n.since == clock.Never:
		return clock.Never
	case e.users.kept || e.users.continues:
		return n.since
	}
	return n.since.Add(e.cfg.NoReplicaTimeout)
}

// step ends the engine then.
func (n *noReplica) step() {
	e := n.e
	if e.now < n.due() {
		return
	}
	waited := e.now.Sub(n.since)
	// The replicas may be well again, each after a restart of its own. This engine cannot take
	// them back: it does not know what became of its last writes there. The next one compares
	// them.
	e.stop(fmt.Sprintf("no replica left for %s; another engine can start when enough of them are back", waited), false)
}
