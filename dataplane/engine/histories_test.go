package engine_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"ankole.storage/dataplane/clock"
	"ankole.storage/dataplane/engine"
	"ankole.storage/dataplane/frontend"
	"ankole.storage/dataplane/loop"
	"ankole.storage/dataplane/wire"
	"ankole.storage/test/seeded"
)

// pausing is a frontend that can be given to another engine, with the requests that it has not
// taken.
type pausing struct {
	*front
	suspended bool
}

func (f *pausing) Handle(now clock.Ticks, d *loop.Done, reqs *[]frontend.Request, out *[]loop.Op) {
	if f.suspended {
		f.Start(out)
		return
	}
	f.front.Handle(now, d, reqs, out)
}

func (f *pausing) Resume(reqs *[]frontend.Request, out *[]loop.Op) {
	if !f.suspended {
		f.front.Resume(reqs, out)
	}
}

func (f *pausing) Suspend(*[]loop.Op)  { f.suspended = true }
func (f *pausing) Suspended() bool     { return f.suspended }
func (f *pausing) Continue(*[]loop.Op) { f.suspended = false }

// newHandedHistory is a history of engines that hand over to one another.
func newHandedHistory(t *testing.T, seed uint64) *history {
	src := seeded.New(t, "P4: what a failed write has become is the same for all who read it, over hand-overs")
	src.Note(seed)
	h := &history{rig: newRig(t, 3, 8*mib), r: src.Rand(8), names: 3, fails: map[uint64]bool{},
		hands: true}
	h.offline = true
	h.start()
	for _, f := range h.fakes {
		f.script, f.inOrder = h.script(f), true
	}
	h.attach()
	return h
}

// handing is the hand-over of a history that is under way.
type handing struct {
	done bool
	left *engine.Left
}

// handOver asks the engine to give the volume to another one, or, while it is asked, to stay.
func (h *history) handOver() {
	switch {
	case h.handing != nil && h.handing.done:
		return // handedOver goes on
	case h.handing != nil:
		h.proc.Post(engine.Stay{Reason: "as the history wants it"})
		return
	}
	var members []string
	for _, r := range h.state.Replicas {
		if r.Mode == engine.RW {
			members = append(members, r.Member)
		}
	}
	a := &handing{}
	h.handing = a
	h.proc.Post(engine.Leave{Members: members, Draining: func() {}, Reply: func(left *engine.Left, _ error) {
		a.done, a.left = true, left
	}})
}

// handedOver starts the next engine when the present one has given the volume away.
func (h *history) handedOver() {
	if h.handing == nil || !h.handing.done {
		return
	}
	left := h.handing.left
	if h.handing = nil; left == nil {
		h.stayed++
		return
	}
	h.handed++
	members := h.state.Record.Members
	calls := h.front.queue
	h.fails = map[uint64]bool{} // requests get the same numbers again
	var addrs []string
	for _, f := range h.fakes {
		if slices.Contains(members, f.name) {
			addrs = append(addrs, f.addr())
		}
	}
	c := h.config(addrs)
	c.Successor = true
	h.run(c)
	h.front.queue = calls
	h.awaits("the replicas are reached", func(done func()) any {
		return engine.Prepare{Reply: func([]string, []string) { done() }}
	})
	h.proc.Post(engine.Succeed{Left: *left})
	h.attach()
}

// awaits posts a message and lets replicas answer until it is replied to.
func (h *history) awaits(what string, message func(done func()) any) {
	h.t.Helper()
	done := false
	h.proc.Post(message(func() { done = true }))
	for n := 0; !done; n++ {
		if n == 20000 {
			h.t.Fatalf("%s: not within %d steps\n%s", what, n, strings.Join(h.events, "\n"))
		}
		h.let()
		h.w.Until(time.Millisecond, func() bool { return done })
	}
}

// attach gives the present engine the frontend.
func (h *history) attach() {
	h.proc.Post(engine.AttachFrontend{Frontend: &pausing{front: h.front}, Reply: func(err error) {
		if err != nil {
			h.t.Error(err)
		}
	}})
	h.proc.Post(engine.FrontendKept{Kept: true})
	h.front.signal.Raise()
}

// readFails decides whether a disk cannot read what is asked for. One replica has such a disk.
func (h *history) readFails(f *fake, hd *wire.Header) bool {
	return h.sick == f.name && h.r.IntN(4) == 0 &&
		(hd.Type == wire.Read || hd.Type == wire.Hash && hd.Flags&wire.AtView == 0) && h.state.Torn == 0
}

// TestHistoriesWithHandOvers plays the histories of TestSmallWritesKeepTheirOrder and
// TestFailedWritesHaveOneOutcome with engines that hand over to one another or stay, and with a
// disk that cannot read now and then.
func TestHistoriesWithHandOvers(t *testing.T) {
	handed, stayed, rewritten, lost := 0, 0, 0, 0
	for seed := range uint64(80) {
		h := newHandedHistory(t, seed)
		h.failing = seed%2 == 0
		h.late = 2
		if seed%3 > 0 {
			h.sick, h.fakes[1].rewritten = "b", true
		}
		for range 250 {
			h.one()
			h.pass()
			h.handedOver()
		}
		for h.handing != nil {
			h.let()
			h.pass()
			h.handedOver()
		}
		err := h.end()
		if gone := h.saw("replica-dropped", "read failed"); gone > 0 && h.failing {
			// A torn region is read from one replica for as long as that one is there.
			lost++
			err = nil
		}
		if err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, err, strings.Join(h.events, "\n"))
		}
		handed, stayed, rewritten = handed+h.handed, stayed+h.stayed, rewritten+h.saw("rewritten", "")
	}
	if handed < 30 || stayed < 30 || rewritten < 20 || lost > 10 {
		t.Errorf("%d hand-overs, %d given up, %d sectors rewritten, %d histories not judged", handed, stayed, rewritten, lost)
	}
	t.Logf("%d hand-overs, %d given up, %d sectors rewritten, %d histories not judged", handed, stayed, rewritten, lost)
}

// saw counts events of a name whose text contains the given one.
func (h *history) saw(name, text string) (n int) {
	for _, e := range h.events {
		if strings.HasPrefix(e, name+" ") && strings.Contains(e, text) {
			n++
		}
	}
	return n
}
