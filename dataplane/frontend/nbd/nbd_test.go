package nbd

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/frontend"
	"ankole.storage/dataplane/loop"
)

// ready connects a client and brings it into transmission.
func (k *script) ready() *peer {
	p := k.connect()
	k.say(p, intoTransmission())
	if p.closed || k.s.clients[0] == nil {
		k.tb.Fatal("the negotiation failed")
	}
	p.got = nil
	return p
}

func TestRequestsThatAreWrongAreRefusedByTheProtocolsErrors(t *testing.T) {
	cases := []struct {
		name       string
		flags, typ uint16
		off        uint64
		size       uint32
		want       uint32
	}{
		{"read unaligned offset", 0, cmdRead, 1, 512, errnoInvalid},
		{"read unaligned size", 0, cmdRead, 0, 100, errnoInvalid},
		{"read nothing", 0, cmdRead, 0, 0, errnoInvalid},
		{"read across the end", 0, cmdRead, testSize - 512, 1024, errnoInvalid},
		{"read beyond the end", 0, cmdRead, testSize, 512, errnoInvalid},
		{"read at an offset that overflows", 0, cmdRead, ^uint64(511), 1024, errnoInvalid},
		{"read too much", 0, cmdRead, 0, MaxRequest + 512, errnoInvalid},
		{"read with an unknown flag", 1 << 5, cmdRead, 0, 512, errnoInvalid},
		{"write unaligned", 0, cmdWrite, 100, 512, errnoInvalid},
		{"write across the end", 0, cmdWrite, testSize - 512, 1024, errnoNoSpace},
		{"write nothing", 0, cmdWrite, 0, 0, errnoInvalid},
		{"trim across the end", 0, cmdTrim, testSize - 512, 1024, errnoInvalid},
		{"zero across the end", 0, cmdWriteZeroes, testSize - 512, 1024, errnoNoSpace},
		{"fast zero, which is not offered", 1 << 4, cmdWriteZeroes, 0, 512, errnoInvalid},
		{"an unknown command", 0, 99, 0, 0, errnoInvalid},
		{"cache, which is not offered", 0, 5, 0, 512, errnoInvalid},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			k := newScript(t, nil)
			p := k.ready()
			var payload []byte
			if c.typ == cmdWrite {
				payload = bytes.Repeat([]byte{magicRequest >> 24}, int(c.size))
			}
			k.auto = false
			k.say(p, requestBytes(c.flags, c.typ, 42, c.off, c.size, payload))
			got := k.answers(p, nil)
			if len(got) != 1 || got[0].cookie != 42 || got[0].errno != c.want || len(k.reqs) != 0 {
				t.Fatalf("answers %+v and requests %+v, want error %d and none", got, k.reqs, c.want)
			}
			k.auto = true
			k.say(p, requestBytes(0, cmdRead, 43, 0, 512, nil)) // still in step
			if got := k.answers(p, map[uint64]int{43: 512}); len(got) != 1 || got[0].errno != 0 {
				t.Fatalf("the next request got %+v", got)
			}
			k.stop()
		})
	}
}

func TestNonsenseEndsItsConnectionAndNoOther(t *testing.T) {
	big := requestBytes(0, cmdWrite, 1, 0, MaxRequest+512, nil)
	cases := map[string][]byte{
		"flags nobody knows":           {0xff, 0xff, 0xff, 0xff},
		"no option magic":              append(hello(), make([]byte, 16)...),
		"an option of a gigabyte":      append(hello(), optionBytes(optList, nil)[:12]...),
		"an export nobody has":         append(hello(), optionBytes(optExportName, []byte("other"))...),
		"no request magic":             append(intoTransmission(), make([]byte, requestHeader)...),
		"a payload beyond the maximum": append(intoTransmission(), big...),
		"an HTTP request":              []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
	}
	cases["an option of a gigabyte"] = append(cases["an option of a gigabyte"], 0x40, 0, 0, 0)
	k := newScript(t, nil)
	good := k.ready()
	for name, bytes := range cases {
		bad := k.connect()
		k.say(bad, bytes)
		if !bad.closed {
			t.Errorf("%s: the connection is still open", name)
		}
		k.say(good, requestBytes(0, cmdFlush, 7, 0, 0, nil))
		if got := k.answers(good, nil); len(got) != 1 || got[0].errno != 0 {
			t.Errorf("%s: the other client got %+v", name, got)
		}
	}
	k.stop()
}

