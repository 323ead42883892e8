package engine_test

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/chain"
	"ankole.storage/dataplane/clock"
	"ankole.storage/dataplane/engine"
	"ankole.storage/dataplane/loop"
	"ankole.storage/dataplane/wire"
	"ankole.storage/test/sim"
)

// fake is a replica whose every answer a test decides. It keeps its content in memory, and checks
// what every replica may expect of an engine: no write to a region that is not marked, no mark
// taken away without a flush after the last write.
type fake struct {
	t     testing.TB
	w     *sim.World
	name  string
	proc  *sim.Process
	arena *loop.Arena
	conn  *wire.Conn
	// handshake is that of the present connection.
	handshake *wire.Handshake
	// script decides the result of a request; hold keeps it unanswered until release.
	script func(h *wire.Header) (code block.Code, hold bool)
	held   []func(out *[]loop.Op)
	// refuses hangs up on whoever connects; mute says no greeting. member is the name it tells, its
	// own unless set.
	refuses, mute bool
	// inOrder: control messages and marks are carried out in their order, whenever they are answered.
	inOrder bool
	// rewritten: it is asked for what it cannot read, and gets it from others.
	rewritten bool
	member    string
	// joined: it lists blocks beside each other as one range, as a file system does.
	joined bool
	// slowHello: it keeps the answer to a hello until release. hellos counts them.
	slowHello bool
	hellos    int
	// listed is where it has data, for a clone. lists spoils its lists of extents.
	listed func(off int64) *wire.ExtentsReply
	lists  func(x *wire.ExtentsReply)
	// tells spoils what it answers to control messages.
	tells func(r *wire.ControlReply)
	// keepsFailed: it has made the writes that it says have failed.
	keepsFailed bool
	// judge decides the result of a control message by what it asks for, after script.
	judge func(q *wire.ControlRequest) (code block.Code, hold bool)
	// secret is that of the volume of which it is a replica; impostor does not know it, and goes on
	// all the same. Answers to hello and greeting may be spoilt.
	secret   []byte
	impostor bool
	reply    wire.HelloReply
	spoil    func(h *wire.Header)

	pages      map[int64][]byte
	record     *wire.RecordMessage
	promised   uint64 // to somebody else
	marked     map[uint32]bool
	allMarked  bool // it was asked to mark more than a log can name
	lastWrite  map[uint32]int
	writes     int
	flushed    int
	mostMarks  int
	pieces     int // of a purge, before it is done
	controls   []wire.ControlRequest
	layers     []wire.Layer // of the chain
	below      []wire.Layer // the live chain without its head, as a rebuild is told
	cleared    int
	heldCode   block.Code // what held requests are answered with, once it is set
	log        []string
	promisedTo string
	// window is what the engine shares, of g's; shared counts requests whose data is there.
	g      *rig
	window []byte
	shared int
	// greets spoils its greeting.
	greets func(h *wire.Header, g *wire.GreetingMessage)
}

func newFake(g *rig, name string) *fake {
	f := &fake{g: g, t: g.t, w: g.w, name: name, arena: loop.NewArena(64 << 20), secret: secret,
		pages: map[int64][]byte{}, marked: map[uint32]bool{}, lastWrite: map[uint32]int{}}
	f.arena.SetAside(loop.Connections, 64*wire.ConnMemory)
	g.t.Cleanup(func() { _ = f.arena.Close() })
	f.reply = wire.HelloReply{Size: g.size, Blank: true}
	f.proc = g.w.Spawn(name, f.arena, nil)
	f.proc.Listen("tcp:" + name + ":11")
	f.proc.Run(f)
	f.proc.Post(func(out *[]loop.Op) { *out = append(*out, loop.Op{Kind: loop.Accept, Handle: 1, Tag: 1}) })
	return f
}

func (f *fake) addr() string { return f.name + ":10" }

