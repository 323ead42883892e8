package fuseloop

import (
	"bytes"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/device/journal"
	"ankole.storage/dataplane/frontend"
	"ankole.storage/dataplane/loop"
)

// journaled is a script whose frontends receive into a journal and are killed.
type journaled struct {
	*script
	fd int // of the journal, as the keeper has it
}

func newJournaled(tb testing.TB) *journaled {
	tb.Helper()
	j, err := journal.Create()
	if err != nil {
		tb.Fatal(err)
	}
	fd, err := unix.Dup(j.FD())
	if err != nil {
		tb.Fatal(err)
	}
	k := &journaled{fd: fd, script: newScript(tb, func(c *Config) { c.Journal = j })}
	k.waits, k.auto = map[uint64]bool{}, false
	tb.Cleanup(func() { unix.Close(fd) })
	if err := j.CloseFD(); err != nil {
		tb.Fatal(err)
	}
	return k
}

// kill ends the frontend where it is, and starts its successor. What was submitted and not
// performed, and what was performed and not noticed, is lost.
func (k *journaled) kill() {
	k.tb.Helper()
	if err := k.arena.Close(); err != nil {
		k.tb.Fatal(err)
	}
	fd, err := unix.Dup(k.fd)
	if err != nil {
		k.tb.Fatal(err)
	}
	j, err := journal.Open(fd)
	if err != nil {
		k.tb.Fatal(err)
	}
	if err := j.CloseFD(); err != nil {
		k.tb.Fatal(err)
	}
	k.arena, k.out, k.done, k.reqs, k.recvs = loop.NewArena(32<<20), nil, nil, nil, nil
	if k.f, err = New(Config{Owner: 5, Arena: k.arena, Device: 9, File: "vol", Size: testSize, Journal: j,
		Resume: true}); err != nil {
		k.tb.Fatal(err)
	}
	k.f.Start(&k.out)
	k.f.Resume(&k.reqs, &k.out)
}

const (
	regions    = 8
	regionSize = block.MaxTransfer
)

// user of a volume: one write at a time in each region, and none beside reads.
type user struct {
	*journaled
	volume  []byte // what the replicas have
	content []byte // what was acknowledged
	busy    [regions]int
	writing [regions]bool
	asked   map[uint64]io
	pending []frontend.Request // with the engine
}

type io struct {
	region int
	write  []byte
	size   int
}

// ask sends something that does not disturb what is under way.
func (u *user) ask(rt *rapid.T) {
	region := rapid.IntRange(0, regions-1).Draw(rt, "region")
	n := rapid.SampledFrom([]int{512, 4096, smallSize, smallSize + 512, 70_144, regionSize}).Draw(rt, "size")
	off := uint64(region) * regionSize
	what := io{region: region, size: n}
	var m []byte
	u.unique += 2
	switch kind := rapid.IntRange(0, 4).Draw(rt, "kind"); {
	case kind <= 2 && u.busy[region] == 0:
		what.write = bytes.Repeat([]byte{byte(u.unique/2) | 1}, n)
		u.writing[region] = true
		m = message(opWrite, u.unique, fileNode, writeBody(off, what.write))
	case kind == 3 && !u.writing[region]:
		m = message(opRead, u.unique, fileNode, readBody(off, uint32(n)))
	case kind == 4:
		what.region = -1
		m = message(rapid.SampledFrom([]uint32{opFsync, opGetattr, opForget}).Draw(rt, "other"), u.unique, fileNode,
			words(0, 0))
	default:
		return
	}
	if what.region >= 0 {
		u.busy[region]++
	}
	if ne.Uint32(m[4:]) != opForget {
		u.asked[u.unique] = what
	}
	u.queue = append(u.queue, m)
}

// carryOut is what replicas do with a request, once or more often.
func (u *user) carryOut(q *frontend.Request) {
	if q.Kind == block.Write {
		// The place before the payload is used by whoever sends it on.
		copy(u.arena.Seg(loop.Seg{Buf: q.Buf, Off: -loop.Headroom, Len: loop.Headroom}),
			bytes.Repeat([]byte{0xee}, loop.Headroom))
		copy(u.volume[q.Off:], u.arena.Bytes(q.Buf)[:q.Len])
	}
}

