package nbd

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/frontend"
	"ankole.storage/dataplane/loop"
)

// handOver gives the server's clients to a new server with memory of its own, as if it were another
// process. The requests that the engine has not answered must have been answered.
func (k *script) handOver() {
	k.tb.Helper()
	k.s.Suspend(&k.out)
	k.run()
	k.takeOver()
}

// takeOver is the second half, of a server that is suspended.
func (k *script) takeOver() {
	k.tb.Helper()
	if !k.s.Suspended() {
		k.tb.Fatal("the server is not suspended although the engine owes it nothing")
	}
	x := k.export()
	k.arena = loop.NewArena(cmp.Or(k.memory, 48<<20))
	s, err := Import(Config{Owner: 3, Arena: k.arena, Export: "vol"}, x)
	if err != nil {
		k.tb.Fatal(err)
	}
	k.s = s
	k.s.Start(&k.out)
	k.s.Resume(&k.reqs, &k.out)
	k.run()
}

// export takes everything from the server, by way of JSON, and checks that it keeps nothing.
func (k *script) export() frontend.Export {
	k.tb.Helper()
	x := k.s.Export()
	p, err := json.Marshal(x)
	if err != nil {
		k.tb.Fatal(err)
	}
	var y frontend.Export
	if err := json.Unmarshal(p, &y); err != nil {
		k.tb.Fatal(err)
	}
	for i := range y.Descriptors {
		y.Descriptors[i].FD = x.Descriptors[i].FD
	}
	if !k.s.Stopped() || k.arena.InUse() != 0 {
		k.tb.Fatalf("after the export: stopped %v, %d buffers in use", k.s.Stopped(), k.arena.InUse())
	}
	k.arena.Close()
	return y
}

// planned is one request of a stream and what has to become of it.
type planned struct {
	typ    uint16
	off    int64
	size   int
	errno  uint32
	given  int // pieces the engine was given
	failed bool
}

// Requests survive any number of hand-overs at any place of the stream: none is lost, none carried
// out twice, none answered twice, and the engine is given them in their order. Suspensions that
// come to nothing change nothing either.
func TestHandOverInTheMiddleOfAStream(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		k := newScript(t, nil)
		k.auto = false
		p := k.connect()
		p.lazy = true
		h := &handOverTest{script: k, p: p, rt: rt, reads: map[uint64]int{}}
		h.plan()
		h.play()
		h.check()
		k.auto = true
		k.stop()
	})
}

type handOverTest struct {
	*script
	p       *peer
	rt      *rapid.T
	plans   []planned
	stream  []byte
	pending []frontend.Request
	reads   map[uint64]int
	last    int // the newest request the engine has been given
}

// plan makes a stream: each request has a place of its own on the volume, so that its number can be
// told from its offset.
func (h *handOverTest) plan() {
	const slot = 12 << 20
	h.stream = intoTransmission()
	sizes := []int{512, 512, 512, 4096, 4096, 4096, 4608, 70_144, 70_144, 70_144, 1 << 20, 1<<20 + 512}
	for i := range rapid.IntRange(1, testSize/slot).Draw(h.rt, "requests") {
		q := planned{typ: rapid.SampledFrom([]uint16{cmdRead, cmdWrite, cmdWrite, cmdFlush, cmdTrim,
			cmdWriteZeroes}).Draw(h.rt, "type"),
			off: int64(i) * slot, size: rapid.SampledFrom(sizes).Draw(h.rt, "size")}
		switch {
		case q.typ == cmdFlush:
			q.off, q.size = 0, 0
		case rapid.IntRange(0, 40).Draw(h.rt, "large") == 0:
			q.size = 2<<20 + 512
		}
		flags := uint16(0)
		if rapid.IntRange(0, 7).Draw(h.rt, "wrong") == 0 {
			flags, q.errno = 1<<5, errnoInvalid
		}
		var payload []byte
		switch q.typ {
		case cmdWrite:
			payload = bytes.Repeat([]byte{byte(i + 1)}, q.size)
		case cmdRead:
			h.reads[uint64(i)] = q.size
		}
		h.plans = append(h.plans, q)
		h.stream = append(h.stream, requestBytes(flags, q.typ, uint64(i), uint64(q.off), uint32(q.size), payload)...)
	}
}

