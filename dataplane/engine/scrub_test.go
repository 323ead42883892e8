package engine_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/chain"
	"ankole.storage/dataplane/disk/memdisk"
	"ankole.storage/dataplane/engine"
	"ankole.storage/dataplane/wire"
	"ankole.storage/test/sim"
)

const scrubSize = 4 << 20

// scrubRig is a real engine among real replicas on simulated disks.
type scrubRig struct {
	*rig
	v *sim.Volume
}

func newScrubRig(t *testing.T, replicas int) *scrubRig { return newScrubRigOf(t, replicas, scrubSize) }

func newScrubRigOf(t *testing.T, replicas int, size int64) *scrubRig {
	g := &scrubRig{rig: &rig{t: t, w: sim.NewWorld(1), size: size}}
	g.v = sim.NewVolume(g.w, replicas, size)
	t.Cleanup(g.v.Close)
	for _, r := range g.v.Replicas {
		g.real = append(g.real, r.Addr())
	}
	g.start()
	// Two snapshots and a head, each with content of its own over what is below.
	g.fill(0, 1<<20, 1)
	g.snapshot("a")
	g.fill(65536, 65536, 2)
	g.fill(2<<20, 1<<20, 3)
	g.snapshot("b")
	g.fill(4096, 4096, 4)
	return g
}

// disk is where replica i has its directory.
func (g *scrubRig) disk(i int) *memdisk.FS { return g.v.Replicas[i].Disk.FS }

func (g *scrubRig) image(i int, snapshot string) string {
	return fmt.Sprintf("/replicas/%s/volume-snap-%s.img", g.v.Replicas[i].Name, snapshot)
}

// fill writes bytes that depend on fill and the place.
func (g *scrubRig) fill(off, n int64, fill byte) {
	g.t.Helper()
	if code := g.finish(g.begin(block.Write, off, n, filled(fill, off, n))); code != block.OK {
		g.t.Fatal(code)
	}
}

// filled is what fill writes.
func filled(fill byte, off, n int64) []byte {
	p, r := make([]byte, n), rand.New(rand.NewPCG(uint64(fill), uint64(off)))
	for i := range p {
		p[i] = byte(r.Uint32())
	}
	return p
}

// ask posts a message with a reply and returns the answer.
func (g *scrubRig) ask(message func(reply func(error)) any) error {
	g.t.Helper()
	var err error
	done := false
	g.proc.Post(message(func(e error) { err, done = e, true }))
	g.until("answer", func() bool { return done })
	return err
}

func (g *scrubRig) snapshot(name string) {
	g.t.Helper()
	err := g.ask(func(reply func(error)) any {
		return engine.TakeSnapshot{Request: wire.SnapshotRequest{Name: name, UserCreated: true,
			Created: "2026-11-21T09:00:00Z"}, Reply: reply}
	})
	if err != nil {
		g.t.Fatal(err)
	}
}

func (g *scrubRig) begun(mode engine.ScrubMode, snapshot string) error {
	g.t.Helper()
	return g.ask(func(reply func(error)) any {
		return engine.Scrub{Mode: mode, Snapshot: snapshot, At: "2026-11-21T10:00:00Z", Reply: reply}
	})
}

func (g *scrubRig) scrub(mode engine.ScrubMode) engine.Scrubbing {
	g.t.Helper()
	if err := g.begun(mode, ""); err != nil {
		g.t.Fatal(err)
	}
	g.until("end of the scrub", func() bool { return g.state.Scrub != nil && !g.state.Scrub.Running })
	return *g.state.Scrub
}

// clean scrubs and expects nothing.
func (g *scrubRig) clean(mode engine.ScrubMode) engine.Scrubbing {
	g.t.Helper()
	s := g.scrub(mode)
	if s.State != "complete" || s.Repaired+s.Unrepaired != 0 || s.Done != s.Total || s.Total == 0 {
		g.t.Fatalf("%+v", s)
	}
	return s
}

