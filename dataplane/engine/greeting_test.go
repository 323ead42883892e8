package engine_test

import (
	"strings"
	"testing"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/engine"
	"ankole.storage/dataplane/wire"
)

// A replica that speaks no version of this engine's says so, and one whose greeting picks a version
// that was not offered is not spoken to: somebody has changed it on its way.
func TestGreetingRefused(t *testing.T) {
	for says, greets := range map[string]func(*wire.Header, *wire.GreetingMessage){
		"peer speaks versions 6 to 6, this binary 8 to 9: upgrade the older one": func(h *wire.Header,
			g *wire.GreetingMessage) {
			h.Code = block.Invalid
			*g = wire.GreetingMessage{Error: "wire: peer speaks versions 6 to 6, this binary 8 to 9: upgrade the older one"}
		},
		"somebody has changed the greeting on its way": func(_ *wire.Header, g *wire.GreetingMessage) {
			g.Version = wire.MinVersion - 1
		},
		"of 6 to 6: somebody has changed the greeting": func(_ *wire.Header, g *wire.GreetingMessage) {
			g.Version = wire.Version + 1
		},
		"greeting of a member without a name": func(_ *wire.Header, g *wire.GreetingMessage) { g.Member = "" },
	} {
		t.Run(says, func(t *testing.T) {
			g := newRig(t, 1, 16*mib).start()
			x := newFake(g, "x")
			x.greets = greets
			g.proc.Post(engine.AddReplica{Address: x.addr(), Reply: func(error) {}})
			g.until("it is given up", func() bool { return g.modes() == "a=RW =ERR" })
			if got := g.state.Replicas[1].Error; !strings.Contains(got, says) {
				t.Errorf("given up for %q", got)
			}
			if x.hellos > 0 || x.conn.Secured() {
				t.Error("the engine has said hello")
			}
		})
	}
}
