package engine_test

import (
	"bytes"
	"testing"
	"time"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/wire"
)

// A discard of what was never written asks no replica and marks nothing, however large the volume
// is; of what was written, or may have been before this engine, they are asked.
func TestDiscardOfWhatWasNeverWritten(t *testing.T) {
	const size, region = 64 << 20, 4 << 20
	for name, c := range map[string]struct {
		empty  []bool
		writes int64 // regions that are written to first
		idle   time.Duration
		asked  int64 // regions
	}{
		"new":                      {[]bool{true, true}, 0, 0, 0},
		"new, idle for long":       {[]bool{true, true}, 0, time.Minute, 8},
		"some of it":               {[]bool{true, true}, 3, 0, 3},
		"one replica is not empty": {[]bool{true, false}, 0, 0, size / region},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t, 2, size)
			asked, marked := map[int64]bool{}, 0
			for i, f := range g.fakes {
				f.reply.Empty = c.empty[i]
				f.script = func(h *wire.Header) (block.Code, bool) {
					switch h.Type {
					case wire.Discard:
						asked[h.Off/region] = true
					case wire.MarkDirty:
						marked++
					}
					return block.OK, false
				}
			}
			g.start()
			for n := range c.writes {
				if code := g.finish(g.begin(block.Write, n*2*region, 4096, bytes.Repeat([]byte{1}, 4096))); code != block.OK {
					t.Fatal(code)
				}
			}
			g.w.Until(c.idle, func() bool { return false })
			before := marked
			if code := g.finish(g.begin(block.Discard, 0, size, nil)); code != block.OK {
				t.Fatal(code)
			}
			if n := int64(len(asked)); n != c.asked && (c.idle == 0 || n > c.asked) {
				t.Errorf("asked for %d regions, not %d", n, c.asked)
			}
			if c.asked == 0 && marked != before {
				t.Errorf("%d marks", marked-before)
			}
			if c.writes > 0 {
				call, code := g.read(0, 4096)
				if code != block.OK || !bytes.Equal(call.data, make([]byte, 4096)) {
					t.Errorf("what was written reads otherwise after the discard: %s", code)
				}
			}
		})
	}
}
