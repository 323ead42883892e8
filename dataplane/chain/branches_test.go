package chain_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"ankole.storage/dataplane/chain"
	"ankole.storage/dataplane/disk/memdisk"
)

// branchBase is reshapeBase after a revert to a: b, which holds 2, is off the live chain, and the
// head holds 5.
func branchBase(t *testing.T) *world {
	w := reshapeBase(t)
	w.must(w.c.Revert("a", "2026-11-21T12:00:00Z"))
	w.fill(16384, 4096, 5)
	return w
}

// branched is what the snapshots off the live chain hold: "b<a:[2]".
func branched(t *testing.T, w *world) string {
	t.Helper()
	list, err := w.c.OpenBranches()
	w.must(err)
	out := []string{}
	for i, l := range list {
		handle, size, f := w.c.Branch(i)
		if handle != l.Handle || size != l.Size || l.Head {
			t.Fatalf("branch %d is %+v, has handle %d and %d bytes", i, l, handle, size)
		}
		var fills []byte
		for _, off := range []int64{0, 8192, 16384} {
			p := make([]byte, 4096)
			if _, err := f.ReadAt(p, off); err == nil && p[0] != 0 {
				fills = append(fills, p[0])
			}
		}
		name := func(file string) string {
			if file == "" {
				return ""
			}
			return file[len("volume-snap-") : len(file)-4]
		}
		out = append(out, fmt.Sprint(name(l.File), "<", name(l.Meta.Parent), ":", fills))
	}
	return fmt.Sprint(out)
}

// A target keeps the snapshots off the live chain that it is to have, wherever it had them, makes
// those it lacks, and loses others.
func TestReshapeBranches(t *testing.T) {
	type row struct {
		base           func(t *testing.T) *world
		live, branches [][2]string // name, parent
		wantLive, want string
	}
	for name, c := range map[string]row{
		"as it was": {branchBase, [][2]string{{"a", ""}}, [][2]string{{"b", "a"}}, "[a:[1] head:[5]]",
			"[b<a:[2]]"},
		"not wanted": {branchBase, [][2]string{{"a", ""}}, nil, "[a:[1] head:[5]]", "[]"},
		"one that it lacks": {branchBase, [][2]string{{"a", ""}}, [][2]string{{"b", "a"}, {"c", "b"}, {"d", "a"}},
			"[a:[1] head:[5]]", "[b<a:[2] d<a:[] c<b:[]]"},
		"a branch goes live": {branchBase, [][2]string{{"a", ""}, {"b", "a"}}, nil, "[a:[1] b:[] head:[5]]", "[]"},
		"live goes off": {reshapeBase, [][2]string{{"a", ""}}, [][2]string{{"b", "a"}}, "[a:[1] head:[3]]",
			"[b<a:[2]]"},
		"everything goes off": {reshapeBase, nil, [][2]string{{"a", ""}, {"b", "a"}}, "[head:[3]]", "[a<:[1] b<a:[2]]"},
		"another order, all new": {reshapeBase, [][2]string{{"b", ""}, {"a", "b"}}, [][2]string{{"c", "a"}},
			"[b:[] a:[] head:[]]", "[c<a:[]]"},
	} {
		t.Run(name, func(t *testing.T) {
			w := c.base(t)
			shape := shapeOf()
			for _, l := range c.live {
				shape.Layers = append(shape.Layers, layerSpec(l[0], l[1]))
				shape.HeadParent = "volume-snap-" + l[0] + ".img"
			}
			for _, l := range c.branches {
				shape.Branches = append(shape.Branches, layerSpec(l[0], l[1]))
			}
			w.must(w.c.VoidForRebuild(voidRecord(w), "", nil))
			var err error
			w.c, err = chain.Reshape(w.c.Files, w.c.Sidecars, shape)
			w.must(err)
			for range 2 {
				if live, off := content(t, w), branched(t, w); live != c.wantLive || off != c.want || !w.c.Rebuilding() {
					t.Fatalf("%s %s, rebuilding %v; want %s %s", live, off, w.c.Rebuilding(), c.wantLive, c.want)
				}
				w.reopen()
			}
			branched(t, w)
			w.must(w.c.FinishRebuild())
			if w.c.Branches() != 0 {
				t.Error("branches stay open after the rebuild")
			}
			w.must(w.c.Close())
		})
	}
}

// A branch without a parent, or named twice, changes nothing.
func TestReshapeRefusesBranches(t *testing.T) {
	for _, branches := range [][]chain.LayerSpec{{layerSpec("c", "x")}, {layerSpec("a", "")},
		{layerSpec("c", ""), layerSpec("c", "")}, {layerSpec("d", "c"), layerSpec("c", "a")}} {
		w := branchBase(t)
		bad := shapeOf("a")
		bad.Branches = branches
		c, err := chain.Reshape(w.c.Files, w.c.Sidecars, bad)
		wantErr(t, err, chain.ErrInvalid)
		w.c = c
		if got := content(t, w) + branched(t, w); got != "[a:[1] head:[5]][b<a:[2]]" || w.c.Rebuilding() {
			t.Fatal(got)
		}
	}
}

// Whenever power fails while branches are made: the directory opens, and what is kept holds what it
// held.
func TestCrashDuringReshapeOfBranches(t *testing.T) {
	shape := shapeOf("a", "x")
	shape.Branches = []chain.LayerSpec{layerSpec("b", "a"), layerSpec("c", "b")}
	for step, done := int64(0), false; !done; step++ {
		w := branchBase(t)
		w.must(w.c.Sync())
		w.mem().CrashAfter(step)
		err := w.c.VoidForRebuild(voidRecord(w), "", []string{"x", "b", "c"})
		if err == nil {
			w.c, err = chain.Reshape(w.c.Files, w.c.Sidecars, shape)
		}
		if done = err == nil; !done && !errors.Is(err, memdisk.ErrCrashed) {
			t.Fatalf("step %d: %v", step, err)
		}
		for seed := range crashSeeds {
			x := *w
			x.fs, x.opts = w.mem().Crash(outcome(step, seed)), testOptions()
			x.open()
			got := branched(t, &x)
			if !strings.HasPrefix(got, "[b<a:[2]") { // new files may be there, in no chain yet
				t.Fatalf("step %d, seed %d: %s", step, seed, got)
			}
			if done && got != "[b<a:[2] c<b:[]]" {
				t.Fatalf("seed %d: the last step is not durable: %s", seed, got)
			}
			x.must(x.c.Close())
		}
	}
}

// A purge closes what a rebuild has left open, so that space comes back.
func TestPurgeClosesBranches(t *testing.T) {
	w := branchBase(t)
	w.giveBack()
	files := w.mem().OpenFiles()
	_, err := w.c.OpenBranches()
	w.must(err)
	w.must(w.c.MarkRemoved("b"))
	w.must(w.c.Purge(nil))
	if n := w.mem().OpenFiles(); n != files || w.c.Branches() != 0 {
		t.Fatalf("%d files open, not %d", n, files)
	}
}
