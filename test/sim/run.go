package sim

import (
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"time"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/clock"
	"ankole.storage/dataplane/engine"
	"ankole.storage/test/sim/register"
)

// Result is what one play of a plan came to.
type Result struct {
	Plan                    Plan
	Hash                    uint64
	Operations, Faults      int
	Dropped, Rebuilt, Steps int
	// Followed counts snapshots that were taken while a replica was rebuilt.
	Followed int
	// Simulated is how much time passed in it.
	Simulated time.Duration
	// Log counts how often dirty logs were too small.
	Log engine.LogUse
	// Shared counts sessions that shared memory.
	Shared int
	// Chores counts what operators were told is done, by name.
	Chores map[string]int
	// Midway counts blocking calls that were cut short.
	Midway int
	// Adopted counts requests that were sent again to an engine which went on with the device of one
	// that had died, DevicesEnded devices that could not go on.
	Adopted, DevicesEnded int
	// Ends of replicas that were asked to end.
	Ends Ends
	// MapsTaken counts block maps that were handed over and used.
	MapsTaken int
	// By counts the faults by name.
	By  map[string]int
	Err error
	// At is the offset in bytes that Err is about, -1 for none.
	At int64
	// Requests are the numbers of all requests, in order.
	Requests []uint64
	// History is the end of what happened, reduced to what concerns At if that is known.
	History []string
}

// run is one simulation.
type run struct {
	plan    Plan
	w       *World
	v       *Volume
	check   *register.Checker
	clients []*client
	writes  uint64
	// requests counts what clients have asked for; history has all of it.
	requests int
	history  []Request
	// reads lists those reads in it that may be open.
	reads  []int
	faults map[string]int
	// taken are the acknowledged snapshots that were not removed, expanded is the largest size that
	// was acknowledged.
	taken map[string]taken
	asked []*asked
	// offline is the engine whose frontend is away for a revert; reverts are those that no later
	// engine has settled.
	offline *EngineProcess
	reverts []*reverting
	// busyUntil is how long the operator is busy at most.
	busyUntil clock.Ticks
	// cloning is the clone that is being made, nil for none; clones counts them.
	cloning *cloning
	clones  int
	// unheard are addresses of replicas that have lost power, and an engine may not have heard of it.
	unheard  map[string]bool
	managed  map[string]int
	expanded int64
	// size is what clients know of.
	size int64
	// undo ends the faults that last.
	undo     map[int]func()
	faulting bool
	// rotten is the damage that is to be put right.
	rotten []*rotten
	// perish chooses what rots when the next scrub has ended, nil for nothing.
	perish *rand.Rand
	// scrubOf is the rot that was there when the last scrub began.
	scrubOf []*rotten
	// sickDisks counts disks that give errors.
	sickDisks int
	// hot counts reasons for clients to be in a hurry; pause is how long they wait otherwise.
	hot   int
	pause time.Duration
}

// Run plays the plan of a seed.
func Run(seed uint64) Result { return PlanFor(seed).Play() }

// Play simulates a plan.
func (p Plan) Play() Result {
	w := NewWorld(p.Seed)
	r := &run{plan: p, w: w, check: register.New(p.Size), faults: map[string]int{}, managed: map[string]int{},
		taken: map[string]taken{}, undo: map[int]func(){}, unheard: map[string]bool{}, faulting: true, size: p.Size}
	r.v = newVolume(w, Identity{volumeName, volumeUUID}, "", p.Replicas, p.Size)
	r.v.Memory, r.v.Image = p.Memory, p.Image
	r.v.Image.Size = min(p.Image.Size, p.Size) // of a plan that was changed
	r.check.Image = r.v.Image.Value
	r.v.begin()
	r.v.Timeouts, r.v.ReplaceAfter, r.v.Bug = p.Timeouts, p.ReplaceAfter, p.Bug
	r.v.Log, r.v.Keeps, r.v.Shares = p.Log, p.Keeps, p.Shares
	r.v.Alone = p.Seed%3 == 1 // then directories that are closed are sealed
	defer r.v.Close()
	r.check.Oldest, r.check.Pins = r.oldestRead, r.pins
	r.v.Serves, r.v.Gone, r.v.Scrubbed, r.v.Rebuilds = r.settle, r.engineGone, r.scrubbed, r.rebuilds
	for i, n := range r.v.Nodes {
		n.drift = p.Drift[i]
		n.epoch = clock.Ticks(i) * clock.Ticks(time.Hour)
	}
	for i := range p.Clients {
		r.clients = append(r.clients, &client{r: r, n: i, rnd: stream(p.Seed, 16+uint64(i))})
	}
	r.plant(p.Bug)
	err := r.guarded()
	res := Result{Plan: p, Hash: w.Hash(), Operations: r.check.Reads + r.check.Writes + r.check.Flushes, By: r.faults,
		Chores: r.managed, Steps: w.Steps,
		Simulated: time.Duration(w.Now()), Dropped: r.v.Dropped, Rebuilt: r.v.Rebuilt, Followed: r.v.Followed,
		Log:       r.v.LogUse,
		Shared:    r.v.Shared,
		Ends:      r.v.Ends,
		MapsTaken: r.v.MapsTaken, Midway: w.Midway, Adopted: r.v.Adopted, DevicesEnded: r.v.Ended, Err: err, At: -1}
	for _, n := range r.faults {
		res.Faults += n
	}
	if err != nil {
		if r.check.At >= 0 {
			res.At = r.check.At * block.SectorSize
		}
		res.History = r.report(res.At)
		for i := range r.history {
			res.Requests = append(res.Requests, r.history[i].ID)
		}
	}
	return res
}

