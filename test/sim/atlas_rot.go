package sim

import (
	"bytes"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/chain"
	"ankole.storage/dataplane/disk"
	"ankole.storage/dataplane/engine"
)

// rotten is damage at rest in a snapshot's file of one replica, whose checksums say that it was
// good.
type rotten struct {
	x              *Replica
	snapshot, path string
	off            int64
	// good is what was there, bad what came in its place.
	good, bad []byte
}

// rotTwice counts how often two replicas had rot in one mebibyte.
const rotTwice = "rot-twice"

// maxRot bounds how many blocks rot at once.
const maxRot = 32

// rot damages a snapshot where newer layers hide it, so that no user of the volume reads it and
// none writes a part of a block over it: that would make it content. What would copy it to where no
// checksum knows better ends it: see unrot.
//
// Where there is nothing that checksums vouch for, a scrub comes first, and the rot after it.
func rot(r *run, rnd *rand.Rand) (func(), bool) {
	if len(r.rotten) > 0 || len(r.v.Replicas) < 2 {
		return nil, false
	}
	if r.decay(rnd, true) {
		r.scrub(engine.Scrub{Mode: engine.ScrubEnabled}, func() {})
		return nil, true
	}
	r.perish = rnd
	r.scrub(engine.Scrub{Mode: engine.ScrubEnabled}, func() {})
	return nil, false
}

// decay chooses the place for rot and makes it. One copy of a snapshot rots, of two at least, while
// all are there, and at times another replica's copy of another snapshot in the same mebibyte, as
// much as a scrub compares at once.
func (r *run) decay(rnd *rand.Rand, hidden bool) bool {
	names := slices.Sorted(maps.Keys(r.taken))
	if !r.v.Healthy() || len(r.v.Replicas) < 2 || len(names) == 0 || r.sickDisks > 0 || r.purging() ||
		r.offline != nil || r.cloning != nil {
		return false
	}
	x, name := pick(rnd, r.v.Replicas...), pick(rnd, names...)
	at, ok := r.decayIn(rnd, x, name, hidden, 0, r.plan.Size)
	if !ok {
		return false
	}
	r.perish = nil
	if rnd.IntN(3) > 0 && r.decayBeside(rnd, x, name, at&^(block.MaxTransfer-1), hidden) {
		r.faults[rotTwice]++
	}
	return true
}

// decayBeside has another replica's copy of another snapshot rot in the mebibyte at from, where
// there is such a one.
func (r *run) decayBeside(rnd *rand.Rand, than *Replica, name string, from int64, hidden bool) bool {
	for _, x := range r.v.Replicas {
		for _, other := range slices.Sorted(maps.Keys(r.taken)) {
			if x == than || other == name {
				continue
			}
			if _, ok := r.decayIn(rnd, x, other, hidden, from, from+block.MaxTransfer); ok {
				return true
			}
		}
	}
	return false
}

// decayIn has some blocks rot in one replica's copy of a snapshot, in [from, to), and tells where
// the first one is, if there is any.
func (r *run) decayIn(rnd *rand.Rand, x *Replica, name string, hidden bool, from, to int64) (at int64, ok bool) {
	first, n := r.perishable(rnd, x, name, hidden, from, to)
	if n == 0 {
		return 0, false
	}
	d := &rotten{x: x, snapshot: name, path: replicaDir + x.Name + "/volume-snap-" + name + ".img",
		off:  first * block.Size,
		good: make([]byte, n*block.Size), bad: make([]byte, n*block.Size)}
	if d.read(d.good) != nil || x.Disk.FS.Rot(d.path, d.off, n*block.Size) != nil || d.read(d.bad) != nil {
		panic("sim: a file of a chain cannot be found") // and nothing else can go wrong
	}
	r.v.log("[%d,+%d) of snapshot %s rots on %s", d.off, len(d.bad), name, x.Name)
	r.rotten = append(r.rotten, d)
	return d.off, true
}

