package engine_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/engine"
	"ankole.storage/dataplane/wire"
)

// newWindow makes memory to share with a fake.
func (g *rig) newWindow() (*engine.Window, error) {
	switch {
	case g.none:
		return nil, errors.New("there is no memory")
	case g.shares != nil:
		return g.shares.NewWindow()
	}
	n := len(g.windows)
	g.windows = append(g.windows, make([]byte, wire.WindowSize))
	free := func() { g.windows[n] = nil }
	return &engine.Window{Mem: g.windows[n], Offer: wire.WindowOffer{PID: 1, FD: n}, Free: free}, nil
}

// sharing is a rig of three replicas, the second one on the engine's node.
func sharing(t *testing.T) (g *rig, local *fake) {
	g = newRig(t, 3, 16*mib)
	g.local = "b"
	g.start()
	local = g.fakes[1]
	g.until("memory is shared", func() bool { return g.said("shared-memory b:10") })
	return g, local
}

// said reports whether there was an event that begins so.
func (g *rig) said(what string) bool {
	for _, e := range g.events {
		if strings.HasPrefix(e, what) {
			return true
		}
	}
	return false
}

// The data of reads and writes of the replica on the engine's node goes through memory, whatever
// its size and place; that of the others does not.
func TestSharedMemory(t *testing.T) {
	g, local := sharing(t)
	want := make([]byte, 4*mib)
	for i, r := range []struct{ off, n int64 }{
		{0, 4096}, {512, 512}, {8192 - 512, 1024}, {mib - 8192, mib}, {5120, 3584},
	} {
		if code := g.finish(g.write(r.off, byte(i+1), int(r.n))); code != block.OK {
			t.Fatal(code)
		}
		copy(want[r.off:], bytes.Repeat([]byte{byte(i + 1)}, int(r.n)))
		if got, code := g.read(r.off, r.n); code != block.OK || !bytes.Equal(got.data, want[r.off:r.off+r.n]) {
			t.Errorf("%d bytes at %d: %v, or others than were written", r.n, r.off, code)
		}
	}
	if local.shared < 10 || g.fakes[0].shared+g.fakes[2].shared > 0 {
		t.Errorf("%d requests of the local replica by memory, %d of the others", local.shared,
			g.fakes[0].shared+g.fakes[2].shared)
	}
	for _, f := range g.fakes {
		if !bytes.Equal(f.read(0, 4*mib), want) {
			t.Errorf("replica %s has something else", f.name)
		}
	}
}

// What finds no slot goes the ordinary way, and nobody waits for one.
func TestMoreRequestsThanSlots(t *testing.T) {
	const more = wire.WindowSlots + 6
	g := newRig(t, 1, 16*mib)
	g.local = "a"
	g.start()
	g.until("memory is shared", func() bool { return g.said("shared-memory a:10") })
	local := g.fakes[0]
	for range 2 { // slots come back
		before, n := local.shared, local.seen(wire.Read)
		local.script = func(h *wire.Header) (block.Code, bool) { return block.OK, h.Type == wire.Read }
		calls := readMany(g, more)
		if shared, all := local.shared-before, local.seen(wire.Read)-n; shared != wire.WindowSlots || all != more {
			t.Errorf("%d of %d reads at once by memory", shared, all)
		}
		local.release()
		for _, c := range calls {
			if code := g.finish(c); code != block.OK {
				t.Fatal(code)
			}
		}
	}
}

// A replica that answers with another slot, or none, or data beside it, or for what was not asked
// by memory, is dropped; what was asked is answered by another one.
func TestAnswersOfAnotherSlot(t *testing.T) {
	for name, spoil := range map[string]func(h *wire.Header){
		"another slot":     func(h *wire.Header) { h.Slot++ },
		"no slot of any":   func(h *wire.Header) { h.Slot = 200 },
		"without the flag": func(h *wire.Header) { h.Flags &^= wire.Shared },
	} {
		t.Run(name, func(t *testing.T) {
			g, local := sharing(t)
			if code := g.finish(g.write(0, 7, 4096)); code != block.OK {
				t.Fatal(code)
			}
			local.spoil = func(h *wire.Header) {
				if h.Flags&wire.Shared != 0 {
					spoil(h)
				}
			}
			got, code := g.read(0, 4096)
			if code != block.OK || !bytes.Equal(got.data, bytes.Repeat([]byte{7}, 4096)) {
				t.Errorf("%v", code)
			}
			g.until("the replica is dropped", func() bool { return g.said("replica-dropped b:10") })
		})
	}
	t.Run("not asked by memory", func(t *testing.T) {
		g, _ := sharing(t)
		g.fakes[0].spoil = func(h *wire.Header) {
			if h.Type == wire.Write {
				h.Flags |= wire.Shared
			}
		}
		if code := g.finish(g.write(0, 7, 4096)); code != block.OK {
			t.Fatal(code)
		}
		g.until("the replica is dropped", func() bool { return g.said("replica-dropped a:10") })
	})
}

