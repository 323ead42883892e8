package ublk

import (
	"bytes"
	"encoding/binary"
	"testing"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/frontend"
	"ankole.storage/dataplane/loop"
)

const (
	owner  loop.Owner  = 7
	device loop.Handle = 9
	size               = 4 << 20
)

// kernel plays the driver and the loop: it has the places of a frontend, and carries its operations
// out.
type kernel struct {
	t      testing.TB
	f      *Frontend
	arena  *loop.Arena
	queues [][]byte
	depth  int
	// waits has the tag of a place that waits for a request.
	waits map[int]uint64
	// data is that of the request in a place; results are what was answered.
	data    map[int][]byte
	results map[int]int64
	// short: copies of data come to less than all.
	short  bool
	reqs   []frontend.Request
	closed bool
	// asked counts how often it was said that the kernel has been asked.
	asked int
}

func newKernel(t testing.TB, queues, depth, memory int) *kernel {
	k := &kernel{t: t, arena: loop.NewArena(memory), depth: depth, waits: map[int]uint64{}, data: map[int][]byte{},
		results: map[int]int64{}}
	for range queues {
		k.queues = append(k.queues, make([]byte, depth*DescriptorSize))
	}
	f, err := New(Config{Owner: owner, Arena: k.arena, Device: device, Queues: k.queues, Depth: depth, Size: size,
		Asked: func() { k.asked++ }})
	if err != nil {
		t.Fatal(err)
	}
	k.f = f
	var out []loop.Op
	f.Start(&out)
	k.run(out)
	if k.asked != 1 {
		t.Fatalf("it is said %d times that requests were asked for", k.asked)
	}
	if len(k.waits) != queues*depth {
		t.Fatalf("%d places wait for requests, of %d", len(k.waits), queues*depth)
	}
	return k
}

// run carries operations out, and what follows from them.
func (k *kernel) run(out []loop.Op) {
	k.t.Helper()
	for len(out) > 0 {
		op := out[0]
		out = out[1:]
		if op.Handle != device && op.Kind != loop.Call || loop.OwnerOf(op.Tag) != owner {
			k.t.Fatalf("operation on %d by %d", op.Handle, loop.OwnerOf(op.Tag))
		}
		d := loop.Done{Kind: op.Kind, Handle: op.Handle, Tag: op.Tag}
		switch op.Kind {
		case loop.Fetch, loop.Commit:
			place := int(op.Off>>16)*k.depth + int(op.Off&0xffff)
			if _, twice := k.waits[place]; twice {
				k.t.Fatalf("place %d waits twice", place)
			}
			if k.waits[place] = op.Tag; op.Kind == loop.Commit {
				if _, twice := k.results[place]; twice {
					k.t.Fatalf("place %d is answered twice", place)
				}
				k.results[place] = op.Len
			}
			continue
		case loop.FileRead, loop.FileWrite:
			place := int(op.Off-bufferOffset)>>bufferQueueShift*k.depth +
				int(op.Off-bufferOffset)>>bufferTagShift&0xffff
			p := k.arena.Seg(op.Vec[0])
			if op.Kind == loop.FileRead {
				d.N = copy(p, k.data[place])
			} else {
				k.data[place] = bytes.Clone(p)
				d.N = len(p)
			}
			if k.short {
				d.N--
			}
		case loop.Call:
			if len(k.waits) != len(k.queues)*k.depth {
				k.t.Fatalf("%d places wait for requests when it is said that they were asked for", len(k.waits))
			}
		case loop.Close:
			for place, tag := range k.waits {
				delete(k.waits, place)
				k.handle(&loop.Done{Kind: loop.Fetch, Handle: device, Tag: tag, Errno: loop.Canceled}, &out)
			}
			k.closed = true
		default:
			k.t.Fatalf("operation %v", op.Kind)
		}
		k.handle(&d, &out)
	}
}

