package chain_test

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"ankole.storage/dataplane/chain"
	"ankole.storage/dataplane/chain/chainref"
	"ankole.storage/dataplane/disk"
	"ankole.storage/dataplane/disk/osdisk"
	"ankole.storage/test/seeded"
)

// Every directory that another engine left is used on: written, snapshotted, hashed, purged,
// expanded, reverted. All the while an independent reader finds what it should, and a directory
// that keeps to the format.
func TestFixturesWrittenOn(t *testing.T) {
	eachFixture(t, func(t *testing.T, dir string, f fixture) {
		w := &world{t: t, fs: osdisk.New(nil), dir: dir, opts: testOptions()}
		raw, err := chainref.Read(w.fs, dir, chainref.Options{Foreign: true})
		w.must(err)
		model, err := raw.Content(raw.Head)
		w.must(err)
		w.open()
		defer func() { _ = w.c.Abandon() }()
		src := seeded.New(t, "a directory reads and changes as docs/design/format-replica.md says, whoever made it")
		src.Seed(5)
		r := src.Rand(6)
		write := func() {
			for range 20 {
				off, n := int64(r.IntN(len(model)/512-64))*512, (1+r.IntN(64))*512
				p := bytes.Repeat([]byte{byte(r.Uint32())}, n)
				w.must(w.write(off, p))
				copy(model[off:], p)
			}
			off := int64(r.IntN(len(model)/4096-16)) * 4096
			w.zero(off, 65536)
			clear(model[off : off+65536])
		}
		check := func(step string) {
			t.Helper()
			w.must(w.c.Sync())
			raw, err := chainref.Read(w.fs, dir, chainref.Options{Foreign: true})
			if err != nil {
				t.Fatalf("after %s: %v", step, err)
			}
			if got, err := raw.Content(raw.Head); err != nil || !bytes.Equal(got, model) {
				t.Fatalf("after %s the independent reader sees other content (%v)", step, err)
			}
			if got := w.read(0, w.c.Size()); !bytes.Equal(got, model) {
				t.Fatalf("after %s the head reads otherwise", step)
			}
		}
		write()
		check("writes")
		w.must(w.c.WriteRecord(chain.Record{VolumeUUID: testUUID, Epoch: 1, Generation: 1, Self: "v-1"}))
		w.snapshot("ours")
		at := bytes.Clone(model)
		w.hashAll("ours")
		write()
		check("a snapshot")
		for _, s := range f.Snapshots {
			w.must(w.c.MarkRemoved(s.Name))
		}
		w.must(w.c.Purge(nil))
		check("a purge")
		w.must(w.c.Expand(w.c.Size()+1<<20, "2026-11-21T09:30:00Z"))
		model = append(model, make([]byte, 1<<20)...)
		write()
		check("an expansion")
		w.reopen()
		check("reopening")
		w.must(w.c.Revert("ours", "2026-11-21T09:40:00Z"))
		clear(model)
		copy(model, at)
		check("reverting")
		w.reopen()
		write()
		check("the end")
	})
}

// counting counts what is read from images.
type counting struct {
	disk.Meta
	reads, extents int
}

type countingFile struct {
	disk.File
	c *counting
}

func (c *counting) Open(path string, mode disk.Mode) (disk.File, error) {
	f, err := c.Meta.Open(path, mode)
	if err != nil || !strings.HasSuffix(path, ".img") {
		return f, err
	}
	return countingFile{f, c}, nil
}

func (f countingFile) ReadAt(p []byte, off int64) (int, error) {
	f.c.reads++
	return f.File.ReadAt(p, off)
}

func (f countingFile) Extents(off int64, out []disk.Extent) ([]disk.Extent, bool, error) {
	f.c.extents++
	return f.File.Extents(off, out)
}

// Opening reads the map of where data is, never the data: also of the longest chain, and of a
// volume of a TiB.
func TestOpenReadsNoData(t *testing.T) {
	for name, c := range map[string]struct {
		size   int64
		layers int
	}{"longest chain": {16 * mib, 250}, "a TiB": {1 << 40, 3}} {
		t.Run(name, func(t *testing.T) {
			w, fs := newWorld(t, c.size)
			for i := range c.layers - 1 {
				w.fill(int64(i%64)*(c.size/64), 8192, byte(i))
				w.snapshot(fmt.Sprint("s", i))
			}
			w.must(w.c.Close())
			counted := &counting{Meta: fs}
			w.fs = counted
			start := time.Now()
			w.open()
			took := time.Since(start)
			if counted.reads != 0 || counted.extents < c.layers {
				t.Fatalf("%d reads of data, %d lists of extents", counted.reads, counted.extents)
			}
			t.Logf("%d layers of %d bytes opened in %s with %d lists of extents", c.layers, c.size, took, counted.extents)
			w.must(w.c.Close())
		})
	}
}