// Step implements loop.Core.
func (f *fake) Step(_ clock.Ticks, in []loop.Done, out *[]loop.Op) clock.Ticks {
	for i := range in {
		d := &in[i]
		switch {
		case d.Kind == loop.Posted:
			d.Value.(func(*[]loop.Op))(out)
		case d.Kind == loop.Accept:
			*out = append(*out, loop.Op{Kind: loop.Accept, Handle: 1, Tag: 1})
			var err error
			if f.conn, err = wire.NewConn(d.New, 0, f.arena, 2|uint64(d.New)<<8, 3|uint64(d.New)<<8); err != nil {
				f.t.Fatal(err)
			}
			f.window = nil
			f.conn.Start(out)
			if f.refuses {
				f.conn.Fail(wire.ErrClosed)
				*out = append(*out, loop.Op{Kind: loop.Close, Handle: d.New, Tag: 4 | uint64(d.New)<<8})
				continue
			}
		case f.conn == nil || d.Tag>>8 != uint64(f.conn.Handle):
		case d.Kind == loop.Recv:
			f.conn.Received(d, f, out)
		case d.Kind == loop.Send:
			f.conn.Sent(d, out)
		}
	}
	if f.conn != nil {
		f.conn.Flush(out)
	}
	return clock.Never
}

// PlacePayload implements wire.Handler.
func (f *fake) PlacePayload(*wire.Conn, *wire.Header) (loop.Seg, bool) {
	return loop.Seg{}, true
}

func (f *fake) send(h wire.Header, p []byte) {
	f.conn.SendMessage(&h, p)
}

// greet answers an initiation.
func (f *fake) greet(p []byte) {
	if f.mute {
		return
	}
	_, hs, err := wire.Accept(p, f.secret, cloneUUID, wire.NewDigester(f.secret))
	if err != nil {
		f.t.Error(err)
		return
	}
	h := wire.Header{Type: wire.Greeting}
	g := wire.GreetingMessage{Version: wire.Version, Nonce: make([]byte, wire.NonceSize), Member: cmp.Or(f.member, f.name)}
	if f.greets != nil {
		f.greets(&h, &g)
	}
	greeting := wire.Marshal(g)
	f.handshake = hs
	hs.Greet(greeting)
	f.send(h, greeting)
}

// hello answers a hello.
func (f *fake) hello(h *wire.Header, p []byte) {
	m, keys, err := f.handshake.ReadHello(p)
	if err != nil {
		f.t.Error(err)
	}
	if f.impostor {
		keys = strangersKeys()
	}
	if !f.conn.Secured() {
		f.conn.Secure(keys)
	}
	if m.Prepared {
		r := f.reply
		r.Promised, r.PromisedTo, r.Record = f.promised, f.promisedTo, f.record
		f.send(h.Answer(block.OK), wire.Marshal(r))
		return
	}
	if m.Epoch <= f.promised && !f.handshake.Reader() {
		f.send(h.Answer(block.Fenced), wire.Marshal(wire.HelloReply{Promised: f.promised}))
		return
	}
	r := f.reply
	for _, n := range r.Dirty {
		f.marked[n] = true
	}
	f.allMarked = r.DirtyAll
	r.Promised, r.Record = m.Epoch, f.record
	hdr := *h
	f.held = append(f.held, func(*[]loop.Op) { f.send(hdr.Answer(block.OK), wire.Marshal(r)) })
	if f.hellos++; !f.slowHello {
		f.let(len(f.held) - 1)
	}
}

// strangersKeys are keys of a session that follow from another secret.
func strangersKeys() *wire.Keys {
	another := []byte("another")
	h, _ := wire.Initiate(&wire.InitiationMessage{}, another, wire.NewDigester(another))
	_, keys := h.Hello(&wire.HelloMessage{})
	return keys
}

// Frame implements wire.Handler.
func (f *fake) Frame(_ *wire.Conn, h *wire.Header, _ loop.Seg, p []byte) {
	switch h.Type {
	case wire.Initiation:
		f.greet(p)
		return
	case wire.Hello:
		f.hello(h, p)
		return
	}
	f.log = append(f.log, fmt.Sprintf("%s %d+%d", h.Type, h.Off, h.Len))
	if h.Flags&wire.Shared != 0 {
		f.shared++
		if h.Type == wire.Write || h.Type == wire.LayerWrite {
			p = bytes.Clone(f.slot(h))
		}
	}
	code, hold := block.OK, false
	if f.script != nil {
		code, hold = f.script(h)
	}
	if q := new(wire.ControlRequest); h.Type == wire.Control && f.judge != nil && code == block.OK && !hold {
		if err := wire.Unmarshal(p, q); err != nil {
			f.t.Error(err)
		}
		code, hold = f.judge(q)
	}
	hdr := *h
	f.check(&hdr, p)
	if hold && f.inOrder && code == block.OK && (h.Type == wire.Control || h.Type == wire.MarkDirty) {
		out := f.carryOut(&hdr, p)
		f.held = append(f.held, func(*[]loop.Op) { f.send(hdr.Answer(block.OK), out) })
		return
	}
	answer := func(*[]loop.Op) {
		if f.heldCode != block.OK {
			code = f.heldCode
		}
		f.answer(&hdr, p, code)
	}
	if hold {
		f.held = append(f.held, answer)
		return
	}
	answer(nil)
}

