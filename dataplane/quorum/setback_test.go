package quorum

import "slices"

// atRest reports whether an older state of a replica's directory can be put in its place: nobody
// uses it, and an engine of a later grant has served with it since, so that the witness knows.
// Within the grant of the copy nothing tells the two apart.
func (w *world) atRest(i int) bool {
	if !slices.Contains(w.limits.only, isSetBack) {
		return false
	}
	d := &w.disks[i]
	for _, e := range w.engines {
		if s := e.links[i].state; e.alive && (s == open || s == broken) {
			return false
		}
	}
	return d.was != nil && w.witness.Record.Has(replicaName(i)) &&
		granted(w.witness.Record.Epoch) > granted(d.was.rec.Epoch)
}

// setBack puts it there.
func (w *world) setBack(i int) {
	for k := range w.engines {
		if w.disks[i].session == k {
			w.hangUp(k, i)
		}
	}
	w.disks[i] = *w.disks[i].was
}

// setBack reports whether that was done.
func (d *disk) setBack() bool { return d.was == nil }
