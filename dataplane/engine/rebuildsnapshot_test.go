package engine_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/engine"
	"ankole.storage/dataplane/wire"
	"ankole.storage/test/seeded"
)

// TestSnapshotDuringARebuild: snapshots are taken and removed while a replica is rebuilt that was
// wiped, or away for a moment, or has branches, and users write, trim and zero blocks. In the end
// both replicas have the same layers, and read the same at each of them.
func TestSnapshotDuringARebuild(t *testing.T) {
	for name, before := range map[string]func(g *scrubRig){
		"wiped":           func(g *scrubRig) { g.wipe(1) },
		"a short absence": func(*scrubRig) {},
		"branches": func(g *scrubRig) {
			g.revert("a")
			g.fill(1<<20, 8192, 20)
			g.snapshot("c")
			g.revert("b")
			g.fill(0, 8192, 21)
		},
	} {
		t.Run(name, func(t *testing.T) {
			src := seeded.New(t, "snapshots beside a rebuild, and users")
			for round := range src.Seeds(2) {
				g := newScrubRig(t, 2)
				g.w.Until(time.Duration(1+round)*time.Millisecond, func() bool { return false }) // another history
				g.lose(1, 1)
				before(g)
				g.snapshot("away")
				stop := g.use(src)
				taken := g.snapshotsBesideTheRebuildOf(1, src.Rand(100))
				stop()
				if taken < 2 {
					t.Errorf("round %d: %d snapshots were taken during the rebuild\n%s", round, taken, strings.Join(g.events, "\n"))
				}
				if a, b := g.everything(0), g.everything(1); a != b || !strings.Contains(a, "beside0<") {
					t.Errorf("round %d: after the rebuild\n%s\n%s\n%s", round, a, b, strings.Join(g.events, "\n"))
				}
				for _, r := range g.v.Replicas {
					if err := r.Chain().CheckMap(); err != nil {
						t.Errorf("round %d: %s: %v", round, r.Name, err)
					}
				}
				if g.seen("rebuild-differs")+g.seen("rebuild-failed") > 0 {
					t.Errorf("round %d: %s", round, strings.Join(g.events, "\n"))
				}
			}
		})
	}
}

// use has some users make requests until stop is called.
func (g *scrubRig) use(src *seeded.Source) (stop func()) {
	var users []*user
	for i := range int64(8) {
		u := &user{g: g, rnd: src.Rand(uint64(i)), first: i * 100,
			content: make([]byte, userBlocks*block.Size)}
		users = append(users, u)
		var drive func()
		drive = func() {
			if u.now == nil || u.now.done {
				u.next()
			}
			if !u.stopped {
				g.w.After(50*time.Microsecond, drive)
			}
		}
		drive()
	}
	return func() {
		for _, u := range users {
			u.stopped = true
			if code := g.finish(u.now); code != block.OK {
				g.t.Fatal(code)
			}
		}
	}
}

// snapshotsBesideTheRebuildOf has a replica rebuilt, slowly, takes snapshots all the while, marks
// every second one as removed, and counts those that were taken before it became a member.
func (g *scrubRig) snapshotsBesideTheRebuildOf(i int, rnd *rand.Rand) (taken int) {
	g.t.Helper()
	mode := func() engine.Mode {
		for _, o := range g.state.Replicas {
			if o.Address == g.v.Replicas[i].Addr() {
				return o.Mode
			}
		}
		return engine.ERR
	}
	g.proc.Post(engine.SetRebuildBudget{BytesPerSecond: 16 << 20})
	g.rejoin(i)
	for n := 0; n < 40; n++ {
		g.w.Until(time.Duration(rnd.Int64N(int64(20*time.Millisecond))), func() bool { return false })
		if mode() == engine.RW {
			return taken
		}
		was := mode()
		name := fmt.Sprint("beside", n)
		g.damage(g.ask(func(reply func(error)) any {
			return engine.TakeSnapshot{Request: wire.SnapshotRequest{Name: name, UserCreated: true,
				Created: "2026-11-21T09:00:00Z"}, Reply: reply}
		}))
		if was == engine.WO {
			taken++
		}
		if n%2 == 1 {
			g.damage(g.remove(name))
		}
	}
	g.until("it is rebuilt", func() bool { return mode() == engine.RW })
	return taken
}

