package chain_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"ankole.storage/dataplane/chain"
	"ankole.storage/dataplane/disk"
	"ankole.storage/dataplane/disk/memdisk"
)

// Directories as crashes and other engines leave them. Each case starts from a closed directory
// with snapshot "a" (ones in the first two blocks) and head 001 (twos in the second block), volume
// size 1 MiB.

func strayBase(t *testing.T) (*world, *memdisk.FS) {
	w, fs := newWorld(t, mib)
	w.fill(0, 8192, 1)
	w.snapshot("a")
	w.fill(4096, 4096, 2)
	w.must(w.c.Close())
	w.unseal()
	return w, fs
}

func (w *world) put(name, content string) {
	w.t.Helper()
	w.must(w.fs.WriteFileAtomic(w.dir+"/"+name, []byte(content)))
}

// image makes an image file with one written block of fill, or none for fill 0.
func (w *world) image(name string, fill byte) {
	w.t.Helper()
	f, err := w.fs.Create(w.dir+"/"+name, 0)
	w.must(err)
	w.must(f.Truncate(mib))
	if fill != 0 {
		_, err = f.WriteAt([]byte(strings.Repeat(string(rune(fill)), 4096)), 0)
		w.must(err)
	}
	w.must(f.Close())
}

const foreignMeta = `{"Size":1048576,"Head":"volume-head-001.img","Dirty":true,"Rebuilding":false,"Error":"","Parent":"volume-snap-a.img","SectorSize":512,"BackingFilePath":""}` + "\n"

func headMeta(parent string) string {
	return `{"Name":"volume-head-001.img","Parent":"` + parent +
		`","Removed":false,"UserCreated":false,"Created":"2026-11-21T09:00:00Z","Labels":null}` + "\n"
}

var ownFiles = []string{"ankole.absent", "ankole.dirty", "ankole.member", "ankole.meta", "ankole.reserve",
	"volume-head-001.img", "volume-head-001.img.meta",
	"volume-snap-a.img", "volume-snap-a.img.meta", "volume.meta"}

// Leftovers that must be gone after an open, with the content as it was.
func TestStraysAreRemoved(t *testing.T) {
	for name, leave := range map[string]func(w *world){
		"new head, before the links": func(w *world) {
			w.image("volume-head-002.img", 0)
			w.put("volume-head-002.img.meta", headMeta("volume-snap-b.img"))
		},
		"snapshot linked to the head, not committed": func(w *world) {
			w.image("volume-head-002.img", 0)
			w.put("volume-head-002.img.meta", headMeta("volume-snap-b.img"))
			w.must(w.fs.Link("/r/volume-head-001.img", "/r/volume-snap-b.img"))
			w.must(w.fs.Link("/r/volume-head-001.img.meta", "/r/volume-snap-b.img.meta"))
		},
		"snapshot linked without metadata": func(w *world) {
			w.must(w.fs.Link("/r/volume-head-001.img", "/r/volume-snap-b.img"))
		},
		"old head, after the commit": func(w *world) {
			w.image("volume-head-000.img", 9)
			w.giveUp("volume-head-000.img")
			w.put("volume-head-000.img.meta", headMeta(""))
			w.put("volume-head-000.img.checksum", "{}")
		},
		"old head that is the snapshot": func(w *world) {
			w.must(w.fs.Link("/r/volume-snap-a.img", "/r/volume-head-000.img"))
		},
		"temporary files": func(w *world) {
			w.put("volume.meta.tmp", "{")
			w.put("volume-snap-a.img.checksum..tmp", "")
			w.put("ankole.member.tmp", "")
		},
		"full restore": func(w *world) {
			w.put("volume-snap-a.img.snap_tmp", "x")
			w.put("volume-snap-a.img.snap_tmp.meta", `{"Parent":""}`)
		},
		"nothing": func(*world) {},
	} {
		t.Run(name, func(t *testing.T) {
			w, fs := strayBase(t)
			leave(w)
			w.open()
			w.wantByte(0, 4096, 1)
			w.wantByte(4096, 4096, 2)
			w.snapshot("b")
			w.wantByte(4096, 4096, 2)
			w.must(w.c.Close())
			names, err := fs.List("/r")
			w.must(err)
			want := append(slices.Clone(ownFiles), "volume-snap-b.img", "volume-snap-b.img.meta")
			want[5], want[6] = "volume-head-002.img", "volume-head-002.img.meta"
			slices.Sort(want)
			if !slices.Equal(names, want) {
				t.Fatalf("files %v\nwant  %v", names, want)
			}
		})
	}
}