// healTime is how long a volume may take to become healthy when nothing is wrong any more: a
// gathering with a silent replica (8 s), a witness asked again and a few rebuilds that end in
// timeouts (16 s for the last replica).
const healTime = 2 * time.Minute

// mendTime is how long regions in which a write has failed may stay torn when there is space again:
// the engine tries every minute.
const mendTime = 3 * time.Minute

// plant makes the mistakes of a bug.
func (r *run) plant(b Bug) {
	for _, n := range r.v.Nodes {
		n.Disk.lies = b == bugLyingDisks
	}
}

// rot damages data of one replica.
func (r *run) rot() {
	x := r.v.Replicas[0]
	for _, l := range x.chain.LayerList() {
		_ = x.Disk.FS.Rot(replicaDir+x.Name+"/"+l.File, 0, r.plan.Size) // a layer without data is fine
	}
}

// guarded plays, and takes a panic of a core for the violation that it is.
func (r *run) guarded() (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return r.play()
}

// play lets clients and faults loose, then heals everything and looks at what is left.
func (r *run) play() error {
	w, p := r.w, &r.plan
	r.pause = p.Time * time.Duration(p.Clients) / time.Duration(p.Operations)
	var heal func()
	heal = func() {
		if p.Bug != bugNoControlPlane || w.Now() < clock.Ticks(p.Time)/2 {
			r.v.Heal()
		}
		w.After(w.Between(5*time.Millisecond, p.HealEvery), heal)
	}
	heal()
	for _, c := range r.clients {
		c.act()
	}
	r.schedule()
	r.chores()
	end := w.Now().Add(p.Time)
	w.Until(p.Time, func() bool { return r.check.Err != nil || w.Now() >= end })
	r.faulting = false
	r.endFaults()
	if !r.settled() {
		return r.stuck()
	}
	if !w.Until(mendTime, func() bool { return r.check.Err != nil || r.v.Current.state.Torn == 0 }) {
		return fmt.Errorf("replicas may still differ in %d regions %s after the last fault has ended",
			r.v.Current.state.Torn, mendTime)
	}
	for _, c := range Checks {
		if p.Bug == bugRottenHead && c.Name == identical {
			r.rot()
		}
		if r.check.Err != nil {
			break
		}
		if !w.Until(mendTime, r.still) {
			return fmt.Errorf("something works on a directory %s after the last fault has ended", mendTime)
		}
		if err := c.Do(r); err != nil {
			return fmt.Errorf("%s: %w", c.Name, err)
		}
	}
	return r.check.Err
}

// still reports whether nothing works on any directory just now.
func (r *run) still() bool {
	return !slices.ContainsFunc(r.v.Replicas, func(x *Replica) bool { return !x.still() })
}

// settled waits until everything is healthy and idle, and stays so: an engine that was not asked
// anything for a while may not have heard yet that it lost a replica, so a flush has to reach all
// of them.
func (r *run) settled() bool {
	end := r.w.Now().Add(healTime)
	ready := func() bool { return r.check.Err != nil || (r.v.Healthy() && r.idle()) }
	for r.w.Until(time.Duration(end-r.w.Now()), ready) {
		if r.check.Err != nil {
			return true
		}
		asked, flushed := r.v.Current, false
		asked.front.Submit(&Call{Kind: block.Flush, Done: func(code block.Code, _ []byte) { flushed = code == block.OK }})
		if !r.w.Until(time.Duration(end-r.w.Now()), func() bool {
			return flushed || r.check.Err != nil || !r.v.Healthy() || r.v.Current != asked
		}) {
			return false
		}
		if flushed && ready() && r.v.Current == asked {
			return true
		}
	}
	return false
}

