package engine_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/chain"
	"ankole.storage/dataplane/engine"
)

func (g *scrubRig) openSnapshot(name string) (o engine.OpenedSnapshot, err error) {
	g.t.Helper()
	done := false
	g.proc.Post(engine.OpenSnapshot{Snapshot: name, Expires: g.w.Unix() + 3600,
		Reply: func(got engine.OpenedSnapshot, e error) { o, err, done = got, e, true }})
	g.until("the snapshot is open, or cannot be", func() bool { return done })
	return o, err
}

// changes lists a snapshot, all of it or since another one.
func (g *scrubRig) changes(id uint64, since string) (all [][2]int64, err error) {
	g.t.Helper()
	for off := int64(0); off >= 0 && err == nil; {
		done := false
		g.proc.Post(engine.ListSnapshot{ID: id, Since: since, Off: off,
			Reply: func(ranges [][2]int64, next int64, e error) {
				all, off, err, done = append(all, ranges...), next, e, true
			}})
		g.until("page", func() bool { return done })
	}
	return all, err
}

// readSnapshot begins to read and returns a function that waits for the end.
func (g *scrubRig) readSnapshot(id uint64, off int64, p []byte) (end func() error) {
	var err error
	done := false
	g.proc.Post(engine.ReadSnapshot{ID: id, Off: off, Data: p, Reply: func(e error) { err, done = e, true }})
	return func() error {
		g.t.Helper()
		g.until("read", func() bool { return done })
		return err
	}
}

// at is what the first replica has at a snapshot.
func (g *scrubRig) contentAt(snapshot string) []byte {
	g.t.Helper()
	c, err := chain.Open(g.disk(0), "/replicas/"+g.v.Replicas[0].Name, chain.Options{ReadOnly: true})
	g.damage(err)
	defer c.Close()
	v, err := c.OpenView(snapshot)
	g.damage(err)
	defer v.Close()
	p := make([]byte, g.size)
	_, err = v.ReadAt(p, 0)
	g.damage(err)
	return p
}

// A snapshot reads as it was while the volume is written, and its changes are listed.
func TestSnapshotIsRead(t *testing.T) {
	g := newScrubRig(t, 2)
	o, err := g.openSnapshot("b")
	if err != nil || o.Size != g.size || o.Created == "" || o.From == "" || o.Snapshots["b"] != o.Created ||
		o.Snapshots["a"] == "" {
		t.Fatalf("%+v, %v", o, err)
	}
	want := g.contentAt("b")
	got, ends := make([]byte, g.size), []func() error{}
	for off := int64(0); off < g.size; off += block.MaxTransfer {
		ends = append(ends, g.readSnapshot(o.ID, off, got[off:off+block.MaxTransfer]))
		g.fill(off%(1<<20), 65536, 77)
	}
	for _, end := range ends {
		g.damage(end())
	}
	if !bytes.Equal(got, want) {
		t.Error("the snapshot is read otherwise than it is")
	}
	all, err := g.changes(o.ID, "")
	if want := [][2]int64{{0, 1 << 20}, {2 << 20, 3 << 20}}; err != nil || !slices.Equal(all, want) {
		t.Errorf("%v, %v, want %v", all, err, want)
	}
	since, err := g.changes(o.ID, "a")
	if want := [][2]int64{{65536, 131072}, {2 << 20, 3 << 20}}; err != nil || !slices.Equal(since, want) {
		t.Errorf("since a: %v, %v, want %v", since, err, want)
	}
	if _, err := g.changes(o.ID, "z"); !errors.Is(err, engine.ErrNotFound) {
		t.Errorf("since a snapshot that is not there: %v", err)
	}
	for _, bad := range []struct{ off, n int64 }{{0, 0}, {0, block.MaxTransfer + block.Size}, {100, block.Size},
		{0, 100}, {-block.Size, block.Size}, {g.size, block.Size}} {
		if err := g.readSnapshot(o.ID, bad.off, make([]byte, bad.n))(); !errors.Is(err, block.Invalid) {
			t.Errorf("%d bytes at %d: %v", bad.n, bad.off, err)
		}
	}
	g.proc.Post(engine.CloseSnapshot{ID: o.ID})
	if err := g.readSnapshot(o.ID, 0, make([]byte, block.Size))(); !errors.Is(err, engine.ErrNotFound) {
		t.Errorf("a snapshot that is closed is read: %v", err)
	}
}

// Only so many snapshots are read at a time, and none that is not there.
func TestSnapshotReadersAreBounded(t *testing.T) {
	g := newScrubRig(t, 2)
	for _, name := range []string{"z", "", "volume-head"} {
		if _, err := g.openSnapshot(name); err == nil {
			t.Errorf("snapshot %q is open", name)
		}
	}
	first, err := g.openSnapshot("a")
	g.damage(err)
	_, err = g.openSnapshot("b")
	g.damage(err)
	if _, err := g.openSnapshot("b"); !errors.Is(err, engine.ErrBusy) {
		t.Errorf("a third one: %v", err)
	}
	g.proc.Post(engine.CloseSnapshot{ID: first.ID})
	_, err = g.openSnapshot("a")
	g.damage(err)
}

// Another replica goes on where one fails, whatever is under way; without any it is an error.
func TestAnotherReplicaIsReadFrom(t *testing.T) {
	for lost := range 2 {
		t.Run(fmt.Sprint(lost), func(t *testing.T) {
			g := newScrubRig(t, 2)
			want := g.contentAt("b")
			o, err := g.openSnapshot("b")
			g.damage(err)
			got, ends := make([]byte, g.size), []func() error{}
			for off := int64(0); off < g.size; off += 65536 {
				ends = append(ends, g.readSnapshot(o.ID, off, got[off:off+65536]))
			}
			g.v.Replicas[lost].Kill()
			for _, end := range ends {
				g.damage(end())
			}
			if !bytes.Equal(got, want) {
				t.Error("the snapshot is read otherwise than it is")
			}
			if all, err := g.changes(o.ID, "a"); err != nil || len(all) != 2 {
				t.Errorf("%v, %v", all, err)
			}
			took := strings.Contains(strings.Join(g.events, "\n"), "source-failed")
			if here := strings.HasPrefix(o.From, g.v.Replicas[lost].Name+":"); took != here {
				t.Errorf("read from %s, replica %d is lost, another one takes over: %v", o.From, lost, took)
			}
			g.v.Replicas[1-lost].Kill()
			if err := g.readSnapshot(o.ID, 0, make([]byte, block.Size))(); err == nil {
				t.Error("a snapshot is read that no replica has")
			}
		})
	}
}

// Reads of a snapshot leave the volume to its users: few are under way beside theirs.
func TestSnapshotReadsComeAfterUsers(t *testing.T) {
	g := newScrubRig(t, 2)
	o, err := g.openSnapshot("b")
	g.damage(err)
	const n = 64
	left := n
	for i := range int64(n) {
		g.proc.Post(engine.ReadSnapshot{ID: o.ID, Off: i * 4096, Data: make([]byte, 4096), Reply: func(error) { left-- }})
	}
	for left == n {
		user := g.begin(block.Write, 0, 4096, filled(9, 0, 4096))
		g.finish(user)
	}
	if done := n - left; done > 16 {
		t.Errorf("%d reads of a backup were done before a write of a user", done)
	}
	g.until("the other reads", func() bool { return left == 0 })
}
