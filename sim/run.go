package sim

import (
	"fmt"
	"time"

	"ankole.storage/block"
	"ankole.storage/clock"
)

// Result is what one seed came to.
type Result struct {
	Seed                    uint64
	Hash                    uint64
	Operations, Faults      int
	Dropped, Rebuilt, Steps int
	Err                     error
	// Log is the end of the history, for a report.
	Log []string
}

// Options of a run. The zero value is the usual one.
type Options struct {
	// Replicas, default 3.
	Replicas int
	// Size of the volume in bytes, default 8 MiB: two dirty regions.
	Size int64
	// Time is how long faults go on in simulated time, default 3 s.
	Time time.Duration
	// Faults forbidden by name; see Atlas.
	Without map[string]bool
}

func (o *Options) defaults() {
	if o.Replicas == 0 {
		o.Replicas = 3
	}
	if o.Size == 0 {
		o.Size = 8 << 20
	}
	if o.Time == 0 {
		o.Time = 3 * time.Second
	}
}

// client is one user of the volume: it has at most one request at a time.
type client struct {
	r    *run
	busy bool
}

// run is one simulation.
type run struct {
	o        Options
	w        *World
	v        *Volume
	check    *Checker
	clients  []*client
	writes   uint64
	faults   int
	faulting bool
	// incarnation counts engines: answers of an earlier one are not awaited.
	incarnation int
}

// clientCount is how many clients use the volume at once.
const clientCount = 6

// Run simulates one seed.
func Run(seed uint64, o Options) Result {
	o.defaults()
	w := NewWorld(seed)
	r := &run{o: o, w: w, check: NewChecker(o.Size), faulting: true}
	r.v = NewVolume(w, o.Replicas, o.Size)
	defer r.v.Close()
	r.v.StartEngine()
	for range clientCount {
		r.clients = append(r.clients, &client{r: r})
	}
	err := r.play()
	res := Result{Seed: seed, Hash: w.Hash(), Operations: r.check.Reads + r.check.Writes, Faults: r.faults, Steps: w.Steps,
		Dropped: r.v.Dropped, Rebuilt: r.v.Rebuilt, Err: err, Log: r.v.Log}
	return res
}

// play lets clients and faults loose, then heals everything and looks at what is left.
func (r *run) play() error {
	w := r.w
	heal := func() {}
	heal = func() {
		r.heal()
		w.After(w.Between(5*time.Millisecond, 40*time.Millisecond), heal)
	}
	heal()
	for _, c := range r.clients {
		c.next()
	}
	r.nextFault()
	end := w.Now().Add(r.o.Time)
	if !w.Until(r.o.Time*4, func() bool { return r.check.Err != nil || w.Now() >= end }) {
		return fmt.Errorf("nothing happens any more at %s", time.Duration(w.Now()))
	}
	r.faulting = false
	const healTime = 5 * time.Minute
	if !w.Until(healTime, func() bool { return r.check.Err != nil || (r.v.Healthy() && r.idle()) }) {
		return fmt.Errorf("volume did not become healthy within %s: %s", healTime, r.v.state.Reason)
	}
	if r.check.Err != nil {
		return r.check.Err
	}
	if err := r.readAll(); err != nil {
		return err
	}
	return r.identical()
}

func (r *run) idle() bool {
	for _, c := range r.clients {
		if c.busy {
			return false
		}
	}
	return true
}

func (r *run) heal() {
	before := r.v.starts
	r.v.Heal()
	if r.v.starts != before {
		r.engineReplaced()
	}
}

// engineReplaced lets clients go on with the new engine: what they had asked the old one may or may not have happened.
func (r *run) engineReplaced() {
	r.incarnation++
	for _, c := range r.clients {
		if c.busy {
			c.busy = false
			c.later()
		}
	}
}

func (c *client) later() {
	c.r.w.After(c.r.w.Between(10*time.Microsecond, 3*time.Millisecond), c.next)
}