// sums returns what every replica reads at every snapshot and at the head.
func (g *scrubRig) sums(i int) string {
	g.t.Helper()
	c, err := chain.Open(g.disk(i), "/replicas/"+g.v.Replicas[i].Name, chain.Options{ReadOnly: true})
	if err != nil {
		g.t.Fatal(err)
	}
	defer c.Close()
	var out []string
	for _, name := range []string{"a", "b", chain.HeadName} {
		sum, err := c.HashAt(name)
		out = append(out, fmt.Sprintf("%s %x %v", name, sum[:6], err))
	}
	return strings.Join(out, ", ")
}

func (g *scrubRig) damage(err error) {
	g.t.Helper()
	if err != nil {
		g.t.Fatal(err)
	}
}

// Whatever rots in one copy is found, said and put right from another one, and all copies are equal
// afterwards.
func TestScrubRepairs(t *testing.T) {
	for name, c := range map[string]struct {
		damage func(g *scrubRig) error
		says   string
		pieces int
	}{
		"a bit": {func(g *scrubRig) error {
			return g.disk(1).Rot(g.image(1, "a"), 70000, 1)
		}, "wrong in [0,+262144) of the file of a", 1},
		"many": {func(g *scrubRig) error {
			return errors.Join(g.disk(1).Rot(g.image(1, "a"), 0, 100), g.disk(1).Rot(g.image(1, "b"), 2<<20, 1<<20))
		}, "of the file of b", 2},
		"a bad sector": {func(g *scrubRig) error {
			return g.disk(1).Unreadable(g.image(1, "b"), 65536, 8192)
		}, "unreadable", 1},
		"in both, at different places": {func(g *scrubRig) error {
			return errors.Join(g.disk(0).Rot(g.image(0, "a"), 0, 1), g.disk(1).Rot(g.image(1, "b"), 2<<20+5000, 1))
		}, "", 2},
		"a lost block": {func(g *scrubRig) error {
			f, err := g.disk(1).Open(g.image(1, "b"), 0)
			if err != nil {
				return err
			}
			return errors.Join(f.Punch(65536, 4096), f.Close())
		}, "", 0}, // the replica's map still knows the block; it reads zeroes
	} {
		for _, mode := range []engine.ScrubMode{engine.ScrubEnabled, engine.ScrubFastCheck} {
			if mode == engine.ScrubFastCheck && name != "a bit" {
				continue
			}
			t.Run(name+", "+string(mode), func(t *testing.T) {
				g := newScrubRig(t, 2)
				g.clean(engine.ScrubEnabled)
				want := g.sums(0)
				g.damage(c.damage(g))
				if mode == engine.ScrubFastCheck {
					// It looks only where checksums do not hold: as if the file had been touched.
					g.damage(g.disk(1).Remove(g.image(1, "a") + ".checksum"))
				}
				s := g.scrub(mode)
				if s.State != "complete" || s.Unrepaired != 0 || s.Repaired < max(c.pieces, 1) {
					t.Fatalf("%+v", s)
				}
				if text := fmt.Sprint(s.Findings); !strings.Contains(text, c.says) {
					t.Errorf("findings do not say %q: %s", c.says, text)
				}
				g.clean(engine.ScrubEnabled)
				g.expectModes("r0=RW r1=RW")
				for i := range 2 {
					if got := g.sums(i); got != want {
						t.Errorf("replica %d has %s, want %s", i, got, want)
					}
				}
			})
		}
	}
}

// Without checksums a majority decides; two copies that differ are reported and left alone.
func TestScrubWithoutChecksums(t *testing.T) {
	g := newScrubRig(t, 3)
	want := g.sums(0)
	g.damage(g.disk(2).Rot(g.image(2, "a"), 0, 1))
	if s := g.scrub(engine.ScrubEnabled); s.Repaired != 1 || s.Unrepaired != 0 || g.sums(2) != want {
		t.Fatalf("%+v", s)
	}

	g = newScrubRig(t, 2)
	g.damage(g.disk(1).Rot(g.image(1, "a"), 0, 1))
	before := g.sums(1)
	s := g.scrub(engine.ScrubEnabled)
	// The snapshot on top reads the same damage.
	if s.Repaired != 0 || s.Unrepaired != 4 || !strings.Contains(s.Findings[0].Text, "neither checksums nor a majority") {
		t.Fatalf("%+v", s)
	}
	if g.sums(1) != before {
		t.Fatal("something was changed")
	}
}