// What listings and limits say about space is what the file system says, to the byte, after
// everything that changes it.
func TestStatisticsAreExact(t *testing.T) {
	w := newOSWorld(t, 16*mib)
	check := func(step string) {
		t.Helper()
		list, err := w.c.Snapshots()
		w.must(err)
		var snapshots, head int64
		for _, s := range list {
			file := w.dir + "/volume-snap-" + s.Name + ".img"
			if s.Name == chain.HeadName {
				raw, err := readRaw(w.fs, w.dir, false)
				w.must(err)
				file = w.dir + "/" + raw.Head
			}
			info, err := os.Stat(file)
			w.must(err)
			want := info.Sys().(*syscall.Stat_t).Blocks * 512
			if s.SizeBytes != want {
				t.Errorf("after %s: %s has %d bytes, the file system says %d", step, s.Name, s.SizeBytes, want)
			}
			if s.Name == chain.HeadName {
				head = want
			} else if !s.Removed {
				snapshots += want
			}
		}
		if u, err := w.c.Usage(); err != nil || u.HeadBytes != head || u.SizeBytes != snapshots {
			t.Errorf("after %s: %+v, %v, want head %d and snapshots %d", step, u, err, head, snapshots)
		}
	}
	check("creation")
	w.fill(0, mib, 1)
	w.fill(4*mib, 12345*512, 2)
	check("writes")
	w.zero(4*mib, mib)
	check("punching")
	for i := range 3 {
		w.snapshot(fmt.Sprint("s", i))
		w.fill(int64(i)*mib/2, mib, byte(i+3))
		check("a snapshot")
	}
	w.must(w.c.MarkRemoved("s0"))
	w.must(w.c.MarkRemoved("s2"))
	check("marking")
	w.must(w.c.Purge(nil))
	check("a purge")
	w.reopen()
	check("reopening")
	if list, err := w.c.Snapshots(); err != nil || len(list) != 3 {
		t.Fatalf("%+v, %v", list, err)
	}
}

// A full disk is a full disk, not the end: at whatever step it fills up, what was written is read,
// the records that the protocol needs are written, nothing is removed to make room, and with room
// again everything goes on.
func TestDiskFillsUpAtAnyPoint(t *testing.T) {
	base := crashBase(t)
	base.open()
	want := hashes(t, base.c, "one", "two", chain.HeadName)
	base.must(base.c.Close())
	for free := int64(0); free <= 10; free++ {
		w := base.copyOf()
		w.mem().SetCapacity(w.mem().Used() + free*4096)
		w.open()
		_ = w.c.Snapshot("three", true, "", nil) // as far as there is room
		_ = w.c.Expand(2*crashSize, "")
		_, _ = w.c.Hash("one", false, hashedAt)
		_ = w.c.MarkRemoved("one")
		_ = w.c.Purge(nil)
		for i := range uint64(3) {
			w.must(w.c.WriteRecord(chain.Record{VolumeUUID: testUUID, Epoch: 9 + i, Generation: 9 + i, Self: "v-1"}))
			w.must(w.c.WriteDirty([]chain.Region{0}))
		}
		check := func() {
			t.Helper()
			if got := hashes(t, w.c, "two"); !strings.Contains(want, strings.TrimSpace(got)) {
				t.Fatalf("%d blocks free: content changed:\n%s\n%s", free, got, want)
			}
		}
		check()
		w.must(w.c.Close())
		w.open()
		check()
		w.mem().SetCapacity(0)
		w.snapshot("room")
		w.fill(0, 4096, 1)
		w.must(w.c.Purge(nil))
		if _, err := readRaw(w.fs, w.dir, false); err != nil {
			t.Fatalf("%d blocks free: %v", free, err)
		}
		w.must(w.c.Close())
	}
}
