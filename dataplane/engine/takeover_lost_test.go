package engine_test

import (
	"testing"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/wire"
)

// A member that is lost anywhere between its promise and the first request, while the witness is
// away, is back a moment later: the volume serves. Nobody can add it meanwhile.
func TestMemberLostDuringATakeoverIsLookedFor(t *testing.T) {
	for name, lost := range map[string]func(q *wire.ControlRequest, h *wire.Header) bool{
		"first record": func(q *wire.ControlRequest, _ *wire.Header) bool { return q.SetRecord != nil },
		"description":  func(q *wire.ControlRequest, _ *wire.Header) bool { return q.Describe != nil },
		"marks":        func(_ *wire.ControlRequest, h *wire.Header) bool { return h.Type == wire.MarkDirty },
		"comparison":   func(_ *wire.ControlRequest, h *wire.Header) bool { return h.Type == wire.Hash },
		"flush":        func(_ *wire.ControlRequest, h *wire.Header) bool { return h.Type == wire.Flush },
	} {
		t.Run(name, func(t *testing.T) {
			g := takeoverRig(t, "im")
			b := g.fakes[1]
			for _, f := range g.fakes {
				f.reply.Dirty = []uint32{1}
			}
			gone := false
			drop := func(q *wire.ControlRequest, h *wire.Header) (block.Code, bool) {
				if !gone && lost(q, h) {
					gone = true
					b.conn.Fail(wire.ErrClosed)
				}
				return block.OK, false
			}
			b.script = func(h *wire.Header) (block.Code, bool) { return drop(&wire.ControlRequest{}, h) }
			b.judge = func(q *wire.ControlRequest) (block.Code, bool) { return drop(q, &wire.Header{}) }
			g.launch()
			g.until("engine serves", func() bool { return g.state.Serving })
			g.expectModes("a=RW b=ERR")
			if code := g.finish(g.write(0, 1, 4096)); code != block.OK || !gone {
				t.Errorf("write: %s; lost: %v", code, gone)
			}
		})
	}
}
