package sim

import (
	"fmt"
	"math/rand/v2"
	"time"

	"ankole.storage/dataplane/clock"
	"ankole.storage/dataplane/device/kept"
	"ankole.storage/dataplane/engine"
	"ankole.storage/dataplane/frontend"
	"ankole.storage/dataplane/loop"
)

func init() {
	Chores = append(Chores, Chore{"live-upgrade", 3, (*run).liveUpgrade})
}

// upgrade is a live upgrade: what two engine processes do around their cores, what the control
// plane does around them, and something that goes wrong in every second one.
type upgrade struct {
	r        *run
	rnd      *rand.Rand
	done     func()
	old, new *EngineProcess
	// next are the second processes on the directories, by the index of the first, nil where there
	// is none.
	next []*Replica
	// gone is what the old engine left, nil while it has the volume.
	gone *engine.Left
	// over: it has come out one way or the other.
	over bool
}

// liveUpgrade replaces the engine and the replicas' processes while clients go on.
func (r *run) liveUpgrade(rnd *rand.Rand, done func()) bool {
	v := r.v
	e := v.Current
	if v.upgrade != nil || r.offline != nil || e == nil || !e.Alive() || !e.state.Serving || !v.reached(e.node) ||
		len(v.Engines) != 1 {
		return false
	}
	u := &upgrade{r: r, rnd: rnd, done: done, old: e, next: make([]*Replica, len(v.Replicas))}
	v.upgrade = u
	var addrs []string
	for i, x := range v.Replicas {
		if x.Ready() && e.mode(x.Addr()) == engine.RW {
			s := x.Other()
			if s.Start(); s.Alive() {
				u.next[i] = s
				addrs = append(addrs, s.Addr())
			}
		}
	}
	u.new = v.newEngine(e.node, addrs, func(c *engine.Config) { c.Successor = true })
	u.new.served = true // it is not the volume's yet
	v.Engines = append(v.Engines, u.new)
	u.new.Run(u.new.core)
	u.new.Post(engine.Prepare{Reply: func(members, _ []string) { u.later(func() { u.ask(members) }) }})
	r.hurry(20 * time.Millisecond)
	r.w.After(2*time.Second, func() { u.fails("it takes too long") })
	if rnd.IntN(2) == 0 {
		r.w.After(between(rnd, 0, 30*time.Millisecond), u.sabotage)
	}
	return true
}

// later is a message on its way from one process to another.
func (u *upgrade) later(f func()) {
	u.r.w.After(between(u.rnd, 10*time.Microsecond, time.Millisecond), func() {
		if !u.over {
			f()
		}
	})
}

// sabotage kills somebody.
func (u *upgrade) sabotage() {
	if u.over {
		return
	}
	x := u.next[u.rnd.IntN(len(u.next))]
	switch k := u.rnd.IntN(4); {
	case k == 0:
		u.r.v.KillEngine(u.old)
	case k == 1:
		u.r.v.KillEngine(u.new)
	case k == 2 && x != nil:
		x.Kill()
	default:
		u.r.v.Replicas[u.rnd.IntN(len(u.r.v.Replicas))].Kill()
	}
	u.r.v.log("somebody is killed in a live upgrade")
}

func (u *upgrade) ask(members []string) {
	if !u.alive() {
		return
	}
	u.old.Post(engine.HandOver{Members: members, Draining: func() {}, Reply: func(left *engine.Left, err error) {
		u.r.w.After(between(u.rnd, 10*time.Microsecond, time.Millisecond), func() {
			switch {
			case !u.over:
				u.left(left, err)
			case left != nil:
				u.r.v.KillEngine(u.old) // nobody waits for it any more
			}
		})
	}})
	u.r.w.After(between(u.rnd, 20*time.Millisecond, 200*time.Millisecond), func() {
		if !u.over && u.old.Alive() {
			u.old.Post(engine.Stay{Reason: "it takes too long"})
		}
	})
}

// alive ends the upgrade if one of the engines has died.
func (u *upgrade) alive() bool {
	if u.old.Alive() && u.new.Alive() {
		return true
	}
	u.fails("an engine has died")
	return false
}

func (u *upgrade) left(left *engine.Left, err error) {
	switch {
	case left == nil:
		u.r.v.log("live upgrade refused: %v", err)
		u.ends(u.new)
		return
	case !u.old.Alive():
		u.fails("the old engine has died")
		return
	}
	u.gone = left
	if d := u.r.v.deviceOf(u.old); d != nil {
		d.Add(kept.Successor(left.Epoch))
	}
	u.r.v.log("%s has left", u.old.Name)
	if err != nil || !u.new.Alive() {
		u.takeBack(left)
		return
	}
	// The new engine has a bounded time from here on; when it is over it is killed and the volume
	// is taken back.
	u.r.w.After(pick(u.rnd, 100*time.Microsecond, 2*time.Millisecond, 5*time.Millisecond, 200*time.Millisecond,
		500*time.Millisecond), func() {
		if !u.over && u.old.Alive() {
			u.takeBack(left)
		}
	})
	u.later(func() {
		u.new.Post(engine.Succeed{Left: *left, Reply: func(err error) {
			u.later(func() {
				switch {
				case !u.old.Alive():
					u.fails("the old engine has died")
				case err != nil || !u.new.Alive():
					u.takeBack(left)
				default:
					u.taken()
				}
			})
		}})
	})
}

