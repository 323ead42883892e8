package engine

import (
	"fmt"
	"strings"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/wire"
)

// Messages about snapshots, posted to the core.
type (
	// TakeSnapshot takes a snapshot on all replicas at one point between writes.
	TakeSnapshot struct {
		Request wire.SnapshotRequest
		Reply   func(error)
	}
	// RemoveSnapshot marks a snapshot as removed. Its space comes back with the next purge.
	RemoveSnapshot struct {
		Name  string
		Reply func(error)
	}
	// PurgeSnapshots begins to give the space of removed snapshots back, beside requests. The state
	// shows the progress.
	PurgeSnapshots struct {
		// SkipIfRunning: a purge that is under way is no error.
		SkipIfRunning bool
		Reply         func(error)
	}
)

// ownLabels is how labels begin by which a start knows what an engine was about. A user's snapshot
// with one of them could be given up then, or taken for the end of an import.
const ownLabels = "ankole-"

func (k *changes) takeSnapshot(m TakeSnapshot) {
	err := m.Request.Check()
	for k := range m.Request.Labels {
		if err == nil && strings.HasPrefix(k, ownLabels) {
			err = fmt.Errorf("%w: label %.128q: labels that begin with %q are the engine's own; choose another one",
				block.Invalid, k, ownLabels)
		}
	}
	if err != nil {
		m.Reply(err)
		return
	}
	k.make(&change{what: "snapshot " + m.Request.Name, between: true, check: true, repairs: true, beside: true,
		request:  &wire.ControlRequest{Snapshot: &m.Request},
		followed: func(j *rebuildJob) { j.rotated(&m.Request) },
		made:     k.e.sizes.refresh, done: func(err error) { k.e.held.whenAgreed(m.Reply, err) }})
}

func (k *changes) removeSnapshot(m RemoveSnapshot) {
	if m.Name == HeadName {
		m.Reply(fmt.Errorf("%w: %s is what the volume holds now, not a snapshot", block.Invalid, HeadName))
		return
	}
	k.make(&change{what: "removal of snapshot " + m.Name, notFound: true, beside: true,
		request: &wire.ControlRequest{RemoveSnapshot: &wire.RemoveSnapshot{Name: m.Name}},
		made:    k.e.sizes.refresh, done: func(err error) { k.e.held.whenAgreed(m.Reply, err) }})
}
