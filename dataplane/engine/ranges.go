package engine

import "ankole.storage/block"

// rangeLocks orders requests that touch the same 4 KiB blocks: a write excludes everything that overlaps it, reads
// share. A request that must wait keeps its place: later ones that overlap it wait behind it. The numbers in play are the
// requests in flight, so a linear scan of two short slices beats a tree.
type rangeLocks struct {
	active  []lockedRange
	waiting []waitingRange
}

type lockedRange struct {
	beg, end int64 // block aligned
	write    bool
}

type waitingRange struct {
	lockedRange
	grant func()
}

// widen returns the block-aligned range around [off, off+n).
func widen(off, n int64) (beg, end int64) {
	return off &^ (block.Size - 1), (off + n + block.Size - 1) &^ (block.Size - 1)
}

func (r lockedRange) conflicts(o lockedRange) bool {
	return (r.write || o.write) && r.beg < o.end && o.beg < r.end
}

func (k *rangeLocks) blocked(r lockedRange, waiting int) bool {
	for i := range k.active {
		if k.active[i].conflicts(r) {
			return true
		}
	}
	for i := range k.waiting[:waiting] {
		if k.waiting[i].conflicts(r) {
			return true
		}
	}
	return false
}

// lock takes the blocks around [off, off+n) and calls grant, now or when they are free.
func (k *rangeLocks) lock(off, n int64, write bool, grant func()) {
	beg, end := widen(off, n)
	r := lockedRange{beg, end, write}
	if k.blocked(r, len(k.waiting)) {
		k.waiting = append(k.waiting, waitingRange{r, grant})
		return
	}
	k.active = append(k.active, r)
	grant()
}

// unlock gives the blocks back and grants whoever can go on.
func (k *rangeLocks) unlock(off, n int64, write bool) {
	beg, end := widen(off, n)
	r := lockedRange{beg, end, write}
	for i := range k.active {
		if k.active[i] == r {
			last := len(k.active) - 1
			k.active[i] = k.active[last]
			k.active = k.active[:last]
			k.wakeWaiting()
			return
		}
	}
	panic("engine: unlock of a range that is not locked")
}

func (k *rangeLocks) wakeWaiting() {
	for i := 0; i < len(k.waiting); {
		w := k.waiting[i]
		if k.blocked(w.lockedRange, i) {
			i++
			continue
		}
		k.waiting = append(k.waiting[:i], k.waiting[i+1:]...)
		k.active = append(k.active, w.lockedRange)
		w.grant()
		// grant may have changed both slices: begin again.
		i = 0
	}
}