// TestRemovalDuringARebuild: a snapshot is marked as removed while a replica is rebuilt, on the
// target too; one that the target does not know is no reason to drop it.
func TestRemovalDuringARebuild(t *testing.T) {
	for name, code := range map[string]block.Code{"known": block.OK, "not known": block.NotFound} {
		g := newRig(t, 1, 4*mib).start()
		g.finish(g.write(0, 1, 8192))
		target := newFake(g, "x")
		asked := 0
		target.judge = func(q *wire.ControlRequest) (block.Code, bool) {
			if q.RemoveSnapshot == nil {
				return block.OK, q.FinishRebuild != nil && asked == 0
			}
			asked++
			return code, false
		}
		target.script = holding(wire.LayerWrite)
		g.proc.Post(engine.AddReplica{Address: target.addr(), Reply: func(error) {}})
		g.until("rebuild copies", func() bool { return len(target.held) > 0 })
		done, err := false, error(nil)
		g.proc.Post(engine.RemoveSnapshot{Name: "s", Reply: func(e error) { done, err = true, e }})
		target.script = nil
		target.release()
		g.until("marked", func() bool { return done })
		g.until("x is RW", func() bool { return g.modes() == "a=RW x=RW" })
		if err != nil || asked != 1 {
			t.Errorf("%s: %v, the target was asked %d times", name, err, asked)
		}
	}
}

// TestTargetThatTakesNoSnapshot: a target that refuses a snapshot, or fails at it, is dropped, and
// the snapshot stands; one that has taken what no member has taken is dropped too.
func TestTargetThatTakesNoSnapshot(t *testing.T) {
	for name, tt := range map[string]struct {
		source, target block.Code
		taken          bool
	}{
		"the target refuses":         {block.OK, block.Exists, true},
		"the target fails":           {block.OK, block.IOError, true},
		"only the target takes it":   {block.LimitReached, block.OK, false},
		"nobody takes it":            {block.LimitReached, block.LimitReached, false},
		"both take it, as is proper": {block.OK, block.OK, true},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t, 1, 4*mib).start()
			g.finish(g.write(0, 1, 8192))
			target := newFake(g, "x")
			target.script = holding(wire.LayerWrite)
			g.proc.Post(engine.AddReplica{Address: target.addr(), Reply: func(error) {}})
			g.until("rebuild copies", func() bool { return len(target.held) > 0 })
			// The question before the order is passed: it is the order that is refused.
			for f, code := range map[*fake]block.Code{g.fakes[0]: tt.source, target: tt.target} {
				f.judge = func(q *wire.ControlRequest) (block.Code, bool) {
					if q.Snapshot != nil && !q.Check {
						return code, false
					}
					return block.OK, false
				}
			}
			done, err := false, error(nil)
			g.proc.Post(engine.TakeSnapshot{Request: wire.SnapshotRequest{Name: "s"}, Reply: func(e error) {
				done, err = true, e
			}})
			target.script = nil
			target.release()
			g.until("answered", func() bool { return done })
			target.release()
			if (err == nil) != tt.taken {
				t.Errorf("%v\n%s", err, strings.Join(g.events, "\n"))
			}
			want := "a=RW x=RW"
			if (tt.source == block.OK) != (tt.target == block.OK) {
				want = "a=RW x=ERR"
			}
			g.until("then "+want, func() bool { return g.modes() == want })
		})
	}
}

// TestSnapshotWaitsForTheRebuild: a snapshot that comes while the target gets its shape, while a
// piece is brought to it, or while it is about to become a member, is taken afterwards, by all;
// what else changes a chain is refused all the while.
func TestSnapshotWaitsForTheRebuild(t *testing.T) {
	for name, at := range map[string]func(q *wire.ControlRequest) bool{
		"preparing": func(q *wire.ControlRequest) bool { return q.BeginRebuild != nil },
		"copying":   func(*wire.ControlRequest) bool { return false },
		"finishing": func(q *wire.ControlRequest) bool { return q.FinishRebuild != nil },
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t, 1, 4*mib).start()
			g.finish(g.write(0, 1, 8192))
			target := newFake(g, "x")
			if name == "copying" {
				target.script = holding(wire.LayerWrite)
			}
			target.judge = func(q *wire.ControlRequest) (block.Code, bool) { return block.OK, at(q) }
			g.proc.Post(engine.AddReplica{Address: target.addr(), Reply: func(error) {}})
			g.until("the target stands still", func() bool { return len(target.held) > 0 })
			if err := g.purge(false); !errors.Is(err, engine.ErrBusy) || !strings.Contains(err.Error(), "being rebuilt") {
				t.Errorf("a purge: %v", err)
			}
			done, err := false, error(nil)
			g.proc.Post(engine.TakeSnapshot{Request: wire.SnapshotRequest{Name: "s"}, Reply: func(e error) {
				done, err = true, e
			}})
			g.never("taken", time.Second, func() bool { return done })
			if code := g.finish(g.write(65536, 2, 4096)); code != block.OK {
				t.Errorf("a write while the snapshot waits: %s", code)
			}
			target.judge, target.script = nil, nil
			target.release()
			g.until("taken", func() bool { return done })
			g.until("x is RW", func() bool { return g.modes() == "a=RW x=RW" })
			snapshots := 0
			for _, q := range target.controls {
				snapshots += map[bool]int{true: 1}[q.Snapshot != nil && !q.Check]
			}
			if err != nil || snapshots != 1 {
				t.Errorf("%v, the target was asked %d times", err, snapshots)
			}
		})
	}
}
