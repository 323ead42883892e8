package engine_test

import (
	"testing"
	"time"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/engine"
	"ankole.storage/dataplane/wire"
)

// measure asks the engine what it has counted.
func (g *rig) measure() (c engine.Counters, r engine.Rates) {
	g.t.Helper()
	done := false
	g.proc.Post(engine.Measure{Reply: func(a engine.Counters, b engine.Rates) { c, r, done = a, b, true }})
	g.until("figures", func() bool { return done })
	return c, r
}

// nextSecond lets the present second end.
func (g *rig) nextSecond() {
	g.t.Helper()
	over := false
	g.w.After(time.Second-time.Duration(g.w.Now())%time.Second, func() { over = true })
	g.until("next second", func() bool { return over })
}

// Rates are those of the last whole second; latencies are averages of what was answered in it.
func TestRates(t *testing.T) {
	g := newRig(t, 2, 4<<20).start()
	g.nextSecond()
	for i := range int64(5) {
		if code := g.finish(g.write(i*8192, 1, 8192)); code != block.OK {
			t.Fatal(code)
		}
	}
	for range 3 {
		g.read(0, 4096)
	}
	if _, r := g.measure(); r != (engine.Rates{}) {
		t.Errorf("a second that is not over is told: %+v", r)
	}
	g.nextSecond()
	c, r := g.measure()
	if r.Writes != 5 || r.WriteBytes != 5*8192 || r.Reads != 3 || r.ReadBytes != 3*4096 {
		t.Errorf("%+v", r)
	}
	if r.ReadLatency <= 0 || r.WriteLatency <= 0 || r.ReadLatency > time.Second ||
		c.ReadNanos/3 != uint64(r.ReadLatency) || c.WriteNanos/5 != uint64(r.WriteLatency) {
		t.Errorf("latencies %+v of %+v", r, c)
	}
	g.read(0, 4096)
	g.nextSecond()
	if _, r := g.measure(); r.Reads != 1 || r.Writes != 0 || r.WriteLatency != 0 {
		t.Errorf("the second after: %+v", r)
	}
	g.nextSecond()
	if _, r := g.measure(); r != (engine.Rates{}) {
		t.Errorf("an idle second: %+v", r)
	}
	g.read(0, 4096)
	g.nextSecond()
	g.nextSecond()
	if _, r := g.measure(); r != (engine.Rates{}) {
		t.Errorf("two seconds after: %+v", r)
	}
}

// A request's time is what its user waits, whatever it waits for.
func TestLatencyCountsWaiting(t *testing.T) {
	g := newRig(t, 2, 4<<20).start()
	g.fakes[0].script = func(h *wire.Header) (block.Code, bool) { return block.OK, h.Type == wire.Write }
	g.finish(g.write(0, 1, 4096)) // when the replica that says nothing is dropped
	if got, _ := g.measure(); got.WriteNanos < uint64(replicaTimeout)/2 {
		t.Errorf("%s for a write that waited for %s", time.Duration(got.WriteNanos), replicaTimeout)
	}
}