func (h *handOverTest) play() {
	suspended := false
	for steps := 0; len(h.stream) > 0 || len(h.pending) > 0 || h.p.send != nil || suspended; steps++ {
		action := rapid.IntRange(0, 9).Draw(h.rt, "action")
		if steps > 400 {
			action = steps % 3 // enough: play to the end
			if suspended && len(h.pending) == 0 {
				h.takeOver()
				suspended = false
			}
		}
		switch {
		case action <= 2 && len(h.stream) > 0 && action != 1 && steps <= 400 || action == 0:
			n := min(len(h.stream),
				rapid.SampledFrom([]int{1, 7, 28, 30, 4096, 70_000, 1 << 20, 1<<20 + 28, 5 << 20}).Draw(h.rt, "bytes"))
			if steps > 400 {
				n = len(h.stream)
			}
			h.p.in = append(h.p.in, h.stream[:n]...)
			h.stream = h.stream[n:]
		case action == 1 || action == 3 || action == 4:
			h.answerOne()
		case action == 2 || action == 5:
			h.p.room += rapid.SampledFrom([]int{1, 15, 100, 70_000, 4 << 20}).Draw(h.rt, "taken")
			if steps > 400 {
				h.p.room = 1 << 30
			}
			h.trickle(h.p)
		case action == 6 && !suspended:
			h.s.Suspend(&h.out)
			suspended = true
		case action == 7 && suspended:
			h.s.Continue(&h.out)
			h.s.Resume(&h.reqs, &h.out)
			suspended = false
		case suspended && len(h.pending) == 0:
			h.run()
			if h.collect(); len(h.pending) == 0 {
				h.takeOver()
				suspended = false
			}
		}
		h.run()
		h.s.Resume(&h.reqs, &h.out)
		h.run()
		h.collect()
	}
	h.p.room = 1 << 30
	h.trickle(h.p)
	h.run()
}

// collect takes what the engine was given, and checks its order and content.
func (h *handOverTest) collect() {
	const slot = 12 << 20
	for _, q := range h.reqs {
		h.pending = append(h.pending, q)
		if q.Kind == block.Flush {
			continue
		}
		i := int(q.Off / slot)
		if i < h.last {
			h.tb.Fatalf("request %d reached the engine after request %d", i, h.last)
		}
		h.last = i
		h.plans[i].given++
		if q.Kind == block.Write && !bytes.Equal(h.arena.Bytes(q.Buf)[:q.Len],
			bytes.Repeat([]byte{byte(i + 1)}, int(q.Len))) {
			h.tb.Fatalf("write %d at %d reached the engine with other bytes", i, q.Off)
		}
	}
	h.reqs = nil
}

func (h *handOverTest) answerOne() {
	if len(h.pending) == 0 {
		return
	}
	i := rapid.IntRange(0, len(h.pending)-1).Draw(h.rt, "answered")
	q := h.pending[i]
	h.pending = slices.Delete(h.pending, i, i+1)
	code := block.OK
	if q.Kind == block.Write && rapid.IntRange(0, 9).Draw(h.rt, "fails") == 0 {
		code = block.NoSpace
		h.plans[q.Off/(12<<20)].failed = true
	}
	h.complete(&q, code)
}

// check compares the answers with the plan.
func (h *handOverTest) check() {
	skip := bytes.Index(h.p.got, []byte{0x67, 0x44, 0x66, 0x98})
	if skip < 0 {
		h.tb.Fatal("no answer at all")
	}
	h.p.got = h.p.got[skip:] // the negotiation
	seen := map[uint64]bool{}
	for _, a := range h.answers(h.p, h.reads) {
		q := h.plans[a.cookie]
		want := q.errno
		if q.failed {
			want = errnoNoSpace
		}
		if seen[a.cookie] || a.errno != want {
			h.tb.Fatalf("request %d (%+v) was answered with %d, before: %v", a.cookie, q, a.errno, seen[a.cookie])
		}
		seen[a.cookie] = true
		for i, b := range a.data {
			if b != patternAt(q.off+int64(i)) {
				h.tb.Fatalf("read %d is wrong at byte %d of %d", a.cookie, i, len(a.data))
			}
		}
	}
	for i, q := range h.plans {
		pieces := 1
		if q.typ == cmdRead || q.typ == cmdWrite {
			pieces = (q.size + block.MaxTransfer - 1) / block.MaxTransfer
		}
		if q.errno != 0 {
			pieces = 0
		}
		if !seen[uint64(i)] || q.typ != cmdFlush && q.given != pieces {
			h.tb.Fatalf("request %d (%+v): answered %v, %d of %d pieces reached the engine", i, q, seen[uint64(i)],
				q.given, pieces)
		}
	}
}

// An answer that does not fit into one send is not interrupted by another one.
func TestLargeAnswersAreNotInterrupted(t *testing.T) {
	for _, handed := range []bool{false, true} {
		k := newScript(t, nil)
		p := k.ready()
		p.lazy = true
		const size = 10 << 20
		k.say(p, requestBytes(0, cmdRead, 1, 0, size, nil))
		k.say(p, requestBytes(1<<5, cmdRead, 2, 0, 512, nil), requestBytes(0, cmdRead, 3, 4096, 4096, nil))
		for step := 1; len(p.got) < size+4096+3*replyHeader; step++ {
			p.room = 3 << 20
			k.trickle(p)
			if handed && step == 2 {
				k.handOver()
			}
			k.run()
		}
		got := k.answers(p, map[uint64]int{1: size, 3: 4096})
		if len(got) != 3 || len(got[0].data) != size || got[1].errno == 0 {
			t.Fatalf("handed over %v: %d answers", handed, len(got))
		}
		for i, b := range got[0].data {
			if b != patternAt(int64(i)) {
				t.Fatalf("handed over %v: wrong byte at %d", handed, i)
			}
		}
		p.lazy = false
		k.stop()
	}
}

