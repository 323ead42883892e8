package engine_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/chain"
	"ankole.storage/dataplane/disk"
	"ankole.storage/dataplane/disk/memdisk"
	"ankole.storage/dataplane/engine"
	"ankole.storage/dataplane/wire"
)

// A clone has the content of the snapshot while the source goes on being written, and is
// independent afterwards.
func TestClone(t *testing.T) {
	for _, replicas := range []int{1, 3} {
		g := newCloneRig(t, 2, replicas, scrubSize)
		if err := g.begin("b", nil); err != nil {
			t.Fatal(err)
		}
		for i := range byte(8) {
			g.fill(int64(i)*131072, 131072, 50+i) // the source is written meanwhile
		}
		g.to.ended()
		g.whole("b")
		if s := g.to.state.Import; s.Sent != 2<<20+0 && s.Sent > 2<<20+65536 {
			t.Errorf("%d bytes written", s.Sent)
		}
		if g.modes() != "r0=RW r1=RW" {
			t.Errorf("the source's replicas are %s", g.modes())
		}
		before := g.hashes("b")
		front := g.to.attach()
		if front != nil {
			t.Fatalf("a complete clone is not offered: %v", front)
		}
		g.to.fill(0, 65536, 99)
		if g.hashes("b") != before {
			t.Error("a write to the clone reached the source")
		}
		if g.to.hashes("copy") != before {
			t.Error("a write to the clone reached its snapshot")
		}
		g.clean(engine.ScrubEnabled)
	}
}

// attach offers the volume to its user.
func (g *scrubRig) attach() error {
	g.t.Helper()
	return g.ask(func(reply func(error)) any { return engine.AttachFrontend{Frontend: g.front, Reply: reply} })
}

// Nothing is changed by a clone that cannot be made.
func TestCloneRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		size   int64
		before func(g *cloneRig)
		change func(c *engine.Clone)
		is     error
		says   string
	}{
		"a smaller target": {size: scrubSize / 2, is: block.Invalid, says: "does not fit"},
		"a frontend": {before: func(g *cloneRig) {
			g.damage(g.to.attach())
		}, is: engine.ErrState, says: "frontend"},
		"a snapshot there": {before: func(g *cloneRig) { g.to.snapshot("x") }, is: engine.ErrState, says: "1 snapshots"},
		"no replica": {change: func(c *engine.Clone) {
			c.From.Replicas = nil
		}, is: block.Invalid, says: "no replica"},
		"into itself": {change: func(c *engine.Clone) {
			c.From.VolumeUUID = cloneUUID
		}, is: block.Invalid, says: "into itself"},
		"another's grant": {change: func(c *engine.Clone) {
			c.From.Grant.For = "x"
		}, is: block.Invalid, says: "is for volume x"},
		"a wrong key": {change: func(c *engine.Clone) { c.From.Key[3]++ }, says: "does not take the secret or the grant"},
		"a grant that was changed": {change: func(c *engine.Clone) {
			c.From.Grant.Expires++
		}, says: "does not take the secret or the grant"},
		"an expired grant": {change: func(c *engine.Clone) {
			c.From.Grant.Expires = 1
			c.From.Key = c.From.Grant.Key(secret, c.From.VolumeUUID)
		}, is: block.Refused, says: "has expired"},
		"nobody there": {change: func(c *engine.Clone) {
			c.From.Replicas = []string{"r9:10"}
		}, says: "cannot connect"},
		"an unknown snapshot": {change: func(c *engine.Clone) {
			c.From.Grant.Snapshot = "z"
			c.From.Key = c.From.Grant.Key(secret, c.From.VolumeUUID)
		}, is: block.NotFound, says: "no snapshot"},
		"a snapshot's bad name": {change: func(c *engine.Clone) { c.Name = "../x" }, is: block.Invalid, says: "name"},
	} {
		t.Run(name, func(t *testing.T) {
			if c.size == 0 {
				c.size = scrubSize
			}
			g := newCloneRig(t, 1, 2, c.size)
			if c.before != nil {
				c.before(g)
			}
			before := g.to.hashes(chain.HeadName)
			err := g.begin("a", c.change)
			if err == nil || (c.is != nil && !errors.Is(err, c.is)) || !strings.Contains(err.Error(), c.says) {
				t.Fatalf("%v, want %v that says %q", err, c.is, c.says)
			}
			if g.to.hashes(chain.HeadName) != before || g.to.mark() != "" {
				t.Error("something was changed")
			}
			if s := g.to.state.Import; s != nil && s.Incomplete {
				t.Errorf("%+v", s)
			}
			if name != "a frontend" {
				g.damage(g.to.attach())
			}
		})
	}
}

