package sim

import (
	"fmt"
	"math/rand/v2"
	"time"

	"ankole.storage/dataplane/engine"
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
	// left: the old engine has left, and the new one is the volume's.
	left bool
	// over: it has come out one way or the other.
	over bool
}

// liveUpgrade replaces the engine and the replicas' processes while clients go on.
func (r *run) liveUpgrade(rnd *rand.Rand, done func()) bool {
	v := r.v
	e := v.Current
	if !v.Keeps || v.upgrade != nil || r.offline != nil || e == nil || !e.Alive() || !e.state.Serving ||
		!v.reached(e.node) || len(v.Engines) != 1 {
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
	u.new = v.newEngine(e.node, addrs, func(c *engine.Config) {
		c.Successor = true
		c.Follow = func(follows, epoch uint64) bool { return v.follow(u.new, follows, epoch) }
	})
	u.new.front = newFront(u.new.Process, u.new.arena)
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

// ask has the old engine leave.
func (u *upgrade) ask(members []string) {
	u.old.Post(engine.Leave{Members: members, Draining: func() {}, Reply: func(left *engine.Left, err error) {
		u.r.w.After(between(u.rnd, 10*time.Microsecond, time.Millisecond), func() {
			if left == nil {
				u.fails(fmt.Sprintf("refused: %v", err))
				return
			}
			u.leaves(left)
		})
	}})
	u.r.w.After(between(u.rnd, 20*time.Millisecond, 200*time.Millisecond), func() {
		if !u.over && !u.left {
			u.old.Post(engine.Stay{Reason: "it takes too long"})
		}
	})
}

// leaves ends the old engine's process, whoever waits for that: what its users ask for waits for
// the next engine.
func (u *upgrade) leaves(left *engine.Left) {
	v := u.r.v
	if !u.old.Alive() || v.Current != u.old {
		return // it was killed meanwhile, or is about to be
	}
	v.log("%s has left", u.old.Name)
	if u.left = !u.over; u.left {
		v.Current, v.Witness.order = u.new, u.new.order
		u.later(func() { u.new.Post(engine.Succeed{Left: *left}) })
	}
	v.KillEngine(u.old)
}

// taken is called when the new engine serves: its replicas are the volume's from now on.
func (u *upgrade) taken() {
	v := u.r.v
	u.r.managed["live-upgrade"]++
	for i, x := range u.next {
		if x != nil {
			u.next[i], v.Replicas[i] = v.Replicas[i], x
		}
	}
	u.ends()
}

// gone is called when one of the engines has ended.
func (u *upgrade) gone(e *EngineProcess) {
	if e == u.new || e == u.old && !u.left {
		u.fails(e.Name + " has ended")
	}
}

// fails gives an upgrade up: the new engine ends. Where the old one has left another engine starts
// with the replicas of before, which is for the control plane to see to.
func (u *upgrade) fails(why string) {
	if u.over {
		return
	}
	u.r.v.log("live upgrade fails: %s", why)
	u.ends()
	u.r.v.KillEngine(u.new)
}

// ends ends the second processes that are not the volume's, after a while.
func (u *upgrade) ends() {
	u.over = true
	for _, x := range u.next {
		if x != nil {
			u.endLater(x)
		}
	}
	u.r.v.upgrade = nil
	u.done()
}

func (u *upgrade) endLater(x *Replica) {
	v := u.r.v
	v.Others = append(v.Others, x)
	u.r.w.After(between(u.rnd, 0, 50*time.Millisecond), x.Kill)
}

// Suspend implements frontend.Suspender.
func (f *Front) Suspend(*[]loop.Op) { f.suspended = true }

// Suspended implements frontend.Suspender.
func (f *Front) Suspended() bool { return f.suspended && len(f.open) == 0 }

// Continue implements frontend.Suspender.
func (f *Front) Continue(out *[]loop.Op) {
	f.suspended = false
	if !f.listening {
		f.listen(out)
	}
	if len(f.queue) > 0 {
		f.signal.Raise()
	}
}
