package engine_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/chain"
	"ankole.storage/dataplane/engine"
	"ankole.storage/dataplane/frontend"
)

// restoreRig is an empty volume with two replicas, and the content of a backup.
type restoreRig struct {
	*scrubRig
	content []byte
	// from is what the next restore begins from, name the snapshot that it ends with, image what
	// shows where the backup has nothing.
	from, name, image string
}

func newRestoreRig(t *testing.T) *restoreRig {
	return &restoreRig{scrubRig: newCloneRig(t, 1, 2, scrubSize).to, content: filled(7, 0, scrubSize),
		name: "copy"}
}

func (g *restoreRig) begin(backup string) (whole bool, err error) {
	g.t.Helper()
	done := false
	g.proc.Post(engine.BeginRestore{Backup: backup, Volume: "old", Store: "store", Size: scrubSize, Name: g.name,
		From: g.from, Image: g.image, BackupCreated: "made of " + backup, Created: "2026-11-21T12:00:00Z",
		Reply: func(w bool, e error) { whole, err, done = w, e, true }})
	g.until("the restore has begun, or cannot", func() bool { return done })
	return whole, err
}

func (g *restoreRig) io(kind block.Kind, off, n int64, data []byte) (end func() block.Code) {
	var code block.Code
	done := false
	g.proc.Post(engine.RestoreIO{Outside: engine.Outside{Request: frontend.Request{Kind: kind, Off: off, Len: n},
		Data: data, Done: func(c block.Code) { code, done = c, true }}})
	return func() block.Code {
		g.t.Helper()
		g.until("write of the restore", func() bool { return done })
		return code
	}
}

// push writes a part of the content.
func (g *restoreRig) push(from, to int64) {
	g.t.Helper()
	var ends []func() block.Code
	for off := from; off < to; off += 1 << 19 {
		ends = append(ends, g.io(block.Write, off, 1<<19, g.content[off:off+1<<19]))
	}
	for _, end := range ends {
		if code := end(); code != block.OK {
			g.t.Fatal(code)
		}
	}
}

func (g *restoreRig) end(reason error) error {
	g.t.Helper()
	return g.ask(func(reply func(error)) any { return engine.EndRestore{Reason: reason, Reply: reply} })
}

// whole checks that every replica has the content, as a snapshot and as a head.
func (g *restoreRig) whole() {
	g.t.Helper()
	if i := g.state.Import; i.State != "complete" || i.Kind != "restore" || i.Progress != 100 || i.Incomplete {
		g.t.Fatalf("%+v\n%s", i, strings.Join(g.events, "\n"))
	}
	g.same()
	g.damage(g.attach())
}

func (g *restoreRig) same() {
	g.t.Helper()
	if g.hashes(g.name) != g.hashes(chain.HeadName) || !bytes.Equal(g.contentAt(g.name), g.content) {
		g.t.Errorf("the volume does not hold what was restored\n%s", strings.Join(g.events, "\n"))
	}
}

func TestRestore(t *testing.T) {
	g := newRestoreRig(t)
	if code := g.io(block.Write, 0, 1<<19, g.content[:1<<19])(); code != block.Unavailable {
		t.Errorf("a write of no restore: %s", code)
	}
	if err := g.end(nil); !errors.Is(err, engine.ErrNotFound) {
		t.Errorf("the end of no restore: %v", err)
	}
	if whole, err := g.begin("backup"); whole || err != nil {
		t.Fatal(whole, err)
	}
	g.push(0, scrubSize)
	if err := g.attach(); err == nil {
		t.Fatal("a part of a restore is offered")
	}
	for name, end := range map[string]func() block.Code{"read": g.io(block.Read, 0, 4096, make([]byte, 4096)),
		"beyond":    g.io(block.Write, scrubSize, 4096, make([]byte, 4096)),
		"negative":  g.io(block.WriteZeroes, -4096, 4096, nil),
		"too short": g.io(block.Write, 0, 8192, make([]byte, 4096))} {
		if code := end(); code != block.Invalid {
			t.Errorf("%s: %s", name, code)
		}
	}
	if code := g.io(block.WriteZeroes, 1<<20, 1<<20, nil)(); code != block.OK {
		t.Fatal(code)
	}
	clear(g.content[1<<20 : 2<<20])
	if _, err := g.begin("backup"); !errors.Is(err, engine.ErrBusy) ||
		!strings.Contains(err.Error(), "already in progress") {
		t.Errorf("begun again: %v", err)
	}
	g.proc.Post(engine.RestoreProgress{Done: 1, Total: 2})
	g.until("progress", func() bool { return g.state.Import.Progress == 49 && g.state.Import.Total == scrubSize })
	g.damage(g.end(nil))
	g.whole()
}