// mark is the mark of the first replica's head.
func (g *scrubRig) mark() string {
	g.t.Helper()
	c, err := chain.Open(g.disk(0), "/replicas/"+g.v.Replicas[0].Name, chain.Options{ReadOnly: true})
	if err != nil {
		g.t.Fatal(err)
	}
	defer c.Close()
	return c.ImportMark()
}

// A target that somebody has written to is not empty.
func TestCloneIntoAUsedVolume(t *testing.T) {
	g := newCloneRig(t, 1, 1, scrubSize)
	g.damage(g.to.attach())
	g.to.fill(0, 4096, 1)
	g.damage(g.to.ask(func(reply func(error)) any { return engine.DetachFrontend{Reply: reply} }))
	if err := g.begin("a", nil); !errors.Is(err, engine.ErrState) || !strings.Contains(err.Error(), "not empty") {
		t.Fatal(err)
	}
}

func TestGrantOfACloneIsRefused(t *testing.T) {
	g := newCloneRig(t, 2, 1, scrubSize)
	for name, want := range map[string]error{"x": engine.ErrNotFound, "": block.Invalid, engine.HeadName: block.Invalid} {
		if _, err := g.grant(name); !errors.Is(err, want) {
			t.Errorf("%q: %v", name, err)
		}
	}
	g.damage(g.ask(func(reply func(error)) any { return engine.RemoveSnapshot{Name: "a", Reply: reply} }))
	if _, err := g.grant("a"); !errors.Is(err, engine.ErrState) {
		t.Errorf("removed: %v", err)
	}
	s, err := g.grant("b")
	if err != nil || len(s.Replicas) != 2 || s.Size != scrubSize || len(s.Key) != 32 {
		t.Fatalf("%+v %v", s, err)
	}
}

// slowly makes the clone take its time, so that something can happen meanwhile.
func (g *cloneRig) slowly() { g.to.proc.Post(engine.SetRebuildBudget{BytesPerSecond: 1 << 20}) }

func (g *cloneRig) midway() {
	g.t.Helper()
	g.to.until("half of it is copied", func() bool {
		return g.to.state.Import != nil && g.to.state.Import.Done >= 512<<10
	})
}

