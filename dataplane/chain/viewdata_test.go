package chain_test

import (
	"bytes"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"ankole.storage/dataplane/chain"
)

// The ranges of a view are where its files have something, whole blocks, and nothing else: outside
// of them it reads zeroes.
func TestViewRanges(t *testing.T) {
	w, _ := newWorld(t, mib)
	w.fill(0, 4096, 1)
	w.fill(65536, 512, 2)
	w.snapshot("a")
	w.fill(4096, 8192, 3)
	w.fill(524288, 4096, 0) // zeroes that somebody wrote
	w.snapshot("b")
	w.fill(8192, 65536, 4)
	for name, want := range map[string][][2]int64{
		"a": {{0, 4096}, {65536, 69632}},
		"b": {{0, 12288}, {65536, 69632}, {524288, 528384}},
	} {
		v := w.view(name)
		got, next := v.Ranges(0, 100)
		if next != -1 {
			t.Errorf("%s: more at %d", name, next)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
		w.must(v.Close())
	}
}

func TestRangesCoverTheContent(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w, _ := newWorld(t, mib)
		name, newest := "a", rapid.Bool().Draw(rt, "newest")
		for i := range rapid.IntRange(1, 4).Draw(rt, "snapshots") {
			for range rapid.IntRange(0, 6).Draw(rt, "writes") {
				off := rapid.Int64Range(0, 255).Draw(rt, "block") * 4096
				w.fill(off, min(rapid.Int64Range(1, 9).Draw(rt, "blocks")*4096, mib-off), byte(i+1))
			}
			w.snapshot(string(rune('a' + i)))
			if newest {
				name = string(rune('a' + i))
			}
		}
		v := w.view(name)
		var ranges [][2]int64
		most := rapid.IntRange(1, 5).Draw(rt, "ranges of a page")
		for off := int64(0); off >= 0; {
			page, next := v.Ranges(off, most)
			if len(page) > most || next >= 0 && next <= off {
				rt.Fatalf("from %d: %v, next %d", off, page, next)
			}
			ranges, off = append(ranges, page...), next
		}
		p := make([]byte, mib)
		_, err := v.ReadAt(p, 0)
		w.must(err)
		last := int64(-1)
		for _, r := range ranges {
			if r[0] <= last || r[0] >= r[1] || r[1] > mib || (r[0]|r[1])%4096 != 0 {
				rt.Fatalf("%v", ranges)
			}
			clear(p[r[0]:r[1]])
			last = r[1]
		}
		if !bytes.Equal(p, make([]byte, mib)) {
			rt.Fatalf("data outside of %v", ranges)
		}
		w.must(v.Close())
		w.must(w.c.Close())
	})
}

// A purge leaves a snapshot that a pinned view reads alone, whatever becomes of its mark, and takes
// it the next time.
func TestPinnedSnapshotIsNotPurged(t *testing.T) {
	w, _ := newWorld(t, mib)
	for i, name := range []string{"a", "b", "c"} {
		w.fill(int64(i)*4096, 8192, byte(i+1))
		w.snapshot(name)
	}
	w.fill(0, 65536, 9)
	want := w.at("b")
	v := w.view("b")
	v.Pin()
	v.Pin()
	for _, name := range []string{"a", "b", "c"} {
		w.must(w.c.MarkRemoved(name))
	}
	w.must(w.c.Purge(nil))
	got := make([]byte, mib)
	_, err := v.ReadAt(got, 0)
	w.must(err)
	if !bytes.Equal(got, want) {
		t.Fatal("a purge changed what a pinned view reads")
	}
	w.must(v.Close())
	w.must(w.c.Purge(nil))
	if n := w.c.Layers(); n != 2 { // the one below the head is only pruned
		t.Fatalf("%d layers are left", n)
	}
	w.wantByte(0, 65536, 9)
}

// A repair by one view reaches the map of another, whatever snapshot that one is of.
func TestRepairReachesOtherViews(t *testing.T) {
	w, _ := newWorld(t, mib)
	w.fill(0, 4096, 1)
	w.snapshot("a")
	w.fill(8192, 4096, 2)
	w.snapshot("b")
	a, again, b := w.view("a"), w.view("a"), w.view("b")
	data := bytes.Repeat([]byte{7}, 16384)
	written, err := a.Repair(0, data)
	w.must(err)
	for _, v := range []*chain.View{a, again, b} {
		v.Repaired(written)
	}
	p := make([]byte, 16384)
	_, err = again.ReadAt(p, 0)
	w.must(err)
	if !bytes.Equal(p, data) {
		t.Error("another view of the snapshot reads something else")
	}
	copy(data[8192:], bytes.Repeat([]byte{2}, 4096))
	if _, err = b.ReadAt(p, 0); err != nil || !bytes.Equal(p, data) {
		t.Errorf("a newer snapshot's view reads something else: %v", err)
	}
}

