package engine_test

import (
	"bytes"
	"strings"
	"testing"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/engine"
	"ankole.storage/dataplane/wire"
)

// unreadable makes a fake unable to read a block, until it is written.
func (f *fake) unreadable(off int64) {
	bad := true
	f.script = func(h *wire.Header) (block.Code, bool) {
		end := h.Off + h.Len
		if h.Type == wire.Write {
			end = h.Off + int64(h.Payload)
		}
		touches := bad && h.Off < off+block.Size && off < end
		switch {
		case touches && (h.Type == wire.Read || h.Type == wire.Hash || h.Type == wire.LayerRead):
			return block.IOError, false
		case touches && h.Type == wire.Write && h.Off <= off && off+block.Size <= end:
			bad = false
		}
		return block.OK, false
	}
}

// unclean is a volume whose engine has ended without notice: region 1 is marked on all replicas,
// and each has content of its own there.
func unclean(t *testing.T, replicas int) *rig {
	g := newRig(t, replicas, 64*mib)
	rec := &wire.RecordMessage{VolumeUUID: volumeUUID, Epoch: 1, Generation: 1}
	for _, f := range g.fakes {
		rec.Members = append(rec.Members, f.name)
	}
	for i, f := range g.fakes {
		f.record, f.reply.Blank, f.reply.Dirty = rec, false, []uint32{1}
		f.write(4*mib, bytes.Repeat([]byte{byte(i + 1)}, 4096))
		f.write(4*mib+65536, bytes.Repeat([]byte{9}, 4096))
	}
	g.granted()
	return g
}

// A start compares regions in which a disk cannot read a sector. What one replica cannot read it
// gets from another. What none can read stays unreadable: nobody is dropped for it, and the volume
// starts.
func TestStartWithUnreadableSectors(t *testing.T) {
	for name, c := range map[string]struct {
		bad   map[string]int64 // where each cannot read
		reads bool             // the block at 4 MiB + 64 KiB
		count int
	}{
		"one of two":                {map[string]int64{"b": 4*mib + 65536}, true, 2},
		"the first of two":          {map[string]int64{"a": 4*mib + 65536}, true, 2},
		"both, in two pieces":       {map[string]int64{"a": 4 * mib, "b": 5 * mib}, true, 2},
		"both, in one piece":        {map[string]int64{"a": 4*mib + 65536, "b": 4 * mib}, true, 2},
		"both, at one place":        {map[string]int64{"a": 4*mib + 65536, "b": 4*mib + 65536}, false, 2},
		"two of three, one place":   {map[string]int64{"a": 5 * mib, "b": 5 * mib}, true, 3},
		"all three, at one place":   {map[string]int64{"a": 4*mib + 65536, "b": 4*mib + 65536, "c": 4*mib + 65536}, false, 3},
		"the last block of a piece": {map[string]int64{"a": 5*mib - 4096, "b": 5*mib - 8192}, true, 2},
	} {
		t.Run(name, func(t *testing.T) {
			g := unclean(t, c.count)
			for _, f := range g.fakes {
				if off, ok := c.bad[f.name]; ok {
					f.unreadable(off)
				}
			}
			g.start()
			if g.count(engine.RW) != c.count {
				t.Fatalf("replicas %s\n%s", g.modes(), strings.Join(g.events, "\n"))
			}
			r, code := g.read(4*mib+65536, 4096)
			if c.reads && (code != block.OK || r.data[0] != 9) || !c.reads && code != block.IOError {
				t.Errorf("read: %s, %d", code, r.data[0])
			}
			var first []byte
			for _, f := range g.fakes {
				p := f.read(4*mib, 4*mib)
				if first == nil {
					first = p
				}
				if !bytes.Equal(p, first) {
					t.Errorf("%s differs", f.name)
				}
			}
		})
	}
}

