package memdisk_test

import (
	"bytes"
	"errors"
	"testing"

	"ankole.storage/dataplane/disk"
	"ankole.storage/dataplane/disk/memdisk"
)

func TestParseRules(t *testing.T) {
	rules, err := memdisk.ParseRules(
		"sync volume-head-* eio times 1\n\n write,create * enospc skip 3 chance 2\nany x forget\n")
	if err != nil || len(rules) != 4 {
		t.Fatalf("%+v, %v", rules, err)
	}
	if r := rules[0]; r.Op != memdisk.OpSync || r.Name != "volume-head-*" || r.Times != 1 ||
		!errors.Is(r.Err, disk.ErrIO) {
		t.Errorf("%+v", r)
	}
	if r := rules[2]; r.Op != memdisk.OpCreate || r.Skip != 3 || r.Chance != 2 || !errors.Is(r.Err, disk.ErrNoSpace) {
		t.Errorf("%+v", r)
	}
	if r := rules[3]; r.Op != "" || !r.Forget {
		t.Errorf("%+v", r)
	}
	for _, text := range []string{"sync *", "sync * eio times", "sync * eio times x", "sync * eio times -1",
		"jump * eio", "sync * smoke",
		"sync [ eio", "sync * eio often 3"} {
		if _, err := memdisk.ParseRules(text); !errors.Is(err, memdisk.ErrRule) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// Rules can be taken away, and apply by chance as often as they say.
func TestInjectText(t *testing.T) {
	fs := memdisk.New()
	f := create(t, fs, "/f")
	stop, err := fs.InjectText("write f eio chance 4")
	must(t, err)
	failed := 0
	for range 400 {
		if _, err := f.WriteAt([]byte("x"), 0); err != nil {
			failed++
		}
	}
	if failed < 50 || failed > 150 {
		t.Errorf("%d of 400 writes failed, want one in four", failed)
	}
	stop()
	for range 100 {
		_, err := f.WriteAt([]byte("x"), 0)
		must(t, err)
	}
	if _, err := fs.InjectText("nonsense"); !errors.Is(err, memdisk.ErrRule) {
		t.Error(err)
	}
}

// After a sync that failed and forgot, another one makes nothing durable but what was written
// since.
func TestForgottenSync(t *testing.T) {
	fs := memdisk.New()
	f := create(t, fs, "/f")
	must(t, fs.SyncDir("/"))
	write := func(s string, off int64) {
		_, err := f.WriteAt([]byte(s), off)
		must(t, err)
	}
	write("oooo", 0)
	write("oooo", 4096)
	must(t, f.Sync())
	write("n", 0)
	write("n", 4096)
	stop, err := fs.InjectText("sync f forget")
	must(t, err)
	if err := f.Sync(); !errors.Is(err, disk.ErrIO) {
		t.Fatal(err)
	}
	stop()
	write("m", 4097) // the second page is written again
	must(t, f.Sync())
	first := func(fs *memdisk.FS) string { return content("/f")(fs)[:1] }
	seen := outcomes(fs, first)
	if seen["o"] == 0 || seen["n"] == 0 {
		t.Errorf("the forgotten write is kept or lost for certain: %v", seen)
	}
	wantOutcomes(t, outcomes(fs, func(fs *memdisk.FS) string { return content("/f")(fs)[4096:4098] }), "nm")
}

// A write that fails midway has written some of its sectors, from the first on. Where the failure
// hits a hole it leaves space without content; what lies behind it is untouched.
func TestPartialWrite(t *testing.T) {
	lengths := map[int]bool{}
	for range 100 {
		fs := memdisk.New()
		f := create(t, fs, "/f")
		must(t, f.Truncate(5*4096))
		_, err := f.WriteAt(bytes.Repeat([]byte{1}, 8192), 0) // holes follow
		must(t, err)
		for range len(lengths) {
			_, err := f.WriteAt([]byte{1}, 0) // another history chooses another place
			must(t, err)
		}
		stop, err := fs.InjectText("write f partial times 1")
		must(t, err)
		n, err := f.WriteAt(bytes.Repeat([]byte{2}, 4*4096), 0)
		stop()
		if !errors.Is(err, disk.ErrIO) || n%512 != 0 {
			t.Fatalf("%d bytes, %v", n, err)
		}
		lengths[n] = true
		got := make([]byte, 5*4096)
		_, err = f.ReadAt(got, 0)
		must(t, err)
		want := append(bytes.Repeat([]byte{2}, n), bytes.Repeat([]byte{1}, max(8192-n, 0))...)
		if !bytes.Equal(got[:len(want)], want) || bytes.ContainsFunc(got[len(want):], func(r rune) bool { return r != 0 }) {
			t.Fatalf("after %d bytes were written the file has %d %d %d %d", n, got[0], got[4096], got[8192], got[12288])
		}
		extents, _, err := f.Extents(0, nil)
		must(t, err)
		unwritten, end := false, int64(0)
		for _, e := range extents {
			unwritten, end = unwritten || e.Unwritten, e.Off+e.Len
		}
		if hole := n >= 8192 && n < 4*4096; unwritten != hole || (hole && end != int64(n)+4096) || fs.Used() != end {
			t.Fatalf("after %d bytes were written: %+v, %d bytes used", n, extents, fs.Used())
		}
	}
	if len(lengths) < 5 {
		t.Errorf("it failed after %v bytes only", lengths)
	}
}
