package engine_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/disk"
	"ankole.storage/dataplane/engine"
)

func (g *scrubRig) askHash(name string, rehash bool) error {
	g.t.Helper()
	return g.ask(func(reply func(error)) any {
		return engine.HashSnapshot{Name: name, Rehash: rehash, At: "2026-11-21T10:00:00Z", Reply: reply}
	})
}

func (g *scrubRig) hashing(name string) engine.Hashing {
	for _, h := range g.state.Hashes {
		if h.Snapshot == name {
			return h
		}
	}
	return engine.Hashing{}
}

// hash asks for a checksum and waits for it.
func (g *scrubRig) hash(name string, rehash bool) engine.Hashing {
	g.t.Helper()
	if err := g.askHash(name, rehash); err != nil {
		g.t.Fatal(err)
	}
	g.until("end of the checksum", func() bool { return !g.hashing(name).Running })
	return g.hashing(name)
}

// checksums of all replicas; every part must be complete.
func (g *scrubRig) checksums(h engine.Hashing) (sums []string) {
	g.t.Helper()
	for addr, s := range h.Replicas {
		if s.State != "complete" || s.Error != "" || s.Progress != 100 {
			g.t.Fatalf("%s: %+v", addr, s)
		}
		if !slices.Contains(sums, s.Checksum) {
			sums = append(sums, s.Checksum)
		}
	}
	return sums
}

// A snapshot's checksum is computed by every replica, and told again without reading while it
// holds.
func TestHash(t *testing.T) {
	g := newScrubRig(t, 3)
	h := g.hash("a", false)
	sums := g.checksums(h)
	if len(h.Replicas) != 3 || len(sums) != 1 || len(sums[0]) != 16 {
		t.Fatalf("%+v", h)
	}
	// Nobody looks at the files again unless told to: damage stays unseen.
	g.damage(g.disk(1).Rot(g.image(1, "a"), 70000, 1))
	if again := g.checksums(g.hash("a", false)); !slices.Equal(again, sums) {
		t.Fatalf("%s, was %s", again, sums)
	}
	h = g.hash("a", true)
	if got := g.checksums(h); !slices.Equal(got, sums) || h.Replicas[g.real[1]].Repaired != 1 ||
		h.Replicas[g.real[1]].Corrupted {
		t.Fatalf("%+v", h)
	}
	if g.state.Scrub != nil {
		t.Errorf("a checksum is told as a scrub: %+v", g.state.Scrub)
	}
	g.clean(engine.ScrubEnabled)
}

// Damage that nothing says how to put right is told, by the replica that has it, and the checksum
// that holds stays.
func TestHashSilentlyCorrupted(t *testing.T) {
	g := newScrubRig(t, 1)
	sum := g.checksums(g.hash("b", false))
	g.damage(g.disk(0).Rot(g.image(0, "b"), 2<<20, 1))
	for range 2 {
		h := g.hash("b", true)
		if s := h.Replicas[g.real[0]]; s.State != "complete" || !s.Corrupted || s.Checksum == sum[0] || s.Checksum == "" {
			t.Fatalf("%+v", h)
		}
	}
	// A file that was found so is read again whoever asks, and its end is noticed.
	if s := g.hash("b", false).Replicas[g.real[0]]; !s.Corrupted || s.Checksum == sum[0] {
		t.Fatalf("%+v", s)
	}
	g.damage(g.disk(0).Rot(g.image(0, "b"), 2<<20, 1)) // turns the same bits back
	if s := g.hash("b", false).Replicas[g.real[0]]; s.Corrupted || s.Checksum != sum[0] {
		t.Fatalf("%+v", s)
	}
	g.damage(g.disk(0).Unreadable(g.image(0, "a"), 65536, 8192))
	if s := g.hash("a", true).Replicas[g.real[0]]; !s.Corrupted || s.Checksum != "" {
		t.Fatalf("%+v", s)
	}
}

