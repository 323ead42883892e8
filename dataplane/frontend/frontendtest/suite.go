package frontendtest

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"sync"
	"syscall"
	"testing"
	"time"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/frontend"
	"ankole.storage/dataplane/loop"
	"ankole.storage/test/lack"
)

// Run runs the suite; make returns a fresh transport.
func Run(t *testing.T, make func(t *testing.T) Transport) {
	cases := []struct {
		name string
		run  func(t *testing.T, tr Transport)
	}{
		{"random reads and writes agree with a model", randomAgainstModel},
		{"requests that overtake each other keep their data", overtaking},
		{"large requests arrive whole", large},
		{"a flush covers what was completed before it", flushCovers},
		{"a FUA write is stable when it is answered", fua},
		{"zeroed and discarded ranges read zero", zeroAndDiscard},
		{"errors reach the client and pass", errorsReach},
		{"a full device is told apart from a broken one", noSpace},
		{"a failed flush is reported", flushFails},
		{"many requests are under way at once", deep},
		{"requests beyond the end fail and do nothing", bounds},
		{"a client that dies leaves nothing behind", killed},
		{"a stop with requests under way ends", stopBusy},
		{"the volume grows", grows},
		{"the volume grows under writers, again and again", growsUnderWriters},
		{"suspended under load", suspended},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) { c.run(t, make(t)) })
	}
}

const sector = block.SectorSize

// randomBytes fills n bytes that no other call returns.
func randomBytes(r *rand.Rand, n int) []byte {
	p := aligned(n)
	for i := 0; i+8 <= n; i += 8 {
		x := r.Uint64()
		for k := range 8 {
			p[i+k] = byte(x >> (8 * k))
		}
	}
	return p
}

func randomAgainstModel(t *testing.T, tr Transport) {
	const size = 8 << 20
	r := Up(t, tr, size, nil)
	c := tr.Open(t)
	rnd := rand.New(rand.NewPCG(3, 4))
	model := make([]byte, size)
	for range 400 {
		n := sector * (1 + rnd.IntN(1<<rnd.IntN(10)))
		off := sector * rnd.Int64N(int64(size-n)/sector+1)
		switch rnd.IntN(8) {
		case 0:
			must(t, c.WriteZeroes(off, int64(n)))
			clear(model[off : off+int64(n)])
		case 1:
			must(t, c.Flush())
		case 2, 3, 4:
			p := randomBytes(rnd, n)
			_, err := c.WriteAt(p, off)
			must(t, err)
			copy(model[off:], p)
		default:
			p := aligned(n)
			_, err := c.ReadAt(p, off)
			must(t, err)
			if !bytes.Equal(p, model[off:off+int64(n)]) {
				t.Fatalf("%d bytes at %d differ from what was written", n, off)
			}
		}
	}
	r.Do(func(v *Device, _ *[]loop.Op) {
		if !bytes.Equal(v.Mem, model) {
			t.Error("the device differs from the model")
		}
	})
}

func overtaking(t *testing.T, tr Transport) {
	const size, workers = 16 << 20, 16
	Up(t, tr, size, func(v *Device) { v.Delay = 2 * time.Millisecond })
	c := tr.Open(t)
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(w), 9))
			base, room := int64(w)*size/workers, int64(size/workers)
			model := make([]byte, room)
			for range 40 {
				n := sector * (1 + rnd.Int64N(64))
				off := sector * rnd.Int64N((room-n)/sector)
				p := randomBytes(rnd, int(n))
				if _, err := c.WriteAt(p, base+off); err != nil {
					t.Errorf("write: %v", err)
					return
				}
				copy(model[off:], p)
				if rnd.IntN(10) == 0 {
					if err := c.Flush(); err != nil {
						t.Errorf("flush: %v", err)
					}
				}
				q := aligned(int(n))
				if _, err := c.ReadAt(q, base+off); err != nil || !bytes.Equal(p, q) {
					t.Errorf("read back at %d: %v, equal %v", base+off, err, bytes.Equal(p, q))
					return
				}
			}
			whole := aligned(int(room))
			if _, err := c.ReadAt(whole, base); err != nil || !bytes.Equal(whole, model) {
				t.Errorf("region %d: %v, equal %v", w, err, bytes.Equal(whole, model))
			}
		})
	}
	wg.Wait()
}

