package engine_test

import (
	"bytes"
	"math"
	"strings"
	"testing"

	"ankole.storage/dataplane/wire"
)

// TestExtentsThatCannotBe: a replica lists extents that make no sense, or without end, while
// another one is rebuilt. Another source takes over; without one the rebuild ends. The engine goes
// on.
func TestExtentsThatCannotBe(t *testing.T) {
	for name, spoil := range map[string]func(x *wire.ExtentsReply){
		"before the file":  func(x *wire.ExtentsReply) { x.Ranges = [][2]int64{{-mib, mib}} },
		"backwards":        func(x *wire.ExtentsReply) { x.Ranges = [][2]int64{{mib, 0}} },
		"parts of blocks":  func(x *wire.ExtentsReply) { x.Ranges = [][2]int64{{0, 100}} },
		"the same again":   func(x *wire.ExtentsReply) { x.Ranges, x.Next = nil, 0 },
		"behind the file":  func(x *wire.ExtentsReply) { x.Next = 1 << 40 },
		"no end in sight":  func(x *wire.ExtentsReply) { x.Ranges, x.Next = nil, math.MaxInt64 },
		"before the start": func(x *wire.ExtentsReply) { x.Next = -2 },
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t, 2, 8*mib).start()
			g.finish(g.write(0, 1, mib))
			g.fakes[0].lists = spoil
			x := g.add("x")
			g.until("x is RW", func() bool { return strings.Contains(g.modes(), "x=RW") })
			if !bytes.Equal(x.read(0, mib), g.fakes[1].read(0, mib)) {
				t.Error("x differs")
			}
			if !strings.Contains(strings.Join(g.events, "\n"), "source-replaced") {
				t.Errorf("the source was believed: %q", g.events)
			}
			g.fakes[1].lists, x.lists = spoil, spoil
			g.add("y")
			g.until("the rebuild of y fails", func() bool { return strings.Contains(g.modes(), "y=ERR") })
			if c, code := g.read(0, mib); code != 0 || c.data[0] != 1 {
				t.Errorf("read: %v", code)
			}
		})
	}
}
