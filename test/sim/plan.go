package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/engine"
)

// Plan is everything that a seed decides beforehand. A plan can be changed and played again: that
// is how a failing history is made shorter.
type Plan struct {
	Seed     uint64
	Replicas int
	// Size of the volume in bytes.
	Size    int64
	Clients int
	// Style is what clients prefer.
	Style Style
	// Operations is how many requests clients make, about.
	Operations int
	// Time is how long faults come, in simulated time.
	Time time.Duration
	// HealEvery is how often the control plane looks, at most; ReplaceAfter how long an engine may
	// be out of its reach.
	HealEvery, ReplaceAfter time.Duration
	Timeouts                Timeouts
	// Memory of the processes.
	Memory Memory
	// Drift is how much faster the clock of each node goes than the world's, in parts per thousand.
	Drift []int64
	// Log bounds the dirty logs of the engines; the zero value means the default, which no
	// simulated volume outgrows.
	Log engine.LogBounds
	// Faults in order of time.
	Faults []Planned
	// Chores is how many times an operator does something beside the clients.
	Chores int
	// OnlyChore is the one that the operator does, "" for all of them.
	OnlyChore string
	// Keeps: block devices of engines that are killed are kept on their nodes.
	Keeps bool
	// Shares: an engine shares memory with a replica on its node, and prefers to read from it.
	Shares bool
	// Image is what the volume stands on.
	Image Image
	// Bug is a mistake made on purpose, to see that it is found.
	Bug Bug
	// Skip leaves requests out, by number.
	Skip map[uint64]bool
}

// Style is what the clients of a plan prefer to do.
type Style string

const (
	// StyleMixed: a little of everything.
	StyleMixed Style = "mixed"
	// StyleSpot: everybody reads and writes the sectors of one or two blocks.
	StyleSpot Style = "spot"
	// StyleSyncs: many flushes and FUA writes.
	StyleSyncs Style = "syncs"
	// StyleTrims: many discards and zeroings.
	StyleTrims Style = "trims"
)

// Planned is a fault that is to come.
type Planned struct {
	At time.Duration
	// Name of the fault in the Atlas.
	Name string
	// For is how long it lasts, where it lasts.
	For time.Duration
	// Seed decides the rest: which node, how slow.
	Seed uint64
}

// Bug is a mistake in what is simulated around the cores. Checkers that do not find it would not
// find its like in the cores.
type Bug string

const (
	// bugUnequalLeases: every second engine believes that its lease lasts an hour.
	bugUnequalLeases Bug = "unequal leases"
	// bugLyingDisks: syncs of data succeed and do nothing.
	bugLyingDisks Bug = "lying disks"
	// bugRottenHead: one replica's data is damaged before the end.
	bugRottenHead Bug = "rotten head"
	// bugNoControlPlane: nobody starts what has died.
	bugNoControlPlane Bug = "no control plane"
)

// longEvery is how many seeds there are to a long one, which makes ten times as many requests.
const longEvery = 50

// maxDrift bounds how wrong clocks go, in parts per thousand. Leases allow for a tenth between two.
const maxDrift = 45

// most is how many clients there are in a crowd: more than the least memory has room for.
const most = 128

// squeeze gives some plans little memory, some many clients, and some clients with a preference.
func (p *Plan) squeeze(r *rand.Rand) {
	p.Memory = pick(r, plentyOfMemory, leastMemory)
	if r.IntN(6) == 0 {
		p.Clients = most/4 + r.IntN(most*3/4+1)
	}
	p.Keeps = r.IntN(2) == 0
	p.Style = pick(r, StyleMixed, StyleMixed, StyleMixed, StyleSpot, StyleSyncs, StyleTrims)
}