func large(t *testing.T, tr Transport) {
	const size = 64 << 20
	Up(t, tr, size, nil)
	c := tr.Open(t)
	rnd := rand.New(rand.NewPCG(5, 6))
	for _, n := range []int{block.MaxTransfer, block.MaxTransfer + sector, 3<<20 + 1536, 32 << 20} {
		p, q := randomBytes(rnd, n), aligned(n)
		_, err := c.WriteAt(p, sector)
		must(t, err)
		_, err = c.ReadAt(q, sector)
		must(t, err)
		if !bytes.Equal(p, q) {
			t.Fatalf("%d bytes differ", n)
		}
	}
	var wg sync.WaitGroup // together more than the arena holds
	for range 4 {
		wg.Go(func() {
			if _, err := c.ReadAt(aligned(16<<20), 0); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

func flushCovers(t *testing.T, tr Transport) {
	const size = 4 << 20
	r := Up(t, tr, size, func(v *Device) { v.Delay = time.Millisecond })
	c := tr.Open(t)
	rnd := rand.New(rand.NewPCG(7, 8))
	for i := range 10 {
		p := randomBytes(rnd, 64<<10)
		off := int64(i) << 16
		_, err := c.WriteAt(p, off)
		must(t, err)
		r.Do(func(v *Device, _ *[]loop.Op) {
			if bytes.Equal(v.Stable[off:off+64<<10], p) {
				t.Error("the write was stable before the flush: the test proves nothing")
			}
		})
		must(t, c.Flush())
		r.Do(func(v *Device, _ *[]loop.Op) {
			if !bytes.Equal(v.Stable[off:off+64<<10], p) {
				t.Error("the flush was answered, the write before it is not stable")
			}
		})
	}
}

func fua(t *testing.T, tr Transport) {
	if !tr.Caps().FUA {
		lack.Unfit(t, "the transport has no FUA: the kernel sends a flush instead")
	}
	r := Up(t, tr, 1<<20, nil)
	p := randomBytes(rand.New(rand.NewPCG(1, 1)), 4096)
	_, err := tr.Open(t).(FUAWriter).WriteAtFUA(p, 8192)
	must(t, err)
	r.Do(func(v *Device, _ *[]loop.Op) {
		if !bytes.Equal(v.Stable[8192:8192+4096], p) || v.Seen[block.Flush] != 0 {
			t.Errorf("not stable, or by a flush (%v)", v.Seen)
		}
	})
}

func zeroAndDiscard(t *testing.T, tr Transport) {
	const size = 8 << 20
	r := Up(t, tr, size, nil)
	c := tr.Open(t)
	p := randomBytes(rand.New(rand.NewPCG(2, 1)), size)
	_, err := c.WriteAt(p, 0)
	must(t, err)
	must(t, c.WriteZeroes(4096, 8192))
	must(t, c.WriteZeroes(1<<20, 4<<20))
	must(t, c.Trim(6<<20, 1<<20))
	clear(p[4096 : 4096+8192])
	clear(p[1<<20 : 5<<20])
	clear(p[6<<20 : 7<<20])
	q := aligned(size)
	_, err = c.ReadAt(q, 0)
	must(t, err)
	if !bytes.Equal(p, q) {
		t.Fatal("the ranges do not read zero, or others changed")
	}
	r.Do(func(v *Device, _ *[]loop.Op) {
		if v.Seen[block.WriteZeroes] < 2 || v.Seen[block.WriteZeroes]+v.Seen[block.Discard] < 3 {
			t.Errorf("zeroing and discard did not arrive as such: %v", v.Seen)
		}
	})
}

// failing makes requests of one kind end with code.
func failing(kind block.Kind, code block.Code) func(*frontend.Request) block.Code {
	return func(r *frontend.Request) block.Code {
		if r.Kind == kind {
			return code
		}
		return block.OK
	}
}

func errorsReach(t *testing.T, tr Transport) {
	r := Up(t, tr, 4<<20, nil)
	c := tr.Open(t)
	p := aligned(4096)
	set := func(f func(*frontend.Request) block.Code) {
		r.Do(func(v *Device, _ *[]loop.Op) { v.Fail = f })
	}
	for _, code := range []block.Code{block.IOError, block.Unavailable, block.Fenced} {
		set(failing(block.Read, code))
		_, err := c.ReadAt(p, 0)
		wantErrno(t, "read", err, syscall.EIO)
		set(failing(block.Write, code))
		_, err = c.WriteAt(p, 0)
		wantErrno(t, "write", err, syscall.EIO)
	}
	// One bad piece of a large request spoils it, its neighbours and later ones are fine.
	set(func(q *frontend.Request) block.Code {
		if q.Kind == block.Read && q.Off <= 3<<20 && q.Off+q.Len > 3<<20 {
			return block.IOError
		}
		return block.OK
	})
	_, err := c.ReadAt(aligned(4<<20), 0)
	wantErrno(t, "large read", err, syscall.EIO)
	_, err = c.ReadAt(p, 0)
	must(t, err)
	set(nil)
	_, err = c.ReadAt(aligned(4<<20), 0)
	must(t, err)
}

func noSpace(t *testing.T, tr Transport) {
	Up(t, tr, 1<<20, func(v *Device) { v.Fail = failing(block.Write, block.NoSpace) })
	want := syscall.ENOSPC
	if !tr.Caps().NoSpace {
		want = syscall.EIO
	}
	_, err := tr.Open(t).WriteAt(aligned(4096), 0)
	wantErrno(t, "write", err, want)
}

func flushFails(t *testing.T, tr Transport) {
	r := Up(t, tr, 1<<20, func(v *Device) { v.Fail = failing(block.Flush, block.IOError) })
	c := tr.Open(t)
	for range 3 {
		_, err := c.WriteAt(aligned(4096), 0)
		must(t, err)
		wantErrno(t, "flush", c.Flush(), syscall.EIO)
	}
	r.Do(func(v *Device, _ *[]loop.Op) { v.Fail = nil })
	must(t, c.Flush())
}

func deep(t *testing.T, tr Transport) {
	depth := tr.Caps().Depth
	r := Up(t, tr, 16<<20, nil)
	c := tr.Open(t)
	r.Do(func(v *Device, _ *[]loop.Op) { v.Hold = depth })
	var wg sync.WaitGroup
	for i := range depth {
		wg.Go(func() {
			if _, err := c.WriteAt(aligned(4096), int64(i)*8192); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait() // the device answers nobody before all have asked
	r.Do(func(v *Device, _ *[]loop.Op) {
		if v.Deepest < depth {
			t.Errorf("at most %d requests were under way, want %d", v.Deepest, depth)
		}
	})
}

func bounds(t *testing.T, tr Transport) {
	const size = 1<<20 + sector
	r := Up(t, tr, size, nil)
	c := tr.Open(t)
	p := aligned(4096)
	if n, err := c.ReadAt(p, size-sector); err == nil && n == len(p) {
		t.Error("a read across the end succeeded")
	}
	if n, err := c.WriteAt(p, size-sector); err == nil && n == len(p) {
		t.Error("a write across the end succeeded")
	}
	if _, err := c.WriteAt(p, 1<<40); err == nil {
		t.Error("a write far beyond the end succeeded")
	}
	if err := c.WriteZeroes(size, 4096); err == nil {
		t.Error("zeroing beyond the end succeeded")
	}
	must(t, c.Flush())
	_, err := c.ReadAt(p[:sector], size-sector)
	must(t, err)
	r.Do(func(v *Device, _ *[]loop.Op) {
		if int64(len(v.Mem)) != size {
			t.Error("the device grew")
		}
	})
}

func killed(t *testing.T, tr Transport) {
	if !tr.Caps().Kill {
		lack.Unfit(t, "the client is the kernel: it does not die alone")
	}
	r := Up(t, tr, 8<<20, nil)
	for round := range 10 {
		held := 3 + round
		r.Do(func(v *Device, _ *[]loop.Op) { v.Hold = 1 << 30; v.Deepest = 0 })
		c := tr.Open(t)
		var wg sync.WaitGroup
		for i := range held {
			wg.Go(func() {
				p := aligned(1 << (12 + i%9))
				if i%2 == 0 {
					_, _ = c.WriteAt(p, 0)
				} else {
					_, _ = c.ReadAt(p, 0)
				}
			})
		}
		r.Until("requests under way", func(v *Device) bool { return v.Deepest >= min(held, 3) })
		c.(Killer).Kill()
		wg.Wait()
		r.Do(func(v *Device, _ *[]loop.Op) { v.Hold = 0 })
		other := tr.Open(t)
		_, err := other.ReadAt(aligned(4096), 0)
		must(t, err)
		must(t, other.Close())
	}
}

func stopBusy(t *testing.T, tr Transport) {
	r := Up(t, tr, 8<<20, nil)
	c := tr.Open(t)
	r.Do(func(v *Device, _ *[]loop.Op) { v.Hold, v.Deepest = 1<<30, 0 })
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			if i%2 == 0 {
				_, _ = c.WriteAt(aligned(2<<20), 0)
			} else {
				_, _ = c.ReadAt(aligned(4096), 0)
			}
		})
	}
	r.Until("requests under way", func(v *Device) bool { return v.Deepest >= 4 })
	r.StopDevice()
	wg.Wait()
}

func grows(t *testing.T, tr Transport) {
	r := Up(t, tr, 1<<20, nil)
	c := tr.Open(t)
	r.Do(func(v *Device, out *[]loop.Op) { v.Resize(2<<20, out) })
	if g, ok := tr.(interface{ Grow(*testing.T, int64) }); ok {
		g.Grow(t, 2<<20)
	}
	if !tr.Caps().GrowsOpen {
		must(t, c.Close())
		c = tr.Open(t)
	}
	p := randomBytes(rand.New(rand.NewPCG(2, 1)), 4096)
	_, err := c.WriteAt(p, 2<<20-4096)
	must(t, err)
	q := aligned(4096)
	_, err = c.ReadAt(q, 2<<20-4096)
	must(t, err)
	if !bytes.Equal(p, q) {
		t.Error("data in the new part differs")
	}
}

// growsUnderWriters: what a growth has added can be used as soon as it is said to be there,
// whatever is written meanwhile.
func growsUnderWriters(t *testing.T, tr Transport) {
	if !tr.Caps().GrowsOpen {
		lack.Unfit(t, "an open client does not see a new size")
	}
	const (
		growths, step = 200, int64(64 << 10)
		workers, room = 4, int64(256 << 10)
	)
	size := workers * room
	r := Up(t, tr, size, nil)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	defer wg.Wait()
	defer close(stop)
	for i := range int64(workers) {
		c := tr.Open(t)
		wg.Go(func() { exercise(t, c, stop, rand.New(rand.NewPCG(uint64(i), 3)), i*room, room) })
	}
	c, grower := tr.Open(t), tr.(interface{ Grow(*testing.T, int64) })
	p := aligned(sector)
	for n := range growths {
		before := size
		size += step
		r.Do(func(v *Device, out *[]loop.Op) { v.Resize(size, out) })
		grower.Grow(t, size)
		for _, off := range []int64{before, size - sector} {
			if _, err := c.ReadAt(p, off); err != nil {
				t.Fatalf("growth %d, to %d bytes: read at %d: %v", n+1, size, off, err)
			}
		}
		if _, err := c.WriteAt(p, size-sector); err != nil {
			t.Fatalf("growth %d, to %d bytes: write at %d: %v", n+1, size, size-sector, err)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantErrno(t *testing.T, what string, err error, want syscall.Errno) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("%s: got %v, want %v", what, err, want)
	}
}