// check holds the engine to the rules of the dirty log.
func (f *fake) check(h *wire.Header, p []byte) {
	switch h.Type {
	case wire.Write, wire.WriteZeroes, wire.Discard:
		r := uint32(h.Off / engine.DirtyRegion)
		if h.Type == wire.Write && f.rewritten && bytes.Equal(f.read(h.Off, int64(len(p))), p) {
			return // a sector that could not be read is written again, which changes nothing
		}
		if !f.marked[r] && !f.allMarked {
			f.t.Errorf("%s: %s to region %d, which is not marked", f.name, h.Type, r)
		}
		if last := uint32((h.Off + h.Len - 1) / engine.DirtyRegion); last != r {
			f.t.Errorf("%s: %s [%d,+%d) spans regions %d and %d; it marks, and counts for, the first one", f.name, h.Type, h.Off,
				h.Len, r, last)
		}
		f.writes++
		f.lastWrite[r] = f.writes
	case wire.Flush:
		f.flushed = f.writes
	}
}

func (f *fake) mark(p []byte) {
	for ; len(p) >= 4; p = p[4:] {
		f.marked[binary.LittleEndian.Uint32(p)] = true
	}
	f.mostMarks = max(f.mostMarks, len(f.marked))
	f.allMarked = f.allMarked || len(f.marked) > chain.MaxDirtyRegions
}

func (f *fake) clear(keep []uint32) {
	f.cleared++
	left := map[uint32]bool{}
	for _, r := range keep {
		left[r] = true
	}
	for r := range f.marked {
		if !left[r] && f.lastWrite[r] > f.flushed {
			f.t.Errorf("%s: mark of region %d taken away, but write %d to it came after the last flush (%d)", f.name, r,
				f.lastWrite[r], f.flushed)
		}
	}
	f.marked, f.allMarked = left, false
}

func (f *fake) answer(h *wire.Header, p []byte, code block.Code) {
	a := h.Answer(code)
	if f.spoil != nil {
		f.spoil(&a)
	}
	var out []byte
	if code == block.OK {
		out = f.carryOut(h, p)
	} else if f.keepsFailed && h.Type == wire.Write {
		f.carryOut(h, p)
	}
	if h.Type == wire.Control && code != block.OK {
		out = wire.Marshal(wire.ControlReply{Error: "as the test wants it"})
	}
	if h.Flags&wire.Shared != 0 && code == block.OK {
		copy(f.slot(h), out)
		out = nil
	}
	f.send(a, out)
}

// slot is where the data of a request is.
func (f *fake) slot(h *wire.Header) []byte {
	at := int64(h.Slot)*wire.SlotSize + 4096 + h.Off%block.Size
	return f.window[at : at+h.Len]
}

func (f *fake) carryOut(h *wire.Header, p []byte) []byte {
	switch h.Type {
	case wire.Read, wire.LayerRead:
		return f.read(h.Off, h.Len)
	case wire.Hash:
		s := f.sum(h.Off, h.Len)
		return s[:]
	case wire.LayerHash:
		return f.layerSums(h.Off, h.Len)
	case wire.LayerPunch:
		for off := h.Off; off < h.Off+h.Len; off += block.Size {
			delete(f.pages, off)
		}
	case wire.Write, wire.LayerWrite:
		f.write(h.Off, p)
	case wire.WriteZeroes, wire.Discard:
		f.write(h.Off, make([]byte, h.Len))
	case wire.MarkDirty:
		f.mark(p)
	case wire.Control:
		return f.control(p)
	}
	return nil
}

