package engine_test

import (
	"bytes"
	"errors"
	"testing"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/engine"
	"ankole.storage/dataplane/wire"
)

// tornRig is a volume of two replicas that differ at 5 MiB, where a write has failed on full disks.
// There is space again. What users have read there is the 1 of a.
func tornRig(t *testing.T) *rig {
	g := newRig(t, 2, 16*mib).start()
	g.finish(g.write(5*mib, 1, 8192))
	g.finish(g.write(6*mib, 3, 65536))
	for _, f := range g.fakes {
		f.script = answerWith(wire.Write, block.NoSpace)
	}
	if code := g.finish(g.write(5*mib, 2, 4096)); code != block.NoSpace {
		t.Fatal(code)
	}
	g.fakes[1].write(5*mib, bytes.Repeat([]byte{2}, 4096)) // it has arrived there
	for _, f := range g.fakes {
		f.script = nil
	}
	return g
}

// takeSnapshot asks for a snapshot and waits for the answer.
func (g *rig) takeSnapshot() error {
	g.t.Helper()
	return g.ask(func(reply func(error)) any {
		return engine.TakeSnapshot{Request: wire.SnapshotRequest{Name: "s"}, Reply: reply}
	})
}

// A replica that fails while a torn region is repaired, in whatever way but for want of space, is
// no reason to refuse snapshots for good: what a disk cannot read it gets from another one, and who
// fails otherwise is dropped.
func TestTornRegionOfFailingDisks(t *testing.T) {
	always := func(typ wire.Type, code block.Code) func(f *fake) {
		return func(f *fake) { f.script = answerWith(typ, code) }
	}
	sector := func(off int64) func(f *fake) { return func(f *fake) { f.unreadable(off) } }
	well, unhashed := func(*fake) {}, always(wire.Hash, block.Invalid)
	unread := always(wire.Hash, block.IOError)
	for name, row := range map[string]struct {
		a, b  func(f *fake)
		modes string
		want  byte // at 5 MiB, afterwards
	}{
		"cannot read a sector":          {well, sector(6 * mib), "a=RW b=RW", 1},
		"cannot read what was torn":     {well, sector(5 * mib), "a=RW b=RW", 1},
		"the reader cannot":             {sector(6 * mib), well, "a=RW b=RW", 1},
		"the reader, what was torn":     {sector(5 * mib), well, "a=RW b=RW", 2},
		"both, in two pieces":           {sector(6 * mib), sector(7 * mib), "a=RW b=RW", 1},
		"both, in one piece":            {sector(6*mib + 4096), sector(6 * mib), "a=RW b=RW", 1},
		"both, at one place":            {sector(6 * mib), sector(6 * mib), "a=RW b=RW", 1},
		"cannot write":                  {well, always(wire.Write, block.IOError), "a=RW b=ERR", 1},
		"cannot hash":                   {well, unhashed, "a=RW b=ERR", 1},
		"the reader cannot hash":        {unhashed, well, "a=ERR b=RW", 2},
		"nobody can hash":               {unhashed, unhashed, "a=RW b=ERR", 1},
		"the reader reads no more":      {always(wire.Read, block.IOError), well, "a=ERR b=RW", 2},
		"cannot read anything":          {well, unread, "a=RW b=ERR", 1},
		"the reader cannot, nor others": {unread, unread, "a=RW b=ERR", 1},
	} {
		t.Run(name, func(t *testing.T) {
			g := tornRig(t)
			a, b := g.fakes[0], g.fakes[1]
			row.a(a)
			row.b(b)
			if err := g.takeSnapshot(); err != nil {
				t.Fatal(err)
			}
			g.until("nothing is torn", func() bool { return g.state.Torn == 0 })
			g.expectModes(row.modes)
			if row.modes == "a=RW b=RW" && !bytes.Equal(a.read(4*mib, 4*mib), b.read(4*mib, 4*mib)) {
				t.Error("replicas differ")
			}
			for range 2 {
				if r, code := g.read(5*mib, 4096); code != block.OK || r.data[0] != row.want {
					t.Errorf("read %d (%s), want %d", r.data[0], code, row.want)
				}
			}
		})
	}
}

// Who still has no space leaves the region torn, whoever else is dropped for a failure of another
// kind.
func TestTornRegionStaysForWantOfSpaceOnly(t *testing.T) {
	g := newRig(t, 3, 16*mib).start()
	g.finish(g.write(5*mib, 1, 8192))
	for _, f := range g.fakes {
		f.script = answerWith(wire.Write, block.NoSpace)
	}
	if code := g.finish(g.write(5*mib, 2, 4096)); code != block.NoSpace {
		t.Fatal(code)
	}
	g.fakes[1].write(5*mib, bytes.Repeat([]byte{2}, 4096))
	g.fakes[2].write(5*mib, bytes.Repeat([]byte{2}, 4096))
	g.fakes[0].script, g.fakes[2].script = nil, answerWith(wire.Write, block.IOError)
	if err := g.takeSnapshot(); !errors.Is(err, block.NoSpace) {
		t.Errorf("snapshot: %v", err)
	}
	g.expectModes("a=RW b=RW c=ERR")
	if g.state.Torn != 1 {
		t.Errorf("%d regions are torn", g.state.Torn)
	}
	g.fakes[1].script = nil
	if err := g.takeSnapshot(); err != nil {
		t.Error(err)
	}
	if p := g.fakes[1].read(5*mib, 1); p[0] != 1 {
		t.Errorf("b has %d", p[0])
	}
}
