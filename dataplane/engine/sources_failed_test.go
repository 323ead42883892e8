package engine_test

import (
	"bytes"
	"testing"
	"time"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/disk"
	"ankole.storage/dataplane/disk/memdisk"
	"ankole.storage/dataplane/engine"
)

// healed makes replica i have a block of the removed snapshot b in its head, and no longer in the
// file of b: its disk could not read the block there, so it was written again, and a purge took
// away what the head hides.
func (g *scrubRig) healed(i int, off int64) {
	g.t.Helper()
	g.damage(g.disk(i).Unreadable(g.image(i, "b"), off, block.Size))
	for g.seen("rewritten") == 0 { // replicas are read by turns
		if _, code := g.read(off, block.Size); code != block.OK {
			g.t.Fatal(code)
		}
	}
	g.disk(i).Readable()
	g.damage(g.ask(func(reply func(error)) any { return engine.RemoveSnapshot{Name: "b", Reply: reply} }))
	g.damage(g.ask(func(reply func(error)) any { return engine.PurgeSnapshots{Reply: reply} }))
	g.until("end of the purge", func() bool { return g.seen("purged") > 0 })
}

// TestFailedWriteAfterTheSourceWasLost: two replicas read the same, and have one block in different
// files. One of them is the source of a rebuild and is lost while the target is compared; then a
// write fails on the other one, whose disk is full, and the target has it. The target gives up what
// it wrote, and the blocks beside it stay what they were.
func TestFailedWriteAfterTheSourceWasLost(t *testing.T) {
	const at, size = 65536, 128 * mib
	late := 0
	for step := 0; ; step++ {
		g := newScrubRigOf(t, 3, size)
		x, source, other := g.v.Replicas[0], g.v.Replicas[1], g.v.Replicas[2]
		x.Kill()
		g.until("it is dropped", func() bool { return g.count(engine.RW) == 2 && g.state.Reason == "" })
		g.damage(g.ask(func(reply func(error)) any { return engine.RemoveReplica{Address: x.Addr(), Reply: reply} }))
		g.healed(1, at)
		g.wipe(0)
		x.Start()
		g.damage(g.ask(func(reply func(error)) any { return engine.AddReplica{Address: x.Addr(), Reply: reply} }))
		g.until("all is copied", func() bool { return g.rebuilt(0).Progress >= 80 })
		g.w.Until(time.Duration(step)*250*time.Microsecond, func() bool { return false })
		if !g.rebuilt(0).Running {
			break
		}
		source.Kill()
		g.until("another one takes over, or nobody", func() bool {
			r := g.rebuilt(0)
			return !r.Running || r.From == other.Addr()
		})
		room := g.disk(2).Inject(memdisk.Rule{Op: memdisk.OpWrite, Name: "volume-head-*", Err: disk.ErrNoSpace})
		code := g.finish(g.write(2*at, 9, block.Size))
		g.until("the rebuild ends", func() bool { return !g.rebuilt(0).Running })
		room()
		if code == block.NoSpace && g.rebuilt(0).State == "complete" {
			late++
		}
		if c, code := g.read(at, block.Size); code != block.OK || !bytes.Equal(c.data, filled(2, at, block.Size)) {
			t.Fatalf("source lost after %d steps: a block beside the write that failed is another one, %s", step, code)
		}
	}
	if late < 4 {
		t.Errorf("the target was compared, and joined, in %d rebuilds only", late)
	}
}

// TestFailedWriteWhileAReplicaJoins: a write fails on the only replica in sync, whose disk is full,
// at some moment of the end of a rebuild, and the target has it. What is read then is read still
// when that replica has been lost.
func TestFailedWriteWhileAReplicaJoins(t *testing.T) {
	const at = 65536
	joined := 0
	for step := 0; ; step++ {
		g := newScrubRig(t, 2)
		g.lose(0, 1)
		g.damage(g.ask(func(reply func(error)) any {
			return engine.RemoveReplica{Address: g.v.Replicas[0].Addr(), Reply: reply}
		}))
		g.rejoin(0)
		g.until("most is compared", func() bool { return g.rebuilt(0).Progress >= 99 })
		g.v.Replicas[0].Disk.Slow(2 * time.Millisecond) // the end takes time
		g.w.Until(time.Duration(step)*500*time.Microsecond, func() bool { return false })
		if !g.rebuilt(0).Running {
			break
		}
		room := g.disk(1).Inject(memdisk.Rule{Op: memdisk.OpWrite, Name: "volume-head-*", Err: disk.ErrNoSpace})
		code := g.finish(g.write(at, 9, block.Size))
		g.until("the rebuild ends", func() bool { return !g.rebuilt(0).Running })
		room()
		if code == block.OK {
			joined++
		}
		read := func() []byte {
			t.Helper()
			c, code := g.read(at, block.Size)
			if code != block.OK {
				t.Fatalf("read: %s", code)
			}
			return c.data
		}
		first, written := read(), bytes.Repeat([]byte{9}, block.Size)
		if code == block.OK && !bytes.Equal(first, written) {
			t.Fatalf("step %d: the write was answered, and is not there", step)
		}
		if g.count(engine.RW) == 2 { // lose the one that was read
			lost := 1
			if bytes.Equal(first, written) {
				lost = 0
			}
			g.lose(lost, 1)
		}
		if !bytes.Equal(read(), first) {
			t.Fatalf("step %d: the write failed (%s), and what it has become changes with the replica that is read", step, code)
		}
	}
	if joined < 4 {
		t.Errorf("the target joined in time for %d writes only", joined)
	}
}

// wipe removes all files of replica i, which does not run.
func (g *scrubRig) wipe(i int) {
	g.t.Helper()
	dir := "/replicas/" + g.v.Replicas[i].Name
	names, err := g.disk(i).List(dir)
	g.damage(err)
	for _, n := range names {
		g.damage(g.disk(i).Remove(dir + "/" + n))
	}
}