// Rot from before the first checksum shows in checksums that differ; the content is compared then.
func TestHashesThatDiffer(t *testing.T) {
	g := newScrubRig(t, 2)
	g.damage(g.disk(1).Rot(g.image(1, "a"), 0, 1))
	h := g.hash("a", false)
	if len(g.checksums(h)) != 2 {
		t.Fatalf("%+v", h)
	}
	if log := strings.Join(g.events, "\n"); !strings.Contains(log, "rot "+g.real[0]) ||
		!strings.Contains(log, "rot "+g.real[1]) {
		t.Errorf("nobody is told:\n%s", log)
	}
}

// Requests wait for each other; asking twice changes nothing; removal and cancelling end them.
func TestHashQueue(t *testing.T) {
	g := newScrubRig(t, 2)
	lock, err := g.disk(0).Lock("/replicas") // another volume's replica on the disk computes
	g.damage(err)
	for _, name := range []string{"a", "b", "a"} {
		if err := g.askHash(name, false); err != nil {
			t.Fatal(err)
		}
	}
	g.until("a checksum without a lock in its way", func() bool {
		return g.hashing("a").Replicas[g.real[1]].Progress == 100
	})
	g.never("a disk is used while it is locked", 10*time.Second, func() bool {
		h := g.hashing("a")
		return !h.Running || h.Replicas[g.real[0]].Progress > 0 || h.Replicas[g.real[1]].State != "in_progress"
	})
	if h := g.hashing("b"); !h.Running || len(h.Replicas) != 2 || h.Replicas[g.real[1]].State != "in_progress" {
		t.Fatalf("%+v", h)
	}
	locked := map[string]bool{}
	g.proc.Post(engine.HashLocks{Reply: func(m map[string]bool, err error) { locked = m }})
	g.until("lock state", func() bool { return len(locked) == 2 })
	if want := map[string]bool{g.real[0]: true, g.real[1]: false}; !maps.Equal(locked, want) {
		t.Errorf("locks %v, want %v", locked, want)
	}
	if err := g.begun(engine.ScrubEnabled, ""); !errors.Is(err, engine.ErrState) ||
		!strings.Contains(err.Error(), "snapshot a") {
		t.Errorf("a scrub meanwhile: %v", err)
	}
	if err := g.askHash("a", true); !errors.Is(err, engine.ErrState) {
		t.Errorf("reading again what is under way: %v", err)
	}
	remove := func(reply func(error)) any { return engine.RemoveSnapshot{Name: "b", Reply: reply} }
	if err := g.ask(remove); err != nil {
		t.Fatal(err)
	}
	g.until("end of b", func() bool { return !g.hashing("b").Running })
	cancel := func(reply func(error)) any { return engine.CancelHash{Name: "a", Reply: reply} }
	if err := g.ask(cancel); err != nil {
		t.Fatal(err)
	}
	g.until("end of a", func() bool { return !g.hashing("a").Running })
	if b, a := g.hashing("b").Replicas[g.real[1]], g.hashing("a").Replicas; b.Error != "the snapshot was removed" ||
		a[g.real[0]].State != "error" || a[g.real[0]].Error != "cancelled" || a[g.real[1]].State != "complete" {
		t.Errorf("a %+v, b %+v", a, b)
	}
	if err := g.ask(cancel); !errors.Is(err, engine.ErrNotFound) {
		t.Errorf("cancelled twice: %v", err)
	}
	g.damage(lock.Close())
	g.checksums(g.hash("a", true))
}

