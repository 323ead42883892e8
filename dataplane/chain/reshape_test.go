package chain_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"

	"ankole.storage/dataplane/chain"
	"ankole.storage/dataplane/disk/memdisk"
)

// reshapeBase is a member whose layers a, b and head hold 1, 2 and 3 in blocks of their own.
func reshapeBase(t *testing.T) *world {
	w, _ := newWorld(t, mib)
	w.must(w.record(3, "v-1", "v-2"))
	w.fill(0, 4096, 1)
	w.snapshot("a")
	w.fill(8192, 4096, 2)
	w.snapshot("b")
	w.fill(16384, 4096, 3)
	w.must(w.c.WriteDirty([]chain.Region{0}))
	return w
}

func layerSpec(name, parent string) chain.LayerSpec {
	l := chain.LayerSpec{File: "volume-snap-" + name + ".img", Size: mib}
	l.Meta = chain.DiskMeta{Name: l.File, Created: "2026-11-21T10:00:00Z"}
	if parent != "" {
		l.Meta.Parent = "volume-snap-" + parent + ".img"
	}
	return l
}

// shapeOf makes a shape of snapshots, bottom first.
func shapeOf(names ...string) chain.Shape {
	s := chain.Shape{Spec: chain.Spec{Size: mib, VolumeUUID: testUUID, Self: "v-1", Created: "2026-11-21T11:00:00Z"}}
	parent := ""
	for _, n := range names {
		s.Layers = append(s.Layers, layerSpec(n, parent))
		parent = n
	}
	if parent != "" {
		s.HeadParent = "volume-snap-" + parent + ".img"
	}
	return s
}

// content is what each layer of the live chain holds, in short: "a:1 b:2 head:3".
func content(t *testing.T, w *world) string {
	t.Helper()
	var out []string
	for i, l := range w.c.LayerList() {
		var fills []string
		for _, off := range []int64{0, 8192, 16384} {
			p := make([]byte, 4096)
			if _, err := w.c.LayerFile(i).ReadAt(p, off); err == nil && p[0] != 0 && bytes.Count(p, p[:1]) == len(p) {
				fills = append(fills, fmt.Sprint(p[0]))
			}
		}
		name := "head"
		if !l.Head {
			name = l.File[len("volume-snap-") : len(l.File)-4]
		}
		out = append(out, name+":"+fmt.Sprint(fills))
	}
	return fmt.Sprint(out)
}

// reshaping is a shape for reshapeBase, and what each layer of it holds then.
type reshaping struct {
	shape chain.Shape
	want  string
	anew  bool // the directory is emptied on the way
}

// reshapes are the shapes that a target may get, each in another way.
func reshapes() map[string]reshaping {
	becomes := func(head string, names ...string) chain.Shape {
		s := shapeOf(names...)
		s.HeadBecomes = chain.SnapshotFile(head)
		return s
	}
	expanded := becomes("c", "a", "b", "c")
	expanded.Size = 2 * mib
	anew := shapeOf("a")
	anew.NewHead = true
	return map[string]reshaping{
		"the same":                      {shape: shapeOf("a", "b"), want: "[a:[1] b:[2] head:[3]]"},
		"one more":                      {shape: becomes("c", "a", "b", "c"), want: "[a:[1] b:[2] c:[3] head:[]]"},
		"expanded since":                {shape: expanded, want: "[a:[1] b:[2] c:[3] head:[]]"},
		"two more":                      {shape: becomes("c", "a", "b", "c", "d"), want: "[a:[1] b:[2] c:[3] d:[] head:[]]"},
		"one less":                      {shape: shapeOf("b"), want: "[b:[2] head:[3]]"},
		"one in between":                {shape: shapeOf("a", "x", "b"), want: "[a:[1] x:[] b:[2] head:[3]]"},
		"none":                          {shape: shapeOf(), want: "[head:[3]]"},
		"a new head":                    {shape: anew, want: "[a:[1] head:[]]"},
		"another order: made anew":      {shape: shapeOf("b", "a"), want: "[b:[] a:[] head:[]]", anew: true},
		"another order, and a new name": {shape: becomes("b", "b", "a", "c"), want: "[b:[] a:[] c:[] head:[]]", anew: true},
	}
}

// A target keeps the snapshots it has, makes those it lacks, turns its head into one where asked
// to, and loses the rest.
func TestReshape(t *testing.T) {
	for name, c := range reshapes() {
		t.Run(name, func(t *testing.T) {
			w := reshapeBase(t)
			w.must(w.c.VoidForRebuild(voidRecord(w), "", nil))
			var err error
			w.c, err = chain.Reshape(w.c.Files, w.c.Sidecars, c.shape)
			w.must(err)
			for range 2 {
				if got := content(t, w); got != c.want || !w.c.Rebuilding() || w.c.Size() != c.shape.Size {
					t.Fatalf("%s, rebuilding %v, %d bytes; want %s", got, w.c.Rebuilding(), w.c.Size(), c.want)
				}
				list, err := w.c.Snapshots()
				w.must(err)
				if len(list) != len(c.shape.Layers)+1 {
					t.Fatalf("other snapshots remain: %+v", list)
				}
				w.reopen()
			}
			w.must(w.c.FinishRebuild())
			w.must(w.c.Close())
		})
	}
}