func (f *fake) control(p []byte) []byte {
	var q wire.ControlRequest
	if err := wire.Unmarshal(p, &q); err != nil {
		f.t.Error(err)
	}
	var r wire.ControlReply
	f.controls = append(f.controls, q)
	switch {
	case q.Purge != nil:
		r.Purge = &wire.PurgeReply{Changed: q.Purge.Begin}
		if !q.Purge.Begin {
			if f.pieces--; f.pieces <= 0 {
				r.Purge.Done = true
			}
		}
	case q.Window != nil:
		f.window = f.g.windows[q.Window.FD]
	case q.Trim != nil:
		r.Trim = &wire.TrimReply{Next: -1}
	case q.SetRecord != nil:
		f.record = q.SetRecord
	case q.ClearDirty != nil:
		f.clear(q.ClearDirty.Keep)
	case q.RemoveSnapshot != nil:
		f.layers = slices.Clone(f.layers)
		for i := range f.layers {
			f.layers[i].Removed = f.layers[i].Removed || f.layers[i].Name == q.RemoveSnapshot.Name
		}
	case q.Describe != nil:
		r.Chain = &wire.ChainDescription{Size: f.reply.Size, HeadEmpty: len(f.pages) == 0,
			Layers: append(slices.Clone(f.below), wire.Layer{Size: f.reply.Size, Allocated: 4096})}
		r.Snapshots = f.layers
	case q.Extents != nil:
		r.Extents = &wire.ExtentsReply{Next: -1}
		for _, off := range slices.Sorted(maps.Keys(f.pages)) {
			if n := len(r.Extents.Ranges); n > 0 && f.joined && r.Extents.Ranges[n-1][1] == off {
				r.Extents.Ranges[n-1][1] += block.Size
				continue
			}
			r.Extents.Ranges = append(r.Extents.Ranges, [2]int64{off, off + block.Size})
		}
		if f.lists != nil {
			f.lists(r.Extents)
		}
	case q.ViewExtents != nil && f.listed != nil:
		r.Extents = f.listed(q.ViewExtents.Off)
	case q.BeginRebuild != nil:
		f.record = nil
	case q.Regions != nil:
		r.Regions = &wire.RegionsReply{}
	}
	if f.tells != nil {
		f.tells(&r)
	}
	return wire.Marshal(r)
}

// layerSums is the answer to LayerHash.
func (f *fake) layerSums(off, n int64) []byte {
	out := make([]byte, wire.LayerSumsSize)
	for b := range n / block.Size {
		if f.pages[off+b*block.Size] != nil {
			out[b/8] |= 1 << (b % 8)
		}
	}
	for at := int64(0); at < n; at += wire.SumChunk {
		s := f.sum(off+at, min(wire.SumChunk, n-at))
		copy(out[wire.SumBlocks+at/wire.SumChunk*wire.SumSize:], s[:wire.SumSize])
	}
	return out
}

// emptySums are the SHA-256 of zeroes, by their length: most of what is asked for is empty, and
// tests would spend a third of their time there.
var emptySums sync.Map

// sum is the SHA-256 of content, whole blocks.
func (f *fake) sum(off, n int64) [sha256.Size]byte {
	for at := off &^ (block.Size - 1); at < off+n; at += block.Size {
		if f.pages[at] != nil {
			return sha256.Sum256(f.read(off, n))
		}
	}
	sum, ok := emptySums.Load(n)
	if !ok {
		sum, _ = emptySums.LoadOrStore(n, sha256.Sum256(make([]byte, n)))
	}
	return sum.([sha256.Size]byte)
}

func (f *fake) read(off, n int64) []byte {
	out := make([]byte, 0, n)
	for n > 0 {
		page := f.pages[off&^(block.Size-1)]
		if page == nil {
			page = make([]byte, block.Size)
		}
		k := min(n, block.Size-off%block.Size)
		out = append(out, page[off%block.Size:][:k]...)
		off, n = off+k, n-k
	}
	return out
}

func (f *fake) write(off int64, p []byte) {
	for len(p) > 0 {
		at := off &^ (block.Size - 1)
		if f.pages[at] == nil {
			f.pages[at] = make([]byte, block.Size)
		}
		k := copy(f.pages[at][off-at:], p)
		off, p = off+int64(k), p[k:]
	}
}

// release answers what was held.
func (f *fake) release() {
	held := f.held
	f.held, f.script = nil, nil
	for _, h := range held {
		f.proc.Post(h)
	}
}

// seen counts requests of a type.
func (f *fake) seen(typ wire.Type) int {
	n := 0
	for _, l := range f.log {
		var name string
		if _, err := fmt.Sscan(l, &name); err == nil && name == typ.String() {
			n++
		}
	}
	return n
}