// Files that are none of the format's business stay, and so does metadata that other branches may
// need.
func TestUnknownFilesStay(t *testing.T) {
	w, fs := strayBase(t)
	for _, name := range []string{"lost+found", "notes.tmp", "volume-delta-backup-1.img", "volume-snap-x.img.meta"} {
		w.put(name, `{"Parent":""}`)
	}
	w.open()
	w.reopen()
	list, err := w.c.Snapshots()
	w.must(err)
	if len(list) != 2 {
		t.Fatalf("listed %+v", list)
	}
	names, err := fs.List("/r")
	w.must(err)
	if len(names) != len(ownFiles)+4 {
		t.Fatalf("files %v", names)
	}
}

// Contradictions are refused, and refusing changes nothing.
func TestCorruptDirectories(t *testing.T) {
	for name, c := range map[string]struct {
		breakIt func(w *world, fs *memdisk.FS)
		want    error
	}{
		"volume.meta is no JSON": {func(w *world, _ *memdisk.FS) { w.put("volume.meta", "{") }, chain.ErrCorrupt},
		"volume.meta is null":    {func(w *world, _ *memdisk.FS) { w.put("volume.meta", "null") }, chain.ErrCorrupt},
		"head outside the directory": {func(w *world, _ *memdisk.FS) {
			w.put("volume.meta", strings.Replace(foreignMeta, "volume-head-001.img", "../x/volume-head-001.img", 1))
		}, chain.ErrCorrupt},
		"head is no head": {func(w *world, _ *memdisk.FS) {
			w.put("volume.meta", strings.Replace(foreignMeta, "volume-head-001.img", "volume-snap-a.img", 1))
		}, chain.ErrCorrupt},
		"size is negative": {func(w *world, _ *memdisk.FS) {
			w.put("volume.meta", strings.Replace(foreignMeta, "1048576", "-4096", 1))
		}, chain.ErrCorrupt},
		"size is absurd": {func(w *world, _ *memdisk.FS) {
			w.put("volume.meta", strings.Replace(foreignMeta, "1048576", "1152921504606846976", 1))
		}, chain.ErrCorrupt},
		"head is missing": {func(w *world, fs *memdisk.FS) {
			w.must(fs.Remove("/r/volume-head-001.img"))
		}, chain.ErrCorrupt},
		"head's meta is missing": {func(w *world, fs *memdisk.FS) {
			w.must(fs.Remove("/r/volume-head-001.img.meta"))
		}, chain.ErrCorrupt},
		"snapshot is missing": {func(w *world, fs *memdisk.FS) {
			w.must(fs.Remove("/r/volume-snap-a.img"))
		}, chain.ErrCorrupt},
		"snapshot's meta is missing": {func(w *world, fs *memdisk.FS) {
			w.must(fs.Remove("/r/volume-snap-a.img.meta"))
		}, chain.ErrCorrupt},
		"snapshot's meta is no JSON": {func(w *world, _ *memdisk.FS) {
			w.put("volume-snap-a.img.meta", "[]")
		}, chain.ErrCorrupt},
		"parent is no snapshot": {func(w *world, _ *memdisk.FS) {
			w.put("volume-snap-a.img.meta", `{"Parent":"/etc/passwd"}`)
		}, chain.ErrCorrupt},
		"chain runs in a circle": {func(w *world, _ *memdisk.FS) {
			w.put("volume-snap-a.img.meta", `{"Parent":"volume-snap-a.img"}`)
		}, chain.ErrCorrupt},
		"the head's parent is the head's own file": {func(w *world, fs *memdisk.FS) {
			w.must(fs.Remove("/r/volume-snap-a.img"))
			w.must(fs.Link("/r/volume-head-001.img", "/r/volume-snap-a.img"))
		}, chain.ErrCorrupt},
		"no directory": {func(w *world, _ *memdisk.FS) { w.dir = "/none" }, chain.ErrNotFound},
		"a failing disk": {func(_ *world, fs *memdisk.FS) {
			fs.Inject(memdisk.Rule{Op: memdisk.OpExtents, Err: disk.ErrIO})
		}, disk.ErrIO},
		"extents unknown": {func(_ *world, fs *memdisk.FS) {
			fs.Inject(memdisk.Rule{Op: memdisk.OpExtents, Err: disk.ErrUnsupported})
		}, disk.ErrUnsupported},
	} {
		t.Run(name, func(t *testing.T) {
			w, fs := strayBase(t)
			c.breakIt(w, fs)
			before := dump(t, fs)
			_, err := chain.Open(fs, w.dir, w.opts)
			wantErr(t, err, c.want)
			if n := fs.OpenFiles(); n != 0 {
				t.Errorf("%d files left open", n)
			}
			fs.ClearRules()
			if after := dump(t, fs); after != before {
				t.Errorf("the refused open changed the directory:\n%s\n%s", before, after)
			}
			if lock, err := fs.Lock("/r"); err != nil {
				t.Errorf("the lock was not given back: %v", err)
			} else {
				w.must(lock.Close())
			}
		})
	}
}