// taken makes the new engine the volume's.
func (u *upgrade) taken() {
	v := u.r.v
	v.log("%s has taken over", u.new.Name)
	u.r.managed["live-upgrade"]++
	u.new.Post(engine.Own{})
	for i, x := range u.next {
		if x != nil {
			u.endLater(v.Replicas[i])
			v.Replicas[i] = x
			u.next[i] = nil
		}
	}
	u.pass(u.new)
	v.noteEpoch(u.new, u.gone.Epoch, u.new.state.Epoch)
	u.new.attach()
	v.serves(u.new)
	u.ends(u.old)
}

// takeBack gives the old engine's process another core, with the replicas it had.
func (u *upgrade) takeBack(left *engine.Left) {
	v := u.r.v
	var addrs []string
	for _, x := range v.Replicas {
		if x.Ready() {
			addrs = append(addrs, x.Addr())
		}
	}
	v.KillEngine(u.new)
	var e *EngineProcess
	e = v.newEngine(u.old.node, addrs, func(c *engine.Config) {
		c.Instance, c.Size, c.Options, c.Counters, c.Purge = u.old.Name, left.Size, left.Options, left.Counters, left.Purge
		c.Follow = func(follows, epoch uint64) bool { return u.goesOn(e, left, follows, epoch) }
	})
	e.order = u.old.order // it is the same process
	v.log("%s takes the volume back as %s", u.old.Name, e.Name)
	v.Engines = append(v.Engines, e)
	e.Run(e.core)
	u.pass(e)
	u.ends(u.old)
}

// goesOn is what an engine's process does with the clients of a volume that it has taken back
// (docs/design/frontends.md): they go on if nobody else has served since. If somebody has, what
// they have asked for comes too late: the engine ends, and they are disconnected.
func (u *upgrade) goesOn(e *EngineProcess, left *engine.Left, follows, epoch uint64) bool {
	v := u.r.v
	ok := kept.GoesOnAfter(left.Epoch, follows)
	if ok {
		v.noteEpoch(e, left.Epoch, epoch)
	} else {
		v.endDevice(e)
	}
	u.r.w.After(0, func() {
		switch {
		case !e.Alive():
		case ok && !v.Keeps:
			e.attach() // else when it serves
		case !ok:
			v.log("%s ends: another engine has served since", e.Name)
			v.KillEngine(e)
		}
	})
	return ok
}

// pass moves the clients of the old engine, and what they have asked for and nobody has read, to
// another one.
func (u *upgrade) pass(to *EngineProcess) {
	r := u.r
	for i := range r.history {
		if q := &r.history[i]; q.Engine == u.old && q.Ended == clock.Never {
			q.Engine = to
		}
	}
	for _, c := range r.clients {
		if c.engine == u.old {
			c.engine = to
		}
	}
	r.v.give(u.old, to)
	to.front = newFront(to.Process, to.arena)
	to.front.queue, u.old.front.queue = u.old.front.queue, nil
	to.front.signal.Raise()
	r.v.Current = to
}

// fails ends an upgrade: an old engine that has left takes the volume back, of a dead one the
// control plane takes care.
func (u *upgrade) fails(why string) {
	if u.over {
		return
	}
	u.r.v.log("live upgrade fails: %s", why)
	if u.gone != nil && u.old.Alive() {
		u.takeBack(u.gone)
		return
	}
	u.ends(u.new)
}

// ends ends one of the engines and the second processes that are still standby, after a while.
func (u *upgrade) ends(e *EngineProcess) {
	if u.over {
		return
	}
	u.over = true
	v := u.r.v
	v.KillEngine(e)
	for _, x := range u.next {
		if x != nil {
			u.endLater(x)
		}
	}
	v.upgrade = nil
	u.done()
}

func (u *upgrade) endLater(x *Replica) {
	v := u.r.v
	v.Others = append(v.Others, x)
	u.r.w.After(between(u.rnd, 0, 50*time.Millisecond), x.Kill)
}

// Suspend implements frontend.Exporter.
func (f *Front) Suspend(*[]loop.Op) { f.suspended = true }

// Suspended implements frontend.Exporter.
func (f *Front) Suspended() bool { return f.suspended && len(f.open) == 0 }

// Continue implements frontend.Exporter.
func (f *Front) Continue(out *[]loop.Op) {
	f.suspended = false
	if !f.listening {
		f.listen(out)
	}
	if len(f.queue) > 0 {
		f.signal.Raise()
	}
}

// Export implements frontend.Exporter: what is unread is moved by the upgrade.
func (f *Front) Export() frontend.Export {
	f.stop = true
	return frontend.Export{Transport: fmt.Sprintf("clients of %d", f.tag)}
}
