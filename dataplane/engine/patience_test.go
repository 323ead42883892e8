package engine_test

import (
	"testing"
	"time"

	"ankole.storage/dataplane/clock"
	"ankole.storage/dataplane/engine"
	"ankole.storage/dataplane/loop"
)

// patient is a frontend that wants to be called at a time.
type patient struct {
	*front
	due    clock.Ticks
	called clock.Ticks
}

// Expire implements frontend.Expirer.
func (p *patient) Expire(now clock.Ticks, _ *[]loop.Op) clock.Ticks {
	if now < p.due {
		return p.due
	}
	if p.called == 0 {
		p.called = now
	}
	return clock.Never
}

// TestFrontendIsCalledWhenItWants: nothing happens in the volume, and the frontend is called all
// the same when its patience ends.
func TestFrontendIsCalledWhenItWants(t *testing.T) {
	g := newRig(t, 2, mib)
	g.offline = true
	g.start()
	p := &patient{front: g.front, due: g.w.Now().Add(time.Hour)}
	g.proc.Post(engine.AttachFrontend{Frontend: p, Reply: func(error) {}})
	g.w.Until(2*time.Hour, func() bool { return p.called != 0 })
	if late := p.called.Sub(p.due); p.called == 0 || late > time.Second {
		t.Errorf("called %s after it wanted to be", late)
	}
}