// What was written of a restore that was interrupted is offered to nobody; the same restore, and no
// other content, makes it whole, whoever ended the one before.
func TestRestoreIsInterrupted(t *testing.T) {
	reason := errors.New("the store is gone")
	for name, interrupt := range map[string]func(g *restoreRig){
		"ended": func(g *restoreRig) {
			if err := g.end(reason); !errors.Is(err, reason) {
				g.t.Fatal(err)
			}
		},
		"engine killed": func(g *restoreRig) { g.restart() },
		"replica lost": func(g *restoreRig) {
			g.v.Replicas[1].Kill()
			g.push(1<<20, 2<<20)
			if err := g.end(reason); !errors.Is(err, reason) {
				g.t.Fatal(err)
			}
			g.v.Replicas[1].Start()
			g.until("replica is there", g.v.Replicas[1].Ready)
			g.restart()
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRestoreRig(t)
			_, err := g.begin("backup")
			g.damage(err)
			g.push(0, 1<<20)
			interrupt(g)
			if i := g.state.Import; i.State != "error" || !i.Incomplete || i.Kind != "restore" {
				t.Fatalf("%+v", i)
			}
			if err := g.attach(); err == nil {
				t.Fatal("a part of a restore is offered")
			}
			if err := g.beginOther(); !errors.Is(err, engine.ErrState) {
				t.Errorf("a backup of another volume goes over it: %v", err)
			}
			whole, err := g.begin("backup")
			if whole || err != nil {
				t.Fatal(whole, err)
			}
			g.push(0, scrubSize)
			g.damage(g.end(nil))
			if name == "replica lost" {
				return // the other copy is for the control plane to rebuild
			}
			g.whole()
			g.damage(g.ask(func(reply func(error)) any { return engine.DetachFrontend{Reply: reply} }))
			if whole, err := g.begin("backup"); !whole || err != nil {
				t.Errorf("restored again: %v, %v", whole, err)
			}
		})
	}
}

// A restore goes into an empty volume.
func TestRestoreIntoAUsedVolume(t *testing.T) {
	g := &restoreRig{scrubRig: newScrubRig(t, 1), name: "copy"}
	g.damage(g.ask(func(reply func(error)) any { return engine.DetachFrontend{Reply: reply} }))
	if _, err := g.begin("backup"); !errors.Is(err, engine.ErrState) || !strings.Contains(err.Error(), "empty volume") {
		t.Errorf("%v", err)
	}
}

// beginOther begins to restore a backup of another volume.
func (g *restoreRig) beginOther() error {
	g.t.Helper()
	return g.ask(func(reply func(error)) any {
		return engine.BeginRestore{Backup: "backup", Volume: "another", Store: "store", Size: scrubSize, Name: "other",
			Created: "2026-11-21T12:00:00Z", Reply: func(_ bool, err error) { reply(err) }}
	})
}

// held is what the volume says it holds.
func (g *restoreRig) held(volume string) (backup string) {
	g.t.Helper()
	g.damage(g.ask(func(reply func(error)) any {
		return engine.HeldBackup{Volume: volume, Store: "store", Reply: func(b, created string, err error) {
			if backup = b; b != "" && created != "made of "+b {
				g.t.Errorf("backup %s was made %q", b, created)
			}
			reply(err)
		}}
	}))
	return backup
}

// restored restores a backup whole.
func (g *restoreRig) restored(backup string) {
	g.t.Helper()
	_, err := g.begin(backup)
	g.damage(err)
	g.push(0, scrubSize)
	g.damage(g.end(nil))
	g.same()
}

// offered attaches a frontend, and reads the content by it. Every replica has the same.
func (g *restoreRig) offered() {
	g.t.Helper()
	g.hashes(chain.HeadName)
	g.damage(g.attach())
	for off := int64(0); off < int64(len(g.content)); off += 1 << 19 {
		c := g.rig.begin(block.Read, off, 1<<19, make([]byte, 1<<19))
		if code := g.finish(c); code != block.OK || !bytes.Equal(c.data, g.content[off:off+1<<19]) {
			g.t.Fatalf("at %d: %s, or other content\n%s", off, code, strings.Join(g.events, "\n"))
		}
	}
}

// step writes what backup two has and one has not.
func (g *restoreRig) step() {
	g.t.Helper()
	copy(g.content[1<<20:], filled(8, 1<<20, 1<<19))
	clear(g.content[2<<20 : 3<<20])
	g.push(1<<20, 1<<20+1<<19)
	if code := g.io(block.WriteZeroes, 2<<20, 1<<20, nil)(); code != block.OK {
		g.t.Fatal(code)
	}
}

