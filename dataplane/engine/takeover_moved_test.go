package engine_test

import (
	"testing"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/engine"
	"ankole.storage/dataplane/wire"
)

// A member that is lost during a start without the witness was started again at another address.
// The request to add it there tells where it is: it agrees, and the volume serves.
func TestMemberThatMovedDuringATakeoverAgrees(t *testing.T) {
	g := takeoverRig(t, "im")
	b := g.fakes[1]
	moved := newFake(g, "m")
	moved.member, moved.reply = "b", b.reply
	gone := false
	b.judge = func(q *wire.ControlRequest) (block.Code, bool) {
		if q.SetRecord != nil && !gone {
			gone = true
			b.proc.Kill()
		}
		return block.OK, gone
	}
	g.launch()
	g.until("b is lost", func() bool { return g.modes() == "a= b=ERR" || g.modes() == "a=RW b=ERR" })
	moved.record = g.fakes[0].record
	for n := 0; !g.state.Serving && n < 10; n++ { // whoever asks does so again
		refused := g.ask(func(reply func(error)) any {
			return engine.AddReplica{Address: moved.addr(), Reply: reply}
		})
		if refused == nil {
			t.Error("a rebuild has begun before the volume serves")
		}
		g.second()
	}
	if !g.state.Serving {
		t.Fatalf("not served: %s", g.state.Reason)
	}
	if code := g.finish(g.write(0, 1, 4096)); code != block.OK {
		t.Error(code)
	}
	if moved.seen(wire.Write) > 0 {
		t.Error("a replica that agreed and nothing more was written to")
	}
}
