package sim

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/engine"
)

func init() { Chores = append(Chores, Chore{"clone", 1, (*run).cloneVolume}) }

// cloning is a volume that is filled with a snapshot of the one under simulation. It has nodes of
// its own, on which nothing goes wrong but that a process is killed now and then.
type cloning struct {
	r    *run
	rnd  *rand.Rand
	to   *Volume
	held taken
	name string
	done func()
	// grant is what the source's engine has given out, asked tells that the target's has been told.
	grant *engine.CloneSource
	asked *EngineProcess
	until func() bool
}

// cloneTime bounds a clone of a small volume: one whose source has no engine for long is given up.
const cloneTime = 20 * time.Second

// clonePoll is how often somebody looks how far it is.
const clonePoll = 20 * time.Millisecond

// cloneVolume clones a snapshot whose content is known.
func (r *run) cloneVolume(rnd *rand.Rand, done func()) bool {
	e, names := r.v.Current, slices.Sorted(maps.Keys(r.taken))
	names = slices.DeleteFunc(names, func(name string) bool { return !r.taken[name].whole })
	if r.cloning != nil || len(names) == 0 || e == nil || !e.Alive() || !e.state.Serving {
		return false
	}
	r.unrot() // what is read is content in the clone
	r.clones++
	id := Identity{"clone", fmt.Sprintf("9d7a1c0e-5c1b-4a52-8d5e-%012x", r.clones)}
	name := pick(rnd, names...)
	c := &cloning{r: r, rnd: rnd, held: r.taken[name], name: name, done: done,
		to: NewVolumeOn(r.w, r.v.Image, id, fmt.Sprintf("c%d", r.clones), 1+rnd.IntN(2), e.state.Size)}
	c.to.Offline = true
	r.cloning = c
	end := r.w.Now().Add(cloneTime)
	c.until = func() bool { return r.faulting && r.w.Now() < end }
	for rnd.IntN(2) == 0 {
		r.w.After(between(rnd, 0, 100*time.Millisecond), c.sabotage)
	}
	r.hurry(10 * time.Millisecond)
	c.goOn()
	return true
}

// sabotage kills somebody.
func (c *cloning) sabotage() {
	switch e, x := c.to.Current, pick(c.rnd, c.to.Replicas...); {
	case c.r.cloning != c:
	case c.rnd.IntN(2) == 0:
		x.Kill()
	case e != nil:
		c.to.KillEngine(e)
	}
}

// goOn looks how far the clone is and does what comes next.
func (c *cloning) goOn() {
	if !c.until() {
		c.end()
		return
	}
	v := c.to
	v.Heal()
	if e := v.Current; e != nil && e.Alive() && e.state.Serving {
		switch i := e.state.Import; {
		case i != nil && i.State == "complete" && v.Healthy() && c.still():
			c.check()
			c.end()
			return
		case c.grant == nil:
			c.ask()
		case c.asked != e || i != nil && !i.Running && i.State != "complete":
			c.begin(e)
		}
	}
	c.r.w.After(clonePoll, c.goOn)
}

// ask has the source's engine give out what it takes to read the snapshot.
func (c *cloning) ask() {
	if e := c.r.v.Current; e != nil && e.Alive() {
		e.Post(engine.GrantClone{Snapshot: c.name, For: c.to.UUID, Expires: c.r.w.Unix() + 3600,
			Reply: func(s engine.CloneSource, err error) {
				if err == nil {
					c.grant = &s
				}
			}})
	}
}

func (c *cloning) begin(e *EngineProcess) {
	c.asked = e
	e.Post(engine.Clone{From: *c.grant, Name: "copy", Created: created, Reply: func(err error) {
		if err != nil {
			c.r.v.log("clone of %s: %v", c.name, err)
			c.grant, c.asked = nil, nil // its replicas may be elsewhere
		}
	}})
}

// still tells whether nobody works on the clone.
func (c *cloning) still() bool {
	return !slices.ContainsFunc(c.to.Replicas, func(x *Replica) bool { return !x.still() })
}

// end ends the clone's volume.
func (c *cloning) end() {
	c.r.cloning = nil
	if c.to.Current != nil {
		c.to.KillEngine(c.to.Current)
	}
	c.to.Close()
	c.done()
}

// check compares the clone with what the snapshot held.
func (c *cloning) check() {
	r := c.r
	for _, x := range c.to.Replicas {
		view, err := x.Chain().OpenView("copy")
		if err != nil {
			r.check.Fail(-1, "the clone of %s is complete, and %s cannot open it: %v", c.name, x.Name, err)
			return
		}
		defer view.Close()
		for _, off := range slices.Sorted(maps.Keys(c.held.pieces)) {
			want := c.held.pieces[off]
			got := make([]byte, len(want))
			if _, err := view.ReadAt(got, off); err != nil {
				r.check.Fail(-1, "the clone of %s is complete, and %s cannot read it: %v", c.name, x.Name, err)
			} else if at := differ(want, got); at >= 0 {
				r.check.Fail((off+at)/block.SectorSize, "the clone of %s on %s differs at %d", c.name, x.Name, off+at)
			}
		}
	}
	r.managed["clone"]++
	r.v.log("snapshot %s is cloned", c.name)
}