// A connection in the middle of the negotiation, and one that has sent DISC, go on as well; new
// clients are let in.
func TestHandOverOfTheNegotiation(t *testing.T) {
	k := newScript(t, nil)
	whole := intoTransmission()
	var peers []*peer
	for n := range len(whole) {
		if len(peers) == defaultClients-1 {
			break
		}
		p := k.connect()
		k.say(p, whole[:n*len(whole)/(defaultClients-1)])
		peers = append(peers, p)
	}
	k.handOver()
	for i, p := range peers {
		k.say(p, whole[i*len(whole)/(defaultClients-1):], requestBytes(0, cmdRead, 9, 4096, 512, nil))
		if i := bytes.Index(p.got, []byte{0x67, 0x44, 0x66, 0x98}); i < 0 || p.got[i+replyHeader] != patternAt(4096) {
			t.Fatalf("client %d does not get its answer", i)
		}
	}
	p := k.ready2()
	k.auto = false
	k.say(p, requestBytes(0, cmdRead, 1, 0, 512, nil), requestBytes(0, cmdDisc, 2, 0, 0, nil))
	k.s.Suspend(&k.out)
	k.run()
	if k.s.Suspended() {
		t.Fatal("suspended although a read is not answered")
	}
	p.lazy = true
	k.complete(&k.reqs[0], block.OK)
	k.reqs = nil
	k.run()
	k.takeOver()
	if p.closed {
		t.Fatal("closed before the answer was sent")
	}
	p.room = 1 << 20
	k.trickle(p)
	k.run()
	if !p.closed || len(p.got) < 512+replyHeader {
		t.Fatalf("closed %v after %d bytes", p.closed, len(p.got))
	}
	k.auto = true
	k.stop()
}

// ready2 is ready for a server that has other clients.
func (k *script) ready2() *peer {
	p := k.connect()
	k.say(p, intoTransmission())
	p.got = nil
	return p
}

// While it is suspended nothing is taken in, and a client that comes waits.
func TestSuspendedServerTakesNothingIn(t *testing.T) {
	k := newScript(t, nil)
	p := k.ready()
	k.s.Suspend(&k.out)
	k.run()
	if !k.s.Suspended() || k.accept != nil || p.recv != nil {
		t.Fatalf("suspended %v, accepts %v, receives %v", k.s.Suspended(), k.accept != nil, p.recv != nil)
	}
	k.say(p, requestBytes(0, cmdRead, 1, 0, 512, nil))
	if len(p.got) != 0 {
		t.Fatal("a suspended server has answered")
	}
	k.s.Continue(&k.out)
	k.s.Resume(&k.reqs, &k.out)
	k.run()
	if got := k.answers(p, map[uint64]int{1: 512}); len(got) != 1 || k.accept == nil {
		t.Fatalf("after it has gone on: answers %+v, accepts %v", got, k.accept != nil)
	}
	k.stop()
}

// A suspended server can be stopped, and a client that hangs up meanwhile is disconnected.
func TestSuspendedServerStops(t *testing.T) {
	k := newScript(t, nil)
	a, b := k.ready(), k.ready2()
	k.auto = false
	k.say(a, requestBytes(0, cmdRead, 1, 0, 512, nil))
	k.s.Suspend(&k.out)
	k.hangUp(b)
	if !b.closed || k.s.Suspended() {
		t.Fatalf("closed %v, suspended %v", b.closed, k.s.Suspended())
	}
	k.complete(&k.reqs[0], block.OK)
	k.reqs = nil
	k.run()
	if !k.s.Suspended() {
		t.Fatal("not suspended")
	}
	k.stop()
}

// A client that does not take its answers is given away with them, as long as they fit; after that
// it has to take some.
func TestAnswersThatNobodyTakes(t *testing.T) {
	k := newScript(t, nil)
	p := k.ready()
	p.lazy = true
	for i := range uint64(35) {
		k.say(p, requestBytes(0, cmdRead, i, i<<20, 1<<20, nil))
	}
	k.s.Suspend(&k.out)
	k.run()
	if k.s.Suspended() {
		t.Fatal("35 MiB of answers are given away")
	}
	k.s.Continue(&k.out)
	k.s.Resume(&k.reqs, &k.out)
	k.run()
	p.room = 5 << 20
	k.trickle(p)
	k.run()
	k.handOver()
	for p.room = 1 << 30; p.send != nil; k.run() {
		k.trickle(p)
	}
	sizes := map[uint64]int{}
	for i := range uint64(35) {
		sizes[i] = 1 << 20
	}
	got := k.answers(p, sizes)
	if len(got) != 35 {
		t.Fatalf("%d answers", len(got))
	}
	for i, a := range got {
		if a.cookie != uint64(i) || a.data[4097] != patternAt(int64(i)<<20+4097) {
			t.Fatalf("answer %d is to request %d", i, a.cookie)
		}
	}
	p.lazy = false
	k.stop()
}
