package memdisk_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"ankole.storage/dataplane/disk"
	"ankole.storage/dataplane/disk/disktest"
	"ankole.storage/dataplane/disk/memdisk"
)

func TestConformance(t *testing.T) {
	disktest.Run(t, func(t *testing.T) disktest.Target {
		fs := memdisk.New()
		if err := fs.Mkdir("/d"); err != nil {
			t.Fatal(err)
		}
		return disktest.Target{FS: fs, Dir: "/d"}
	})
}

const seeds = 200

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func create(t *testing.T, fs *memdisk.FS, name string) disk.File {
	t.Helper()
	f, err := fs.Create(name, 0)
	must(t, err)
	return f
}

// outcomes crashes fs with many seeds and counts what describe makes of the results.
func outcomes(fs *memdisk.FS, describe func(*memdisk.FS) string) map[string]int {
	seen := map[string]int{}
	for seed := range uint64(seeds) {
		seen[describe(fs.Crash(seed))]++
	}
	return seen
}

func content(name string) func(*memdisk.FS) string {
	return func(fs *memdisk.FS) string {
		data, err := fs.ReadFile(name, 1<<20)
		if err != nil {
			return "none"
		}
		return string(data)
	}
}

func wantOutcomes(t *testing.T, seen map[string]int, want ...string) {
	t.Helper()
	for _, w := range want {
		if seen[w] == 0 {
			t.Errorf("outcome %.40q never happens; seen %.200v", w, seen)
		}
		delete(seen, w)
	}
	if len(seen) > 0 {
		t.Errorf("outcomes that must not happen: %.200v", seen)
	}
}

func TestSyncedSurvives(t *testing.T) {
	fs := memdisk.New()
	f := create(t, fs, "/f")
	_, err := f.WriteAt([]byte("data"), 0)
	must(t, err)
	must(t, f.Sync())
	wantOutcomes(t, outcomes(fs, content("/f")), "none", "data") // the name was not synced
	must(t, fs.SyncDir("/"))
	wantOutcomes(t, outcomes(fs, content("/f")), "data")
}

func TestNamesNeedSyncDir(t *testing.T) {
	fs := memdisk.New()
	must(t, fs.WriteFileAtomic("/a", []byte("a")))
	must(t, fs.WriteFileAtomic("/b", []byte("b")))
	must(t, fs.Rename("/a", "/b"))
	wantOutcomes(t, outcomes(fs, func(fs *memdisk.FS) string {
		return content("/a")(fs) + content("/b")(fs)
	}), "ab", "nonea")
	must(t, fs.SyncDir("/"))
	must(t, fs.Remove("/b"))
	wantOutcomes(t, outcomes(fs, content("/b")), "a", "none")
}

func TestExchangeIsOneStep(t *testing.T) {
	fs := memdisk.New()
	must(t, fs.WriteFileAtomic("/a", []byte("a")))
	must(t, fs.WriteFileAtomic("/b", []byte("b")))
	must(t, fs.Exchange("/a", "/b"))
	wantOutcomes(t, outcomes(fs, func(fs *memdisk.FS) string { return content("/a")(fs) + content("/b")(fs) }), "ab", "ba")
}

// Every step of an atomic replacement leaves the old or the new content.
func TestWriteFileAtomicSurvivesEveryStep(t *testing.T) {
	total := map[string]int{}
	for step := int64(0); ; step++ {
		fs := memdisk.New()
		must(t, fs.WriteFileAtomic("/f", []byte("old")))
		fs.CrashAfter(step)
		err := fs.WriteFileAtomic("/f", []byte("new"))
		seen := outcomes(fs, content("/f"))
		for k, n := range seen {
			total[k] += n
		}
		if err == nil {
			wantOutcomes(t, seen, "new")
			break
		}
		if !errors.Is(err, memdisk.ErrCrashed) {
			t.Fatal(err)
		}
	}
	wantOutcomes(t, total, "old", "new")
}