// While it is incomplete nobody gets to see it, and nothing else can be done with it.
func TestIncompleteCloneIsShownToNobody(t *testing.T) {
	g := newCloneRig(t, 1, 2, scrubSize)
	g.slowly()
	if err := g.begin("b", nil); err != nil {
		t.Fatal(err)
	}
	g.midway()
	check := func(when string) {
		t.Helper()
		for name, message := range map[string]func(reply func(error)) any{
			"frontend": func(reply func(error)) any { return engine.AttachFrontend{Frontend: g.to.front, Reply: reply} },
			"snapshot": func(reply func(error)) any {
				return engine.TakeSnapshot{Request: wire.SnapshotRequest{Name: "x"}, Reply: reply}
			},
			"expand": func(reply func(error)) any { return engine.Expand{Size: 2 * scrubSize, Reply: reply} },
			"purge":  func(reply func(error)) any { return engine.PurgeSnapshots{Reply: reply} },
			"revert": func(reply func(error)) any { return engine.Revert{Name: "copy", Reply: reply} },
		} {
			if err := g.to.ask(message); !errors.Is(err, engine.ErrState) {
				t.Errorf("%s, %s: %v", when, name, err)
			}
		}
	}
	check("while it is copied")
	if err := g.begin("b", nil); err != nil {
		t.Errorf("the same again: %v", err)
	}
	if err := g.begin("a", nil); !errors.Is(err, engine.ErrState) {
		t.Errorf("another one meanwhile: %v", err)
	}
	g.damage(g.to.ask(func(reply func(error)) any { return engine.CancelClone{Reply: reply} }))
	if s := g.to.state.Import; s.State != "error" || s.Error != "cancelled" || !s.Incomplete {
		t.Fatalf("%+v", s)
	}
	if err := g.to.ask(func(reply func(error)) any {
		return engine.CancelClone{Reply: reply}
	}); !errors.Is(err, engine.ErrNotFound) {
		t.Errorf("cancelled twice: %v", err)
	}
	check("after it was cancelled")
	// An engine that had a frontend attached before it knew is served nothing.
	g.to.offline = false
	g.to.restart()
	if s := g.to.state.Import; s.State != "error" || !s.Incomplete || s.Snapshot != "b" || s.Volume != "v" {
		t.Fatalf("after a start: %+v", s)
	}
	if _, code := g.to.read(0, 4096); code != block.IOError {
		t.Fatalf("half a clone is read: %s", code)
	}
	if code := g.to.finish(g.to.rig.begin(block.Write, 0, 4096, make([]byte, 4096))); code != block.IOError {
		t.Fatalf("half a clone is written to: %s", code)
	}
}

// Whatever was copied before the engine died is not copied again.
func TestCloneGoesOn(t *testing.T) {
	g := newCloneRig(t, 1, 2, scrubSize)
	g.slowly()
	if err := g.begin("b", nil); err != nil {
		t.Fatal(err)
	}
	g.midway()
	g.to.restart()
	if err := g.begin("a", nil); !errors.Is(err, engine.ErrState) {
		t.Fatalf("another snapshot: %v", err)
	}
	if s := g.clone("b"); s.Sent == 0 || s.Sent > s.Total-(256<<10) {
		t.Errorf("%d bytes of %d were copied again", s.Sent, s.Total)
	}
	g.whole("b")
	// A request that comes once more, after the end and after another start, changes nothing.
	g.to.restart()
	if s := g.to.state.Import; s == nil || s.State != "complete" || s.Name != "copy" {
		t.Fatalf("after a start: %+v", s)
	}
	g.clone("b")
	g.whole("b")
	if err := g.begin("a", nil); err == nil {
		t.Error("another snapshot goes into a complete clone")
	}
}

// A source's replica that dies is replaced by another one; without one the clone says so, and can
// be gone on with.
func TestCloneSourceFails(t *testing.T) {
	g := newCloneRig(t, 2, 1, scrubSize)
	g.slowly()
	if err := g.begin("b", nil); err != nil {
		t.Fatal(err)
	}
	g.midway()
	from := g.to.state.Import.From
	for _, r := range g.v.Replicas {
		if r.Addr() == from {
			r.Kill()
		}
	}
	g.to.until("another source", func() bool { return g.to.state.Import.From != from })
	for _, r := range g.v.Replicas {
		r.Kill()
	}
	g.to.ended()
	if s := g.to.state.Import; s.State != "error" || !strings.Contains(s.Error, "no replica of volume v can be read") ||
		!s.Incomplete {
		t.Fatalf("%+v", s)
	}
	for _, r := range g.v.Replicas {
		r.Start()
	}
	g.scrubRig.restart()
	g.clone("b")
	g.whole("b")
}

