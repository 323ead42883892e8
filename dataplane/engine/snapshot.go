package engine

import (
	"fmt"

	"ankole.storage/block"
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
	// PurgeSnapshots begins to give the space of removed snapshots back, beside requests. The state shows the progress.
	PurgeSnapshots struct {
		// SkipIfRunning: a purge that is under way is no error.
		SkipIfRunning bool
		Reply         func(error)
	}
)

func (e *Engine) takeSnapshot(m TakeSnapshot) {
	e.change(&change{what: "snapshot " + m.Request.Name, between: true, check: true, mends: true, request: &wire.ControlRequest{Snapshot: &m.Request},
		made: e.refreshSnapshots, done: func(err error) { e.whenAgreed(m.Reply, err) }})
}

func (e *Engine) removeSnapshot(m RemoveSnapshot) {
	if m.Name == HeadName {
		m.Reply(fmt.Errorf("%w: %s is what the volume holds now, not a snapshot", block.Invalid, HeadName))
		return
	}
	e.change(&change{what: "removal of snapshot " + m.Name, notFound: true, request: &wire.ControlRequest{RemoveSnapshot: &wire.RemoveSnapshot{Name: m.Name}},
		made: e.refreshSnapshots, done: func(err error) { e.whenAgreed(m.Reply, err) }})
}
