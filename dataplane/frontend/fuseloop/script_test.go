package fuseloop

import (
	"testing"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/frontend"
	"ankole.storage/dataplane/loop"
)

// script plays the kernel and the engine around a Frontend.
type script struct {
	tb      testing.TB
	f       *Frontend
	arena   *loop.Arena
	out     []loop.Op
	done    []loop.Done
	reqs    []frontend.Request
	queue   [][]byte // messages of the kernel
	recvs   []loop.Op
	replies map[uint64][]byte // by unique, without the header
	errors  map[uint64]int32
	auto    bool
	unique  uint64
	notices [][]byte // messages of the server's own
	kept    []byte   // the last write the engine was given
	// waits is what the kernel waits for, if the test wants to know: it refuses every other answer.
	waits map[uint64]bool
}

const testSize = 1<<30 + 512

func newScript(tb testing.TB, tell func(c *Config)) *script {
	tb.Helper()
	k := &script{tb: tb, arena: loop.NewArena(32 << 20), replies: map[uint64][]byte{}, errors: map[uint64]int32{},
		auto: true, unique: 2}
	cfg := Config{Owner: 5, Arena: k.arena, Device: 9, File: "vol", Size: testSize}
	if tell != nil {
		tell(&cfg)
	}
	var err error
	if k.f, err = New(cfg); err != nil {
		tb.Fatal(err)
	}
	k.f.Start(&k.out)
	k.run()
	return k
}

// message encodes a request.
func message(opcode uint32, unique, node uint64, body ...[]byte) []byte {
	m := make([]byte, inHeader)
	for _, b := range body {
		m = append(m, b...)
	}
	ne.PutUint32(m, uint32(len(m)))
	ne.PutUint32(m[4:], opcode)
	ne.PutUint64(m[8:], unique)
	ne.PutUint64(m[16:], node)
	return m
}

// words encodes 64-bit fields.
func words(v ...uint64) []byte {
	var b []byte
	for _, x := range v {
		b = ne.AppendUint64(b, x)
	}
	return b
}

// ask sends a request and returns its unique number.
func (k *script) ask(opcode uint32, node uint64, body ...[]byte) uint64 {
	k.unique += 2
	k.queue = append(k.queue, message(opcode, k.unique, node, body...))
	k.run()
	return k.unique
}

// want checks the error of an answer and returns its body.
func (k *script) want(unique uint64, errno int32) []byte {
	k.tb.Helper()
	got, ok := k.errors[unique]
	if !ok || got != errno {
		k.tb.Fatalf("answer %v with error %d, want %d", ok, got, errno)
	}
	return k.replies[unique]
}

func (k *script) run() {
	for {
		k.perform()
		for len(k.queue) > 0 && len(k.recvs) > 0 {
			k.deliver()
		}
		if len(k.done) == 0 {
			return
		}
		batch := k.done
		k.done = nil
		for i := range batch {
			k.f.Handle(0, &batch[i], &k.reqs, &k.out)
		}
		k.engine()
		k.f.Resume(&k.reqs, &k.out)
	}
}

func (k *script) perform() {
	for i := range k.out {
		op := k.out[i]
		switch op.Kind {
		case loop.Recv:
			k.recvs = append(k.recvs, op)
		case loop.Send:
			k.done = append(k.done, loop.Done{Kind: loop.Send, Handle: op.Handle, Tag: op.Tag, Errno: k.reply(&op)})
		case loop.Release:
			for _, r := range k.recvs {
				k.done = append(k.done, loop.Done{Kind: loop.Recv, Handle: op.Handle, Errno: loop.Canceled, Tag: r.Tag})
			}
			k.recvs = nil
			k.done = append(k.done, loop.Done{Kind: loop.Release, Handle: op.Handle, Tag: op.Tag})
		case loop.Close:
			for _, r := range k.recvs {
				k.done = append(k.done, loop.Done{Kind: loop.Recv, Handle: op.Handle, Errno: loop.Canceled, Tag: r.Tag})
			}
			k.recvs = nil
			k.done = append(k.done, loop.Done{Kind: loop.Close, Handle: op.Handle, Tag: op.Tag})
		}
	}
	k.out = k.out[:0]
}

func (k *script) deliver() {
	op, m := k.recvs[0], k.queue[0]
	k.recvs, k.queue = k.recvs[1:], k.queue[1:]
	n, room := 0, 0
	for _, s := range op.Vec[:op.Segs] {
		room += int(s.Len)
		n += copy(k.arena.Seg(s), m[n:])
	}
	if room != requestHeader+block.MaxTransfer {
		k.tb.Fatalf("a receive with room for %d bytes: the kernel refuses it", room)
	}
	if k.waits != nil {
		k.waits[ne.Uint64(m[8:])] = true
	}
	k.done = append(k.done, loop.Done{Kind: loop.Recv, Handle: op.Handle, N: n, Tag: op.Tag})
}

func (k *script) reply(op *loop.Op) loop.Errno {
	var m []byte
	for _, s := range op.Vec[:op.Segs] {
		m = append(m, k.arena.Seg(s)...)
	}
	if len(m) < outHeader || int(ne.Uint32(m)) != len(m) {
		k.tb.Fatalf("malformed answer % x", m[:min(len(m), 32)])
	}
	unique := ne.Uint64(m[8:])
	if unique == 0 {
		k.notices = append(k.notices, m)
		return 0
	}
	if k.waits != nil {
		if !k.waits[unique&^interruptBit] {
			return errNoEntry
		}
		if unique&interruptBit != 0 {
			return 0 // an interruption is answered; the request goes on
		}
		delete(k.waits, unique)
	}
	if _, twice := k.errors[unique]; twice {
		k.tb.Fatalf("second answer to %d", unique)
	}
	errno := -int32(ne.Uint32(m[4:]))
	if errno != 0 && len(m) != outHeader {
		k.tb.Fatal("an error with data: the kernel refuses it")
	}
	k.errors[unique], k.replies[unique] = errno, m[outHeader:]
	return 0
}

func (k *script) engine() {
	for i := range k.reqs {
		r := &k.reqs[i]
		if r.Kind != block.Flush && (r.Len <= 0 || r.Off < 0 || r.Off+r.Len > k.f.size || r.Off%512 != 0 || r.Len%512 != 0) {
			k.tb.Fatalf("the engine was given %+v", *r)
		}
		if r.Kind == block.Write {
			k.kept = append(k.kept[:0], k.arena.Bytes(r.Buf)[:r.Len]...)
		}
	}
	if !k.auto {
		return
	}
	reqs := k.reqs
	k.reqs = nil
	for i := range reqs {
		k.complete(&reqs[i], block.OK)
	}
}

func (k *script) complete(r *frontend.Request, code block.Code) {
	if r.Kind == block.Read {
		for i := range k.arena.Bytes(r.Buf)[:r.Len] {
			k.arena.Bytes(r.Buf)[i] = patternAt(r.Off + int64(i))
		}
	}
	k.f.Complete(r.ID, code, &k.out)
}

func patternAt(off int64) byte { return byte(off) ^ byte(off>>8) ^ byte(off>>16) }

// stop ends the frontend and checks for leaks.
func (k *script) stop() {
	k.tb.Helper()
	k.f.Stop(&k.out)
	k.run()
	k.auto = true
	k.engine()
	k.run()
	if !k.f.Stopped() {
		k.tb.Fatal("the frontend has not stopped")
	}
	if n := k.arena.InUse(); n != 0 {
		k.tb.Fatalf("%d buffers are in use after the stop", n)
	}
	if err := k.arena.Close(); err != nil {
		k.tb.Fatal(err)
	}
}
