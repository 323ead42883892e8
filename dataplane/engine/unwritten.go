package engine

import (
	"ankole.storage/dataplane/wire"
)

// unwritten knows where nothing was ever written to the volume, which reads as zeroes there. A
// discard changes nothing then, so no replica is asked and no region marked: what mkfs discards of
// a new volume would be as many marks as the volume has regions. It is known from the start if
// every replica says that it is empty and on no image, and of nothing otherwise. Whoever asks is
// answered as a reader is: under the lease, so that no other engine has written there before.
type unwritten struct {
	e     *Engine
	known bool
	// written has a bit for each region that was written to; what is beyond it was.
	written []uint64
}

// begin takes in what the replicas say when the volume is first served.
func (u *unwritten) begin() {
	e := u.e
	*u = unwritten{e: e}
	for _, l := range e.links.all {
		if l != nil && l.mode == RW {
			if !l.helloReply.Empty || l.helloReply.OnImage {
				u.known = false
				return
			}
			u.known = true
		}
	}
	if u.known {
		u.written = make([]uint64, (e.agreedSize/DirtyRegion+63)/64)
	}
}

// note takes in that a task is sent to replicas.
func (u *unwritten) note(t *task) {
	if !u.known || t.kind != wire.Write && t.kind != wire.WriteZeroes {
		return
	}
	off, n, _ := t.extent()
	for r := off / DirtyRegion; r*DirtyRegion < off+n && r/64 < int64(len(u.written)); r++ {
		u.written[r/64] |= 1 << (r % 64)
	}
}

// skip returns from where on of [off, end) replicas have to be asked for a discard.
func (u *unwritten) skip(off, end int64) int64 {
	e := u.e
	if !u.known || !e.serving || e.fatal != "" || e.writes.frozen > 0 ||
		e.imports.incomplete != nil || e.links.mask(RW) == 0 || e.quorum.Holding() {
		return off
	}
	if e.lease.use(); !e.lease.covers(e.now) {
		return off
	}
	for off < end {
		r := off / DirtyRegion
		if r/64 >= int64(len(u.written)) || u.written[r/64]&(1<<(r%64)) != 0 {
			return off
		}
		off = min(end, (r+1)*DirtyRegion)
	}
	return end
}