func (k *kernel) handle(d *loop.Done, out *[]loop.Op) { k.f.Handle(0, d, &k.reqs, out) }

// put puts a request into a place.
func (k *kernel) put(place int, op uint32, start uint64, sectors uint32, data []byte) {
	k.t.Helper()
	p := k.queues[place/k.depth][place%k.depth*DescriptorSize:]
	binary.NativeEndian.PutUint32(p, op)
	binary.NativeEndian.PutUint32(p[4:], sectors)
	binary.NativeEndian.PutUint64(p[8:], start)
	k.data[place] = data
	k.wake(place)
}

func (k *kernel) wake(place int) {
	tag, ok := k.waits[place]
	if !ok {
		k.t.Fatalf("place %d does not wait", place)
	}
	delete(k.waits, place)
	delete(k.results, place)
	var out []loop.Op
	k.handle(&loop.Done{Kind: loop.Fetch, Handle: device, Tag: tag}, &out)
	k.run(out)
}

// request is the one that the engine has been asked last.
func (k *kernel) request() frontend.Request {
	k.t.Helper()
	if len(k.reqs) == 0 {
		k.t.Fatal("the engine is not asked")
	}
	return k.reqs[len(k.reqs)-1]
}

func (k *kernel) complete(q frontend.Request, code block.Code) {
	k.t.Helper()
	var out []loop.Op
	k.f.Complete(q.ID, code, &out)
	k.run(out)
	out = nil
	k.f.Resume(&k.reqs, &out)
	k.run(out)
}

// TestRequests: what each request of the kernel becomes, and what its end is told as.
func TestRequests(t *testing.T) {
	for _, tt := range []struct {
		name    string
		op      uint32
		start   uint64
		sectors uint32
		want    frontend.Request
		code    block.Code
		result  int64
	}{
		{"read", opRead, 8, 16, frontend.Request{Kind: block.Read, Off: 4096, Len: 8192}, block.OK, 8192},
		{"read that fails", opRead, 0, 1, frontend.Request{Kind: block.Read, Len: 512}, block.Unavailable, -errIO},
		{"write", opWrite, 1, 2, frontend.Request{Kind: block.Write, Off: 512, Len: 1024}, block.OK, 1024},
		{"durable write", opWrite | flagFUA, 0, 8, frontend.Request{Kind: block.Write, FUA: true, Len: 4096}, block.OK, 4096},
		{"no space", opWrite, 0, 8, frontend.Request{Kind: block.Write, Len: 4096}, block.NoSpace, -errNoSpace},
		{"flush", opFlush, 0, 0, frontend.Request{Kind: block.Flush}, block.OK, 0},
		{"flush that fails", opFlush, 0, 0, frontend.Request{Kind: block.Flush}, block.IOError, -errIO},
		{"discard", opDiscard, 8, 4096, frontend.Request{Kind: block.Discard, Off: 4096, Len: 2 << 20}, block.OK, 0},
		{"zeroing that may give space back", opWriteZeroes, 0, 8,
			frontend.Request{Kind: block.WriteZeroes, Unmap: true, Len: 4096}, block.OK, 0},
		{"zeroing", opWriteZeroes | flagNoUnmap | flagFUA, 0, 8,
			frontend.Request{Kind: block.WriteZeroes, FUA: true, Len: 4096}, block.OK, 0},
		{"to the last sector", opRead, size/512 - 1, 1, frontend.Request{Kind: block.Read, Off: size - 512, Len: 512},
			block.OK, 512},
	} {
		t.Run(tt.name, func(t *testing.T) {
			k := newKernel(t, 2, 4, 8<<20)
			const place = 5 // of the second queue
			sent := bytes.Repeat([]byte{0xa5}, int(tt.want.Len))
			k.put(place, tt.op, tt.start, tt.sectors, sent)
			q := k.request()
			if q.Kind == block.Write && !bytes.Equal(k.arena.Bytes(q.Buf)[:q.Len], sent) {
				t.Error("the engine has other data than was written")
			}
			if q.Kind == block.Read {
				copy(k.arena.Bytes(q.Buf), bytes.Repeat([]byte{0x5a}, int(q.Len)))
			}
			got := q
			got.ID, got.Buf = 0, 0
			if got != tt.want {
				t.Errorf("the engine is asked for %+v, not %+v", got, tt.want)
			}
			k.complete(q, tt.code)
			if r, ok := k.results[place]; !ok || r != tt.result {
				t.Errorf("answered: %v, with %d, not %d", ok, r, tt.result)
			}
			if q.Kind == block.Read && tt.code == block.OK && !bytes.Equal(k.data[place],
				bytes.Repeat([]byte{0x5a}, int(q.Len))) {
				t.Error("the kernel has other data than was read")
			}
			if n := k.arena.InUse(); n != 0 {
				t.Errorf("%d buffers are in use", n)
			}
		})
	}
}

