package engine

import (
	"fmt"
	"slices"

	"ankole.storage/dataplane/wire"
)

// inTheWay refuses what cannot be done while a replica is rebuilt.
func (j *rebuildJob) inTheWay() error {
	return fmt.Errorf("%w: replica %s is being rebuilt; try again when it is done", ErrBusy, j.target.addr)
}

// pause calls f when a change of the chain can be made beside the rebuild under way, or when
// there is none: the target's chain stands still, as does the plan, and no piece is under way that
// is called by the number of its layer. resume lets it go on.
func (b *rebuilds) pause(f func()) {
	b.onPaused = f
	b.paused()
}

// paused continues the change that waits for the rebuild, if it waits no more.
func (b *rebuilds) paused() {
	f := b.onPaused
	if f == nil {
		return
	}
	if j := b.job(); j != nil && !j.dead {
		switch {
		case j.stage <= stageSurveying: // it waits for the change
		case j.stage != stageCopying || j.ended:
			return
		default:
			j.paused = true
			if j.running > 0 || j.listing || j.source == nil && j.lost == nil {
				return
			}
		}
	}
	b.onPaused = nil
	f()
}

// resume lets the rebuild go on after a change.
func (b *rebuilds) resume() {
	j := b.job()
	if j == nil || !j.paused {
		return
	}
	j.paused = false
	if lost := j.lost; lost != nil && !j.dead {
		j.lost = nil
		lost()
	}
	j.more()
}

// rotated follows a snapshot, which source and target have taken: what was the head of both is a
// layer, below an empty head.
func (j *rebuildJob) rotated(snapshot *wire.SnapshotRequest) {
	j.plan.Rotated()
	j.verifying = false
	layers := slices.Clone(j.shape.Layers)
	k := len(layers) - 1
	head := layers[k]
	layers[k].Name, layers[k].UserCreated = snapshot.Name, snapshot.UserCreated
	head.Parent, head.Size = snapshot.Name, j.e.size
	j.shape.Layers = append(layers, head)
	j.e.event("snapshot-followed", j.target.addr, snapshot.Name)
}