func TestPayloadsSurviveAnyCutting(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		k := newScript(t, nil)
		defer k.stop()
		p := k.ready()
		k.inbox = map[uint64][]byte{}
		sizes := rapid.SliceOfN(rapid.SampledFrom([]int{512, 1024, 4096, 65536, 1 << 20, 1<<20 + 512, 2 << 20}), 1,
			8).Draw(rt, "sizes")
		total := 0
		for _, n := range sizes {
			total += n + requestHeader
		}
		p.chunk = rapid.IntRange(1+total/300, 200_000).Draw(rt, "chunk")
		var stream []byte
		want := map[uint64]byte{}
		off := uint64(0)
		for i, n := range sizes {
			stream = append(stream, requestBytes(0, cmdWrite, uint64(i), off, uint32(n),
				bytes.Repeat([]byte{byte(i + 1)}, n))...)
			for at := 0; at < n; at += block.MaxTransfer {
				want[off+uint64(at)] = byte(i + 1)
			}
			off += uint64(n)
		}
		k.say(p, stream)
		total = 0
		for off, b := range k.inbox {
			if c, ok := want[off]; !ok || !bytes.Equal(b, bytes.Repeat([]byte{c}, len(b))) {
				rt.Fatalf("piece at %d of %d bytes is wrong", off, len(b))
			}
			total += len(b)
		}
		if total != int(off) || len(k.inbox) != len(want) || len(k.answers(p, nil)) != len(sizes) {
			rt.Fatalf("%d bytes in %d pieces arrived of %d in %d", total, len(k.inbox), off, len(want))
		}
	})
}

func TestTheAnswersOfOneStepLeaveInOneSend(t *testing.T) {
	k := newScript(t, nil)
	p := k.ready()
	var burst []byte
	for i := range 100 {
		burst = append(burst, requestBytes(0, cmdWrite, uint64(i), uint64(i)*512, 512, make([]byte, 512))...)
	}
	before := k.sends
	p.chunk = len(burst) // the whole burst fits one receive
	k.say(p, burst)
	if got := len(k.answers(p, nil)); got != 100 || k.sends-before > 2 {
		t.Fatalf("%d answers in %d sends", got, k.sends-before)
	}
	k.stop()
}

func TestReadDataIsSentFromTheEnginesBuffer(t *testing.T) {
	k := newScript(t, nil)
	p := k.ready()
	k.auto = false
	k.say(p, requestBytes(0, cmdRead, 9, 4096, 8192, nil))
	r := k.reqs[0]
	k.complete(&r, block.OK)
	op := k.out[len(k.out)-1]
	if op.Kind != loop.Send || op.Segs != 1 ||
		op.Vec[0] != (loop.Seg{Buf: r.Buf, Off: -replyHeader, Len: replyHeader + 8192}) {
		t.Fatalf("the send is %+v", op)
	}
	k.reqs = nil
	k.run()
	a := k.answers(p, map[uint64]int{9: 8192})[0]
	for i, b := range a.data {
		if b != patternAt(4096+int64(i)) {
			t.Fatalf("byte %d is wrong", i)
		}
	}
	k.stop()
}

