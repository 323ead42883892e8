package sim

import (
	"math/rand/v2"
	"time"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/clock"
	"ankole.storage/test/sim/register"
)

// Action is a kind of request that clients make.
type Action struct {
	Name   string
	Weight int
	// In has other weights, by style.
	In map[Style]int
	// Do sends one request through c.send or one of the methods above it.
	Do func(c *client, rnd *rand.Rand)
}

// Actions are what clients do. They, and the other tables, are filled by init, since what they do
// leads back to them.
var Actions []Action

func init() {
	// The first one is the read.
	Actions = []Action{
		{"read", 9, nil, func(c *client, rnd *rand.Rand) { c.read(c.extent(rnd)) }},
		{"write", 8, nil, func(c *client, rnd *rand.Rand) {
			off, n := c.extent(rnd)
			fua := 8
			if c.r.plan.Style == StyleSyncs {
				fua = 3
			}
			c.write(block.Write, off, n, rnd.IntN(fua) == 0)
		}},
		{"discard", 1, map[Style]int{StyleTrims: 5}, func(c *client, rnd *rand.Rand) {
			off, n := c.extent(rnd)
			c.write(block.Discard, off, n, false)
		}},
		{"zero", 1, map[Style]int{StyleTrims: 3}, func(c *client, rnd *rand.Rand) {
			off, n := c.extent(rnd)
			c.write(block.WriteZeroes, off, n, rnd.IntN(8) == 0)
		}},
		{"flush", 2, map[Style]int{StyleSyncs: 6}, func(c *client, _ *rand.Rand) { c.flush() }},
	}
}

// weight of an action in a plan.
func (p *Plan) weight(a *Action) int {
	if w, ok := a.In[p.Style]; ok {
		return w
	}
	return a.Weight
}

// Chore is something an operator does beside the clients, one at a time.
type Chore struct {
	Name   string
	Weight int
	// Do begins it and calls done once, now or later; false: it cannot be done now. done is not
	// called if the engine dies.
	Do func(r *run, rnd *rand.Rand, done func()) bool
}

// Chores are what operators do.
var Chores = []Chore{}

// client is one user of the volume: it has at most one request at a time.
type client struct {
	r      *run
	n      int
	rnd    *rand.Rand
	made   uint64
	engine *EngineProcess
	// waits is the request it waits for, nil for none; asleep counts its pauses.
	waits  *Call
	asleep int
	next   int64 // where a sequential writer goes on
	// leave: the request is left out, see Plan.Skip.
	leave bool
}

// extent chooses a range. Clients prefer few places, so that requests collide, and now and then go
// through the volume in order.
func (c *client) extent(rnd *rand.Rand) (off, n int64) {
	if c.r.plan.Style == StyleSpot {
		return c.spot(rnd)
	}
	sectors := c.r.plan.Size / block.SectorSize
	n = 1 + rnd.Int64N(16)
	switch k := rnd.IntN(64); {
	case k == 0:
		n = 1 + rnd.Int64N(512)
	case k < 16:
		n = 8 * (1 + rnd.Int64N(3))
	}
	switch k := rnd.IntN(12); {
	case k == 0:
		off = rnd.Int64N(sectors)
	case k < 3:
		off = c.next % sectors
	case c.r.size > c.r.plan.Size && k < 5:
		off = sectors
		sectors = c.r.size / block.SectorSize
		off += rnd.Int64N(sectors - off)
	default:
		quarter, within := rnd.Int64N(4), rnd.Int64N(48)
		off = quarter*(sectors/4) + within
		if within >= 42 && quarter > 0 {
			off -= 48 // across the border of two blocks, and of two regions of the dirty log
		}
		if n%8 == 0 {
			off &^= 7
		}
	}
	n = min(n, sectors-off)
	c.next = (off + n) % sectors
	return off * block.SectorSize, n * block.SectorSize
}

// spot chooses sectors of one block, or of that and the next one: everybody wants the same.
func (c *client) spot(rnd *rand.Rand) (off, n int64) {
	const sectors = block.Size / block.SectorSize
	first := rnd.Int64N(sectors)
	n = 1 + rnd.Int64N(pick[int64](rnd, 1, sectors, 2*sectors-first))
	if rnd.IntN(8) == 0 {
		first, n = 0, sectors // a discard needs it whole
	}
	return c.r.plan.Size/2&^(block.Size-1) + first*block.SectorSize, n * block.SectorSize
}

// act makes one random request.
func (c *client) act() {
	r := c.r
	if c.waits != nil || !r.busy() {
		return
	}
	if c.choose(); c.engine == nil {
		c.later()
		return
	}
	c.made++
	r.requests++
	c.leave = r.plan.Skip[c.id()]
	a := choose(c.rnd, Actions, r.plan.weight)
	if c.engine != r.v.Current && c.rnd.IntN(4) > 0 {
		a = &Actions[0] // an engine that was replaced is most dangerous to who reads
	}
	a.Do(c, c.rnd)
}

