package engine_test

import (
	"bytes"
	"math"
	"strings"
	"testing"

	"ankole.storage/dataplane/engine"
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
		"hides before it":  func(x *wire.ExtentsReply) { x.Hides = [][2]int64{{-mib, mib}} },
		"hides backwards":  func(x *wire.ExtentsReply) { x.Hides = [][2]int64{{mib, 0}} },
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

// TestChainsThatCannotBe: a source describes a chain without a head, or names regions far behind
// the end of any volume, while another replica is rebuilt. The engine goes on.
func TestChainsThatCannotBe(t *testing.T) {
	for name, c := range map[string]struct {
		tells func(r *wire.ControlReply)
		want  string
	}{
		"no head": {want: "x=ERR", tells: func(r *wire.ControlReply) {
			if r.Chain != nil {
				r.Chain.Layers = nil
			}
		}},
		"regions nowhere": {want: "x=RW", tells: func(r *wire.ControlReply) {
			if r.Regions != nil {
				r.Regions.Shift, r.Regions.Bits = 24, bytes.Repeat([]byte{0xff}, 1<<17)
			} else if r.Chain != nil {
				r.Absent = &wire.AbsentReply{Since: wire.RecordRef{Epoch: 1, Generation: 1}}
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t, 1, 8*mib).start()
			g.finish(g.write(0, 1, mib))
			g.fakes[0].tells = c.tells
			x := newFake(g, "x")
			x.reply.Blank = false
			x.record = &wire.RecordMessage{VolumeUUID: volumeUUID, Epoch: 1, Generation: 1, Members: []string{"a", "x"}}
			g.proc.Post(engine.AddReplica{Address: x.addr(), Reply: func(error) {}})
			g.until(c.want, func() bool { return strings.Contains(g.modes(), c.want) })
			if c, code := g.read(0, mib); code != 0 || c.data[0] != 1 {
				t.Errorf("read: %v", code)
			}
		})
	}
}
