package powerdisk

import (
	"fmt"
	"math/rand/v2"
	"slices"
)

// Survival says what a loss of power leaves of the writes that no answered flush covers.
type Survival uint8

// Survivals.
const (
	// Nothing of them is left.
	Nothing Survival = iota
	// Everything is left.
	Everything
	// Half is any half of them, some of those torn.
	Half
	// Last is the newest few only: what came late was written first.
	Last
	// Few is nearly nothing.
	Few
	survivals
)

// String names the survival.
func (s Survival) String() string {
	return [...]string{"nothing", "everything", "half", "last", "few"}[s]
}

// Replay goes through a journal, forwards only, and makes the states of its disks.
type Replay struct {
	// WholeBlocks has no block of 4 KiB torn: of each, all of what a write has for it survives, or
	// nothing. Disks that are made today give that. XFS asks for it where it writes metadata: the
	// number in a block's first sector tells its recovery that the rest is there.
	WholeBlocks bool

	events []Event
	base   []*Image // certain
	open   [][]int  // writes that are not certain, by disk
	next   int
}

// NewReplay begins before the first event, with the disks as they were then.
func NewReplay(events []Event, disks []*Image) *Replay {
	r := &Replay{events: events, open: make([][]int, len(disks))}
	for _, d := range disks {
		r.base = append(r.base, d.Clone())
	}
	return r
}

// Advance goes on to the moment before event number at.
func (r *Replay) Advance(at int) {
	if at < r.next {
		panic(fmt.Sprintf("powerdisk: replay cannot go back from event %d to %d", r.next, at))
	}
	for ; r.next < at; r.next++ {
		e := &r.events[r.next]
		switch e.Kind {
		case Write, Zero:
			r.open[e.Disk] = append(r.open[e.Disk], r.next)
		case Sync:
			r.settle(e)
		}
	}
}

// settle makes the writes that a flush covers certain.
func (r *Replay) settle(e *Event) {
	covered := make(map[int]bool, len(e.Covers))
	for _, i := range e.Covers {
		covered[i] = true
	}
	left := r.open[e.Disk][:0]
	for _, i := range r.open[e.Disk] {
		if covered[i] {
			apply(r.base[e.Disk], &r.events[i])
		} else {
			left = append(left, i)
		}
	}
	r.open[e.Disk] = left
}

func apply(m *Image, e *Event) {
	if e.Kind == Zero {
		m.Zero(e.Off, e.Len)
	} else {
		m.Write(e.Data, e.Off)
	}
}

// Open returns how many writes of a disk are not certain.
func (r *Replay) Open(disk int) int { return len(r.open[disk]) }

// State is a disk after a loss of power at this moment.
func (r *Replay) State(disk int, s Survival, rng *rand.Rand) *Image {
	m := r.base[disk].Clone()
	open := r.open[disk]
	for n, i := range open {
		keep := false
		switch s {
		case Everything:
			keep = true
		case Half:
			keep = rng.IntN(2) == 0
		case Last:
			keep = n >= len(open)-lastFew
		case Few:
			keep = rng.IntN(8) == 0
		case Nothing:
		}
		switch {
		case !keep:
		case (s == Half || s == Few) && rng.IntN(3) == 0:
			r.tear(m, &r.events[i], rng)
		default:
			apply(m, &r.events[i])
		}
	}
	return m
}

// lastFew is how many writes survive Last.
const lastFew = 3

// AnySurvival draws one, the exact ones more often.
func AnySurvival(rng *rand.Rand) Survival {
	if rng.IntN(3) == 0 {
		return Nothing
	}
	return Survival(rng.IntN(int(survivals)))
}

// superblockEnd is where the block ends that is never torn. ext4 writes its superblock, two sectors
// with a checksum over both, in place and beside its journal, and cannot be mounted when one of
// them is missing. That is between the file system and its disk, and disks whose blocks are torn
// below 4 KiB are not made any more.
const superblockEnd = blockSize

// blockSize is what Replay.WholeBlocks keeps together, in bytes.
const blockSize = 4096

// tear applies some sectors of a write only.
func (r *Replay) tear(m *Image, e *Event, rng *rand.Rand) {
	sectors := int(e.Len / SectorSize)
	if sectors < 2 {
		return
	}
	if e.Off < superblockEnd {
		apply(m, e)
		return
	}
	from, to := 0, sectors
	switch rng.IntN(3) {
	case 0:
		to = 1 + rng.IntN(sectors-1)
	case 1:
		from = 1 + rng.IntN(sectors-1)
	default:
		cut := []int{rng.IntN(sectors), rng.IntN(sectors)}
		slices.Sort(cut)
		from, to = cut[0], cut[1]+1
	}
	begin, end := e.Off+int64(from)*SectorSize, e.Off+int64(to)*SectorSize
	if r.WholeBlocks {
		begin = max(e.Off, begin/blockSize*blockSize)
		end = min(e.Off+e.Len, (end+blockSize-1)/blockSize*blockSize)
	}
	if e.Kind == Zero {
		m.Zero(begin, end-begin)
	} else {
		m.Write(e.Data[begin-e.Off:end-e.Off], begin)
	}
}
