package sim

import (
	"fmt"
	"testing"
	"time"

	"ankole.storage/dataplane/clock"
	"ankole.storage/dataplane/disk"
	"ankole.storage/dataplane/loop"
	"ankole.storage/dataplane/loop/looptest"
)

// TestLoopConformance holds the simulated loop to the contract of the production loop: what is
// found here holds there.
func TestLoopConformance(t *testing.T) {
	looptest.Run(t, func(t *testing.T) looptest.World { return newLoopWorld() })
}

// loopWorld lets the suite drive a process from outside, as if the suite were its core.
type loopWorld struct {
	w     *World
	p     *Process
	arena *loop.Arena
	done  []loop.Done
	n     int
}

func newLoopWorld() *loopWorld {
	w := NewWorld(1)
	arena := loop.NewArena(64 << 20)
	k := &loopWorld{w: w, arena: arena, p: w.Spawn("suite", arena, w.NewNode("suite"))}
	k.p.Run(k)
	return k
}

// Step implements loop.Core: it only keeps what completed.
func (k *loopWorld) Step(_ clock.Ticks, in []loop.Done, _ *[]loop.Op) clock.Ticks {
	k.done = append(k.done, in...)
	return clock.Never
}

// Submit implements loop.Loop.
func (k *loopWorld) Submit(ops []loop.Op) {
	for i := range ops {
		k.p.submit(&ops[i])
	}
}

// Reap implements loop.Loop: waiting is letting simulated time pass.
func (k *loopWorld) Reap(done []loop.Done, wait time.Duration) int {
	end := k.w.now.Add(wait)
	if !k.w.Until(wait, func() bool { return len(k.done) > 0 }) {
		k.w.now = end
	}
	n := copy(done, k.done)
	k.done = append(k.done[:0], k.done[n:]...)
	return n
}

func (k *loopWorld) Now() clock.Ticks    { return k.w.Now() }
func (k *loopWorld) Loop() loop.Loop     { return k }
func (k *loopWorld) Poster() loop.Poster { return k.p }
func (k *loopWorld) Arena() *loop.Arena  { return k.arena }
func (k *loopWorld) SingleThreaded()     {}

// Excuses implements looptest.Excuser: what no simulated core does is not simulated.
func (k *loopWorld) Excuses() map[string]string {
	const (
		listener = "simulated listeners are closed by killing their process only"
		released = "no simulated core gives descriptors away: frontends that do have loops of their own"
	)
	return map[string]string{
		"close of a file waits for what is in flight": "simulated cores close files through " +
			"disk.Meta, not by operations",
		"close cancels an accept": listener,
		"connect to nobody fails": listener,
		"release cancels, tells what was sent and leaves the connection open": released,
		"release of a listener leaves it open":                                released,
	}
}

func (k *loopWorld) File(t *testing.T) loop.Handle {
	k.n++
	f, err := k.p.node.Disk.FS.Create(fmt.Sprintf("/file%d", k.n), disk.Direct)
	if err != nil {
		t.Fatal(err)
	}
	return loop.Handle(f.Handle())
}

func (k *loopWorld) Listen(*testing.T) (loop.Handle, string) {
	k.n++
	addr := fmt.Sprintf("tcp:10.0.0.%d:1", k.n)
	return k.p.Listen(addr), addr
}