func (u *user) complete(i int) {
	q := u.pending[i]
	u.pending = slices.Delete(u.pending, i, i+1)
	u.carryOut(&q)
	if q.Kind == block.Read {
		copy(u.arena.Bytes(q.Buf), u.volume[q.Off:q.Off+q.Len])
	}
	u.f.Complete(q.ID, block.OK, &u.out)
}

// handle lets the frontend see the first completion.
func (u *user) handle() {
	if len(u.done) > 0 {
		d := u.done[0]
		u.done = u.done[1:]
		u.f.Handle(0, &d, &u.reqs, &u.out)
	}
	u.f.Resume(&u.reqs, &u.out)
	u.script.engine()
	u.pending = append(u.pending, u.reqs...)
	u.reqs = nil
}

// performSome performs the first operations only.
func (u *user) performSome(n int) {
	u.out = u.out[:min(n, len(u.out))]
	u.perform()
}

// tear has the kernel be stopped while it hands a request out: the first n bytes of it are there,
// and the request fails.
func (k *journaled) tear(n int) {
	if len(k.recvs) == 0 || len(k.queue) == 0 {
		return
	}
	op, m := k.recvs[0], k.queue[0]
	k.queue = k.queue[1:]
	part := m[:min(n, len(m)-1)]
	if len(part) < inHeader {
		part = nil // the header comes at once
	}
	n = 0
	for _, s := range op.Vec[:op.Segs] {
		n += copy(k.arena.Seg(s), part[n:])
	}
	if ne.Uint32(m[4:]) != opForget {
		k.errors[ne.Uint64(m[8:])] = errIO
	}
}

// notice takes the answers.
func (u *user) notice(t testing.TB) {
	for unique, what := range u.asked {
		errno, ok := u.errors[unique]
		if !ok {
			continue
		}
		delete(u.asked, unique)
		if what.region < 0 {
			continue
		}
		u.busy[what.region]--
		at := what.region * regionSize
		switch {
		case what.write != nil:
			u.writing[what.region] = false
			if errno == 0 {
				copy(u.content[at:], what.write)
			}
		case errno == 0 && !bytes.Equal(u.replies[unique], u.content[at:at+what.size]):
			t.Fatalf("a read of %d bytes of region %d is wrong", what.size, what.region)
		}
	}
}

// TestRequestsSurviveKills: wherever a frontend is killed, all requests are answered once, a write
// that was acknowledged is not written over by one from before, and a request of which the kernel
// gave a part only is not carried out.
func TestRequestsSurviveKills(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		u := &user{journaled: newJournaled(t), volume: make([]byte, regions*regionSize),
			content: make([]byte, regions*regionSize), asked: map[uint64]io{}}
		for range rapid.IntRange(1, 150).Draw(rt, "steps") {
			switch action := rapid.IntRange(0, 17).Draw(rt, "action"); {
			case action <= 3:
				u.ask(rt)
			case action <= 6:
				u.perform()
			case action <= 8:
				if len(u.recvs) > 0 && len(u.queue) > 0 {
					u.deliver()
				}
			case action <= 11:
				u.handle()
			case action <= 13 && len(u.pending) > 0:
				u.complete(rapid.IntRange(0, len(u.pending)-1).Draw(rt, "answered"))
			case action == 14 && len(u.pending) > 0:
				u.carryOut(&u.pending[rapid.IntRange(0, len(u.pending)-1).Draw(rt, "carried out")])
			default:
				switch rapid.IntRange(0, 3).Draw(rt, "where") {
				case 0:
					u.performSome(rapid.IntRange(0, 3).Draw(rt, "performed"))
				case 1:
					u.tear(rapid.SampledFrom([]int{0, inHeader, 512, smallSize, 70_000, regionSize}).Draw(rt, "part"))
				}
				u.kill()
				u.pending = nil
			}
			u.notice(t)
		}
		for quiet := 0; quiet < 3; quiet++ {
			if len(u.done)+len(u.out)+len(u.pending)+len(u.queue)*len(u.recvs) > 0 {
				quiet = 0
			}
			u.perform()
			for len(u.recvs) > 0 && len(u.queue) > 0 {
				u.deliver()
			}
			u.handle()
			for len(u.pending) > 0 {
				u.complete(0)
			}
			u.notice(t)
		}
		if len(u.asked) > 0 || len(u.queue) > 0 {
			t.Fatalf("%d requests have no answer, %d wait in the kernel", len(u.asked), len(u.queue))
		}
		if !bytes.Equal(u.volume, u.content) {
			t.Fatal("the replicas do not have what was acknowledged")
		}
		u.auto = true
		u.stop()
	})
}