// A merge that was interrupted has made a removed snapshot's file as long as the one above it.
// Where the source still has the snapshot, the target gets it with the size it had.
func TestReshapeAfterAnInterruptedMerge(t *testing.T) {
	w, _ := newWorld(t, mib)
	w.must(w.record(3, "v-1", "v-2"))
	w.fill(0, 4096, 1)
	w.must(w.c.Expand(2*mib, ""))
	w.fill(8192, 4096, 2)
	w.snapshot("b")
	grown := fmt.Sprintf("expand-%d", 2*mib)
	p, err := w.c.NewPurge() // marks what the system made
	w.must(err)
	step, ok := p.Next()
	if !ok || step.Action != chain.PurgeCoalesce || step.Target != "volume-snap-b.img" {
		t.Fatalf("%+v", step)
	}
	_, err = workStep(w.c, p, &step)
	w.must(err)

	shape := shapeOf(grown, "b")
	shape.Size, shape.Layers[1].Size = 2*mib, 2*mib
	w.must(w.c.VoidForRebuild(voidRecord(w), "", nil))
	w.c, err = chain.Reshape(w.c.Files, w.c.Sidecars, shape)
	w.must(err)
	w.must(w.c.FinishRebuild())
	view, err := w.c.OpenView(grown)
	w.must(err)
	if view.Size() != mib {
		t.Errorf("the snapshot has %d bytes, at the source %d", view.Size(), int64(mib))
	}
	w.must(view.Close())
	w.must(w.c.Close())
}

// A shape that makes no sense changes nothing.
func TestReshapeRefuses(t *testing.T) {
	w := reshapeBase(t)
	bad := shapeOf("a")
	bad.HeadBecomes = "volume-snap-x.img"
	c, err := chain.Reshape(w.c.Files, w.c.Sidecars, bad)
	wantErr(t, err, chain.ErrInvalid)
	w.c = c
	if got := content(t, w); got != "[a:[1] b:[2] head:[3]]" || w.c.Rebuilding() {
		t.Fatal(got)
	}
}

// Whenever power fails while a target is given its shape: it opens; once the record is void it
// never counts as whole; and each layer that is there and that the base vouches for holds what it
// held.
func TestCrashDuringReshape(t *testing.T) {
	shape := shapeOf("x", "b", "c", "d")
	shape.HeadBecomes = "volume-snap-c.img"
	seen := map[string]int{}
	for step, done := int64(0), false; !done; step++ {
		w := reshapeBase(t)
		w.must(w.c.Sync())
		w.mem().CrashAfter(step)
		err := w.c.VoidForRebuild(voidRecord(w), "c", []string{"x", "d", chain.HeadName})
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
			seen[reshaped(t, &x, done)]++
			x.must(x.c.Close())
		}
	}
	for _, want := range []string{"whole", "void", "on the way", "done"} {
		if seen[want] == 0 {
			t.Errorf("never seen: %s (%v)", want, seen)
		}
	}
}

// reshaped judges one outcome.
func reshaped(t *testing.T, w *world, done bool) string {
	t.Helper()
	r, valid := w.c.Record()
	own, _ := w.c.Absent("v-1")
	got := content(t, w)
	for i, l := range w.c.LayerList() {
		name, want := chain.HeadName, byte(3)
		if !l.Head {
			name = l.File[len("volume-snap-") : len(l.File)-4]
			want = map[string]byte{"a": 1, "b": 2, "c": 3}[name]
		}
		off := map[string]int64{"a": 0, "b": 8192, "c": 16384, chain.HeadName: 16384}[name]
		p := make([]byte, 4096)
		if _, err := w.c.LayerFile(i).ReadAt(p, off); (err != nil || p[0] != want) && !own.HasChanged(name) {
			t.Fatalf("%s is not marked as changed and holds other content: %s, %+v", name, got, own)
		}
	}
	switch {
	case !valid:
		t.Fatal("the record is gone")
	case r.Generation == 3:
		if got != "[a:[1] b:[2] head:[3]]" || w.c.Rebuilding() || done {
			t.Fatalf("the record holds, and the chain is %s, rebuilding %v", got, w.c.Rebuilding())
		}
		return "whole"
	case own.Since != chain.RecordID{Epoch: 1, Generation: 3} ||
		(!own.Regions.Has(0) && !slices.Contains(first(w.c.Dirty()), 0)):
		t.Fatalf("the base or a region is forgotten: %+v", own)
	case got == "[x:[] b:[2] c:[3] d:[] head:[]]" && own.First == "c":
		return "done"
	case own.First == "c":
		t.Fatalf("the head has not become c: %s", got)
	case w.c.Rebuilding():
		return "on the way"
	}
	return "void"
}

func first(set []chain.Region, _ bool) []chain.Region { return set }

// What lies below a hole that a rebuild makes is found again, so that zeroes are made the right
// way.
func TestMapAfterAHoleInALayer(t *testing.T) {
	w := reshapeBase(t)
	w.must(w.c.VoidForRebuild(voidRecord(w), "", nil))
	var err error
	w.c, err = chain.Reshape(w.c.Files, w.c.Sidecars, shapeOf("a", "b"))
	w.must(err)
	punch := func(layer int, off int64) {
		_, handle, _ := w.c.Layer(layer)
		w.must(w.byHandle(handle).Punch(off, 4096))
		top, err := w.c.Below(off, 4096)()
		w.must(err)
		w.c.SetBelow(off, top, layer == 2)
	}
	w.fill(0, 4096, 9) // above a's
	punch(0, 0)
	w.wantByte(0, 4096, 9)
	if z := w.c.ZeroPlan(0, 4096, nil); len(z) != 1 || !z[0].Punch {
		t.Errorf("nothing is below the head, and zeroes are made by %+v", z)
	}
	punch(2, 16384)
	w.wantByte(16384, 4096, 0)
	punch(1, 8192)
	w.wantByte(8192, 4096, 0)
	want := w.read(0, mib)
	w.reopen()
	if !bytes.Equal(w.read(0, mib), want) {
		t.Error("opening again shows something else")
	}
}