// From the backup that a volume holds to the next one only what differs is written, also where the
// volume grew in between, and where an engine has started; what is left of the former one is
// merged.
func TestRestoreStep(t *testing.T) {
	g := newRestoreRig(t)
	if b := g.held("old"); b != "" {
		t.Errorf("an empty volume holds %s", b)
	}
	g.restored("one")
	g.restart()
	if b := g.held("another"); b != "" {
		t.Errorf("it holds %s of another volume", b)
	}
	g.damage(g.ask(func(reply func(error)) any {
		return engine.Expand{Size: scrubSize + 1<<20, Created: "2026-11-21T12:00:00Z", Reply: reply}
	}))
	if b := g.held("old"); b != "one" {
		t.Fatalf("it holds %q", b)
	}
	g.from, g.name = "none", "two"
	if _, err := g.begin("two"); !errors.Is(err, engine.ErrBusy) {
		t.Errorf("from what it does not hold: %v", err)
	}
	g.from = "one"
	_, err := g.begin("two")
	g.damage(err)
	g.step()
	g.damage(g.end(nil))
	if i := g.state.Import; i.Sent != 1<<19+1<<20 {
		t.Errorf("%d bytes were written", i.Sent)
	}
	if b := g.held("old"); b != "two" {
		t.Errorf("it holds %q", b)
	}
	g.until("the former snapshots are merged", func() bool {
		g.damage(g.ask(func(reply func(error)) any { return engine.Refresh{Reply: reply} }))
		return len(g.state.Snapshots) == 2 && g.purged()
	})
	g.content = append(g.content, make([]byte, 1<<20)...)
	g.offered()
	g.fill(0, 4096, 9)
	g.damage(g.ask(func(reply func(error)) any { return engine.DetachFrontend{Reply: reply} }))
	if b := g.held("old"); b != "" {
		t.Errorf("a volume that was written holds %s", b)
	}
	if _, err := g.begin("three"); !errors.Is(err, engine.ErrState) {
		t.Errorf("what was written is gone over: %v", err)
	}
}

// purged: no purge is under way.
func (g *restoreRig) purged() bool {
	return !g.state.Replicas[0].Purge.Running && !g.state.Replicas[1].Purge.Running
}

// part writes what of backup two is there when it is cut off.
func (g *restoreRig) part() {
	g.t.Helper()
	whole := bytes.Clone(g.content)
	g.step()
	g.content = whole
}

// A restore that was cut off is given up: the volume holds what it held before, can be used, and
// follows the next backup by what differs, whoever ended it and however that one is named.
func TestRestoreGoesBack(t *testing.T) {
	for _, next := range []string{"two", "three"} {
		for name, interrupt := range map[string]func(g *restoreRig){
			"failed": func(g *restoreRig) { _ = g.end(errors.New("the store is gone")) },
			"killed": func(g *restoreRig) { g.restart() },
		} {
			t.Run(next+" "+name, func(t *testing.T) {
				g := newRestoreRig(t)
				g.restored("one")
				g.from, g.name = "one", "two"
				_, err := g.begin("two")
				g.damage(err)
				g.part()
				interrupt(g)
				if b := g.held("old"); b != "one" || g.state.Import.Incomplete {
					t.Fatalf("it holds %q: %+v", b, g.state.Import)
				}
				if i := g.state.Import; name == "killed" && (i.State != "complete" || i.Snapshot != "one" || i.Interrupted) ||
					name == "failed" && (i.State != "error" || i.Snapshot != "two") {
					t.Errorf("%+v", i)
				}
				g.offered()
				g.damage(g.ask(func(reply func(error)) any { return engine.DetachFrontend{Reply: reply} }))
				g.name = "again"
				_, err = g.begin(next)
				g.damage(err)
				g.step()
				g.damage(g.end(nil))
				g.offered()
			})
		}
	}
}

// TestRestoreWhileItGoesBack: who does not ask what the volume holds is refused while it goes back,
// or goes over the part, and who asks is answered in either case.
func TestRestoreWhileItGoesBack(t *testing.T) {
	for after := range 12 {
		g := newRestoreRig(t)
		g.restored("one")
		g.from, g.name = "one", "two"
		_, err := g.begin("two")
		g.damage(err)
		g.part()
		g.proc.Post(engine.EndRestore{Reason: errors.New("the store is gone"), Reply: func(error) {}})
		answered := false
		g.proc.Post(engine.HeldBackup{Volume: "old", Store: "store", Reply: func(string, string, error) { answered = true }})
		g.w.Until(time.Duration(after)*500*time.Microsecond, func() bool { return false })
		g.from, g.name = "", "again"
		g.until("a restore of the whole begins", func() bool {
			_, err := g.begin("two")
			if err != nil && !errors.Is(err, engine.ErrBusy) {
				t.Fatal(err)
			}
			return err == nil
		})
		g.push(0, scrubSize)
		g.damage(g.end(nil))
		g.offered()
		if !answered {
			t.Fatalf("%d: nobody says what the volume holds", after)
		}
	}
}

