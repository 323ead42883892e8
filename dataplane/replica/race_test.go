package replica_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/chain"
	"ankole.storage/dataplane/clock"
	"ankole.storage/dataplane/disk/osdisk"
	"ankole.storage/dataplane/loop"
	"ankole.storage/dataplane/loop/posix"
	"ankole.storage/dataplane/replica"
	"ankole.storage/dataplane/wire"
	"ankole.storage/test/wait"
)

// fullDisk is a core whose disk fills up in the middle of some writes of the core inside: they
// complete with ENOSPC, and half of their blocks are written.
type fullDisk struct {
	loop.Core
	r *rand.Rand
	// failing are the tags of writes that fail.
	failing map[uint64]bool
}

func (f *fullDisk) Step(now clock.Ticks, in []loop.Done, out *[]loop.Op) clock.Ticks {
	for i := range in {
		if d := &in[i]; d.Kind == loop.FileWrite && f.failing[d.Tag] {
			delete(f.failing, d.Tag)
			d.N, d.Errno = 0, loop.ENOSPC
		}
	}
	first := len(*out)
	wake := f.Core.Step(now, in, out)
	for i := first; i < len(*out); i++ {
		if o := &(*out)[i]; o.Kind == loop.FileWrite && o.Vec[0].Len > block.Size && f.r.IntN(4) == 0 {
			f.failing[o.Tag] = true
			o.Vec[0].Len = o.Vec[0].Len / (2 * block.Size) * block.Size
		}
	}
	return wake
}

// held is a directory that no other process asks for.
type held struct{ replica.Directory }

// Release implements replica.Directory.
func (held) Release(f *chain.Files, s *chain.Sidecars, m chain.Retired) error {
	m.Free()
	return errors.Join(f.Close(), s.Close())
}

// onLoop serves a replica of size bytes under the production loop, its core wrapped in another one,
// and returns a session with it, and what ends it in order, which returns the closed directory.
func onLoop(t *testing.T, size int64, wrap func(loop.Core, loop.Poster) loop.Core) (c *client, end func() string) {
	dir := t.TempDir() + "/r"
	fs := osdisk.New(nil)
	uuid, err := replica.ParseUUID(volumeUUID)
	must(t, err)
	must(t, chain.Create(fs, dir, chain.Spec{Size: size, VolumeUUID: uuid, Self: "r", Created: "2026-01-01T00:00:00Z"},
		chain.Options{}))
	ch, err := chain.Open(fs, dir, chain.Options{VolumeUUID: uuid})
	must(t, err)
	arena := loop.NewArena(64 << 20)
	l, err := posix.New(arena, posix.Options{})
	must(t, err)
	listener, addr, err := posix.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	core, err := replica.New(replica.Config{Member: "r", VolumeName: "v", VolumeUUID: volumeUUID, Secret: secret,
		Chain: ch, Directory: held{},
		Listener: listener, Arena: arena, Nonce: func() []byte { return make([]byte, wire.NonceSize) },
		Exit: func(reason string) { t.Error(reason) }})
	must(t, err)
	ended := make(chan error, 1)
	go func() {
		ended <- posix.Run(context.Background(), l, stopping{wrap(core, l), core})
	}()
	conn, err := net.Dial("tcp", addr)
	must(t, err)
	c = begin(t, conn, addr)
	return c, func() string {
		conn.Close()
		l.Post(replica.End{})
		must(t, <-ended)
		l.Close()
		must(t, arena.Close())
		return dir
	}
}

// stopping is a core in another one, which stops when the inner one does.
type stopping struct {
	loop.Core
	posix.Stopper
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Writes of which some fail for want of space, discards, marks, snapshots, purges and checksums at
// once, on the production loop with its workers: no thread reads or changes what belongs to another
// (this test is for the race detector), and what was acknowledged is read.
func TestMetadataWorkBesideWrites(t *testing.T) {
	const (
		writers = 4
		part    = 32 << 20 // two pages of the block map each
		rounds  = 200
	)
	c, end := onLoop(t, writers*part, func(core loop.Core, _ loop.Poster) loop.Core {
		return &fullDisk{core, rand.New(rand.NewPCG(1, 1)), map[uint64]bool{}}
	})
	content := make([][]byte, writers)
	var users, chores sync.WaitGroup
	for i := range writers {
		content[i] = make([]byte, part)
		users.Go(func() { writeAndFail(c, int64(i)*part, content[i], rand.New(rand.NewPCG(7, uint64(i))), rounds) })
	}
	quit := make(chan struct{})
	for _, chore := range []func(n int){c.snapshots, c.hashes, c.marks} {
		chores.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-quit:
					return
				default:
					chore(n)
				}
			}
		})
	}
	users.Wait()
	close(quit)
	chores.Wait()
	for i := range writers {
		for off := int64(0); off < part; off += block.MaxTransfer {
			a := c.ask(wire.Header{Type: wire.Read, Off: int64(i)*part + off, Len: block.MaxTransfer}, nil)
			if a.h.Code != block.OK || !bytes.Equal(a.payload, content[i][off:off+block.MaxTransfer]) {
				t.Fatalf("%s: what was acknowledged in the MiB at %d is not read", a.h.Code, int64(i)*part+off)
			}
		}
	}
	dir := end()
	again, err := chain.Open(osdisk.New(nil), dir, chain.Options{ReadOnly: true})
	must(t, err)
	defer again.Close()
	got := make([]byte, part)
	for i := range writers {
		_, err := again.ReadAt(got, int64(i)*part)
		must(t, err)
		if !bytes.Equal(got, content[i]) {
			t.Errorf("part %d is another one after opening again", i)
		}
	}
}