func (r *run) stuck() error {
	why := "no engine"
	if e := r.v.Current; e != nil {
		why = fmt.Sprintf("%s: %s", e.Name, e.state.Reason)
		for _, x := range e.state.Replicas {
			why += fmt.Sprintf("; %s %s %s", x.Address, x.Mode, x.Error)
		}
	}
	if r.v.Healthy() {
		why += "; clients still wait for answers"
	}
	return fmt.Errorf("not healthy %s after the last fault has ended: %s", healTime, why)
}

// busy tells whether clients should go on.
func (r *run) busy() bool { return r.faulting && r.requests < r.plan.Operations }

// oldestRead tells when the oldest request to read, or of the operator, was made that a living
// engine owes an answer to.
func (r *run) oldestRead() clock.Ticks {
	oldest, left := clock.Never, r.reads[:0]
	for _, k := range r.reads {
		if q := &r.history[k]; q.Ended == clock.Never && q.Engine.alive {
			oldest = min(oldest, q.Began)
			left = append(left, k)
		}
	}
	r.reads = left
	for _, a := range r.asked {
		if a.engine.alive {
			oldest = min(oldest, a.began)
		}
	}
	return oldest
}

// pins tells whether every engine knows which replicas have lost power.
func (r *run) pins() bool {
	for addr := range r.unheard {
		if !slices.ContainsFunc(r.v.Engines, func(e *EngineProcess) bool { return e.mode(addr) == engine.RW }) {
			delete(r.unheard, addr)
		}
	}
	return len(r.unheard) == 0
}

// idle tells whether nobody waits for an answer.
func (r *run) idle() bool {
	for _, c := range r.clients {
		if c.waits != nil {
			return false
		}
	}
	return !slices.ContainsFunc(r.asked, func(a *asked) bool { return a.engine.alive })
}

// engineGone lets clients go on without an engine.
func (r *run) engineGone(e *EngineProcess) {
	if r.offline == e {
		r.offline = nil
	}
	for _, c := range r.clients {
		c.engineGone(e)
	}
}

// settle ends the requests of engines that were replaced: what they have not done when their
// successor serves they cannot do any more. The clients are told.
func (r *run) settle(e *EngineProcess) {
	for i := range r.history {
		if q := &r.history[i]; q.Write > 0 && q.Ended == clock.Never && q.Engine != e {
			from, to := q.wrote()
			r.check.Maybe(r.w.Now(), q.Write, from, to-from)
		}
	}
	r.settleReverts(e)
	for _, c := range r.clients {
		c.replaced(e)
	}
}

// hurry wakes every client and lets it go on without long pauses for d.
func (r *run) hurry(d time.Duration) {
	r.hot++
	r.w.After(d, func() { r.hot-- })
	for _, c := range r.clients {
		if c.waits == nil {
			c.later()
		}
	}
}

// choreTime is how long an operator waits for an answer: an engine that dies gives none.
const choreTime = 3 * time.Second

// chores lets an operator do something now and then, one thing at a time.
func (r *run) chores() {
	rnd := stream(r.plan.Seed, 2)
	for range r.plan.Chores {
		at, own := time.Duration(rnd.Int64N(int64(r.plan.Time))), stream(rnd.Uint64(), 3)
		r.w.After(at, func() { r.chore(own) })
	}
}

// rebuilds is called when a replica begins to be rebuilt. An operator who does anything takes
// snapshots soon after.
func (r *run) rebuilds() {
	r.unrot()
	rnd := stream(r.plan.Seed, 12+uint64(r.v.Rebuilt+r.v.Dropped)<<8)
	for range min(r.plan.Chores, rnd.IntN(4)) {
		at, own := time.Microsecond<<rnd.IntN(16), stream(rnd.Uint64(), 3)
		r.w.After(at, func() {
			if r.faulting && r.plan.OnlyChore == "" && r.w.Now() >= r.busyUntil {
				r.begin(&Chore{Do: (*run).takeSnapshot}, own)
			}
		})
	}
}

// chore lets an operator do something if it is at leisure.
func (r *run) chore(rnd *rand.Rand) {
	if r.w.Now() < r.busyUntil || !r.faulting || len(Chores) == 0 {
		return
	}
	c := choose(rnd, Chores, func(c *Chore) int {
		if only := r.plan.OnlyChore; only != "" && only != c.Name {
			return 0
		}
		return c.Weight
	})
	r.begin(c, rnd)
}

func (r *run) begin(c *Chore, rnd *rand.Rand) {
	r.busyUntil = r.w.Now().Add(choreTime)
	if !c.Do(r, rnd, func() { r.busyUntil = 0 }) {
		r.busyUntil = 0
	}
}