// A session that ends takes its memory with it: what its replica's disk completes later is seen by
// nobody, and the next session has other memory.
func TestMemoryOfASessionThatEnds(t *testing.T) {
	g, local := sharing(t)
	if code := g.finish(g.write(0, 7, 4096)); code != block.OK {
		t.Fatal(code)
	}
	local.script = func(h *wire.Header) (block.Code, bool) { return block.OK, h.Type == wire.Read }
	c := g.begin(block.Read, 0, 4096, make([]byte, 4096))
	g.until("the replica is asked", func() bool { return len(local.held) > 0 })
	late := local.window
	local.conn.Fail(wire.ErrClosed)
	if code := g.finish(c); code != block.OK || !bytes.Equal(c.data, bytes.Repeat([]byte{7}, 4096)) {
		t.Fatalf("%v", code)
	}
	g.until("the memory is given up", func() bool { return g.windows[0] == nil })
	for i := range late {
		late[i] = 0xee
	}
	if got, code := g.read(0, 4096); code != block.OK || !bytes.Equal(got.data, bytes.Repeat([]byte{7}, 4096)) {
		t.Errorf("%v", code)
	}
}

// Without memory to share, or with a replica that cannot map it, all goes the ordinary way, and the
// reason is told.
func TestNoMemoryToShare(t *testing.T) {
	for name, deny := range map[string]func(g *rig){
		"none is made": func(g *rig) { g.none = true },
		"refused": func(g *rig) {
			g.fakes[1].judge = func(q *wire.ControlRequest) (block.Code, bool) {
				if q.Window != nil {
					return block.Invalid, false
				}
				return block.OK, false
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t, 3, 16*mib)
			g.local = "b"
			deny(g)
			g.start()
			g.until("it is told", func() bool { return g.said("no-shared-memory b:10") })
			if code := g.finish(g.write(0, 7, 4096)); code != block.OK {
				t.Fatal(code)
			}
			if got, code := g.read(0, 4096); code != block.OK || got.data[0] != 7 {
				t.Errorf("%v", code)
			}
			if g.fakes[1].shared > 0 || len(g.windows) > 0 && g.windows[0] != nil {
				t.Errorf("%d requests by memory that is not shared", g.fakes[1].shared)
			}
			g.expectModes("a=RW b=RW c=RW")
		})
	}
}

// A window that is made while its session ends is given back.
func TestMemoryMadeTooLate(t *testing.T) {
	g := newRig(t, 3, 16*mib)
	g.local = "b"
	g.fakes[1].judge = func(q *wire.ControlRequest) (block.Code, bool) {
		if q.Window != nil {
			g.fakes[1].conn.Fail(wire.ErrClosed)
			return block.OK, true
		}
		return block.OK, false
	}
	g.start()
	pass(g, time.Second)
	for i, w := range g.windows {
		if w != nil {
			t.Errorf("window %d is kept without a session", i)
		}
	}
}

// A clone, and a backup, read through memory where a replica of the source is on the machine: no
// more at a time than a reader may.
func TestReaderThroughMemory(t *testing.T) {
	g := newCloneRig(t, 1, 2, scrubSize)
	for i := range int64(scrubSize / mib) {
		g.fill(i*mib, mib, byte(i+1))
	}
	g.snapshot("c")
	g.to.shares, g.to.local = g.to.v, g.v.Replicas[0].Name
	g.to.restart()
	shared := g.v.Shared
	if got := g.clone("c"); got.Error != "" {
		t.Fatal(got.Error)
	}
	if g.v.Shared == shared || !g.to.said("shared-memory "+g.v.Replicas[0].Addr()) {
		t.Errorf("the copy went another way:\n%s", strings.Join(g.to.events, "\n"))
	}
	if from, to := g.hashes("c"), g.to.hashes("copy"); from != to {
		t.Errorf("the copy is %s, the snapshot %s", to, from)
	}
}