// The mark is the head's: it survives a start and goes with the snapshot that completes the
// content.
func TestImportMark(t *testing.T) {
	w, _ := newWorld(t, mib)
	if w.c.ImportMark() != "" {
		t.Fatal("a new chain is marked")
	}
	w.must(w.c.SetImportMark("from x"))
	w.fill(0, 4096, 1)
	w.reopen()
	if got := w.c.ImportMark(); got != "from x" {
		t.Fatalf("%q", got)
	}
	wantErr(t, w.c.CheckExpand(2*mib), chain.ErrInvalid)
	wantErr(t, w.c.SetImportMark(string(make([]byte, 5000))), chain.ErrInvalid)
	w.snapshot("a")
	w.reopen()
	if got := w.c.ImportMark(); got != "" {
		t.Fatalf("%q after the snapshot", got)
	}
	w.snapshot("b")
	w.must(w.c.SetImportMark("y"))
	wantErr(t, w.c.CheckRevert("a"), chain.ErrInvalid)
	w.must(w.c.SetImportMark(""))
	w.must(w.c.CheckRevert("a"))
}

// TestRevertOfAPart: what is being filled from outside is given up, and nothing else is.
func TestRevertOfAPart(t *testing.T) {
	w, _ := newWorld(t, mib)
	w.fill(0, 4096, 1)
	w.snapshot("a")
	want := hashes(t, w.c, chain.HeadName)
	w.must(w.c.MarkRemoved("a"))
	wantErr(t, w.c.CheckRevert("a"), chain.ErrInvalid)
	w.must(w.c.SetImportMark("from x"))
	w.fill(0, 8192, 2)
	w.must(w.c.Revert("a", "2026-11-21T10:00:00Z"))
	w.reopen()
	if got := w.c.ImportMark(); got != "" || hashes(t, w.c, chain.HeadName) != want {
		t.Errorf("marked %q, or with another content", got)
	}
}

func TestCrashDuringSetImportMark(t *testing.T) {
	testEveryCrash(t, nil, func(w *world) error { return w.c.SetImportMark("x") })
	testEveryCrash(t, func(w *world) error { return w.c.SetImportMark("x") }, func(w *world) error {
		return w.c.Snapshot("three", false, "", nil)
	})
}

// TestRangesSince compares what was changed since each older snapshot with what differs: every
// block that does is listed, and none that nobody has touched since.
func TestRangesSince(t *testing.T) {
	const blocks = mib / 4096
	rapid.Check(t, func(rt *rapid.T) {
		w, _ := newWorld(t, mib)
		defer func() { w.must(w.c.Close()) }()
		var touched [][blocks]bool // by the step that ends in a snapshot
		var names []string
		for i := range rapid.IntRange(2, 5).Draw(rt, "snapshots") {
			var in [blocks]bool
			for range rapid.IntRange(0, 6).Draw(rt, "changes") {
				n := rapid.Int64Range(1, 9).Draw(rt, "blocks")
				at := rapid.Int64Range(0, blocks-n).Draw(rt, "block")
				if rapid.Bool().Draw(rt, "discard") {
					w.must(w.c.Discard(at*4096, n*4096))
				} else {
					w.fill(at*4096, n*4096, byte(i+1))
				}
				for k := at; k < at+n; k++ {
					in[k] = true
				}
			}
			names, touched = append(names, string(rune('a'+i))), append(touched, in)
			w.snapshot(names[i])
			if rapid.Bool().Draw(rt, "reopen") {
				w.reopen()
			}
		}
		last := len(names) - 1
		since := rapid.IntRange(0, last-1).Draw(rt, "since")
		before, after := w.at(names[since]), w.at(names[last])
		v := w.view(names[last])
		defer func() { w.must(v.Close()) }()
		most := rapid.IntRange(1, 5).Draw(rt, "ranges of a page")
		var listed [blocks]bool
		for off := int64(0); off >= 0; {
			page, next, ok := v.RangesSince(names[since], off, most)
			if !ok {
				rt.Fatal("the snapshot is not found")
			}
			page, next, err := v.HiddenSince(names[since], page, off, next, most)
			w.must(err)
			if len(page) > most || next >= 0 && next <= off {
				rt.Fatalf("from %d: %v, next %d", off, page, next)
			}
			for _, r := range page {
				if r[0] < off || r[0] >= r[1] || next >= 0 && r[1] > next || (r[0]|r[1])%4096 != 0 {
					rt.Fatalf("from %d: %v, next %d", off, page, next)
				}
				for k := r[0] / 4096; k < r[1]/4096; k++ {
					listed[k] = true
				}
			}
			off = next
		}
		for k := range int64(blocks) {
			changed := !bytes.Equal(before[k*4096:][:4096], after[k*4096:][:4096])
			ever := slices.ContainsFunc(touched[since+1:], func(in [blocks]bool) bool { return in[k] })
			if changed && !listed[k] || listed[k] && !ever {
				rt.Fatalf("block %d: changed %v, touched since %v, listed %v", k, changed, ever, listed[k])
			}
		}
		if _, _, ok := v.RangesSince("none", 0, most); ok {
			rt.Error("a snapshot that is not there has ranges")
		}
		if _, _, err := v.HiddenSince("none", nil, 0, -1, most); err == nil {
			rt.Error("a snapshot that is not there has whiteouts")
		}
	})
}
