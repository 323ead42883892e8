package engine_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/engine"
	"ankole.storage/dataplane/wire"
)

// stepOf names a request that changes a replica's chain, "" for all others.
func stepOf(q *wire.ControlRequest) string {
	switch {
	case q.Check:
	case q.Snapshot != nil:
		return "snapshot"
	case q.RemoveSnapshot != nil:
		return "remove"
	case q.Expand != nil:
		return "expand"
	case q.Revert != nil:
		return "revert"
	case q.Purge != nil && q.Purge.Begin:
		return "purge"
	case q.Purge != nil:
		return "piece"
	case q.ImportMark != nil:
		return "mark"
	}
	return ""
}

// changes are all that a user can ask for and that changes chains, with what each replica is asked
// to do.
var changes = map[string]struct {
	message func(reply func(error)) any
	steps   string
}{
	"snapshot": {func(reply func(error)) any {
		return engine.TakeSnapshot{Request: wire.SnapshotRequest{Name: "s"}, Reply: reply}
	}, "snapshot"},
	"remove": {func(reply func(error)) any { return engine.RemoveSnapshot{Name: "s", Reply: reply} }, "remove"},
	"expand": {func(reply func(error)) any { return engine.Expand{Size: 32 << 20, Reply: reply} }, "expand"},
	"purge":  {func(reply func(error)) any { return engine.PurgeSnapshots{Reply: reply} }, "purge piece"},
	"revert": {func(reply func(error)) any { return engine.Revert{Name: "s", Reply: reply} }, "snapshot revert remove"},
}

// No step of any change is sent while a replica that was lost is still a member: lost in an earlier
// step, by an answer or by its end, or before the change began. The others have the record without
// it, and with that the account of what it misses, before they change anything more.
func TestNoStepWhileADropIsOpen(t *testing.T) {
	for name, c := range changes {
		all := strings.Fields(c.steps)
		for k := -1; k < len(all) && (k < 0 || all[k] != "piece"); k++ { // pieces are each replica's own affair
			for _, how := range []string{"full", "gone"} {
				t.Run(fmt.Sprintf("%s, %s at step %d", name, how, k), func(t *testing.T) {
					stepsWithALoss(t, c.message, all, k, how)
				})
			}
		}
	}
}

// stepsWithALoss makes a change, in step k of which, before the first for -1, replica b is lost.
// Replica c takes a second to record that.
func stepsWithALoss(t *testing.T, message func(reply func(error)) any, all []string, k int, how string) {
	g := newRig(t, 3, 16<<20).start()
	if err := g.ask(func(reply func(error)) any { return engine.DetachFrontend{Reply: reply} }); err != nil {
		t.Fatal(err)
	}
	a, b, c := g.fakes[0], g.fakes[1], g.fakes[2]
	lost, steps := false, 0
	b.judge = func(q *wire.ControlRequest) (block.Code, bool) {
		if stepOf(q) == "" {
			return block.OK, false
		}
		if steps++; steps <= k {
			return block.OK, false
		}
		if lost = true; how == "full" {
			return block.NoSpace, false
		}
		b.proc.Kill()
		return block.OK, true
	}
	var seen []string
	a.judge = func(q *wire.ControlRequest) (block.Code, bool) {
		if s := stepOf(q); s != "" {
			seen = append(seen, s)
			if len(seen) > k+1 && (len(a.record.Members) == 3 || len(c.record.Members) == 3) {
				t.Errorf("%s was sent when the records of the others still named the replica that was lost", s)
			}
		}
		return block.OK, false
	}
	c.judge = func(q *wire.ControlRequest) (block.Code, bool) {
		slow := q.SetRecord != nil && len(q.SetRecord.Members) == 2 && len(c.held) == 0
		if slow {
			g.w.After(time.Second, c.release)
		}
		return block.OK, slow
	}
	if k < 0 {
		b.proc.Kill()
		g.until("b is known to be lost", func() bool { return g.modes() == "a=RW b=ERR c=RW" })
	}
	if err := g.ask(message); err != nil {
		t.Error(err)
	}
	g.until("all steps are made", func() bool { return len(seen) >= len(all) })
	if got := strings.Join(seen, " "); !strings.HasPrefix(got, strings.Join(all, " ")) {
		t.Errorf("a was asked for %s", got)
	}
	if g.expectModes("a=RW b=ERR c=RW"); k >= 0 && !lost {
		t.Error("b was not asked")
	}
}

// Whoever asked for a change that waits for the set of replicas is answered if that is never
// agreed: the engine ends, cleanly or because another one has replaced it, or the last replica is
// lost.
func TestChangeThatWaitsIsAnsweredAtTheEnd(t *testing.T) {
	for name, end := range map[string]func(g *rig){
		"shut down":       func(g *rig) { g.proc.Post(engine.Shutdown{Reply: func(error) {}}) },
		"no replica left": func(g *rig) { g.fakes[0].proc.Kill() },
		"replaced": func(g *rig) {
			g.witness.Down = false
			w, _ := g.witness.Read()
			next := w
			next.Epoch, next.Engine = 2000, "other"
			if _, ok, err := g.witness.Swap(w, next); !ok || err != nil {
				t.Fatal(ok, err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t, 2, 16<<20).start()
			g.witness.Down = true // from two to one needs it
			g.fakes[1].proc.Kill()
			g.until("b is lost", func() bool { return g.modes() == "a=RW b=ERR" })
			answered, err := false, error(nil)
			g.proc.Post(engine.TakeSnapshot{Request: wire.SnapshotRequest{Name: "s"}, Reply: func(e error) {
				answered, err = true, e
			}})
			g.never("answered", 2*time.Second, func() bool { return answered })
			end(g)
			g.until("answered", func() bool { return answered })
			if err == nil {
				t.Error("a snapshot that no replica took was acknowledged")
			}
		})
	}
}
