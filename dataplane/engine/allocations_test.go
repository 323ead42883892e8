package engine_test

import (
	"runtime"
	"runtime/debug"
	"testing"
	"time"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/clock"
	"ankole.storage/dataplane/engine"
	"ankole.storage/dataplane/frontend"
	"ankole.storage/dataplane/loop"
)

// watched is a core of which is known what its steps cost.
type watched struct {
	loop.Core
	// counts: allocations are counted. They are all of the process, so nothing else may run.
	counts  bool
	mallocs uint64
	steps   int
	took    time.Duration
}

// Step implements loop.Core.
func (c *watched) Step(now clock.Ticks, in []loop.Done, out *[]loop.Op) clock.Ticks {
	c.steps++
	if !c.counts {
		began := time.Now()
		wake := c.Core.Step(now, in, out)
		c.took += time.Since(began)
		return wake
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	wake := c.Core.Step(now, in, out)
	runtime.ReadMemStats(&after)
	c.mallocs += after.Mallocs - before.Mallocs
	return wake
}

// lean is a frontend that allocates nothing; it asks for one thing again and again.
type lean struct {
	front
	asks     frontend.Request
	left     int
	answered int
	failed   int
}

// Handle implements frontend.Frontend.
func (f *lean) Handle(_ clock.Ticks, _ *loop.Done, reqs *[]frontend.Request, out *[]loop.Op) {
	for ; f.left > 0; f.left-- {
		*reqs = append(*reqs, f.asks)
	}
	f.Start(out)
}

// Resume implements frontend.Resumer.
func (f *lean) Resume(*[]frontend.Request, *[]loop.Op) {}

// Complete implements frontend.Frontend.
func (f *lean) Complete(_ uint64, code block.Code, _ *[]loop.Op) {
	f.answered++
	if code != block.OK {
		f.failed++
	}
}

// leanRig is an engine with two replicas whose user asks for requests of 4 KiB.
func leanRig(t testing.TB) (g *rig, core *watched, ask func(kind block.Kind, n int)) {
	g = newRig(t, 2, 16<<20)
	g.offline = true
	core = &watched{}
	g.core = func(c loop.Core) loop.Core { core.Core = c; return core }
	g.start()
	f := &lean{front: *g.front}
	b, ok := g.arena.Get(block.Size)
	if !ok {
		t.Fatal("no memory")
	}
	g.proc.Post(engine.AttachFrontend{Frontend: f, Reply: func(err error) {
		if err != nil {
			t.Error(err)
		}
	}})
	return g, core, func(kind block.Kind, n int) {
		t.Helper()
		f.asks, f.left, f.answered = frontend.Request{Kind: kind, Off: 1 << 20, Len: block.Size, Buf: b}, n, 0
		f.signal.Raise()
		g.until("answers", func() bool { return f.answered == n })
		if f.failed > 0 {
			t.Fatalf("%d of %d failed", f.failed, n)
		}
	}
}

// TestOrdinaryRequestsAllocateNothing: neither a read nor a write of 4 KiB to a region that is
// marked, alone or several at once, makes work for the garbage collector.
func TestOrdinaryRequestsAllocateNothing(t *testing.T) {
	_, core, ask := leanRig(t)
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	for _, kind := range []block.Kind{block.Read, block.Write} {
		for _, together := range []int{1, 8} {
			for range 16 {
				ask(kind, together) // pools grow, and the region is marked
			}
			core.counts, core.mallocs, core.steps = true, 0, 0
			for range 64 {
				ask(kind, together)
			}
			core.counts = false
			if core.steps < 64 {
				t.Fatalf("only %d steps were looked at", core.steps)
			}
			// One now and then is the runtime's own; what is done for a request, or for a step, comes to 64.
			if core.mallocs >= 32 {
				t.Errorf("%s, %d at once: %d allocations for %d requests", kind, together, core.mallocs, 64*together)
			}
		}
	}
}

// BenchmarkRequests is what the steps of the engine's core cost for one request of 4 KiB with two
// replicas, without loop, frontend and replicas.
func BenchmarkRequests(b *testing.B) {
	for _, kind := range []block.Kind{block.Read, block.Write} {
		b.Run(kind.String(), func(b *testing.B) {
			_, core, ask := leanRig(b)
			ask(kind, 16)
			core.took, core.steps = 0, 0
			for b.Loop() {
				ask(kind, 16)
			}
			b.ReportMetric(float64(core.took.Nanoseconds())/float64(b.N)/16, "ns-core/request")
			b.ReportMetric(float64(core.steps)/float64(b.N)/16, "steps/request")
		})
	}
}