// The snapshot may be removed and purged while it is read: the reader keeps it.
func TestCloneOfARemovedSnapshot(t *testing.T) {
	g := newCloneRig(t, 1, 1, scrubSize)
	want := g.hashes("a")
	g.slowly()
	if err := g.begin("a", nil); err != nil {
		t.Fatal(err)
	}
	g.midway()
	g.damage(g.ask(func(reply func(error)) any { return engine.RemoveSnapshot{Name: "a", Reply: reply} }))
	g.damage(g.ask(func(reply func(error)) any { return engine.PurgeSnapshots{Reply: reply} }))
	g.until("purged", func() bool { p := g.state.Replicas[0].Purge; return p != nil && !p.Running })
	g.to.ended()
	if s := g.to.state.Import; s.State != "complete" || g.to.hashes("copy") != want {
		t.Fatalf("%+v", s)
	}
	g.damage(g.ask(func(reply func(error)) any { return engine.PurgeSnapshots{Reply: reply} }))
	g.until("the next purge takes it", func() bool { return len(g.state.Snapshots) == 2 })
}

// A target that is full says so; when there is room the clone goes on. One replica of several that
// is full is dropped.
func TestCloneTargetIsFull(t *testing.T) {
	full := memdisk.Rule{Op: memdisk.OpWrite, Name: "volume-head-*", Err: disk.ErrNoSpace}
	g := newCloneRig(t, 1, 2, scrubSize)
	g.to.disk(0).Inject(full)
	g.to.disk(1).Inject(full)
	if err := g.begin("b", nil); err != nil {
		t.Fatal(err)
	}
	g.to.ended()
	if s := g.to.state.Import; s.State != "error" || !strings.Contains(s.Error, "room") || !s.Incomplete {
		t.Fatalf("%+v", s)
	}
	g.to.expectModes("tr0=RW tr1=RW")
	g.to.disk(0).ClearRules()
	g.to.disk(1).ClearRules()
	g.clone("b")
	g.whole("b")

	g = newCloneRig(t, 1, 2, scrubSize)
	g.to.disk(1).Inject(full)
	if s := g.clone("b"); s.State != "complete" {
		t.Fatalf("%+v", s)
	}
	g.to.expectModes("tr0=RW tr1=ERR")
}

// A clone writes no more per second than rebuilds may.
func TestCloneKeepsItsBudget(t *testing.T) {
	g := newCloneRig(t, 1, 1, scrubSize)
	g.to.proc.Post(engine.SetRebuildBudget{BytesPerSecond: 256 << 10})
	if err := g.begin("b", nil); err != nil {
		t.Fatal(err)
	}
	g.to.never("2 MiB at 256 KiB/s are copied in 3 seconds", 3*time.Second, func() bool {
		return !g.to.state.Import.Running
	})
	g.to.proc.Post(engine.SetRebuildBudget{})
	g.to.ended()
	g.whole("b")

	// The budget that is used up when the last piece is copied holds nothing up for longer than it
	// has to.
	g = newCloneRig(t, 1, 1, scrubSize)
	g.slowly()
	g.damage(g.begin("b", nil))
	g.midway()
	g.to.restart()
	g.slowly()
	began := g.w.Now()
	g.clone("b")
	if took := g.w.Now().Sub(began); took > 3*time.Second {
		t.Errorf("2 MiB at 1 MiB/s took %s", took)
	}
}

// A budget that is raised holds at once for a clone too.
func TestCloneBudgetIsRaised(t *testing.T) {
	g := newCloneRig(t, 1, 1, scrubSize)
	g.to.proc.Post(engine.SetRebuildBudget{BytesPerSecond: 1 << 10})
	g.damage(g.begin("b", nil))
	g.to.until("a piece is copied", func() bool { return g.to.state.Import.Sent > 0 })
	g.to.proc.Post(engine.SetRebuildBudget{})
	began := g.w.Now()
	g.to.ended()
	if took := g.w.Now().Sub(began); took > 3*time.Second {
		t.Errorf("the rest without a budget took %s", took)
	}
	g.whole("b")
}

