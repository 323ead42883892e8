package engine_test

import (
	"errors"
	"strings"
	"testing"

	"ankole.storage/dataplane/engine"
	"ankole.storage/dataplane/wire"
)

// TestNotServedYetPasses: what is asked for while the engine still compares replicas is refused for
// a reason that passes by itself, and is done when asked for again later.
func TestNotServedYetPasses(t *testing.T) {
	g := newRig(t, 2, 16*mib)
	g.fakes[1].judge = holdControl(func(q *wire.ControlRequest) bool { return q.ClearDirty != nil })
	g.launch()
	g.until("the comparison is about to end", func() bool { return len(g.fakes[1].held) > 0 })
	take := func(reply func(error)) any {
		return engine.TakeSnapshot{Request: wire.SnapshotRequest{Name: "s"}, Reply: reply}
	}
	if err := g.ask(take); !errors.Is(err, engine.ErrBusy) || !strings.Contains(err.Error(), "comparing replicas") {
		t.Errorf("%v, want %v", err, engine.ErrBusy)
	}
	grant := func(reply func(error)) any {
		return engine.GrantClone{Snapshot: "s", For: "u", Reply: func(_ engine.CloneSource, err error) { reply(err) }}
	}
	if err := g.ask(grant); !errors.Is(err, engine.ErrBusy) || !strings.Contains(err.Error(), "comparing replicas") {
		t.Errorf("a clone's source: %v, want %v", err, engine.ErrBusy)
	}
	g.fakes[1].judge = nil
	g.fakes[1].release()
	g.until("engine serves", func() bool { return g.state.Serving })
	if err := g.ask(take); err != nil {
		t.Error(err)
	}
}

// TestNobodyThereYetPasses: the same while no replica may be asked.
func TestNobodyThereYetPasses(t *testing.T) {
	g := newRig(t, 2, 16*mib)
	g.witness.Down = true
	g.launch()
	for name, message := range map[string]func(reply func(error)) any{
		"refresh": func(reply func(error)) any { return engine.Refresh{Reply: reply} },
		"hash locks": func(reply func(error)) any {
			return engine.HashLocks{Reply: func(_ map[string]bool, err error) { reply(err) }}
		},
		"clone": func(reply func(error)) any {
			return engine.GrantClone{Snapshot: "s", For: "u", Reply: func(_ engine.CloneSource, err error) { reply(err) }}
		},
	} {
		if err := g.ask(message); !errors.Is(err, engine.ErrBusy) {
			t.Errorf("%s: %v, want %v", name, err, engine.ErrBusy)
		}
	}
}