// writeAndFail writes and discards random blocks in a part of the volume and keeps what was
// acknowledged in content.
func writeAndFail(c *client, at int64, content []byte, r *rand.Rand, rounds int) {
	for n := range rounds {
		size := int64(1+r.IntN(16)) * block.Size
		off := r.Int64N((int64(len(content))-size)/block.Size+1) * block.Size
		data := bytes.Repeat([]byte{byte(n)}, int(size))
		h := wire.Header{Type: wire.Write, Off: at + off, Len: size}
		payload := data
		if r.IntN(4) == 0 {
			h.Type, payload = wire.Discard, nil
			clear(data)
		}
		a := c.ask(h, payload)
		switch {
		case a.h.Code == block.OK:
			copy(content[off:], data)
		case a.h.Code != block.NoSpace:
			c.t.Errorf("%s: %s", h.Type, a.h.Code)
		default:
			// Each block is the old or the new one, and stays it.
			now := c.ask(wire.Header{Type: wire.Read, Off: at + off, Len: size}, nil).payload
			for b := int64(0); b < size; b += block.Size {
				if got := now[b:][:block.Size]; !bytes.Equal(got, data[b:][:block.Size]) &&
					!bytes.Equal(got, content[off+b:][:block.Size]) {
					c.t.Errorf("block at %d is neither what it was nor what was written", at+off+b)
				}
			}
			copy(content[off:], now)
		}
	}
}

// snapshots takes a snapshot, and purges the older ones piece by piece.
func (c *client) snapshots(n int) {
	if code, r := c.control(wire.ControlRequest{Snapshot: &wire.SnapshotRequest{Name: fmt.Sprintf("s%d", n),
		UserCreated: true, Created: "2026-01-01T00:00:00Z"}}); code != block.OK {
		c.t.Errorf("snapshot: %s %s", code, r.Error)
	}
	if n < 2 {
		return
	}
	if code, r := c.control(wire.ControlRequest{
		RemoveSnapshot: &wire.RemoveSnapshot{Name: fmt.Sprintf("s%d", n-2)}}); code != block.OK {
		c.t.Errorf("remove: %s %s", code, r.Error)
	}
	for q := (wire.PurgeRequest{Begin: true}); ; q.Begin = false {
		code, r := c.control(wire.ControlRequest{Purge: &q})
		if code != block.OK {
			c.t.Errorf("purge: %s %s", code, r.Error)
			return
		}
		if r.Purge.Done {
			return
		}
	}
}

// hashes computes the checksums of a snapshot that a purge may take away meanwhile, and looks
// through it.
func (c *client) hashes(int) {
	_, d := c.control(wire.ControlRequest{Describe: &wire.DescribeRequest{}})
	i := slices.IndexFunc(d.Snapshots, func(l wire.Layer) bool { return l.Name != "" && !l.Removed })
	if i < 0 {
		return
	}
	name := d.Snapshots[i].Name
	for {
		code, r := c.control(wire.ControlRequest{HashSnapshot: &wire.HashSnapshot{Snapshot: name, Rehash: true,
			At: "2026-01-01T00:00:00Z"}})
		if code != block.OK || r.Hash.Waiting || r.Hash.Done {
			break
		}
	}
	if code, _ := c.control(wire.ControlRequest{OpenView: &wire.OpenView{Snapshot: name}}); code != block.OK {
		return
	}
	for off := int64(0); off < 8<<20; off += 1 << 20 {
		c.control(wire.ControlRequest{Verify: &wire.Verify{Off: off, Len: 1 << 20}})
		c.ask(wire.Header{Type: wire.Read, Flags: wire.AtView, Off: off, Len: 1 << 20}, nil)
	}
	c.control(wire.ControlRequest{CloseView: &wire.CloseView{}})
}

// marks marks a region and clears the log in turn.
func (c *client) marks(n int) {
	if n%8 == 7 {
		c.control(wire.ControlRequest{ClearDirty: &wire.ClearDirty{}})
		return
	}
	if a := c.ask(wire.Header{Type: wire.MarkDirty},
		binary.LittleEndian.AppendUint32(nil, uint32(n%32))); a.h.Code != block.OK {
		c.t.Errorf("mark: %s", a.h.Code)
	}
}

