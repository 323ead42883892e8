package replica_test

import (
	"slices"
	"testing"
	"time"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/wire"
)

// TestFullReplica: writes that the disk does not end have taken all memory that there is for
// requests. Who knows the secret is greeted all the same, and strangers, who hear nothing, keep
// nobody out; then the engine's successor is let in, and everything is answered.
func TestFullReplica(t *testing.T) {
	g := newRig(t)
	e := g.engine(1, "e")
	g.r.Disk.Slow(20 * time.Second)
	const n, size = 1000, 64 << 10 // more than the replica has
	var writes []*answer
	for i := range n {
		writes = append(writes, e.request(wire.Header{Type: wire.Write, Off: int64(i*size) % volumeSize, Len: size},
			filled(1, size)))
	}
	g.w.Until(5*time.Second, func() bool { return false })
	var strangers []*peer
	for range 20 {
		p := g.stranger()
		p.sendRaw(initiationOf(4<<10, 4<<10-1)) // all but the end
		strangers = append(strangers, p)
	}
	known := g.connect()
	g.until("greeting", func() bool { return known.greeted })
	if g.w.Until(5*time.Second, func() bool { return writes[n-1].done }) || !g.r.Alive() {
		t.Fatalf("the memory is not used up: the test proves nothing; alive: %v", g.r.Alive())
	}
	g.r.Disk.Slow(0)
	g.until("the writes are answered", func() bool {
		return !slices.ContainsFunc(writes, func(a *answer) bool { return !a.done })
	})
	if i := slices.IndexFunc(writes, func(a *answer) bool { return a.h.Code != block.OK }); i >= 0 {
		t.Fatalf("write %d: %s", i, writes[i].h.Code)
	}
	g.until("strangers are disconnected", func() bool {
		return !slices.ContainsFunc(strangers, func(p *peer) bool { return !p.gone || p.heard > 0 })
	})
	g.alive(2)
}

// TestReaderTakesItsPartOnly: another volume's engine asks for more than there is memory for, and
// the disk does not answer it. The volume's own engine does not wait for that.
func TestReaderTakesItsPartOnly(t *testing.T) {
	g, e := snapshotted(t)
	p := g.reader("a")
	g.r.Disk.Slow(30 * time.Second)
	var reads []*answer
	for range 100 {
		reads = append(reads, p.request(wire.Header{Type: wire.Read, Flags: wire.AtView, Len: block.MaxTransfer}, nil))
	}
	g.w.Until(time.Second, func() bool { return false })
	g.r.Disk.Slow(0)
	var writes []*answer
	for i := range int64(8) {
		writes = append(writes,
			e.request(wire.Header{Type: wire.Write, Off: i * block.MaxTransfer, Len: block.MaxTransfer},
				filled(1, block.MaxTransfer)))
	}
	if !g.w.Until(5*time.Second, func() bool { return writes[7].done }) {
		t.Error("writes wait for the memory of a reader")
	}
	if reads[0].done {
		t.Error("the disk has answered the reader: the test proves nothing")
	}
	g.until("the reader is answered", func() bool { return reads[99].done })
}

// TestQueueOfChangesIsBounded: an engine, or whoever knows the secret, asks for more changes of
// metadata than a replica keeps. The rest is not received before there is room: an answer that
// waits for nothing comes behind it.
func TestQueueOfChangesIsBounded(t *testing.T) {
	g := newRig(t)
	e := g.engine(1, "e")
	const n, kept = 10_000, 4096
	var marks []*answer
	for range n {
		marks = append(marks, e.request(wire.Header{Type: wire.MarkDirty}, make([]byte, 4)))
	}
	ping := e.controls(wire.ControlRequest{Ping: &wire.PingRequest{}})
	g.until("the ping is answered", func() bool { return ping.done })
	open := 0
	for _, a := range marks {
		if !a.done {
			open++
		}
	}
	if open > kept+1 {
		t.Errorf("%d requests wait, more than %d", open, kept)
	}
	g.until("all are answered", func() bool {
		return !slices.ContainsFunc(marks, func(a *answer) bool { return !a.done })
	})
	g.alive(2)
}
