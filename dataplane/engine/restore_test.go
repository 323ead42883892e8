package engine_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/chain"
	"ankole.storage/dataplane/engine"
	"ankole.storage/dataplane/frontend"
)

// restoreRig is an empty volume with two replicas, and the content of a backup.
type restoreRig struct {
	*scrubRig
	content []byte
}

func newRestoreRig(t *testing.T) *restoreRig {
	return &restoreRig{newCloneRig(t, 1, 2, scrubSize).to, filled(7, 0, scrubSize)}
}

func (g *restoreRig) begin(backup string) (whole bool, err error) {
	g.t.Helper()
	done := false
	g.proc.Post(engine.BeginRestore{Backup: backup, Volume: "old", Store: "store", Size: scrubSize, Name: "copy",
		Created: "2026-11-21T12:00:00Z", Reply: func(w bool, e error) { whole, err, done = w, e, true }})
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
	if g.hashes("copy") != g.hashes(chain.HeadName) || !bytes.Equal(g.contentAt("copy"), g.content) {
		g.t.Error("the volume does not hold what was restored")
	}
	g.damage(g.attach())
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
			if _, err := g.begin("another"); !errors.Is(err, engine.ErrState) {
				t.Errorf("another backup goes over it: %v", err)
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
	g := &restoreRig{newScrubRig(t, 1), nil}
	g.damage(g.ask(func(reply func(error)) any { return engine.DetachFrontend{Reply: reply} }))
	if _, err := g.begin("backup"); !errors.Is(err, engine.ErrState) || !strings.Contains(err.Error(), "empty volume") {
		t.Errorf("%v", err)
	}
}
