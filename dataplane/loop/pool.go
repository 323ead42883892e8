package loop

import "syscall"

// Pool is a set of buffers in memory that is somebody else's too: shared with another process, or
// with a later one. They are got from the pool only, and do not count against the budget.
type Pool uint8

// maxPools bounds the pools of one arena: a frontend's journal has two, and each window one.
const maxPools = 10

// poolWarm is how many free buffers of a pool keep their memory.
const poolWarm = 4

// foreign is the warmth of a pool whose memory is somebody else's to give back.
const foreign = 1 << 30

// poolTrim is what an arena knows of the memory of a pool's free buffers. Those at the bottom of
// the list have not been used for long.
type poolTrim struct {
	cooled int // buffers at the bottom of free that hold no memory
	low    int // the fewest free since the last Trim
	warm   int // free buffers that keep their memory
}

// Own makes the arena unmap mem when it is closed.
func (a *Arena) Own(mem []byte) { a.maps = append(a.maps, mem) }

// AddPool makes n buffers of mem, which is mapped shared. Each has slot bytes, the first page of
// them for headroom.
func (a *Arena) AddPool(mem []byte, n, slot int) Pool {
	p, ok := a.addPool(mem, n, slot, poolWarm)
	if !ok {
		panic("loop: too many pools")
	}
	return p
}

// AddWindow is AddPool for buffers that are all given back when they are not used, and false if
// there are too many pools.
func (a *Arena) AddWindow(mem []byte, n, slot int) (Pool, bool) { return a.addPool(mem, n, slot, 0) }

// AddForeign is AddPool for buffers that somebody else hands out: they are claimed, and their
// memory is left alone. It is false if there are too many pools.
func (a *Arena) AddForeign(mem []byte, n, slot int) (Pool, bool) {
	return a.addPool(mem, n, slot, foreign)
}

func (a *Arena) addPool(mem []byte, n, slot, warm int) (Pool, bool) {
	for p := range Pool(maxPools) {
		k := a.pool(p)
		if k.mem != nil {
			continue
		}
		for i := range n {
			k.mem = append(k.mem, mem[i*slot:(i+1)*slot:(i+1)*slot])
			k.refs = append(k.refs, 0)
		}
		for i := n - 1; i >= 0; i-- {
			k.free = append(k.free, uint32(i))
		}
		k.low, k.warm = n, warm
		return p, true
	}
	return 0, false
}

// RemovePool forgets a pool, of which no buffer is in use. Its memory may be unmapped then.
func (a *Arena) RemovePool(p Pool) {
	k := a.pool(p)
	if len(k.free) != len(k.mem) {
		panic("loop: a pool that is in use is removed")
	}
	*k = arenaClass{mem: nil, refs: k.refs[:0], free: k.free[:0]}
}

func (a *Arena) pool(p Pool) *arenaClass { return &a.class[len(classes)+int(p)] }

// GetPool returns a buffer of the pool with one reference, or false when all are in use.
func (a *Arena) GetPool(p Pool) (Buf, bool) {
	k := a.pool(p)
	if len(k.free) == 0 {
		return 0, false
	}
	i := k.free[len(k.free)-1]
	k.free = k.free[:len(k.free)-1]
	k.shrunk()
	k.refs[i] = 1
	return poolBuf(p, i), true
}

// ClaimPool returns the pool's buffer number i, or false when it is in use.
func (a *Arena) ClaimPool(p Pool, i int) (Buf, bool) {
	k := a.pool(p)
	for at, have := range k.free {
		if have == uint32(i) {
			k.free = append(k.free[:at], k.free[at+1:]...)
			k.cooled = 0 // which of them hold memory is not known any more
			k.shrunk()
			k.refs[i] = 1
			return poolBuf(p, have), true
		}
	}
	return 0, false
}

// PoolInUse is how many buffers of a pool are in use.
func (a *Arena) PoolInUse(p Pool) int {
	k := a.pool(p)
	return len(k.mem) - len(k.free)
}

// PoolIndex is the number of a buffer in its pool.
func PoolIndex(b Buf) int { return int(b & (1<<classShift - 1)) }

func poolBuf(p Pool, i uint32) Buf { return Buf(uint32(len(classes)+int(p)+1)<<classShift | i) }

func (k *arenaClass) shrunk() {
	k.low = min(k.low, len(k.free))
	k.cooled = min(k.cooled, len(k.free))
}

// trimPools gives the memory of buffers back that were free since the last Trim.
func (a *Arena) trimPools() {
	for p := range Pool(maxPools) {
		k := a.pool(p)
		for ; k.cooled < k.low-k.warm; k.cooled++ {
			if syscall.Madvise(k.mem[k.free[k.cooled]], syscall.MADV_REMOVE) != nil {
				break
			}
		}
		k.low = len(k.free)
	}
}

// poolSlack reports whether a later Trim could give memory of pools back.
func (a *Arena) poolSlack() bool {
	for p := range Pool(maxPools) {
		if k := a.pool(p); k.cooled < len(k.free)-k.warm {
			return true
		}
	}
	return false
}