// left says what a successor would find.
func (k *journaled) left(t testing.TB) []journal.Entry {
	t.Helper()
	fd, err := unix.Dup(k.fd)
	if err != nil {
		t.Fatal(err)
	}
	j, err := journal.Open(fd)
	if err != nil {
		t.Fatal(err)
	}
	defer j.Discard()
	return j.Left()
}

// TestStatesOfARequest: what a successor finds at each moment of a write's life.
func TestStatesOfARequest(t *testing.T) {
	k := newJournaled(t)
	want := func(when string, state journal.State, errno int32) {
		t.Helper()
		switch e := k.left(t); {
		case state == journal.Free && len(e) == 0:
		case len(e) != 1 || e[0].State != state || e[0].Errno != errno:
			t.Errorf("%s: %+v, want state %d", when, e, state)
		}
	}
	want("nothing was sent", journal.Free, 0)
	k.queue = append(k.queue, message(opWrite, 4, fileNode, writeBody(0, make([]byte, 70_144))))
	k.deliver()
	want("the kernel has handed it out", journal.Receiving, 0)
	d := k.done[0]
	k.done = nil
	k.f.Handle(0, &d, &k.reqs, &k.out)
	k.perform()
	want("the engine has it", journal.Taken, 0)
	k.f.Complete(k.reqs[0].ID, block.NoSpace, &k.out)
	k.reqs = nil
	want("it has a result", journal.Done, errNoSpace)
	k.perform()
	want("it is answered", journal.Done, errNoSpace)
	d = k.done[0]
	k.done = nil
	k.f.Handle(0, &d, &k.reqs, &k.out)
	want("the answer was accepted", journal.Free, 0)
	k.stop()
}

// TestAnsweredIsNotCarriedOutAgain: what the user wrote after the answer would be lost.
func TestAnsweredIsNotCarriedOutAgain(t *testing.T) {
	for name, body := range map[uint32][]byte{opWrite: writeBody(0, make([]byte, 70_144)),
		opFallocate: fallocBody(0, 4096, fallocPunch|fallocKeepSize), opFsync: words(0, 0)} {
		for _, answered := range []bool{false, true} {
			k := newJournaled(t)
			unique := k.ask(name, fileNode, body)
			k.f.Complete(k.reqs[0].ID, block.OK, &k.out)
			if answered {
				k.perform()
			}
			k.kill()
			k.run()
			if len(k.reqs) > 0 {
				t.Errorf("operation %d, answer given: %v: carried out again", name, answered)
			}
			if got := k.want(unique, 0); name == opWrite && (len(got) != writeOut || ne.Uint32(got) != 70_144) {
				t.Errorf("answer %x", got)
			}
			if left := k.left(t); len(left) > 0 {
				t.Errorf("operation %d: left %+v", name, left)
			}
			k.auto = true
			k.stop()
		}
	}
}

// TestTornRequestIsNotCarriedOut: the kernel has failed it, and a part of its data is another
// request's.
func TestTornRequestIsNotCarriedOut(t *testing.T) {
	for _, size := range []int{4096, smallSize, 70_144, block.MaxTransfer} {
		k := newJournaled(t)
		k.queue = append(k.queue, message(opWrite, 4, fileNode, writeBody(0, make([]byte, size))))
		k.tear(requestHeader + size/2)
		k.kill()
		k.run()
		if len(k.reqs) > 0 {
			t.Errorf("half a write of %d bytes is carried out", size)
		}
		k.auto = true
		k.stop()
	}
}

// TestSuspendedSuccessorFirstAnswersWhatWasLeft: it cannot be left before.
func TestSuspendedSuccessorFirstAnswersWhatWasLeft(t *testing.T) {
	k := newJournaled(t)
	unique := k.ask(opWrite, fileNode, writeBody(0, make([]byte, 4096)))
	k.kill()
	k.f.Suspend(&k.out)
	if k.f.Suspended() {
		t.Fatal("suspended with a request that nobody has answered")
	}
	k.auto = true
	k.f.Resume(&k.reqs, &k.out)
	k.engine()
	k.run()
	k.want(unique, 0)
	if !k.f.Suspended() {
		t.Error("not suspended although everything is answered")
	}
	k.f.Continue(&k.out)
	k.run()
	k.stop()
}