// One replica alone can only report.
func TestScrubOfOneReplica(t *testing.T) {
	g := newScrubRig(t, 1)
	s := g.clean(engine.ScrubEnabled)
	if sum := s.Checksums["a"][g.real[0]]; len(sum) != 16 {
		t.Fatalf("%+v", s)
	}
	g.damage(g.disk(0).Rot(g.image(0, "b"), 2<<20, 1))
	s = g.scrub(engine.ScrubEnabled)
	if s.Repaired != 0 || s.Unrepaired != 1 || s.Checksums["b"][g.real[0]] != "" ||
		!strings.Contains(s.Findings[0].Text, "wrong in [2097152,+262144) of the file of b") {
		t.Fatalf("%+v", s)
	}
}

// The volume is used all the while, snapshots come and go, and a replica is lost: the scrub ends,
// and nothing is wrong.
func TestScrubUnderLoad(t *testing.T) {
	g := newScrubRig(t, 3)
	g.clean(engine.ScrubEnabled)
	g.damage(g.disk(1).Rot(g.image(1, "b"), 2<<20, 1<<20))
	if err := g.begun(engine.ScrubEnabled, ""); err != nil {
		t.Fatal(err)
	}
	if err := g.begun(engine.ScrubEnabled, ""); !errors.Is(err, engine.ErrState) {
		t.Fatalf("a second scrub: %v", err)
	}
	g.fill(0, 65536, 7)
	g.snapshot("c")
	g.fill(8192, 65536, 8)
	g.v.Replicas[2].Kill()
	g.fill(3<<20, 65536, 9)
	g.until("end of the scrub", func() bool { return !g.state.Scrub.Running })
	if s := g.state.Scrub; s.State != "complete" || s.Unrepaired != 0 || s.Repaired == 0 {
		t.Fatalf("%+v", s)
	}
	g.clean(engine.ScrubEnabled)
	if a, b := g.sums(0), g.sums(1); a != b {
		t.Fatalf("%s\n%s", a, b)
	}
	if c, code := g.read(0, 65536); code != block.OK || len(bytes.Trim(c.data, "\x00")) == 0 {
		t.Fatalf("%s", code)
	}
}

func TestScrubRefuses(t *testing.T) {
	g := newScrubRig(t, 2)
	if err := g.begun("sometimes", ""); !errors.Is(err, block.Invalid) {
		t.Errorf("unknown mode: %v", err)
	}
	if err := g.begun(engine.ScrubEnabled, "x"); !errors.Is(err, engine.ErrNotFound) {
		t.Errorf("unknown snapshot: %v", err)
	}
	cancel := func(reply func(error)) any { return engine.CancelScrub{Reply: reply} }
	if err := g.ask(cancel); !errors.Is(err, engine.ErrNotFound) {
		t.Errorf("cancel of nothing: %v", err)
	}
	if err := g.begun(engine.ScrubEnabled, "b"); err != nil {
		t.Fatal(err)
	}
	if err := g.ask(cancel); err != nil {
		t.Fatal(err)
	}
	g.until("end of the scrub", func() bool { return !g.state.Scrub.Running })
	if g.state.Scrub.State != "cancelled" {
		t.Fatalf("%+v", g.state.Scrub)
	}
	g.clean(engine.ScrubFastCheck)
}

// A scrub takes its time: it reads no faster than it was told.
func TestScrubKeepsToItsBandwidth(t *testing.T) {
	g := newScrubRig(t, 2)
	err := g.ask(func(reply func(error)) any {
		return engine.Scrub{Mode: engine.ScrubEnabled, Snapshot: "b", BytesPerSecond: 1 << 20, Reply: reply}
	})
	if err != nil {
		t.Fatal(err)
	}
	g.never("a scrub of 4 MiB at 1 MiB/s ends in 3 seconds", 3*time.Second, func() bool { return !g.state.Scrub.Running })
	g.until("end of the scrub", func() bool { return !g.state.Scrub.Running })
}