// next sends one random request.
func (c *client) next() {
	r := c.r
	if c.busy || !r.faulting {
		return
	}
	if !r.v.proc.Alive() {
		c.later()
		return
	}
	c.busy = true
	call := &Call{Off: r.offset(), Len: block.SectorSize * int64(1+r.w.Rand.IntN(24))}
	if r.w.Rand.IntN(20) == 0 {
		call.Len = block.SectorSize * int64(1+r.w.Rand.IntN(512))
	}
	call.Len = min(call.Len, r.o.Size-call.Off)
	began, engine := r.w.Now(), r.incarnation
	switch n := r.w.Rand.IntN(20); {
	case n < 9:
		c.read(call, began, engine)
	case n < 17:
		call.Kind, call.FUA = block.Write, r.w.Rand.IntN(8) == 0
		c.write(call, began, engine)
	case n < 18:
		call.Kind = block.WriteZeroes
		c.write(call, began, engine)
	default:
		call.Kind, call.Off, call.Len = block.Flush, 0, 0
		c.send(call, engine, func(code block.Code) {
			if code == block.OK {
				r.check.Flushed(began)
			}
		})
	}
}

// offset prefers few places, so that requests collide.
func (r *run) offset() int64 {
	sectors := r.o.Size / block.SectorSize
	if r.w.Rand.IntN(3) > 0 {
		return block.SectorSize * (r.w.Rand.Int64N(8)*(sectors/8) + r.w.Rand.Int64N(64))
	}
	return block.SectorSize * r.w.Rand.Int64N(sectors)
}

func (c *client) read(call *Call, began clock.Ticks, engine int) {
	call.Kind, call.Data = block.Read, make([]byte, call.Len)
	c.send(call, engine, func(code block.Code) {
		if code == block.OK {
			c.r.check.Read(began, c.r.w.Now(), call.Off, call.Data)
		}
	})
}

func (c *client) write(call *Call, began clock.Ticks, engine int) {
	r := c.r
	r.writes++
	id := r.writes
	if call.Kind == block.Write {
		call.Data = make([]byte, call.Len)
		stamp(call.Data, id, call.Off/block.SectorSize)
	}
	r.check.Begin(began, id, call.Off, call.Len, call.Kind == block.WriteZeroes)
	c.send(call, engine, func(code block.Code) {
		r.check.End(r.w.Now(), id, call.Off, call.Len, code == block.OK, call.FUA)
	})
}

func (c *client) send(call *Call, engine int, answer func(block.Code)) {
	call.Done = func(code block.Code) {
		if c.r.incarnation != engine {
			return // the client has given this engine up
		}
		answer(code)
		c.busy = false
		c.later()
	}
	c.r.v.front.Submit(call)
}

// readAll reads the whole volume against the checker.
func (r *run) readAll() error {
	const piece = 64 << 10
	for off := int64(0); off < r.o.Size && r.check.Err == nil; off += piece {
		done := false
		began := r.w.Now()
		call := &Call{Kind: block.Read, Off: off, Len: piece, Data: make([]byte, piece)}
		call.Done = func(code block.Code) {
			done = true
			if code != block.OK {
				r.check.fail("read at %d of a healthy volume: %s", off, code)
				return
			}
			r.check.Read(began, r.w.Now(), off, call.Data)
		}
		r.v.front.Submit(call)
		if !r.w.Until(time.Minute, func() bool { return done }) {
			return fmt.Errorf("read at %d of a healthy volume hangs", off)
		}
	}
	return r.check.Err
}

// identical compares the content of all replicas.
func (r *run) identical() error {
	var first [32]byte
	name := ""
	for _, x := range r.v.Replicas {
		if x.Broken != nil {
			return fmt.Errorf("replica %s is beyond repair: %w", x.Name, x.Broken)
		}
		sum, err := x.chain.HashAt("volume-head")
		switch {
		case err != nil:
			return err
		case name == "":
			first, name = sum, x.Name
		case sum != first:
			return fmt.Errorf("replica %s differs from %s although both are RW", x.Name, name)
		}
	}
	return nil
}
