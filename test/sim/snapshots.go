package sim

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/chain"
	"ankole.storage/dataplane/clock"
	"ankole.storage/dataplane/engine"
	"ankole.storage/dataplane/wire"
)

func init() {
	Chores = append(Chores,
		Chore{"snapshot", 4, (*run).takeSnapshot},
		Chore{"remove", 2, (*run).removeSnapshot},
		Chore{"purge", 2, (*run).purgeSnapshots},
		Chore{"expand", 1, (*run).expandVolume},
	)
}

// taken is what a snapshot held when the operator was told that it exists.
type taken struct {
	// pieces are by offset, of checkPiece bytes: those that could be read of all that somebody had
	// written to.
	pieces map[int64][]byte
	// whole: all of them could be read.
	whole bool
}

// asked is something that the operator has no answer to yet. What a snapshot may hold must not be
// forgotten.
type asked struct {
	engine *EngineProcess
	began  clock.Ticks
}

// operate posts a message to the engine in charge. answered is called if it answers in time and
// lives.
func (r *run) operate(what string, done func(), message func(reply func(error)) any, answered func(err error)) bool {
	e := r.v.Current
	if e == nil || !e.Alive() || !e.state.Serving {
		return false
	}
	a := &asked{e, r.w.Now()}
	r.asked = append(r.asked, a)
	e.Post(message(func(err error) {
		if err == nil {
			r.managed[what]++
		}
		answered(err)
		r.asked = slices.DeleteFunc(r.asked, func(o *asked) bool { return o == a })
		done()
	}))
	return true
}

// takeSnapshot reads the snapshot back on one replica as soon as it is acknowledged: a reader that
// read the whole volume at one moment since it was asked for must see nothing else.
func (r *run) takeSnapshot(rnd *rand.Rand, done func()) bool {
	name, began := fmt.Sprintf("s%d", rnd.Uint32()), r.w.Now()
	r.hurry(10 * time.Millisecond) // so that writes are in flight
	return r.operate("snapshot", done, func(reply func(error)) any {
		return engine.TakeSnapshot{Request: wire.SnapshotRequest{Name: name, UserCreated: true, Created: created},
			Reply: reply}
	}, func(err error) {
		if err != nil {
			return
		}
		r.taken[name] = r.readSnapshot(name, began)
		r.v.log("snapshot %s is acknowledged", name)
	})
}

// readSnapshot looks at a snapshot on some replica that has it, and holds it against the writes.
func (r *run) readSnapshot(name string, began clock.Ticks) taken {
	t := taken{pieces: map[int64][]byte{}}
	for _, x := range r.v.Replicas {
		if !x.still() {
			continue
		}
		view, err := x.Chain().OpenView(name)
		if err != nil {
			continue // dropped before it was taken
		}
		defer view.Close()
		err = r.pieces(func(off, n int64) error {
			if off+n > view.Size() {
				return nil // the volume has grown since
			}
			p := make([]byte, n)
			if _, err := view.ReadAt(p, off); err != nil {
				return err // its disk is sick
			}
			r.check.Read(began, r.w.Now(), off, p)
			t.pieces[off] = p
			return nil
		})
		t.whole = err == nil
		return t
	}
	return t
}

func (r *run) removeSnapshot(rnd *rand.Rand, done func()) bool {
	names := slices.Sorted(maps.Keys(r.taken))
	if len(names) == 0 {
		return false
	}
	name := names[rnd.IntN(len(names))]
	if !r.operate("remove", done, func(reply func(error)) any {
		return engine.RemoveSnapshot{Name: name, Reply: reply}
	}, func(error) {}) {
		return false
	}
	if slices.ContainsFunc(r.rotten, func(d *rotten) bool { return d.snapshot == name }) {
		r.unrot() // a scrub leaves it out
	}
	delete(r.taken, name) // from now on it may be gone
	return true
}

func (r *run) purgeSnapshots(_ *rand.Rand, done func()) bool {
	r.unrot()
	return r.operate("purge", done, func(reply func(error)) any {
		return engine.PurgeSnapshots{Reply: reply}
	}, func(error) {})
}

// expandVolume grows the volume. Clients use what has come as soon as it is acknowledged.
func (r *run) expandVolume(rnd *rand.Rand, done func()) bool {
	e := r.v.Current
	if e == nil {
		return false
	}
	size := max(e.state.Size, r.plan.Size) + block.Size*int64(1+rnd.IntN(64))
	return r.operate("expand", done, func(reply func(error)) any {
		return engine.Expand{Size: size, Created: created, Reply: reply}
	},
		func(err error) {
			if err == nil {
				r.expanded = max(r.expanded, size)
				r.size = r.expanded
				r.check.Grow(r.size)
			}
		})
}

// checkSnapshots finds every acknowledged snapshot on every replica, with the content it had, and
// the same snapshots and size everywhere.
func (r *run) checkSnapshots() error {
	first := r.v.Replicas[0].Chain()
	names, err := namesOf(first)
	if err != nil {
		return err
	}
	for _, x := range r.v.Replicas {
		c := x.Chain()
		if have, err := namesOf(c); err != nil || !slices.Equal(have, names) {
			return fmt.Errorf("replica %s has snapshots %v, %s has %v: %v", x.Name, have, r.v.Replicas[0].Name, names, err)
		}
		if c.Size() != first.Size() || c.Size() < r.expanded {
			return fmt.Errorf("replica %s has %d bytes, %s %d, the operator was told %d", x.Name, c.Size(),
				r.v.Replicas[0].Name, first.Size(), r.expanded)
		}
		for _, name := range slices.Sorted(maps.Keys(r.taken)) {
			if err := r.checkTaken(x, name); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *run) checkTaken(x *Replica, name string) error {
	view, err := x.Chain().OpenView(name)
	if err != nil {
		return fmt.Errorf("replica %s, acknowledged snapshot %s: %w", x.Name, name, err)
	}
	defer view.Close()
	for _, off := range slices.Sorted(maps.Keys(r.taken[name].pieces)) {
		want := r.taken[name].pieces[off]
		got := make([]byte, len(want))
		if _, err := view.ReadAt(got, off); err != nil {
			return err
		}
		if at := differ(want, got); at >= 0 {
			return fmt.Errorf("snapshot %s on replica %s is not what it was at %d", name, x.Name, off+at)
		}
	}
	return nil
}

// namesOf lists the snapshots of a replica that are not marked removed, and not those that the
// system made.
func namesOf(c *chain.Chain) ([]string, error) {
	all, err := c.Snapshots()
	var names []string
	for _, s := range all {
		if !s.Removed && s.Name != chain.HeadName {
			names = append(names, s.Name)
		}
	}
	return names, err
}