// TestRestoreGoesBackKilledAnywhere: engine and machines may be lost at any moment of a step, and
// of the way back from it.
func TestRestoreGoesBackKilledAnywhere(t *testing.T) {
	outcomes := map[string]int{}
	for seed := range 18 {
		g := newRestoreRig(t)
		g.restored("one")
		g.damage(g.ask(func(reply func(error)) any { return engine.PurgeSnapshots{SkipIfRunning: true, Reply: reply} }))
		g.until("it is purged", g.purged)
		g.from, g.name = "one", "two"
		_, err := g.begin("two")
		g.damage(err)
		g.part()
		g.proc.Post(engine.EndRestore{Reason: errors.New("the store is gone"), Reply: func(error) {}})
		g.w.Until(time.Duration(3+seed/3)*time.Millisecond, func() bool { return false })
		victims := g.v.Replicas[seed%2 : seed%2+1]
		g.proc.Kill()
		switch seed % 3 {
		case 0: // the engine alone
			victims = nil
		case 2: // everything loses power
			victims = g.v.Replicas
		}
		for _, r := range victims {
			r.Kill()
			r.Disk.Crash()
			r.Start()
		}
		g.restart()
		if i := g.state.Import; i.Interrupted {
			outcomes["a part"]++
		} else {
			outcomes["gone back"]++
		}
		if b := g.held("old"); b != "one" || g.state.Import.Incomplete || g.state.Import.Snapshot != "one" {
			t.Fatalf("seed %d: it holds %q: %+v", seed, b, g.state.Import)
		}
		g.expectModes("tr0=RW tr1=RW")
		g.offered()
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	if len(outcomes) < 2 {
		t.Errorf("every kill came at the same stage: %v", outcomes)
	}
	t.Log(outcomes)
}

// Where nothing is below the part, nothing of it is certain: what follows, the same backup or
// another one, is written whole over zeroes.
func TestRestoreOverAPart(t *testing.T) {
	for _, next := range []string{"one", "two"} {
		g := newRestoreRig(t)
		_, err := g.begin("one")
		g.damage(err)
		g.push(0, scrubSize)
		g.restart()
		if b := g.held("old"); b != "" || !g.state.Import.Incomplete {
			t.Fatalf("it holds %q", b)
		}
		if err := g.attach(); err == nil {
			t.Fatal("a part of a restore is offered")
		}
		g.name = "again"
		_, err = g.begin(next)
		g.damage(err)
		g.content = make([]byte, scrubSize) // but for a part, the backup is of zeroes
		copy(g.content[3<<20:], filled(9, 3<<20, 1<<20))
		g.push(3<<20, scrubSize)
		g.damage(g.end(nil))
		g.offered()
	}
}

// TestRestoreOverAnImage: an attempt that was cut off, the first one too, is given up, and the
// image shows again. What an earlier backup has written over cannot show it.
func TestRestoreOverAnImage(t *testing.T) {
	g := newRestoreRig(t)
	g.image = "iso"
	first := g.content
	for _, interrupt := range []func(){func() { _ = g.end(errors.New("the store is gone")) }, func() { g.restart() }} {
		_, err := g.begin("one")
		g.damage(err)
		g.push(0, 1<<20)
		interrupt()
		if b := g.held("old"); b != "" || g.state.Import != nil && g.state.Import.Incomplete {
			t.Fatalf("it holds %q: %+v", b, g.state.Import)
		}
		g.content = make([]byte, scrubSize)
		g.offered() // nothing written, so that the image shows
		g.damage(g.ask(func(reply func(error)) any { return engine.DetachFrontend{Reply: reply} }))
		g.content = first
	}
	g.restored("one")
	g.name = "two"
	g.until("the beginning is merged", func() bool {
		g.damage(g.ask(func(reply func(error)) any { return engine.Refresh{Reply: reply} }))
		return len(g.state.Snapshots) == 2 && g.purged()
	})
	for range 2 {
		if _, err := g.begin("two"); !errors.Is(err, engine.ErrState) || !strings.Contains(err.Error(), "backing image iso") {
			t.Fatalf("it is written over: %v", err)
		}
	}
	g.from = "one"
	_, err := g.begin("two")
	g.damage(err)
	g.step()
	g.damage(g.end(nil))
	g.offered()
}