// perishable chooses blocks in [from, to) that a snapshot's file has and its checksums vouch for,
// on one replica; none: 0.
func (r *run) perishable(rnd *rand.Rand, x *Replica, name string, hidden bool, from, to int64) (first, n int64) {
	c, file := x.Chain(), "volume-snap-"+name+".img"
	if c == nil { // between the processes of a live upgrade
		return 0, 0
	}
	handle, ok := c.LayerHandle(file)
	if !ok {
		return 0, 0
	}
	var blocks []int64
	err := c.LayerExtents(file, func(e disk.Extent) error {
		for b := max(e.Off, from) / block.Size; b < min(e.Off+e.Len, to)/block.Size; b++ {
			if !hidden || c.ReadPlan(b*block.Size, block.Size, nil)[0].Handle != handle {
				blocks = append(blocks, b)
			}
		}
		return nil
	})
	if err != nil || len(blocks) == 0 {
		return 0, 0
	}
	at := rnd.IntN(len(blocks))
	first, n = blocks[at], 1
	for most := 1 + rnd.Int64N(maxRot); n < most && at+int(n) < len(blocks) && blocks[at+int(n)] == first+n; {
		n++
	}
	view, err := c.OpenView(name)
	if err != nil {
		return 0, 0
	}
	defer view.Close()
	if v, _, err := view.Verify(first*block.Size, n*block.Size); err != nil || v != chain.VerdictGood {
		return 0, 0
	}
	return first, n
}

func (d *rotten) read(p []byte) error { return d.x.Disk.FS.Peek(d.path, p, d.off) }

// there tells whether some of it is still there.
func (d *rotten) there() bool {
	now := make([]byte, len(d.bad))
	if d.read(now) != nil {
		return false // the file is gone
	}
	for i := 0; i < len(now); i += block.Size {
		if bytes.Equal(now[i:i+block.Size], d.bad[i:i+block.Size]) {
			return true
		}
	}
	return false
}

// unrot turns bits back that nobody has put right: before a rebuild or a purge, which take what
// they read for content, and before the snapshot is removed.
func (r *run) unrot() {
	for _, d := range r.rotten {
		if d.there() {
			r.turnBack(d)
		}
	}
	r.rotten = nil
}

func (r *run) turnBack(d *rotten) {
	now := make([]byte, block.Size)
	for i := int64(0); i < int64(len(d.bad)); i += block.Size {
		at := d.off + i
		if d.x.Disk.FS.Peek(d.path, now, at) == nil && bytes.Equal(now, d.bad[i:i+block.Size]) {
			_ = d.x.Disk.FS.Rot(d.path, at, block.Size) // what can be read can rot
		}
	}
	r.v.log("rot of snapshot %s on %s is gone", d.snapshot, d.x.Name)
}

// purging tells whether some replica merges files.
func (r *run) purging() bool {
	return slices.ContainsFunc(r.v.Current.state.Replicas, func(x engine.Replica) bool {
		return x.Purge != nil && x.Purge.Running
	})
}

// diskUnreadable makes parts of one replica's files unreadable until they are written.
func diskUnreadable(r *run, rnd *rand.Rand) (func(), bool) {
	x := r.sick(rnd)
	if x == nil || x.Chain() == nil {
		return nil, false
	}
	// The directory is asked, not the chain: a metadata operation may be changing its layers.
	names, err := x.Disk.FS.List(replicaDir + x.Name)
	images := slices.DeleteFunc(names, func(name string) bool { return !strings.HasSuffix(name, ".img") })
	if err != nil || len(images) == 0 {
		return nil, false
	}
	for range 1 + rnd.IntN(4) {
		image := pick(rnd, images...)
		off, n := rnd.Int64N(4)*(r.plan.Size/4)+rnd.Int64N(24<<10), 1+rnd.Int64N(64<<10)
		if x.Disk.FS.Unreadable(replicaDir+x.Name+"/"+image, off, n) != nil {
			return nil, false // the name is changing just now
		}
		r.v.log("[%d,+%d) of %s is unreadable on %s", off, n, image, x.Name)
	}
	r.sickDisks++
	return func() {
		r.sickDisks--
		x.Disk.FS.Readable()
	}, true
}

// witnessRestored puts the witness' record back to an earlier one, while every replica is a member
// and remembers a later one. A replica that had been dropped could take it for news.
func witnessRestored(r *run, rnd *rand.Rand) (func(), bool) {
	w := r.v.Witness
	if !r.v.Healthy() || w.late > 0 || len(w.past) == 0 {
		return nil, false
	}
	old, now := pick(rnd, w.past...), r.v.Current.state.Record
	if old.Record.Generation == 0 || old.Record.Generation >= now.Generation {
		return nil, false
	}
	w.record = old
	r.v.log("the witness is put back to epoch %d, %v", old.Epoch, old.Record)
	return nil, true
}
