package loop

import (
	"slices"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

func TestArenaKeepsItsBudgetAndItsBuffersApart(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const budget = 4 << 20
		a := NewArena(budget)
		held := map[Buf]byte{}
		sizes := map[Buf]int{}
		used := 0
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			if len(held) > 0 && rapid.Bool().Draw(t, "release") {
				for b, mark := range held {
					if p := a.Bytes(b); p[0] != mark || p[len(p)-1] != mark {
						t.Fatalf("buffer %#x was overwritten", b)
					}
					a.Release(b)
					used -= sizes[b]
					delete(held, b)
					break
				}
				continue
			}
			n := rapid.IntRange(1, 1<<20).Draw(t, "size")
			b, ok := a.Get(n)
			if !ok {
				if used+4*n+4096 <= budget {
					t.Fatalf("no %d bytes with %d of %d in use", n, used, budget)
				}
				continue
			}
			p := a.Bytes(b)
			if len(p) < n || uintptr(unsafe.Pointer(&p[0]))%4096 != 0 {
				t.Fatalf("buffer of %d bytes at %p for %d", len(p), &p[0], n)
			}
			if _, twice := held[b]; twice {
				t.Fatalf("buffer %#x handed out twice", b)
			}
			if used += len(p); used > budget {
				t.Fatalf("%d bytes in use of %d", used, budget)
			}
			mark := byte(len(held))
			p[0], p[len(p)-1] = mark, mark
			held[b], sizes[b] = mark, len(p)
		}
		if a.InUse() != len(held) {
			t.Fatalf("InUse is %d, %d held", a.InUse(), len(held))
		}
	})
}

func TestArenaGivesALargeBufferAfterABurstOfSmallOnes(t *testing.T) {
	a := NewArena(2 << 20)
	var small []Buf
	for {
		b, ok := a.Get(4096)
		if !ok {
			break
		}
		small = append(small, b)
	}
	if len(small) != 512 {
		t.Fatalf("%d buffers of 4 KiB in 2 MiB", len(small))
	}
	for _, b := range small {
		a.Release(b)
	}
	if _, ok := a.Get(1 << 20); !ok {
		t.Fatal("the memory of released small buffers does not come back")
	}
}

func TestArenaTrimKeepsWhatIsNeeded(t *testing.T) {
	a := NewArena(64 << 20)
	burst := func(n int) (held []Buf) {
		for range n {
			b, ok := a.Get(1 << 20)
			if !ok {
				t.Fatal("no buffer")
			}
			a.Bytes(b)[0] = 1
			held = append(held, b)
		}
		return held
	}
	release := func(held []Buf) {
		for _, b := range held {
			a.Release(b)
		}
	}
	release(burst(32))
	a.Trim() // the burst was since the last one: it may come again
	if a.warm != 32<<20 || !a.Slack() {
		t.Fatalf("%d bytes warm after a busy period", a.warm)
	}
	held := burst(3)
	a.Trim() // the period began with nothing in use and saw three
	if a.warm != 3<<20 || a.Slack() {
		t.Fatalf("%d bytes warm after a quiet period", a.warm)
	}
	release(held)
	a.Trim()
	a.Trim()
	if a.warm > keepWarm || a.Slack() {
		t.Fatalf("%d bytes warm after an idle period", a.warm)
	}
	release(burst(64)) // everything can be had again
}

func TestArenaReferences(t *testing.T) {
	a := NewArena(1 << 20)
	b, _ := a.Get(1)
	a.Retain(b)
	a.Release(b)
	if a.InUse() != 1 {
		t.Fatal("a retained buffer was freed")
	}
	a.Release(b)
	for name, misuse := range map[string]func(){
		"release of a free buffer": func() { a.Release(b) },
		"retain of a free buffer":  func() { a.Retain(b) },
		"use of the zero buffer":   func() { a.Bytes(0) },
		"a buffer too large":       func() { a.Get(1<<20 + 1) },
		"before the headroom":      func() { a.Seg(Seg{Buf: b, Off: -Headroom - 1, Len: 1}) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s did not panic", name)
				}
			}()
			misuse()
		}()
	}
}

// TestPartsOfTheArena: whatever is done, each purpose gets all of its part, and nothing of
// another's; and what is free in all of them together is there for any size, however it was used
// before.
func TestPartsOfTheArena(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const budget = 8 << 20
		a := NewArena(budget)
		defer a.Close()
		parts, rest := map[Purpose]int{}, budget
		for p := Connections; p < purposes; p++ {
			n := rapid.IntRange(0, 1<<20).Draw(t, "part")
			a.SetAside(p, n)
			parts[p] = n
			rest -= n
		}
		parts[Requests] = rest
		type held struct {
			b Buf
			p Purpose
		}
		used, all := map[Purpose]int{}, []held{}
		for range rapid.IntRange(1, 300).Draw(t, "steps") {
			switch rapid.IntRange(0, 9).Draw(t, "what") {
			case 0:
				a.Trim()
			case 1, 2, 3:
				if len(all) == 0 {
					continue
				}
				i := rapid.IntRange(0, len(all)-1).Draw(t, "which")
				h := all[i]
				all = slices.Delete(all, i, i+1)
				used[h.p] -= len(a.Bytes(h.b))
				a.Release(h.b)
			default:
				p := Purpose(rapid.IntRange(0, int(purposes)-1).Draw(t, "purpose"))
				n := rapid.OneOf(rapid.IntRange(1, 1<<20), rapid.IntRange(1, 4096)).Draw(t, "size")
				size := classes[classOf(n)]
				b, ok := a.GetFor(p, n)
				if fits := used[p]+size <= parts[p]; ok != fits {
					t.Fatalf("%d bytes for purpose %d, which uses %d of %d: %v", n, p, used[p], parts[p], ok)
				}
				if ok {
					a.Bytes(b)[0] = 1
					used[p] += size
					all = append(all, held{b, p})
				}
			}
		}
	})
}