// A write below 4 KiB during a rebuild reads the block around it. A replica that cannot read that
// is no reason to lose it while another one can: the write writes the whole block.
func TestSmallWriteAroundAnUnreadableSector(t *testing.T) {
	for name, bad := range map[string][]int{"one": {0}, "all": {0, 1}} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t, 2, 16*mib).start()
			g.finish(g.write(0, 7, 4096))
			for _, f := range g.fakes {
				f.script = holding(wire.LayerRead)
			}
			x := g.add("x")
			g.until("x is WO", func() bool { return g.modes() == "a=RW b=RW x=WO" })
			for _, i := range bad {
				g.fakes[i].unreadable(0)
			}
			code := g.finish(g.write(512, 1, 512))
			g.expectModes("a=RW b=RW x=WO")
			if len(bad) == 2 {
				if code != block.IOError {
					t.Errorf("write around a sector that nobody can read: %s", code)
				}
				return
			}
			want := append(append(bytes.Repeat([]byte{7}, 512), bytes.Repeat([]byte{1}, 512)...),
				bytes.Repeat([]byte{7}, 3072)...)
			for _, f := range []*fake{g.fakes[0], g.fakes[1], x} {
				if !bytes.Equal(f.read(0, 4096), want) {
					t.Errorf("%s has other content", f.name)
				}
			}
			if code != block.OK {
				t.Error(code)
			}
		})
	}
}

// A sector is written again with what another replica has, which is lost meanwhile. That the write
// fails is no reason to give the last replica up.
func TestLastReplicaThatCannotWriteASectorIsKept(t *testing.T) {
	g := newRig(t, 2, 16*mib).start()
	g.finish(g.write(0, 7, 8192))
	a, b := g.fakes[0], g.fakes[1]
	a.script = func(h *wire.Header) (block.Code, bool) {
		switch h.Type {
		case wire.Read:
			return block.IOError, false
		case wire.Write:
			return block.IOError, true
		}
		return block.OK, false
	}
	for range 2 {
		if _, code := g.read(0, 4096); code != block.OK {
			t.Fatal(code)
		}
	}
	g.until("the sector is written again", func() bool { return len(a.held) > 0 })
	b.proc.Kill()
	g.until("b is lost", func() bool { return g.modes() == "a=RW b=ERR" })
	a.release()
	if c := g.write(8*mib, 1, 4096); g.finish(c) != block.OK {
		t.Errorf("write: %s", c.code)
	}
	g.expectModes("a=RW b=ERR")
}

// full makes a fake refuse writes to blocks that it does not hold.
func (f *fake) full() {
	f.script = func(h *wire.Header) (block.Code, bool) {
		for off := h.Off; h.Type == wire.Write && off < h.Off+int64(h.Payload); off += block.Size {
			if f.pages[off] == nil {
				return block.NoSpace, false
			}
		}
		return block.OK, false
	}
}

// A write failed because all disks were full, and each replica has another part of it. A start
// makes them the same in the blocks that they hold, whichever has them, and drops nobody for want
// of space. It does not take away what a replica has that kept its power: that was acknowledged,
// and may have been read.
func TestStartOnFullDisks(t *testing.T) {
	for name, c := range map[string]struct {
		lost  string // their power
		modes string
	}{
		"no power lost":     {"", "a=RW b=RW c=RW"},
		"all lost it":       {"abc", "a=RW b=RW c=RW"},
		"one has kept it":   {"bc", "a=RW b=ERR c=ERR"},
		"one has lost it":   {"c", "a=RW b=RW c=RW"},
		"the first lost it": {"a", "a=RW b=RW c=RW"},
	} {
		t.Run(name, func(t *testing.T) {
			g := unclean(t, 3)
			for i, f := range g.fakes {
				f.reply.PowerLost = strings.Contains(c.lost, f.name)
				f.write(4*mib+8192, bytes.Repeat([]byte{byte(i + 1)}, 4096)) // all hold it
				f.write(5*mib+int64(i)*65536, bytes.Repeat([]byte{byte(i + 1)}, 8192))
				f.full()
			}
			g.start()
			g.expectModes(c.modes)
			var first []byte
			for i, f := range g.fakes {
				if g.state.Replicas[i].Mode != engine.RW {
					continue
				}
				p := f.read(4*mib, 4*mib)
				if first == nil {
					first = p
				}
				if !bytes.Equal(p, first) {
					t.Errorf("%s differs from the others", f.name)
				}
			}
		})
	}
}