func dump(t *testing.T, fs *memdisk.FS) string {
	t.Helper()
	names, err := fs.List("/r")
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, name := range names {
		data, err := fs.ReadFile("/r/"+name, 2*mib)
		if err != nil {
			t.Fatal(err)
		}
		b.WriteString(name + " " + strings.Trim(string(data), "\x00\x01\x02") + "\n")
	}
	return b.String()
}

// Keys that are not ours survive our rewriting of a file.
func TestUnknownKeysSurvive(t *testing.T) {
	w, fs := strayBase(t)
	w.put("volume.meta", strings.Replace(foreignMeta, `"Dirty"`, `"Future":{"x":[1,2]},"Encrypted":true,"Dirty"`, 1))
	w.put("volume-snap-a.img.meta", `{"Parent":"","NewKey":"v"}`)
	w.open()
	w.must(w.c.MarkRemoved("a"))
	w.must(w.c.Close())
	for name, want := range map[string]string{"volume.meta": `"Future":{"x":[1,2]}`,
		"volume-snap-a.img.meta": `"NewKey":"v"`} {
		data, err := fs.ReadFile("/r/"+name, mib)
		w.must(err)
		if !strings.Contains(string(data), want) {
			t.Errorf("%s: %s", name, data)
		}
	}
	if data, _ := fs.ReadFile("/r/volume.meta", mib); !strings.Contains(string(data), `"Encrypted":true`) {
		t.Errorf("%s", data)
	}
}

// A head number of another scheme, and one at the end of the range, are followed by free ones.
func TestHeadNumbers(t *testing.T) {
	for from, want := range map[string]string{"volume-head-010.img": "volume-head-011.img",
		"volume-head-999.img":  "volume-head-000.img",
		"volume-head-1234.img": "volume-head-000.img", "volume-head-7.img": "volume-head-008.img"} {
		w, fs := strayBase(t)
		w.must(fs.Rename("/r/volume-head-001.img", "/r/"+from))
		w.must(fs.Rename("/r/volume-head-001.img.meta", "/r/"+from+".meta"))
		w.put("volume.meta", strings.Replace(foreignMeta, "volume-head-001.img", from, 1))
		w.open()
		w.snapshot("b")
		info, err := chain.Inspect(fs, "/r")
		w.must(err)
		if info.Head != want {
			t.Errorf("after %s comes %s, want %s", from, info.Head, want)
		}
	}
}

// A layer shorter than the volume reads as zeroes beyond its end, and another engine's head that is
// too short is extended.
func TestShortFiles(t *testing.T) {
	w, fs := strayBase(t)
	f, err := fs.Open("/r/volume-snap-a.img", 0)
	w.must(err)
	w.must(f.Truncate(6144)) // ends inside a block
	w.must(f.Close())
	f, err = fs.Open("/r/volume-head-001.img", 0)
	w.must(err)
	w.must(f.Truncate(4096))
	w.must(f.Close())
	w.put("volume.meta", foreignMeta)
	w.open()
	w.wantByte(0, 6144, 1)
	w.wantByte(6144, mib-6144, 0)
	if _, err := readRaw(fs, "/r", false); err != nil {
		t.Error(err)
	}
}

