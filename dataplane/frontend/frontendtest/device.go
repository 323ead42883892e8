// Package frontendtest is the contract of frontend.Frontend as a test suite, and a reference engine
// to run it on: a step core that keeps a volume in memory. Every frontend runs the same suite
// through its own kind of client.
package frontendtest

import (
	"math/rand/v2"
	"time"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/clock"
	"ankole.storage/dataplane/frontend"
	"ankole.storage/dataplane/loop"
)

// Owner is the tag owner the device gives its frontend.
const Owner loop.Owner = 7

// Device is the reference engine: it does what the engine promises its frontends, in memory, with
// delays, reordering and errors as told. All its fields belong to the loop's thread; tests reach
// them through Rig.Do.
type Device struct {
	Frontend frontend.Frontend
	// Mem is the volume as a reader sees it, Stable what would survive a crash.
	Mem, Stable []byte
	// Fail decides how a request ends; nil means well.
	Fail func(r *frontend.Request) block.Code
	// Delay is the longest time a request takes; the real one is random, so requests overtake each
	// other.
	Delay time.Duration
	// Hold keeps requests back until so many wait at once (or Hold is lowered).
	Hold int
	// Seen counts requests by kind, Deepest is the most that waited at once.
	Seen    map[block.Kind]int
	Deepest int
	// Log, when not nil, is given every request as it arrives.
	Log func(r *frontend.Request)

	arena    *loop.Arena
	rand     *rand.Rand
	waiting  []waiting
	dirty    []span // completed, not stable
	reqs     []frontend.Request
	stopping bool
	started  bool
}

type waiting struct {
	req   frontend.Request
	due   clock.Ticks
	cover int // of a flush: the dirty spans it has to make stable
}

type span struct{ off, end int64 }

// NewDevice returns a device of size bytes, zeroed.
func NewDevice(arena *loop.Arena, size int64) *Device {
	return &Device{
		Mem: make([]byte, size), Stable: make([]byte, size), Seen: map[block.Kind]int{},
		arena: arena, rand: rand.New(rand.NewPCG(1, 2)),
	}
}

type stopDevice struct{}

// Step implements loop.Core.
func (v *Device) Step(now clock.Ticks, in []loop.Done, out *[]loop.Op) clock.Ticks {
	if !v.started {
		v.started = true
		v.Frontend.Start(out)
	}
	for i := range in {
		d := &in[i]
		switch m := d.Value.(type) {
		case func(out *[]loop.Op):
			m(out)
		case stopDevice:
			v.stopping = true
			v.Frontend.Stop(out)
		default:
			if loop.OwnerOf(d.Tag) != Owner {
				panic("frontendtest: completion of a strange owner")
			}
			v.Frontend.Handle(now, d, &v.reqs, out)
		}
	}
	v.accept(now)
	wake := v.finish(now, out)
	if r, ok := v.Frontend.(frontend.Resumer); ok {
		r.Resume(&v.reqs, out)
		if len(v.reqs) > 0 {
			v.accept(now)
			wake = clock.Min(wake, now)
		}
	}
	if p, ok := v.Frontend.(frontend.Expirer); ok {
		wake = clock.Min(wake, p.Expire(now, out))
	}
	return wake
}

// Stopped implements the loop's Stopper.
func (v *Device) Stopped() bool {
	return v.stopping && len(v.waiting) == 0 && v.Frontend.Stopped()
}

// accept takes in what the frontend has asked.
func (v *Device) accept(now clock.Ticks) {
	for _, r := range v.reqs {
		v.validate(&r)
		v.Seen[r.Kind]++
		if v.Log != nil {
			v.Log(&r)
		}
		w := waiting{req: r, due: now, cover: len(v.dirty)}
		if v.Delay > 0 {
			w.due = now.Add(time.Duration(v.rand.Int64N(int64(v.Delay))))
		}
		v.waiting = append(v.waiting, w)
	}
	v.reqs = v.reqs[:0]
	v.Deepest = max(v.Deepest, len(v.waiting))
}

// validate holds the frontend to what frontend.Request promises.
func (v *Device) validate(r *frontend.Request) {
	bounded := r.Kind == block.Read || r.Kind == block.Write
	switch {
	case r.Kind == block.Flush:
		return
	case r.Len <= 0 || r.Off < 0 || r.Off+r.Len > int64(len(v.Mem)):
		panic("frontendtest: request out of bounds")
	case r.Off%block.SectorSize != 0 || r.Len%block.SectorSize != 0:
		panic("frontendtest: unaligned request")
	case bounded && (r.Len > block.MaxTransfer || len(v.arena.Bytes(r.Buf)) < int(r.Len)):
		panic("frontendtest: request larger than its buffer or the limit")
	}
}

// finish completes what is due, in random order, and returns when it has to look again.
func (v *Device) finish(now clock.Ticks, out *[]loop.Op) clock.Ticks {
	if len(v.waiting) < v.Hold && !v.stopping {
		return clock.Never
	}
	v.Hold = 0
	wake := clock.Never
	if v.Delay > 0 {
		v.rand.Shuffle(len(v.waiting), func(i, j int) { v.waiting[i], v.waiting[j] = v.waiting[j], v.waiting[i] })
	}
	kept := v.waiting[:0]
	for i := range v.waiting {
		w := v.waiting[i]
		if w.due > now && !v.stopping {
			wake = clock.Min(wake, w.due)
			kept = append(kept, w)
			continue
		}
		v.Frontend.Complete(w.req.ID, v.perform(&w), out)
	}
	v.waiting = kept
	return wake
}

func (v *Device) perform(w *waiting) block.Code {
	r := &w.req
	if v.Fail != nil {
		if c := v.Fail(r); c != block.OK {
			return c
		}
	}
	switch r.Kind {
	case block.Read:
		copy(v.arena.Bytes(r.Buf)[:r.Len], v.Mem[r.Off:])
		return block.OK
	case block.Flush:
		for _, s := range v.dirty[:w.cover] {
			copy(v.Stable[s.off:s.end], v.Mem[s.off:s.end])
		}
		return block.OK
	case block.Write:
		copy(v.Mem[r.Off:r.Off+r.Len], v.arena.Bytes(r.Buf))
	case block.Discard, block.WriteZeroes:
		clear(v.Mem[r.Off : r.Off+r.Len])
	}
	if r.FUA {
		copy(v.Stable[r.Off:r.Off+r.Len], v.Mem[r.Off:])
	} else {
		v.dirty = append(v.dirty, span{r.Off, r.Off + r.Len})
	}
	return block.OK
}

// Resize grows the volume.
func (v *Device) Resize(size int64, out *[]loop.Op) {
	v.Mem = append(v.Mem, make([]byte, size-int64(len(v.Mem)))...)
	v.Stable = append(v.Stable, make([]byte, size-int64(len(v.Stable)))...)
	v.Frontend.SetSize(size, out)
}