// TestWrongRequests: what no driver sends is answered with an error, and asks the engine nothing.
func TestWrongRequests(t *testing.T) {
	const all = size / 512
	for _, tt := range []struct {
		name    string
		op      uint32
		start   uint64
		sectors uint32
		result  int64
	}{
		{"empty read", opRead, 0, 0, -errIO},
		{"across the end", opRead, all - 1, 2, -errIO},
		{"beyond the end", opWrite, all, 1, -errIO},
		{"far beyond the end", opRead, 1<<64 - 1, 2, -errIO},
		{"too long", opRead, 0, block.MaxTransfer/512 + 1, -errIO},
		{"discard across the end", opDiscard, all - 1, 2, -errIO},
		{"empty zeroing", opWriteZeroes, 0, 0, -errIO},
		{"unknown", 77, 0, 1, -errOpNotSupp},
	} {
		t.Run(tt.name, func(t *testing.T) {
			k := newKernel(t, 1, 2, 8<<20)
			k.put(1, tt.op, tt.start, tt.sectors, nil)
			if r, ok := k.results[1]; !ok || r != tt.result || len(k.reqs) > 0 {
				t.Errorf("answered: %v, with %d, not %d; the engine is asked for %+v", ok, r, tt.result, k.reqs)
			}
		})
	}
}

// TestDataThatCannotBeCopied fails its request alone.
func TestDataThatCannotBeCopied(t *testing.T) {
	k := newKernel(t, 1, 2, 8<<20)
	k.short = true
	k.put(0, opWrite, 0, 8, make([]byte, 4096))
	if k.results[0] != -errIO || len(k.reqs) > 0 {
		t.Errorf("write: result %d, the engine is asked for %+v", k.results[0], k.reqs)
	}
	k.put(1, opRead, 0, 8, nil)
	k.complete(k.request(), block.OK)
	if k.results[1] != -errIO {
		t.Errorf("read: result %d", k.results[1])
	}
	if n := k.arena.InUse(); n != 0 {
		t.Errorf("%d buffers are in use", n)
	}
}

// TestWithoutBuffersRequestsWait in their places, in their order, and go on as buffers come free;
// what needs none does not wait.
func TestWithoutBuffersRequestsWait(t *testing.T) {
	k := newKernel(t, 1, 8, block.MaxTransfer)
	for place := range 4 {
		k.put(place, opRead, uint64(place), block.MaxTransfer/512, nil)
	}
	k.put(4, opFlush, 0, 0, nil)
	if len(k.reqs) != 2 || k.reqs[1].Kind != block.Flush {
		t.Fatalf("the engine is asked for %+v", k.reqs)
	}
	k.complete(k.reqs[1], block.OK)
	for place := range 4 {
		q := k.reqs[0]
		if place > 0 {
			q = k.reqs[place+1]
		}
		if q.Off != int64(place)*512 {
			t.Fatalf("request %d is at %d", place, q.Off)
		}
		k.complete(q, block.OK)
	}
	if len(k.waits) != 8 {
		t.Errorf("%d places wait for requests", len(k.waits))
	}
}

