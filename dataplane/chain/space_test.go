package chain_test

import (
	"testing"

	"ankole.storage/dataplane/chain"
)

// The space of what is removed comes back when it is asked for, beside everything else, and not
// while I/O is held back.
func TestSpaceComesBackAfterwards(t *testing.T) {
	const layer = 64 << 10
	for _, c := range []struct {
		name string
		op   func(w *world) error
	}{
		{"a leaf", func(w *world) error {
			w.must(w.c.Revert("a", ""))
			w.giveBack()
			w.must(w.c.MarkRemoved("b"))
			return purgeStep(w.c)
		}},
		{"a merged child", func(w *world) error {
			w.must(w.c.MarkRemoved("a"))
			return purgeStep(w.c)
		}},
		{"a head", func(w *world) error { return w.c.Revert("b", "") }},
		{"a layer of a rebuild target", func(w *world) error {
			s := chain.Shape{Spec: w.c.Spec()}
			s.Layers, s.HeadParent = s.Layers[:1], "volume-snap-a.img"
			var err error
			w.c, err = chain.Reshape(w.c.Files, w.c.Sidecars, s)
			return err
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w, fs := newWorld(t, crashSize)
			w.fill(0, layer, 1)
			w.snapshot("a")
			w.fill(0, layer, 2)
			w.snapshot("b")
			w.fill(0, layer, 3)
			files := fs.OpenFiles()
			w.must(c.op(w))
			before := fs.Used()
			if !w.giveBack() {
				t.Fatal("nothing was kept")
			}
			if freed := before - fs.Used(); freed != layer {
				t.Fatalf("%d bytes came back", freed)
			}
			if n := fs.OpenFiles(); n > files {
				t.Fatalf("%d files open, there were %d", n, files)
			}
			w.reopen()
		})
	}
}

// Who does not ask gets the space back in the end.
func TestCloseGivesSpaceBack(t *testing.T) {
	w, fs := newWorld(t, crashSize)
	w.snapshot("a")
	w.fill(0, 4096, 1)
	w.must(w.c.Revert("a", ""))
	w.must(w.c.CopyMeta()) // so that it has its space
	used := fs.Used()
	w.must(w.c.Close())
	if fs.Used() >= used || fs.OpenFiles() != 0 {
		t.Fatalf("%d bytes used, %d before; %d files open", fs.Used(), used, fs.OpenFiles())
	}
}

func (w *world) giveBack() bool {
	w.t.Helper()
	f := w.c.Unlinked()
	if f == nil {
		return false
	}
	w.must(f())
	return true
}

// purgeStep does the first step of a purge.
func purgeStep(c *chain.Chain) error {
	p, err := c.NewPurge()
	if err != nil {
		return err
	}
	step, _ := p.Next()
	for done := false; !done; {
		if done, err = workStep(c, p, &step); err != nil {
			return err
		}
	}
	return finishStep(c, p, &step)
}

// finishStep lets a step of a purge take effect, in the map too.
func finishStep(c *chain.Chain, p *chain.Purge, step *chain.PurgeStep) error {
	ch, err := p.Finish(c.Sidecars, step)
	c.Apply(ch)
	return err
}

// workStep announces a piece of a step and does it.
func workStep(c *chain.Chain, p *chain.Purge, step *chain.PurgeStep) (done bool, err error) {
	if err := p.Note(c.Sidecars, step); err != nil {
		return false, err
	}
	return p.Work(step, c.DurableWhiteouts(step.Whiteouts()))
}