// PlanFor returns the plan of a seed.
func PlanFor(seed uint64) Plan {
	r := stream(seed, 1)
	p := Plan{
		Seed: seed, Replicas: pick(r, 3, 3, 3, 3, 3, 2, 2, 2, 1), Clients: 1 + r.IntN(6), Operations: 300 + r.IntN(500),
		Size:         pick[int64](r, 1<<20, 4<<20, 4<<20+12<<10, 8<<20, 8<<20, 12<<20-4<<10),
		HealEvery:    pick(r, 20*time.Millisecond, 40*time.Millisecond, 300*time.Millisecond),
		ReplaceAfter: pick(r, 50*time.Millisecond, 200*time.Millisecond, time.Second),
		Timeouts: Timeouts{Replica: pick(r, 200*time.Millisecond, time.Second, 8*time.Second, 30*time.Second),
			NoReplica: pick(r, 500*time.Millisecond, 5*time.Second, 30*time.Second),
			Lease:     pick(r, 50*time.Millisecond, 500*time.Millisecond, 2*time.Second, 10*time.Second)},
	}
	p.crowd(stream(seed, 5))
	for range p.Replicas + 1 {
		p.Drift = append(p.Drift, r.Int64N(2*maxDrift+1)-maxDrift)
	}
	faults, second := 2+r.IntN(9), int64(time.Second)
	if seed%longEvery == 0 {
		p.Operations *= 10
		faults *= 8
	}
	p.Chores = r.IntN(4) * faults / 2
	p.Time = time.Duration(int64(faults) * (second/50 + r.Int64N(second)))
	for range faults {
		p.Faults = append(p.Faults, planFault(r, p.Time))
	}
	if slices.ContainsFunc(p.Faults, func(f Planned) bool { return f.Name == "rot" }) {
		p.Chores = max(p.Chores, 4*faults) // snapshots have to be there before one rots
	}
	slices.SortStableFunc(p.Faults, func(a, b Planned) int { return int(a.At - b.At) })
	p.squeeze(stream(seed, 6))
	p.Shares = stream(seed, 8).IntN(2) == 0
	p.stand(stream(seed, 10))
	return p
}

// stand puts every fourth volume on an image, which is smaller as a rule and may end within a
// block.
func (p *Plan) stand(r *rand.Rand) {
	if r.IntN(4) > 0 {
		return
	}
	sectors := p.Size / block.SectorSize
	p.Image = Image{Size: pick(r, sectors, sectors/2, 1+r.Int64N(sectors)) * block.SectorSize, Seed: r.Uint64()}
}

// crowd lets every second volume have more regions than its engines' dirty logs, so that marks are
// taken away while it is used, and writes wait for room. Most of such a volume stays empty.
func (p *Plan) crowd(r *rand.Rand) {
	if r.IntN(2) == 0 {
		return
	}
	p.Size = pick[int64](r, p.Size, 12<<20, 24<<20+8<<10, 48<<20)
	p.Log = pick(r, engine.LogBounds{Max: 2, High: 1}, engine.LogBounds{Max: 3, High: 2, Low: 1},
		engine.LogBounds{Max: 6, High: 4, Low: 2})
}

func planFault(r *rand.Rand, end time.Duration) Planned {
	f := choose(r, Atlas, func(f *Fault) int { return f.Weight })
	p := Planned{At: time.Duration(r.Int64N(int64(end))), Name: f.Name, Seed: r.Uint64()}
	if f.Longest > 0 {
		// Short ones are as interesting as long ones: spread over the orders of magnitude.
		p.For = time.Duration(float64(f.Longest) / float64(int64(1)<<r.IntN(12)) * (0.5 + r.Float64()/2))
	}
	return p
}

func pick[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

// choose picks one of a table by weight.
func choose[T any](r *rand.Rand, of []T, weight func(*T) int) *T {
	total := 0
	for i := range of {
		total += weight(&of[i])
	}
	n := r.IntN(total)
	for i := range of {
		if n -= weight(&of[i]); n < 0 {
			return &of[i]
		}
	}
	panic("sim: nothing to choose")
}

// String describes the plan for a report.
func (p *Plan) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d replicas, %d bytes, memory %v, %d clients (%s), %d requests, replica timeout %s, no-replica "+
		"timeout %s, lease %s, heals every %s, replaces after %s, drift %v‰",
		p.Replicas, p.Size, p.Memory, p.Clients, p.Style, p.Operations, p.Timeouts.Replica, p.Timeouts.NoReplica,
		p.Timeouts.Lease, p.HealEvery, p.ReplaceAfter, p.Drift)
	if p.Keeps {
		b.WriteString(", devices are kept")
	}
	if p.Shares {
		b.WriteString(", memory is shared")
	}
	if p.Image.Size > 0 {
		fmt.Fprintf(&b, ", on an image of %d bytes", p.Image.Size)
	}
	if p.Log.Max > 0 {
		fmt.Fprintf(&b, ", dirty logs of %d regions", p.Log.Max)
	}
	if len(p.Skip) > 0 {
		fmt.Fprintf(&b, ", %d requests left out", len(p.Skip))
	}
	for _, f := range p.Faults {
		fmt.Fprintf(&b, "\n  at %s %s", f.At, f.Name)
		if f.For > 0 {
			fmt.Fprintf(&b, " for %s", f.For)
		}
	}
	return b.String()
}
