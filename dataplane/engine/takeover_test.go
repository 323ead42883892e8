package engine_test

import (
	"strings"
	"testing"
	"time"

	"ankole.storage/dataplane/quorum"
	"ankole.storage/dataplane/wire"
)

// takeoverRig is a volume whose engine in instance manager im has ended, while the witness is
// silent.
func takeoverRig(t *testing.T, im string) *rig {
	g := newRig(t, 2, 16*mib)
	g.witness.Down = true
	for _, f := range g.fakes {
		f.promised, f.promisedTo = 3*quorum.GrantStep, "e#00000000@"+im
		f.record = &wire.RecordMessage{VolumeUUID: volumeUUID, Epoch: 3 * quorum.GrantStep, Generation: 4,
			Members: []string{"a", "b"}, Agreed: true}
		f.reply.Blank = false
	}
	return g
}

// Without the witness an engine takes over from the one before in the same instance manager, if
// every member is there.
func TestTakeover(t *testing.T) {
	g := takeoverRig(t, "im").start()
	if g.state.Epoch != 3*quorum.GrantStep+1 {
		t.Errorf("epoch %d", g.state.Epoch)
	}
	if code := g.finish(g.write(0, 1, 4096)); code != 0 {
		t.Errorf("write: %s", code)
	}
}

// Otherwise it waits for the witness, and says what is missing.
func TestTakeoverRefused(t *testing.T) {
	for name, c := range map[string]struct {
		im    string
		spoil func(g *rig)
		says  string
	}{
		"another node":     {"other", func(*rig) {}, "instance manager \"other\""},
		"a member is away": {"im", func(g *rig) { g.fakes[1].proc.Kill() }, "missing: b"},
	} {
		t.Run(name, func(t *testing.T) {
			g := takeoverRig(t, c.im)
			c.spoil(g)
			g.launch()
			g.until("the reason is given", func() bool { return strings.Contains(g.state.Reason, c.says) })
			g.never("serves", 10*time.Second, func() bool { return g.state.Serving })
			if g.fakes[0].promised != 3*quorum.GrantStep {
				t.Errorf("a has promised %d", g.fakes[0].promised)
			}
		})
	}
}