// Who asks for a checksum that is being cancelled is refused until it has ended: an answer that it
// is accepted holds.
func TestHashDuringItsCancellation(t *testing.T) {
	g := newScrubRig(t, 2)
	lock, err := g.disk(0).Lock("/replicas")
	g.damage(err)
	if err := g.askHash("a", false); err != nil {
		t.Fatal(err)
	}
	g.until("the other part", func() bool { return g.hashing("a").Replicas[g.real[1]].Progress == 100 })
	replica := g.v.Replicas[0].Process()
	replica.Freeze() // so that an answer is outstanding
	g.pass(3 * time.Second)
	cancel := func(reply func(error)) any { return engine.CancelHash{Name: "a", Reply: reply} }
	if err := g.ask(cancel); err != nil {
		t.Fatal(err)
	}
	if err := g.askHash("a", false); !errors.Is(err, engine.ErrBusy) || !strings.Contains(err.Error(), "cancelled") {
		t.Errorf("asked for while it is cancelled: %v", err)
	}
	replica.Thaw()
	g.damage(lock.Close())
	g.until("the end", func() bool { return !g.hashing("a").Running })
	g.checksums(g.hash("a", false))

	// Two ask at once: the second one is not accepted for less than it asks for.
	replica.Freeze()
	var errs []error
	for _, rehash := range []bool{false, true} {
		g.proc.Post(engine.HashSnapshot{Name: "b", Rehash: rehash, Reply: func(err error) { errs = append(errs, err) }})
	}
	g.pass(time.Millisecond)
	replica.Thaw()
	g.until("both are answered", func() bool { return len(errs) == 2 })
	if h := g.hashing("b"); errs[0] != nil || errs[1] == nil && !h.Rehash {
		t.Errorf("two ask at once, the second one for rehash: %v, %v", errs, h.Rehash)
	}
}

// A computation holds the disk's lock; cancelling and the engine's end give it back.
func TestHashGivesTheLockBack(t *testing.T) {
	for _, how := range []string{"cancelled", "the engine is killed"} {
		g := newScrubRigOf(t, 1, 32<<20)
		locked := func() bool {
			l, err := g.disk(0).Lock("/replicas")
			if err == nil {
				err = l.Close()
			}
			return errors.Is(err, disk.ErrInUse)
		}
		for off := range int64(32) { // more than one piece
			g.fill(off<<20, 1<<20, 5)
		}
		g.snapshot("c")
		if err := g.askHash("c", false); err != nil {
			t.Fatal(err)
		}
		g.until("the lock", locked)
		if how == "cancelled" {
			if err := g.ask(func(reply func(error)) any { return engine.CancelHash{Name: "c", Reply: reply} }); err != nil {
				t.Fatal(err)
			}
		} else {
			g.proc.Kill()
		}
		g.until("end of the lock", func() bool { return !locked() })
	}
}

func TestHashRefuses(t *testing.T) {
	g := newScrubRig(t, 2)
	for name, want := range map[string]error{"x": engine.ErrNotFound, engine.HeadName: block.Invalid, "": block.Invalid} {
		if err := g.askHash(name, false); !errors.Is(err, want) {
			t.Errorf("%q: %v", name, err)
		}
	}
	if err := g.begun(engine.ScrubEnabled, ""); err != nil {
		t.Fatal(err)
	}
	// It waits for a scrub.
	h := g.hash("a", false)
	if g.checksums(h); g.state.Scrub.Running {
		t.Error("beside a scrub")
	}
}

// A lost replica fails its part and nobody else's.
func TestHashOfALostReplica(t *testing.T) {
	g := newScrubRig(t, 2)
	lock, err := g.disk(1).Lock("/replicas")
	g.damage(err)
	if err := g.askHash("a", false); err != nil {
		t.Fatal(err)
	}
	g.until("one part", func() bool { return g.hashing("a").Replicas[g.real[0]].Progress == 100 })
	g.damage(lock.Close())
	g.v.Replicas[1].Kill()
	g.until("the end", func() bool { return !g.hashing("a").Running })
	if s := g.hashing("a").Replicas; s[g.real[1]].State != "error" || s[g.real[0]].State != "complete" {
		t.Errorf("%+v", s)
	}
}

// What is remembered is bounded.
func TestHashesAreForgotten(t *testing.T) {
	g := newScrubRig(t, 1)
	for i := range 14 {
		g.snapshot(fmt.Sprint("s", i))
		g.checksums(g.hash(fmt.Sprint("s", i), false))
	}
	if len(g.state.Hashes) != 10 || g.state.Hashes[9].Snapshot != "s13" || g.state.Hashes[0].Snapshot != "s4" {
		t.Errorf("%+v", g.state.Hashes)
	}
}