// TestPartsChange: a part that grows while others have buffers in use gets what it has been
// promised once they are back.
func TestPartsChange(t *testing.T) {
	a := NewArena(2 << 20)
	x, _ := a.Get(1 << 20)
	y, _ := a.Get(1 << 20)
	a.SetAside(Clients, 1<<20)
	if _, ok := a.GetFor(Clients, 4096); ok {
		t.Fatal("more in use than there is")
	}
	a.Release(x)
	if _, ok := a.Get(4096); ok {
		t.Fatal("a request got what is set aside")
	}
	if _, ok := a.GetFor(Clients, 1<<20); !ok {
		t.Fatal("the part is not there")
	}
	a.Release(y)
	defer func() {
		if recover() == nil {
			t.Error("more than there is was set aside")
		}
	}()
	a.SetAside(Edges, 1<<20+1)
}

func TestResetTakesEveryBufferBack(t *testing.T) {
	a := NewArena(4 << 20)
	a.SetAside(Edges, 2<<20)
	for range 2 {
		if b, ok := a.Get(1 << 20); !ok {
			t.Fatal("no room")
		} else {
			a.Retain(b)
			a.Bytes(b)[4711] = 1
		}
	}
	if _, ok := a.Get(4096); ok {
		t.Fatal("the reserve was handed out")
	}
	a.Reset()
	if n := a.InUse(); n != 0 {
		t.Fatalf("%d buffers are in use after Reset", n)
	}
	for i := range 4 {
		b, ok := a.Get(1 << 20)
		if !ok {
			t.Fatalf("only %d buffers after Reset", i)
		}
		if a.Bytes(b)[4711] != 0 {
			t.Fatal("a buffer is not zero after Reset")
		}
	}
}

// TestPoolGivesItsMemoryBack: of buffers that were free since the last Trim, but for a few.
func TestPoolGivesItsMemoryBack(t *testing.T) {
	const n, slot = 16, 8192
	fd, err := unix.MemfdCreate("pool", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.Ftruncate(fd, n*slot); err != nil {
		t.Fatal(err)
	}
	mem, err := syscall.Mmap(fd, 0, n*slot, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	a := NewArena(1 << 20)
	a.Own(mem)
	p := a.AddPool(mem, n, slot)
	var held []Buf
	for range n {
		b, ok := a.GetPool(p)
		if !ok {
			t.Fatal("no buffer")
		}
		a.Bytes(b)[0] = 1
		held = append(held, b)
	}
	resident := func() int64 {
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			t.Fatal(err)
		}
		return st.Blocks * 512 / 4096
	}
	if got := resident(); got != n {
		t.Fatalf("%d pages", got)
	}
	for _, b := range held[1:] {
		a.Release(b)
	}
	if !a.Slack() {
		t.Error("no slack after a burst")
	}
	a.Trim() // the burst was since the last one
	if got := resident(); got != n {
		t.Errorf("%d pages at the end of the burst", got)
	}
	a.Trim()
	if got := resident(); got != 1+poolWarm || a.Slack() {
		t.Errorf("%d pages, slack %v; %d buffers stay warm and one is in use", got, a.Slack(), poolWarm)
	}
	if a.Bytes(held[0])[0] != 1 {
		t.Error("the one in use was given back")
	}
	a.Release(held[0])
	if a.InUse() != 0 {
		t.Errorf("%d in use", a.InUse())
	}
	if err := a.Close(); err != nil {
		t.Error(err)
	}
}

// The memory of a window's buffers goes back when they are not used, that of somebody else's
// buffers never; a pool that is removed makes room for another.
func TestPoolsOfWindows(t *testing.T) {
	const n, slot = 8, pageSize + 64<<10
	fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.Ftruncate(fd, n*slot); err != nil {
		t.Fatal(err)
	}
	mem, err := syscall.Mmap(fd, 0, n*slot, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Munmap(mem) }()
	engine, replica := NewArena(1<<20), NewArena(1<<20)
	ours, ok := engine.AddWindow(mem, n, slot)
	theirs, okToo := replica.AddForeign(mem, n, slot)
	if !ok || !okToo {
		t.Fatal("no room for a pool")
	}
	mark := func(a *Arena, b Buf, v byte) { a.Bytes(b)[0] = v }
	for range 3 {
		b, _ := engine.GetPool(ours)
		mark(engine, b, 7)
		i := PoolIndex(b)
		c, ok := replica.ClaimPool(theirs, i)
		if !ok || replica.Bytes(c)[0] != 7 {
			t.Fatalf("slot %d: %v, or something else is there", i, ok)
		}
		if _, ok := replica.ClaimPool(theirs, i); ok {
			t.Fatalf("slot %d is claimed twice", i)
		}
		replica.Release(c)
		for range 3 {
			replica.Trim()
		}
		if engine.Bytes(b)[0] != 7 || replica.Slack() {
			t.Fatal("memory was given back that is another's")
		}
		engine.Release(b)
		engine.Trim()
		engine.Trim()
		if mem[i*slot+pageSize] != 0 || engine.Slack() {
			t.Error("the memory of a buffer that is not used is kept")
		}
	}
	if _, ok := replica.ClaimPool(theirs, n); ok {
		t.Error("a buffer is claimed that there is not")
	}
	engine.RemovePool(ours)
	replica.RemovePool(theirs)
	var pools []Pool
	for {
		p, ok := replica.AddForeign(mem, n, slot)
		if !ok {
			break
		}
		pools = append(pools, p)
	}
	if len(pools) != maxPools {
		t.Errorf("%d pools", len(pools))
	}
}