// slowCall is a core one of whose calls takes as long as the test wants.
type slowCall struct {
	loop.Core
	loop.Poster
	// skip counts the calls before that one down, below zero it was begun.
	skip  atomic.Int64
	begun chan loop.Op
}

func (c *slowCall) Step(now clock.Ticks, in []loop.Done, out *[]loop.Op) clock.Ticks {
	var posted []loop.Op
	in = slices.DeleteFunc(in, func(d loop.Done) bool {
		op, ok := d.Value.(loop.Op)
		if d.Kind == loop.Posted && ok {
			posted = append(posted, op)
		}
		return d.Kind == loop.Posted && ok
	})
	wake := c.Core.Step(now, in, out)
	*out = slices.DeleteFunc(*out, func(o loop.Op) bool {
		if o.Kind != loop.Call || c.skip.Add(-1) != -1 {
			return false
		}
		c.begun <- o
		return true
	})
	*out = append(*out, posted...)
	return wake
}

// Writes wait for marks, and marks wait neither for a piece of a purge nor for one of a checksum:
// the log, what absent members miss, and the question about both go on beside them.
func TestMarksDoNotWaitForLongWork(t *testing.T) {
	var slow *slowCall
	c, end := onLoop(t, 16<<20, func(core loop.Core, p loop.Poster) loop.Core {
		slow = &slowCall{Core: core, Poster: p, begun: make(chan loop.Op, 1)}
		slow.skip.Store(math.MaxInt64)
		return slow
	})
	must(t, c.ok(wire.ControlRequest{SetRecord: &wire.RecordMessage{VolumeUUID: volumeUUID, Epoch: 1, Generation: 1,
		Members: []string{"r", "x"}}}))
	must(t, c.ok(wire.ControlRequest{SetRecord: &wire.RecordMessage{VolumeUUID: volumeUUID, Epoch: 1, Generation: 2,
		Members: []string{"r"}}}))
	for n := range 3 {
		c.ask(wire.Header{Type: wire.Write, Off: int64(n) * block.Size, Len: block.Size}, make([]byte, block.Size))
		must(t, c.ok(wire.ControlRequest{Snapshot: &wire.SnapshotRequest{Name: fmt.Sprintf("s%d", n), UserCreated: true,
			Created: "2026-01-01T00:00:00Z"}}))
	}
	must(t, c.ok(wire.ControlRequest{RemoveSnapshot: &wire.RemoveSnapshot{Name: "s0"}}))
	must(t, c.ok(wire.ControlRequest{Purge: &wire.PurgeRequest{Begin: true}}))
	for name, long := range map[string]struct {
		before int64 // calls of the request before the long one
		q      wire.ControlRequest
	}{
		"purge": {1, wire.ControlRequest{Purge: &wire.PurgeRequest{}}},
		"checksum": {0,
			wire.ControlRequest{HashSnapshot: &wire.HashSnapshot{Snapshot: "s2", Rehash: true, At: "2026-01-01T00:00:00Z"}}},
		"opening": {0, wire.ControlRequest{OpenView: &wire.OpenView{Snapshot: "s2"}}},
	} {
		t.Run(name, func(t *testing.T) {
			slow.skip.Store(long.before)
			ended := make(chan error, 1)
			go func() { ended <- c.ok(long.q) }()
			op := <-slow.begun
			quick := make(chan error, 1)
			go func() {
				mark := c.ask(wire.Header{Type: wire.MarkDirty}, binary.LittleEndian.AppendUint32(nil, 2))
				if mark.h.Code != block.OK {
					quick <- fmt.Errorf("mark: %s", mark.h.Code)
					return
				}
				if err := c.ok(wire.ControlRequest{ClearDirty: &wire.ClearDirty{}}); err != nil {
					quick <- err
					return
				}
				_, r := c.control(wire.ControlRequest{Regions: &wire.RegionsRequest{Member: "x"}})
				if set := (chain.RegionSet{Shift: r.Regions.Shift, Bits: r.Regions.Bits}); r.Regions.All || !set.Has(2) {
					quick <- fmt.Errorf("what x misses: %+v", r.Regions)
					return
				}
				quick <- nil
			}()
			select {
			case err := <-quick:
				must(t, err)
				slow.Post(op)
			case <-wait.Late():
				wait.RanOut(t, "a mark")
				t.Error("a mark waits")
				slow.Post(op)
				<-quick
			}
			must(t, <-ended)
		})
	}
	end()
}

// ok asks for something that is not to be refused.
func (c *client) ok(q wire.ControlRequest) error {
	if code, r := c.control(q); code != block.OK {
		return fmt.Errorf("%s: %s", code, r.Error)
	}
	return nil
}
