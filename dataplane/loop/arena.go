package loop

import (
	"fmt"
	"syscall"
)

// Headroom is the number of bytes directly before a buffer's aligned payload that a protocol header
// may use, so that header and payload leave in one segment. It holds a FUSE request header (80
// bytes) as well as a wire header.
const Headroom = 128

// pageSize is the alignment of every payload: what direct I/O asks for on every common device.
const pageSize = 4096

// classes are the payload capacities of the arena's buffers. Four times the previous one: at most
// three quarters of a buffer are never touched, and untouched pages cost no memory.
var classes = [...]int{4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20}

// Buf is a reference to an arena buffer. The zero Buf is no buffer.
type Buf uint32

const classShift = 28

// Arena hands out page-aligned buffers from anonymous memory. It is bounded: Get fails when the
// part of the budget for that purpose is used up, and callers then wait for a completion before
// they take in more work. It is used by one core only and has no lock.
//
// A free buffer is warm (it has been used, so it may hold memory and counts against the budget) or
// cold (fresh, or its memory was given back). When the budget is short, warm buffers of any size
// are cooled: a burst of small requests must not leave the arena without room for a large one for
// ever.
type Arena struct {
	budget int
	parts  [purposes]part
	warm   int // payload bytes of buffers in use or warm
	used   int // payload bytes of buffers in use
	peak   int // the most of used since the last Trim
	maps   [][]byte
	class  [len(classes) + maxPools]arenaClass
}

type arenaClass struct {
	mem     [][]byte // one slot per buffer: page of headroom, then payload
	refs    []int32
	purpose []Purpose // what each was got for last
	free    []uint32  // warm
	cold    []uint32
	poolTrim
}

// NewArena returns an arena that will hold at most budget bytes of payload.
func NewArena(budget int) *Arena {
	a := &Arena{budget: budget}
	a.parts[Requests].limit = budget
	return a
}

// Budget returns the limit the arena was made with.
func (a *Arena) Budget() int { return a.budget }

// Get returns a buffer with room for n bytes (at most 1 MiB) and one reference, for Requests, or
// false when their part of the budget is used up.
func (a *Arena) Get(n int) (Buf, bool) { return a.GetFor(Requests, n) }

func classOf(n int) int {
	for c := range classes {
		if n <= classes[c] {
			return c
		}
	}
	panic(fmt.Sprintf("loop: no buffer of %d bytes", n))
}

// GetFor is Get for any purpose. It fails when the part of that purpose is used up, or when the
// system has no memory.
func (a *Arena) GetFor(p Purpose, n int) (Buf, bool) {
	c := classOf(n)
	k := &a.class[c]
	if a.parts[p].used+classes[c] > a.parts[p].limit || a.used+classes[c] > a.budget ||
		(len(k.free) == 0 && !a.warmUp(c)) {
		return 0, false
	}
	i := k.free[len(k.free)-1]
	k.free = k.free[:len(k.free)-1]
	k.refs[i], k.purpose[i] = 1, p
	a.parts[p].used += classes[c]
	a.used += classes[c]
	a.peak = max(a.peak, a.used)
	return Buf(uint32(c+1)<<classShift | i), true
}

// warmUp puts one cold buffer of class c on its free list, if the budget allows.
func (a *Arena) warmUp(c int) bool {
	k := &a.class[c]
	if a.warm+classes[c] > a.budget && !a.cool(a.budget-classes[c]) {
		return false
	}
	if len(k.cold) == 0 && !a.grow(c) {
		return false
	}
	last := len(k.cold) - 1
	k.free = append(k.free, k.cold[last])
	k.cold = k.cold[:last]
	a.warm += classes[c]
	return true
}

// cool gives the memory of warm free buffers back until at most limit bytes are warm; large ones
// first, they free most per system call.
func (a *Arena) cool(limit int) bool {
	for c := len(classes) - 1; c >= 0; c-- {
		k := &a.class[c]
		for len(k.free) > 0 && a.warm > limit {
			i := k.free[len(k.free)-1]
			if syscall.Madvise(k.mem[i], syscall.MADV_DONTNEED) != nil {
				return false
			}
			k.free = k.free[:len(k.free)-1]
			k.cold = append(k.cold, i)
			a.warm -= classes[c]
		}
	}
	return a.warm <= limit
}