func TestUnsyncedSectorsTear(t *testing.T) {
	fs := memdisk.New()
	f := create(t, fs, "/f")
	old, new := bytes.Repeat([]byte{'o'}, 4096), bytes.Repeat([]byte{'n'}, 4096)
	_, err := f.WriteAt(old, 0)
	must(t, err)
	must(t, f.Sync())
	must(t, fs.SyncDir("/"))
	_, err = f.WriteAt(new, 0)
	must(t, err)
	seen := outcomes(fs, func(fs *memdisk.FS) string {
		data := content("/f")(fs)
		for s := 0; s < 4096; s += 512 {
			if x := data[s : s+512]; x != string(old[:512]) && x != string(new[:512]) {
				t.Fatal("a sector was torn inside")
			}
		}
		switch data {
		case string(old):
			return "old"
		case string(new):
			return "new"
		}
		return "torn"
	})
	wantOutcomes(t, seen, "old", "new", "torn")
}

// A write into a hole that a crash cuts short leaves a hole, the data, or space that reads as
// zeroes.
func TestInterruptedWriteIntoHole(t *testing.T) {
	fs := memdisk.New()
	f := create(t, fs, "/f")
	must(t, f.Truncate(8192))
	must(t, f.Sync())
	must(t, fs.SyncDir("/"))
	_, err := f.WriteAt(bytes.Repeat([]byte{'n'}, 4096), 4096)
	must(t, err)
	seen := outcomes(fs, func(fs *memdisk.FS) string {
		g, err := fs.Open("/f", 0)
		must(t, err)
		ex, _, err := g.Extents(0, nil)
		must(t, err)
		switch {
		case len(ex) == 0:
			return "hole"
		case ex[0].Unwritten:
			return "unwritten"
		}
		return "data"
	})
	wantOutcomes(t, seen, "hole", "unwritten", "data")
}

func TestCrashDoesNotChangeTheOriginal(t *testing.T) {
	fs := memdisk.New()
	f := create(t, fs, "/f")
	must(t, fs.SyncDir("/"))
	for i := range 3 {
		_, err := f.WriteAt([]byte{byte('0' + i)}, 0)
		must(t, err)
		after := fs.Crash(uint64(i))
		if g, err := after.Open("/f", 0); err == nil {
			_, err = g.WriteAt([]byte("!"), 0)
			must(t, err)
		}
		if got := content("/f")(fs); got != fmt.Sprint(i) {
			t.Fatalf("original holds %q", got)
		}
	}
}

func TestInject(t *testing.T) {
	fs := memdisk.New()
	f := create(t, fs, "/f")
	fs.Inject(memdisk.Rule{Op: memdisk.OpWrite, Name: "f*", Skip: 1, Times: 2, Err: disk.ErrIO})
	for i, want := range []error{nil, disk.ErrIO, disk.ErrIO, nil} {
		if _, err := f.WriteAt([]byte("x"), 0); !errors.Is(err, want) || (err == nil) != (want == nil) {
			t.Fatalf("write %d: %v, want %v", i, err, want)
		}
	}
	fs.Inject(memdisk.Rule{Op: memdisk.OpSync, Name: "g", Err: disk.ErrIO})
	must(t, f.Sync())
	fs.Inject(memdisk.Rule{Err: disk.ErrIO})
	if _, err := fs.List("/"); !errors.Is(err, disk.ErrIO) {
		t.Fatal(err)
	}
	fs.ClearRules()
	must(t, f.Sync())
}

func TestCapacity(t *testing.T) {
	fs := memdisk.New()
	fs.SetCapacity(8192)
	f := create(t, fs, "/f")
	_, err := f.WriteAt(make([]byte, 8192), 0)
	must(t, err)
	if _, err = f.WriteAt([]byte("x"), 8192); !errors.Is(err, disk.ErrNoSpace) {
		t.Fatal(err)
	}
	_, err = f.WriteAt([]byte("in place"), 4096)
	must(t, err)
	must(t, f.Punch(0, 4096))
	_, err = f.WriteAt([]byte("x"), 8192)
	must(t, err)
	must(t, fs.Remove("/f"))
	if fs.Used() != 8192 {
		t.Fatalf("an open file without a name uses %d", fs.Used())
	}
	must(t, f.Close())
	if fs.Used() != 0 || fs.OpenFiles() != 0 {
		t.Fatalf("%d bytes, %d files left", fs.Used(), fs.OpenFiles())
	}
}