// Zeroes another engine preallocated in its head stay; our own interrupted writes are removed.
func TestUnwrittenExtents(t *testing.T) {
	preallocate := func(w *world, fs *memdisk.FS) {
		f, err := fs.Open("/r/volume-head-001.img", 0)
		w.must(err)
		w.must(f.Preallocate(0, 4096))
		w.must(f.Sync())
		w.must(f.Close())
	}
	t.Run("own head, unclean stop", func(t *testing.T) {
		w, fs := strayBase(t)
		w.open()
		preallocate(w, fs)
		w.must(w.c.Abandon())
		w.open()
		w.wantByte(0, 4096, 1)
	})
	t.Run("own head, clean stop", func(t *testing.T) {
		w, fs := strayBase(t)
		preallocate(w, fs)
		w.open()
		w.wantByte(0, 4096, 0)
	})
	t.Run("foreign head", func(t *testing.T) {
		w, fs := strayBase(t)
		w.put("volume.meta", foreignMeta)
		preallocate(w, fs)
		w.open()
		w.wantByte(0, 4096, 0)
		w.must(w.c.WriteRecord(chain.Record{VolumeUUID: testUUID, Self: "v-1"}))
		w.must(w.c.Abandon())
		w.open()
		w.wantByte(0, 4096, 0) // written zeroes by now
		f, err := fs.Open("/r/volume-head-001.img", 0)
		w.must(err)
		w.must(f.Preallocate(65536, 4096)) // as an interrupted write of ours would
		w.must(w.c.Abandon())
		w.open()
		if plan := w.c.ReadPlan(65536, 4096, nil); plan[0].Handle != chain.NoHandle {
			t.Fatal("our own interrupted write was kept")
		}
		w.wantByte(0, 4096, 0)
	})
}

// smallBlocks is a file system with blocks of 1 KiB, as far as a head's extents show: of the blocks
// of 4 KiB in part only the first bytes are there.
type smallBlocks struct {
	*memdisk.FS
	part map[int64]int64 // by offset
}

func (s *smallBlocks) Open(name string, mode disk.Mode) (disk.File, error) {
	f, err := s.FS.Open(name, mode)
	if err != nil || !strings.HasSuffix(name, ".img") || !strings.Contains(name, "-head-") {
		return f, err
	}
	return &smallBlocksFile{f, s}, nil
}

type smallBlocksFile struct {
	disk.File
	s *smallBlocks
}

func (f *smallBlocksFile) Extents(off int64, out []disk.Extent) ([]disk.Extent, bool, error) {
	found, more, err := f.File.Extents(off, nil)
	for _, e := range found {
		for at, end := e.Off, e.Off+e.Len; at < end; {
			b := at &^ 4095
			stop, there := min(end, b+4096), int64(4096)
			if n, ok := f.s.part[b]; ok {
				there = n
			}
			if n := min(stop, b+there) - at; n > 0 {
				out = append(out, disk.Extent{Off: at, Len: n, Unwritten: e.Unwritten})
			}
			at = stop
		}
	}
	return out, more, err
}

func (f *smallBlocksFile) Punch(off, n int64) error {
	for b := off; b < off+n; b += 4096 {
		delete(f.s.part, b)
	}
	return f.File.Punch(off, n)
}

func (f *smallBlocksFile) WriteAt(p []byte, off int64) (int, error) {
	if len(p) == 4096 {
		delete(f.s.part, off)
	}
	return f.File.WriteAt(p, off)
}

// On a file system with blocks below 4 KiB an interrupted write may leave a part of a block in the
// head: what is below it shows again. In another engine's head it is somebody's content.
func TestPartOfABlock(t *testing.T) {
	partial := func(w *world, fs *memdisk.FS, meta string) {
		if meta != "" {
			w.put("volume.meta", meta)
		}
		f, err := fs.Open("/r/volume-head-001.img", 0)
		w.must(err)
		_, err = f.WriteAt(bytes.Repeat([]byte{7}, 1024), 0)
		w.must(err)
		w.must(f.Sync())
		w.must(f.Close())
		w.fs = &smallBlocks{FS: fs, part: map[int64]int64{0: 1024}}
	}
	t.Run("own head, unclean stop", func(t *testing.T) {
		w, fs := strayBase(t)
		w.open()
		w.must(w.c.Abandon())
		partial(w, fs, "")
		w.opts.ReadOnly = true
		for range 2 { // an inspection changes nothing and shows the same
			w.open()
			w.wantByte(0, 4096, 1)
			w.wantByte(4096, 4096, 2)
			w.must(w.c.Close())
			w.opts.ReadOnly = false
		}
		w.open()
		w.wantByte(0, 4096, 1)
	})
	t.Run("foreign head", func(t *testing.T) {
		w, fs := strayBase(t)
		partial(w, fs, foreignMeta)
		for range 2 {
			w.open()
			w.wantByte(0, 1024, 7)
			w.wantByte(1024, 3072, 0)
			w.must(w.c.WriteRecord(chain.Record{VolumeUUID: testUUID, Self: "v-1"}))
			w.must(w.c.Abandon()) // it is ours by now, and what was there is no interrupted write
		}
		if n := len(w.fs.(*smallBlocks).part); n != 0 {
			t.Errorf("%d blocks are there in part", n)
		}
	})
}
