package sim

import (
	"maps"
	"math/rand/v2"
	"slices"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/engine"
	"ankole.storage/test/sim/register"
)

func init() { Chores = append(Chores, Chore{"revert", 2, (*run).revertVolume}) }

// reverting is a revert that was asked for. To the checker it is a write of all that the snapshot
// held.
type reverting struct {
	engine *EngineProcess
	write  uint64
}

// revertVolume takes the frontend away, reverts to a snapshot, and offers the volume again. What
// clients ask for meanwhile waits.
func (r *run) revertVolume(rnd *rand.Rand, done func()) bool {
	e, names := r.v.Current, slices.Sorted(maps.Keys(r.taken))
	names = slices.DeleteFunc(names, func(name string) bool { return !r.taken[name].whole }) // what it holds is not known
	if len(names) == 0 || r.offline != nil || r.v.upgrade != nil || e == nil || !e.Alive() || !e.state.Serving {
		return false
	}
	name, held := names[rnd.IntN(len(names))], &asked{e, r.w.Now()}
	r.asked, r.offline = append(r.asked, held), e
	end := func() {
		r.asked = slices.DeleteFunc(r.asked, func(o *asked) bool { return o == held })
		r.offline = nil
		done()
	}
	r.unrot() // what hides it may go
	e.Post(engine.DetachFrontend{Reply: func(err error) {
		if err != nil {
			end()
			return
		}
		r.v.endDevice(e)
		r.revertTo(e, name, func() {
			r.v.keep(e)
			e.offerAgain()
			end()
		})
	}})
	return true
}

// revertTo reverts a volume without a frontend.
func (r *run) revertTo(e *EngineProcess, name string, done func()) {
	held := r.taken[name].pieces
	r.writes++
	x := &reverting{e, r.writes}
	r.reverts = append(r.reverts, x)
	r.check.Revert(r.w.Now(), x.write, func(sector int64) uint64 {
		at := sector * block.SectorSize
		p := held[at-at%checkPiece]
		if at%checkPiece >= int64(len(p)) {
			return r.v.Image.Value(sector) // nobody had written there, or the volume was smaller
		}
		n, _ := register.Unstamp(p[at%checkPiece:], sector)
		return n
	})
	r.v.log("revert to %s", name)
	e.Post(engine.Revert{Name: name, Created: created, Reply: func(err error) {
		if err == nil {
			r.managed["revert"]++
			r.check.End(r.w.Now(), x.write, 0, r.size, true)
		} else {
			r.check.Maybe(r.w.Now(), x.write, 0, r.size)
		}
		r.v.log("reverted to %s: %v", name, err)
		done()
	}})
}

// settleReverts ends what an engine that was replaced has not answered.
func (r *run) settleReverts(by *EngineProcess) {
	r.reverts = slices.DeleteFunc(r.reverts, func(x *reverting) bool {
		if x.engine == by {
			return false
		}
		r.check.Maybe(r.w.Now(), x.write, 0, r.size)
		return true
	})
}

// offerAgain gives the engine a frontend after a time without one, with what clients have asked for
// meanwhile.
func (e *EngineProcess) offerAgain() {
	f := newFront(e.Process, e.arena)
	f.queue, e.front.queue = e.front.queue, nil
	e.front = f
	e.Post(engine.AttachFrontend{Frontend: f, Reply: func(error) {}})
	f.signal.Raise()
}