// TestStop: a frontend that is stopped with requests everywhere answers none of them, and gives its
// memory back.
func TestStop(t *testing.T) {
	k := newKernel(t, 2, 4, block.MaxTransfer)
	k.put(0, opRead, 0, block.MaxTransfer/512, nil)
	k.put(1, opWrite, 0, 8, make([]byte, 4096)) // waits for memory
	k.put(5, opFlush, 0, 0, nil)
	var out []loop.Op
	k.f.Stop(&out)
	k.f.Stop(&out)
	k.run(out)
	if !k.closed || k.f.Stopped() {
		t.Fatalf("closed %v, stopped %v with requests of the engine", k.closed, k.f.Stopped())
	}
	for _, q := range k.reqs {
		k.complete(q, block.OK)
	}
	if !k.f.Stopped() || len(k.results) > 0 || k.arena.InUse() != 0 {
		t.Errorf("stopped %v, answered %v, %d buffers in use", k.f.Stopped(), k.results, k.arena.InUse())
	}
}

// TestGone: the end of a device is told once.
func TestGone(t *testing.T) {
	k := newKernel(t, 1, 3, 8<<20)
	told := 0
	k.f.cfg.Gone = func() { told++ }
	for _, tag := range k.waits {
		k.handle(&loop.Done{Kind: loop.Fetch, Handle: device, Tag: tag, Errno: 19}, new([]loop.Op))
	}
	if told != 1 {
		t.Errorf("told %d times", told)
	}
}

// TestRefusesNonsense: a configuration that makes no sense.
func TestRefusesNonsense(t *testing.T) {
	arena := loop.NewArena(8 << 20)
	good := Config{Arena: arena, Device: 3, Queues: [][]byte{make([]byte, 96)}, Depth: 4, Size: 4096}
	if _, err := New(good); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(c *Config){
		"no arena":          func(c *Config) { c.Arena = nil },
		"small arena":       func(c *Config) { c.Arena = loop.NewArena(4096) },
		"no device":         func(c *Config) { c.Device = loop.None },
		"no queue":          func(c *Config) { c.Queues = nil },
		"no depth":          func(c *Config) { c.Depth = 0 },
		"short queue":       func(c *Config) { c.Depth = 5 },
		"too many requests": func(c *Config) { c.Depth, c.Queues = 257, [][]byte{make([]byte, 1<<16)} },
		"odd size":          func(c *Config) { c.Size = 4097 },
		"no size":           func(c *Config) { c.Size = 0 },
	} {
		c := good
		spoil(&c)
		if _, err := New(c); err == nil {
			t.Error(name, "is taken")
		}
	}
}

// FuzzDescription: whatever the kernel describes, the engine is asked for what is in the volume or
// for nothing, and the place is answered once.
func FuzzDescription(f *testing.F) {
	f.Add(make([]byte, DescriptorSize))
	f.Add(bytes.Repeat([]byte{0xff}, DescriptorSize))
	f.Fuzz(func(t *testing.T, p []byte) {
		k := newKernel(t, 1, 1, 2<<20)
		copy(k.queues[0], p)
		k.data[0] = make([]byte, block.MaxTransfer)
		k.wake(0)
		for _, q := range k.reqs {
			if q.Kind != block.Flush && (q.Off < 0 || q.Len <= 0 || q.Off+q.Len > size || q.Off%512 != 0 || q.Len%512 != 0) {
				t.Fatalf("the engine is asked for %+v", q)
			}
			k.complete(q, block.OK)
		}
		if _, ok := k.results[0]; !ok || k.arena.InUse() != 0 {
			t.Errorf("answered %v, %d buffers in use", ok, k.arena.InUse())
		}
	})
}