// keepWarm is what Trim leaves: the buffers of a few small requests, which cost more to fault in
// than to keep.
const keepWarm = 256 << 10

// Trim gives the memory back that was not needed since the last Trim. A loop calls it every few
// seconds, so that the buffers of a burst do not stay with a process that has become idle.
func (a *Arena) Trim() {
	a.cool(max(keepWarm, a.peak))
	a.peak = a.used
	a.trimPools()
}

// Slack reports whether a later Trim could give memory back.
func (a *Arena) Slack() bool { return a.warm > max(keepWarm, a.used) || a.poolSlack() }

// growBytes is mapped at a time: few mappings for small buffers. Mapped and untouched memory costs
// nothing.
const growBytes = 256 << 10

func (a *Arena) grow(c int) bool {
	k := &a.class[c]
	n := max(1, growBytes/classes[c])
	slot := pageSize + classes[c]
	mem, err := syscall.Mmap(-1, 0, n*slot, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON)
	if err != nil {
		return false
	}
	a.maps = append(a.maps, mem)
	for i := range n {
		k.cold = append(k.cold, uint32(len(k.mem)))
		k.mem = append(k.mem, mem[i*slot:(i+1)*slot:(i+1)*slot])
		k.refs, k.purpose = append(k.refs, 0), append(k.purpose, Requests)
	}
	return true
}

func (a *Arena) slot(b Buf) (*arenaClass, uint32) {
	c := int(b>>classShift) - 1
	if c < 0 {
		panic("loop: use of the zero buffer")
	}
	return &a.class[c], uint32(b) & (1<<classShift - 1)
}

// Bytes returns the payload of b, its whole capacity.
func (a *Arena) Bytes(b Buf) []byte {
	k, i := a.slot(b)
	return k.mem[i][pageSize:]
}

// Seg returns the bytes a segment stands for.
func (a *Arena) Seg(s Seg) []byte {
	k, i := a.slot(s.Buf)
	if s.Off < -Headroom {
		panic("loop: segment starts before the headroom")
	}
	return k.mem[i][pageSize+int(s.Off) : pageSize+int(s.Off)+int(s.Len)]
}

// Retain adds a reference.
func (a *Arena) Retain(b Buf) {
	k, i := a.slot(b)
	if k.refs[i] <= 0 {
		panic("loop: retain of a free buffer")
	}
	k.refs[i]++
}

// Release drops a reference; the last one frees the buffer.
func (a *Arena) Release(b Buf) {
	k, i := a.slot(b)
	k.refs[i]--
	switch {
	case k.refs[i] < 0:
		panic("loop: release of a free buffer")
	case k.refs[i] == 0:
		k.free = append(k.free, i)
		if c := int(b>>classShift) - 1; c < len(classes) {
			a.used -= classes[c]
			a.parts[k.purpose[i]].used -= classes[c]
		}
	}
}

// Close gives the memory back to the system. No buffer may be used afterwards.
func (a *Arena) Close() error {
	var first error
	for _, m := range a.maps {
		if err := syscall.Munmap(m); err != nil && first == nil {
			first = err
		}
	}
	*a = Arena{}
	return first
}

// Reset takes every buffer back, whoever holds it, makes them zero as they are in the beginning,
// sets nothing aside, and forgets pools: in simulations the arena of a process that is gone serves
// the next one.
func (a *Arena) Reset() {
	for p := range Pool(maxPools) {
		*a.pool(p) = arenaClass{}
	}
	a.parts, a.warm, a.used, a.peak = [purposes]part{Requests: {limit: a.budget}}, 0, 0, 0
	for c := range classes {
		k := &a.class[c]
		clear(k.refs)
		k.free, k.cold = k.free[:0], k.cold[:0]
		for i := range k.mem {
			clear(k.mem[i])
			k.free = append(k.free, uint32(i))
		}
		a.warm += len(k.mem) * classes[c]
	}
}

// InUse returns the number of buffers handed out.
func (a *Arena) InUse() int {
	n := 0
	for c := range a.class {
		k := &a.class[c]
		n += len(k.mem) - len(k.free) - len(k.cold)
	}
	return n
}