func TestALargeReadIsOneAnswerInOrder(t *testing.T) {
	k := newScript(t, nil)
	p := k.ready()
	k.auto = false
	k.say(p, requestBytes(0, cmdRead, 9, 512, 20<<20, nil), requestBytes(0, cmdFlush, 10, 0, 0, nil))
	reqs := k.reqs
	k.reqs = nil
	for i := len(reqs) - 1; i >= 0; i-- { // backwards
		k.complete(&reqs[i], block.OK)
	}
	k.run()
	got := k.answers(p, map[uint64]int{9: 20 << 20})
	if len(got) != 2 || got[1].cookie != 9 {
		t.Fatalf("%d answers", len(got))
	}
	for i, b := range got[1].data {
		if b != patternAt(512+int64(i)) {
			t.Fatalf("byte %d is wrong", i)
		}
	}
	k.stop()
}

func TestAClientThatAsksTooMuchIsNotReadFrom(t *testing.T) {
	k := newScript(t, func(c *Config) { c.MaxInFlight = 10 })
	p := k.ready()
	k.auto = false
	for i := range 25 {
		k.say(p, requestBytes(0, cmdFlush, uint64(i), 0, 0, nil))
	}
	if len(k.reqs) != 10 || p.recv != nil {
		t.Fatalf("%d requests in flight of 10, receiving %v", len(k.reqs), p.recv != nil)
	}
	answered := 0
	for len(k.reqs) > 0 {
		r := k.reqs[0]
		k.reqs = k.reqs[1:]
		k.complete(&r, block.OK)
		k.run()
		if len(k.reqs) > 10 {
			t.Fatalf("%d requests in flight of 10", len(k.reqs))
		}
		answered += len(k.answers(p, nil))
	}
	if answered != 25 || p.recv == nil {
		t.Fatalf("%d of 25 answered, receiving %v", answered, p.recv != nil)
	}
	k.stop()
}

func TestWithoutBuffersRequestsWaitAndGoOnByResume(t *testing.T) {
	k := newScript(t, nil)
	p := k.ready()
	var taken []loop.Buf // somebody else uses the arena
	for {
		b, ok := k.arena.Get(1 << 20)
		if !ok {
			break
		}
		taken = append(taken, b)
	}
	k.say(p, requestBytes(0, cmdRead, 1, 0, 1<<20, nil), requestBytes(0, cmdRead, 2, 0, 512, nil))
	if len(p.got) != 0 || p.recv != nil {
		t.Fatalf("%d bytes answered without a buffer, receiving %v", len(p.got), p.recv != nil)
	}
	for _, b := range taken {
		k.arena.Release(b)
	}
	k.s.Resume(&k.reqs, &k.out)
	k.engine()
	k.run()
	if got := k.answers(p, map[uint64]int{1: 1 << 20, 2: 512}); len(got) != 2 {
		t.Fatalf("%d answers after buffers came free", len(got))
	}
	k.stop()
}

func TestALargeRequestGetsItsTurnAmongSmallOnes(t *testing.T) {
	k := newScript(t, nil)
	small, large := k.ready(), k.connect()
	k.say(large, intoTransmission())
	large.got = nil
	k.auto = false
	for i := range 40 { // 40 MiB of 48 are taken
		k.say(small, requestBytes(0, cmdRead, uint64(i), 0, 1<<20, nil))
	}
	k.say(large, requestBytes(0, cmdRead, 99, 0, 32<<20, nil))
	served := func(r frontend.Request) bool { return r.Off == 31<<20 } // only the large one reaches there
	for i := range 1000 {
		k.say(small, requestBytes(0, cmdRead, uint64(100+i), 0, 1<<20, nil)) // asks on and on
		if len(k.reqs) == 0 {
			t.Fatal("nothing is under way")
		}
		r := k.reqs[0]
		k.reqs = k.reqs[1:]
		k.complete(&r, block.OK)
		k.run()
		small.got = nil
		if slices.ContainsFunc(k.reqs, served) {
			k.stop()
			return
		}
	}
	t.Fatal("1000 small requests were served while a large one waited")
}

func TestTooManyClientsAreTurnedAway(t *testing.T) {
	k := newScript(t, func(c *Config) { c.MaxClients = 2 })
	a, b, c := k.connect(), k.connect(), k.connect()
	if a.closed || b.closed || !c.closed || k.s.Clients() != 2 {
		t.Fatalf("closed: %v %v %v", a.closed, b.closed, c.closed)
	}
	k.hangUp(a)
	if d := k.connect(); d.closed {
		t.Fatal("a place came free and was not given")
	}
	k.stop()
}