// A replica of the target that dies midway is dropped; a rebuild gives it the content and, of an
// incomplete clone, the mark.
func TestCloneTargetReplicaDies(t *testing.T) {
	g := newCloneRig(t, 1, 2, scrubSize)
	g.slowly()
	if err := g.begin("b", nil); err != nil {
		t.Fatal(err)
	}
	g.midway()
	dead := g.to.v.Replicas[1]
	dead.Kill()
	g.to.until("it is dropped", func() bool { return g.to.modes() == "tr0=RW tr1=ERR" })
	g.damage(g.to.ask(func(reply func(error)) any { return engine.CancelClone{Reply: reply} }))
	dead.Start()
	g.to.until("the set without it is agreed", func() bool {
		return g.to.state.Reason == "" && len(g.to.state.Record.Members) == 1
	})
	g.damage(g.to.ask(func(reply func(error)) any { return engine.AddReplica{Address: dead.Addr(), Reply: reply} }))
	g.to.until("it is rebuilt", func() bool { return strings.HasSuffix(g.to.modes(), "tr1=RW") })
	// The rebuilt one alone still knows that it is incomplete.
	g.to.v.Replicas[0].Kill()
	g.to.restartFrom(1)
	if s := g.to.state.Import; s == nil || !s.Incomplete {
		t.Fatalf("a rebuilt replica forgot the mark: %+v", s)
	}
}

// restartFrom starts the engine where only one replica runs; the other counts as gone for good.
func (g *scrubRig) restartFrom(i int) {
	g.t.Helper()
	g.proc.Kill()
	g.state = engine.State{}
	g.real = []string{g.v.Replicas[i].Addr()}
	g.start()
}

// Whenever a process dies, or a disk loses power with it, the next start either has a whole clone
// or says that it has a part; asked again, it becomes whole, and the source has not noticed.
func TestCloneKilledAnywhere(t *testing.T) {
	outcomes := map[string]int{}
	for seed := range 24 {
		g := newCloneRig(t, 2, 2, scrubSize)
		if seed%2 == 0 {
			g.to.proc.Post(engine.SetRebuildBudget{BytesPerSecond: 64 << 20})
		}
		began := false
		s, err := g.grant("b")
		g.damage(err)
		g.to.proc.Post(engine.Clone{From: s, Name: "copy", Created: "2026-11-21T12:00:00Z", Reply: func(err error) {
			began = err == nil
		}})
		g.w.Until(time.Duration(seed)*1100*time.Microsecond, func() bool { return false })
		victim := g.to.v.Replicas[seed%2]
		switch seed % 4 {
		case 0, 1: // the engine alone
			g.to.proc.Kill()
		case 2: // a machine with a replica, and the engine
			g.to.proc.Kill()
			victim.Kill()
			victim.Disk.Crash()
			victim.Start()
		case 3: // everything loses power
			g.to.proc.Kill()
			for _, r := range g.to.v.Replicas {
				r.Kill()
				r.Disk.Crash()
				r.Start()
			}
		}
		g.to.restart()
		i := g.to.state.Import
		switch {
		case i == nil && began:
			t.Fatalf("seed %d: a clone that had begun is forgotten", seed)
		case i == nil:
			outcomes["not begun"]++
		case i.Incomplete && i.State == "error":
			outcomes["a part"]++
		case !i.Incomplete && i.State == "complete":
			outcomes["whole"]++
			g.whole("b")
		default:
			t.Fatalf("seed %d: %+v", seed, i)
		}
		g.clone("b")
		g.whole("b")
		g.to.expectModes("tr0=RW tr1=RW")
		g.expectModes("r0=RW r1=RW")
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
		g.to.proc.Kill()
		g.proc.Kill()
	}
	if outcomes["a part"] == 0 || outcomes["whole"] == 0 {
		t.Errorf("the kills came too early or too late: %v", outcomes)
	}
	t.Log(outcomes)
}