// FuzzSuccessor takes over whatever may lie in a journal's cells: it is refused, or everything in
// it is answered or dropped, the engine is given sensible requests only, and all memory is freed.
func FuzzSuccessor(f *testing.F) {
	const stride = 1 + 2 + 2 + requestHeader // cell, state and error, large cell, header
	put := func(cell, state, errno, large byte, m []byte) []byte {
		return append([]byte{cell, state, errno, large, 0}, append(m, make([]byte, requestHeader)...)[:requestHeader]...)
	}
	write := message(opWrite, 4, fileNode, writeBody(0, make([]byte, 4096)))
	f.Add(slices.Concat(put(1, 2, 0, 0, write), put(2, 1, 0, 3, message(opRead, 6, fileNode, readBody(0, 512)))))
	f.Add(slices.Concat(put(0, 3, 28, 0, write),
		put(9, 2, 0, 5, message(opWrite, 8, fileNode, writeBody(0, make([]byte, 1<<20))))))
	f.Add(put(3, 2, 0, 0, message(opLookup, 6, rootNode, []byte("vol\x00"))))
	f.Fuzz(func(t *testing.T, data []byte) {
		k := newJournaled(t)
		for ; len(data) >= stride; data = data[stride:] {
			cell := int64(4096) + int64(data[0])*(4096+smallSize)
			record := words(uint64(data[1])|uint64(data[2])<<32, uint64(data[3])|uint64(data[4])<<8)
			for at, p := range map[int64][]byte{0: record, 16: data[5:stride], 4096 - requestHeader: data[5:stride]} {
				if _, err := unix.Pwrite(k.fd, p, cell+at); err != nil {
					t.Fatal(err)
				}
			}
			if data[0]%2 == 0 {
				k.waits[ne.Uint64(data[5+8:])&^interruptBit] = true
			}
		}
		fd, err := unix.Dup(k.fd)
		if err != nil {
			t.Fatal(err)
		}
		j, err := journal.Open(fd)
		if err != nil {
			unix.Close(fd)
			k.stop()
			return
		}
		j.Discard()
		k.kill()
		for k.run(); len(k.reqs) > 0; k.run() {
			k.auto = true
			k.engine()
			k.f.Resume(&k.reqs, &k.out)
		}
		if left := k.left(t); len(left) > 0 || len(k.f.left) > 0 {
			t.Errorf("left: %+v", left)
		}
		k.stop()
	})
}

// BenchmarkWrite is a write of 4 KiB from the kernel to its answer, without the kernel and the
// engine.
func BenchmarkWrite(b *testing.B) {
	for name, with := range map[string]bool{"plain": false, "journal": true} {
		b.Run(name, func(b *testing.B) {
			cfg := Config{Owner: 5, Arena: loop.NewArena(32 << 20), Device: 9, File: "vol", Size: testSize}
			if with {
				j, err := journal.Create()
				if err != nil {
					b.Fatal(err)
				}
				defer j.CloseFD()
				cfg.Journal = j
			}
			f, err := New(cfg)
			if err != nil {
				b.Fatal(err)
			}
			m := message(opWrite, 4, fileNode, writeBody(0, make([]byte, 4096)))
			var out []loop.Op
			var reqs []frontend.Request
			f.Start(&out)
			b.ReportAllocs()
			for b.Loop() {
				for i := range out {
					op := &out[i]
					if op.Kind != loop.Recv {
						continue
					}
					n := copy(cfg.Arena.Seg(op.Vec[0]), m)
					out = out[:0]
					f.Handle(0, &loop.Done{Kind: loop.Recv, N: n, Tag: op.Tag}, &reqs, &out)
					break
				}
				f.Complete(reqs[0].ID, block.OK, &out)
				reqs = reqs[:0]
				for i := range out {
					if op := &out[i]; op.Kind == loop.Send {
						f.Handle(0, &loop.Done{Kind: loop.Send, Tag: op.Tag}, &reqs, &out)
						break
					}
				}
			}
		})
	}
}