func TestDisconnectIsPolite(t *testing.T) {
	k := newScript(t, nil)
	p := k.ready()
	k.auto = false
	k.say(p, requestBytes(0, cmdRead, 1, 0, 512, nil), requestBytes(0, cmdDisc, 2, 0, 0, nil))
	if p.closed {
		t.Fatal("closed before the outstanding request was answered")
	}
	r := k.reqs[0]
	k.reqs = nil
	k.complete(&r, block.OK)
	k.run()
	if !p.closed || len(k.answers(p, map[uint64]int{1: 512})) != 1 {
		t.Fatal("not answered and closed")
	}
	k.stop()
}

func TestAClientThatGoesLeavesItsRequestsToTheEngine(t *testing.T) {
	k := newScript(t, nil)
	p := k.ready()
	k.auto = false
	k.say(p, requestBytes(0, cmdRead, 1, 0, 4<<20, nil), requestBytes(0, cmdWrite, 2, 0, 3<<20, make([]byte, 3<<19)))
	if len(k.reqs) != 4+1 { // the write's first piece is complete, its second half received
		t.Fatalf("%d requests", len(k.reqs))
	}
	first := k.reqs[0]
	k.reqs = k.reqs[1:]
	k.complete(&first, block.OK)
	k.hangUp(p)
	if !p.closed || k.s.Clients() != 0 {
		t.Fatal("the connection is not gone")
	}
	q := k.connect()
	if q.closed {
		t.Fatal("no place for the next client")
	}
	k.stop() // checks that the completions of the rest free everything
}

func TestErrorsOfTheEngine(t *testing.T) {
	for code, want := range map[block.Code]uint32{
		block.OK: 0, block.Invalid: errnoInvalid, block.NoSpace: errnoNoSpace, block.IOError: errnoIO,
		block.Unavailable: errnoIO, block.Fenced: errnoIO, block.Corrupt: errnoIO,
	} {
		k := newScript(t, nil)
		p := k.ready()
		k.auto = false
		k.say(p, requestBytes(0, cmdWrite, 1, 0, 512, make([]byte, 512)))
		r := k.reqs[0]
		k.reqs = nil
		k.complete(&r, code)
		k.run()
		if got := k.answers(p, nil); len(got) != 1 || got[0].errno != want {
			t.Errorf("%v became %+v, want %d", code, got, want)
		}
		k.stop()
	}
}

func TestFlagsReachTheEngine(t *testing.T) {
	k := newScript(t, nil)
	p := k.ready()
	k.auto = false
	k.say(p,
		requestBytes(cmdFlagFUA, cmdWrite, 1, 0, 512, make([]byte, 512)),
		requestBytes(cmdFlagFUA, cmdWriteZeroes, 2, 0, 1<<31, nil)[:0],
		requestBytes(cmdFlagFUA, cmdWriteZeroes, 2, 0, 32<<20, nil),
		requestBytes(cmdFlagNoHole, cmdWriteZeroes, 3, 0, 512, nil),
		requestBytes(cmdFlagFUA, cmdTrim, 4, 0, testSize, nil),
		requestBytes(0, cmdFlush, 5, 12345, 77, nil)) // a flush's range is reserved and ignored
	want := []struct {
		kind       block.Kind
		fua, unmap bool
		len        int64
	}{
		{block.Write, true, false, 512}, {block.WriteZeroes, true, true, 32 << 20},
		{block.WriteZeroes, false, false, 512}, {block.Discard, false, false, testSize}, {block.Flush, false, false, 0},
	}
	if len(k.reqs) != len(want) {
		t.Fatalf("%d requests", len(k.reqs))
	}
	for i, w := range want {
		if r := k.reqs[i]; r.Kind != w.kind || r.FUA != w.fua || r.Unmap != w.unmap || r.Len != w.len {
			t.Errorf("request %d is %+v, want %+v", i, r, w)
		}
	}
	k.stop()
}