// id is the number of the request being made.
func (c *client) id() uint64 { return uint64(c.n)<<32 | c.made }

// choose finds an engine: some clients hold on to one that was replaced for as long as it lives.
func (c *client) choose() {
	now := c.r.v.Current
	if c.engine != nil && c.engine.Alive() && (c.engine == now || c.rnd.IntN(8) > 0 && !c.engine.state.Fatal) {
		return
	}
	c.engine = nil
	if now != nil && now.Alive() {
		c.engine = now
	}
}

// engineGone lets the client go on: what it had asked may or may not have happened.
func (c *client) engineGone(e *EngineProcess) {
	if c.engine == e {
		c.engine, c.waits = nil, nil
		c.later()
	}
}

// replaced is told when another engine serves: half of the clients go there, and nobody waits any
// longer for what the old one may never answer.
func (c *client) replaced(by *EngineProcess) {
	if c.engine == nil || c.engine == by {
		return
	}
	if c.rnd.IntN(2) == 0 {
		c.engine = by
	}
	c.waits = nil
	c.later()
}

// later makes the next request after a pause: short while something is going wrong, longer in
// between.
func (c *client) later() {
	d := between(c.rnd, 10*time.Microsecond, 3*time.Millisecond)
	if c.r.hot == 0 {
		d = between(c.rnd, 0, 2*c.r.pause)
	}
	c.sleep(d)
}

func (c *client) sleep(d time.Duration) {
	c.asleep++
	n := c.asleep
	c.r.w.After(d, func() {
		if c.asleep == n {
			c.act()
		}
	})
}

func (c *client) read(off, n int64) {
	r, began := c.r, c.r.w.Now()
	c.send(&Call{Kind: block.Read, Off: off, Len: n}, 0, func(q *Request, data []byte) {
		if q.Code == block.OK {
			r.check.Read(began, r.w.Now(), off, data)
		}
	})
}

// write sends a write of any kind.
func (c *client) write(kind block.Kind, off, n int64, fua bool) {
	r, began := c.r, c.r.w.Now()
	r.writes++
	id := r.writes
	call := &Call{Kind: kind, FUA: fua, Off: off, Len: n}
	from, to := wrote(kind, off, n)
	if kind == block.Write {
		call.Fill = func(p []byte) { register.Stamp(p, id, off/block.SectorSize) }
	}
	if !c.leave {
		r.check.Begin(began, id, from, to-from, kind != block.Write)
	}
	c.send(call, id, func(q *Request, _ []byte) {
		if q.Code == block.OK {
			r.check.End(r.w.Now(), q.Write, from, to-from, fua)
		} else {
			r.check.Maybe(r.w.Now(), q.Write, from, to-from)
		}
	})
}

func (c *client) flush() {
	r, began := c.r, c.r.w.Now()
	c.send(&Call{Kind: block.Flush}, 0, func(q *Request, _ []byte) {
		if q.Code == block.OK {
			r.check.Flushed(began)
		}
	})
}

// send asks the client's engine. answer is called even if the client has turned to another engine
// meanwhile: what is acknowledged is acknowledged, whoever does it.
func (c *client) send(call *Call, write uint64, answer func(*Request, []byte)) {
	if c.leave {
		c.later()
		return
	}
	e, r := c.engine, c.r
	c.waits = call
	k := len(r.history)
	r.history = append(r.history, Request{ID: c.id(), Began: r.w.Now(), Ended: clock.Never, Client: c.n, Engine: e,
		Kind: call.Kind, FUA: call.FUA,
		Off: call.Off, Len: call.Len, Write: write})
	if call.Kind == block.Read {
		r.reads = append(r.reads, k)
	}
	call.Again = func(e *EngineProcess) {
		if r.again(k, e); write > 0 {
			k = len(r.history) - 1
		}
	}
	call.Done = func(code block.Code, data []byte) {
		q := &r.history[k]
		q.Ended, q.Code = r.w.Now(), code
		answer(q, data)
		if c.waits == call {
			c.waits = nil
			c.later()
		}
	}
	e.front.Submit(call)
	if e != r.v.Current {
		// It may never answer: the next request need not wait for that.
		r.w.After(between(c.rnd, time.Millisecond, 20*time.Millisecond), func() {
			if c.waits == call {
				c.waits = nil
				c.later()
			}
		})
	}
}

// Request is one request, for reports.
type Request struct {
	ID           uint64 // by which a plan can leave it out
	Began, Ended clock.Ticks
	Client       int
	Engine       *EngineProcess
	Kind         block.Kind
	FUA          bool
	Off, Len     int64
	Write        uint64
	Code         block.Code
}

func (q *Request) wrote() (from, to int64) { return wrote(q.Kind, q.Off, q.Len) }

// wrote is the range that a request changes: a discard concerns whole blocks only.
func wrote(kind block.Kind, off, n int64) (from, to int64) {
	from, to = off, off+n
	if kind == block.Discard {
		from, to = (from+block.Size-1)&^(block.Size-1), to&^(block.Size-1)
	}
	return from, max(from, to)
}