// A live upgrade waits for no checksum; if nothing comes of it they go on, and none is begun
// meanwhile.
func TestHashesLetAnUpgradePass(t *testing.T) {
	g := newScrubRig(t, 2)
	lock, err := g.disk(0).Lock("/replicas")
	g.damage(err)
	for _, name := range []string{"a", "b"} {
		if err := g.askHash(name, false); err != nil {
			t.Fatal(err)
		}
	}
	if err := g.ask(func(reply func(error)) any { return engine.DetachFrontend{Reply: reply} }); err != nil {
		t.Fatal(err)
	}
	g.until("a part of a", func() bool { return g.hashing("a").Replicas[g.real[1]].Progress == 100 })
	var left *engine.Left
	said := false
	leave := engine.Leave{Members: g.state.Record.Members, Draining: func() {}, Reply: func(l *engine.Left, e error) {
		left, err, said = l, e, true
	}}
	g.proc.Post(leave)
	g.proc.Post(engine.Stay{Reason: "changed its mind"})
	g.until("it stays", func() bool { return said })
	if left != nil || !errors.Is(err, engine.ErrState) || !g.hashing("a").Running || !g.hashing("b").Running {
		t.Fatalf("%v %v %+v", left, err, g.state.Hashes)
	}
	g.damage(lock.Close())
	g.until("both checksums", func() bool { return !g.hashing("a").Running && !g.hashing("b").Running })
	g.checksums(g.hashing("a"))
	g.checksums(g.hashing("b"))

	if lock, err = g.disk(0).Lock("/replicas"); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"b", "a"} {
		if err := g.askHash(name, true); err != nil {
			t.Fatal(err)
		}
	}
	g.until("a part of b", func() bool { return g.hashing("b").Replicas[g.real[1]].Progress == 100 })
	// Meanwhile another question is out, so that what has ended leaves time for the next one to begin.
	said = false
	g.v.Replicas[1].Process().Freeze()
	g.proc.Post(engine.HashLocks{Reply: func(map[string]bool, error) {}})
	g.proc.Post(leave)
	g.until("b is interrupted", func() bool { return g.hashing("b").Replicas[g.real[1]].Progress == 0 })
	g.v.Replicas[1].Process().Thaw()
	refused := false
	g.proc.Post(engine.HashSnapshot{Name: "a", Reply: func(e error) { refused = errors.Is(e, engine.ErrState) }})
	g.until("it leaves", func() bool { return said })
	if left == nil || err != nil || !refused {
		t.Fatalf("%v %v, refused %v", left, err, refused)
	}
	g.damage(lock.Close())
}

// A replica that comes back misses nothing of a snapshot that nobody has written to since: the
// rebuild leaves its checksums alone, and what has rotted there meanwhile is found and put right.
func TestRotOfAReplicaThatComesBack(t *testing.T) {
	g := newScrubRigOf(t, 3, 16<<20)
	g.hash("a", false)
	g.hash("b", false)
	// A clean end leaves no marks: what the next engine writes to is all that will be compared.
	ended := false
	g.proc.Post(engine.Shutdown{Reply: func(error) { ended = true }})
	g.until("end", func() bool { return ended })
	g.start()
	g.damage(g.disk(0).Rot(g.image(0, "a"), 2048, 1))
	r := g.v.Replicas[0]
	r.Kill()
	g.until("replica is dropped", func() bool { return strings.Count(g.modes(), "=RW") == 2 })
	g.fill(8<<20, 4096, 5)
	r.Start()
	if err := g.ask(func(reply func(error)) any {
		return engine.AddReplica{Address: r.Addr(), Reply: reply}
	}); err != nil {
		t.Fatal(err)
	}
	g.until("replica is back", func() bool { return strings.Count(g.modes(), "=RW") == 3 })
	h := g.hash("a", true)
	if sums := g.checksums(h); len(sums) != 1 || h.Replicas[r.Addr()].Repaired != 1 {
		t.Fatalf("%+v", h)
	}
	g.clean(engine.ScrubEnabled)
}