func TestConfigIsChecked(t *testing.T) {
	a := loop.NewArena(64 << 20)
	for name, c := range map[string]Config{
		"no arena":        {Size: 512},
		"no listener":     {Arena: a, Listener: loop.None, Size: 512},
		"no size":         {Arena: a},
		"a small arena":   {Arena: loop.NewArena(MaxRequest), Size: 512},
		"a size of 1000":  {Arena: a, Size: 1000},
		"a negative size": {Arena: a, Size: -512},
		"a long name":     {Arena: a, Size: 512, Export: strings.Repeat("x", 256)},
		"clients":         {Arena: a, Size: 512, MaxClients: -1},
	} {
		if _, err := New(c); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
}

// FuzzServer throws bytes at the server, cut at will, in the negotiation or behind it. Whatever
// they are, the engine is only given sensible requests, and everything is freed in the end.
func FuzzServer(f *testing.F) {
	f.Add(false, 7, append(hello(), optionBytes(optList, nil)...))
	f.Add(true, 0, requestBytes(0, cmdRead, 1, 0, 4096, nil))
	f.Add(true, 100, requestBytes(1, cmdWrite, 1, 4096, 1024, make([]byte, 1024)))
	f.Add(true, 1000, append(requestBytes(0, cmdWrite, 1, 1, 512, make([]byte, 512)),
		requestBytes(0, cmdDisc, 0, 0, 0, nil)...))
	f.Add(true, 9, requestBytes(0, cmdTrim, 1, 0, 1<<20, nil))
	f.Fuzz(func(t *testing.T, transmission bool, chunk int, data []byte) {
		k := newScript(t, nil)
		p := k.connect()
		if transmission {
			k.say(p, intoTransmission())
		}
		p.chunk = max(0, chunk)
		k.say(p, data)
		k.hangUp(p)
		k.stop()
	})
}

// A client is heard also when the requests of others have used up the memory: what it needs for
// that is set aside.
func TestFullMemoryTurnsNobodyAway(t *testing.T) {
	k := newScript(t, nil)
	k.auto = false
	a := k.ready()
	for i := range uint64(60) {
		k.say(a, requestBytes(0, cmdRead, i, 0, 1<<20, nil))
	}
	if len(k.reqs) > 48 {
		t.Fatal("the memory is not used up: the test proves nothing")
	}
	var rest []loop.Buf
	for x, ok := k.arena.Get(4096); ok; x, ok = k.arena.Get(4096) {
		rest = append(rest, x)
	}
	b := k.connect()
	if b.closed || len(b.got) == 0 {
		t.Fatalf("closed %v after %d bytes", b.closed, len(b.got))
	}
	for _, x := range rest {
		k.arena.Release(x)
	}
	k.auto = true
	k.engine()
	k.run()
	k.stop()
}

// An answer that does not fit into one send is not interrupted by another one.
func TestLargeAnswersAreNotInterrupted(t *testing.T) {
	k := newScript(t, nil)
	p := k.ready()
	p.lazy = true
	const size = 10 << 20
	k.say(p, requestBytes(0, cmdRead, 1, 0, size, nil))
	k.say(p, requestBytes(1<<5, cmdRead, 2, 0, 512, nil), requestBytes(0, cmdRead, 3, 4096, 4096, nil))
	for len(p.got) < size+4096+3*replyHeader {
		p.room = 3 << 20
		k.trickle(p)
		k.run()
	}
	got := k.answers(p, map[uint64]int{1: size, 3: 4096})
	if len(got) != 3 || len(got[0].data) != size || got[1].errno == 0 {
		t.Fatalf("%d answers", len(got))
	}
	for i, b := range got[0].data {
		if b != patternAt(int64(i)) {
			t.Fatalf("wrong byte at %d", i)
		}
	}
	p.lazy = false
	k.stop()
}
