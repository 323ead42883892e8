package engine

import (
	"cmp"
	"slices"

	"ankole.storage/dataplane/block"
)

// rangeLocks orders requests that touch the same 4 KiB blocks: a write excludes everything that
// overlaps it, reads share. Requests that conflict are granted in the order in which they came:
// each waits for every earlier one that is still there, whether that one has its lock or waits
// itself.
//
// Writes are in a tree, ordered by where they begin, so that a lock costs the logarithm of their
// number (a trim of 4 GiB is 1,024 of them) and the number of those it overlaps. Reads are in a
// list: there are as many of them as users have in flight, most of the time there is no write
// beside them, and then none of them is looked at but to give it back.
//
// The tree is a treap: a search tree by (beg, seq) and a heap by priorities drawn at random, each
// node with the largest end of its subtree (Seidel and Aragon, Randomized search trees, 1996;
// Cormen et al., Introduction to Algorithms, 14.3, interval trees).
type rangeLocks struct {
	root  *lockedRange // writes
	reads []readRange  // in no order
	free  *lockedRange // nodes for later, linked by left
	seq   uint64
	rand  uint64
	// found is what the last search found, kept for its memory.
	found []*lockedRange
}

// granter is who waits for a range.
type granter interface {
	// granted is called once, when it has the range.
	granted()
}

// grantFunc is a granter of one function.
type grantFunc func()

func (f grantFunc) granted() { f() }

// readRange is a read; wait is nil if it never had to wait, and has a grant while it does.
type readRange struct {
	beg, end int64
	wait     *lockedRange
}

func (r *readRange) granted() bool { return r.wait == nil || r.wait.grant == nil }

type lockedRange struct {
	beg, end int64 // block aligned
	seq      uint64
	// blockers counts earlier requests that are there and conflict; grant is nil once it was granted.
	blockers int
	grant    granter

	priority    uint64
	maxEnd      int64
	left, right *lockedRange
}

// widen returns the block-aligned range around [off, off+n).
func widen(off, n int64) (beg, end int64) {
	return off &^ (block.Size - 1), (off + n + block.Size - 1) &^ (block.Size - 1)
}

// lock takes the blocks around [off, off+n) and grants them to who, now or when they are free.
func (k *rangeLocks) lock(off, n int64, write bool, who granter) {
	beg, end := widen(off, n)
	k.seq++
	if !write && k.root == nil {
		k.reads = append(k.reads, readRange{beg: beg, end: end})
		who.granted()
		return
	}
	k.found = k.root.overlaps(beg, end, k.found[:0])
	blockers := len(k.found)
	if !write && blockers == 0 {
		k.reads = append(k.reads, readRange{beg: beg, end: end})
		who.granted()
		return
	}
	r := k.node()
	r.beg, r.end, r.seq, r.grant, r.maxEnd, r.blockers = beg, end, k.seq, who, end, blockers
	if !write {
		k.reads = append(k.reads, readRange{beg: beg, end: end, wait: r})
		return
	}
	for i := range k.reads {
		if o := &k.reads[i]; o.end > beg && o.beg < end {
			r.blockers++
		}
	}
	k.root = k.root.insert(r)
	if r.blockers == 0 {
		r.granted()
	}
}

// unlock gives the blocks back and grants whoever can go on. Whatever else conflicts with a range
// that was granted came later and waits for it.
func (k *rangeLocks) unlock(off, n int64, write bool) {
	beg, end := widen(off, n)
	if !write {
		k.forgetRead(beg, end)
		if k.root == nil {
			return
		}
	}
	found := k.root.overlaps(beg, end, k.found[:0])
	if write {
		// Nothing that overlaps it has its lock, so it is the only one that has.
		i := slices.IndexFunc(found, func(o *lockedRange) bool { return o.beg == beg && o.end == end && o.grant == nil })
		if i < 0 {
			panic("engine: unlock of a range that is not locked")
		}
		r := found[i]
		found = slices.Delete(found, i, i+1)
		k.root = k.root.remove(r)
		r.left, k.free = k.free, r
		for i := range k.reads {
			if o := &k.reads[i]; o.end > beg && o.beg < end {
				found = append(found, o.wait)
			}
		}
	}
	k.found = nil // a grant may lock and unlock
	ready := found[:0]
	for _, o := range found {
		if o.blockers--; o.blockers == 0 {
			ready = append(ready, o)
		}
	}
	if len(ready) > 1 {
		slices.SortFunc(ready, func(a, b *lockedRange) int { return cmp.Compare(a.seq, b.seq) })
	}
	for _, o := range ready {
		o.granted()
	}
	k.found = found
}

// forgetRead takes a granted read out of the list. Reads of one range are all alike.
func (k *rangeLocks) forgetRead(beg, end int64) {
	for i := range k.reads {
		if o := &k.reads[i]; o.beg == beg && o.end == end && o.granted() {
			if r := o.wait; r != nil {
				r.left, k.free = k.free, r
			}
			last := len(k.reads) - 1
			k.reads[i], k.reads[last] = k.reads[last], readRange{}
			k.reads = k.reads[:last]
			return
		}
	}
	panic("engine: unlock of a range that is not locked")
}

func (r *lockedRange) granted() {
	who := r.grant
	r.grant = nil
	who.granted()
}

// node takes a node from the pool, which is as large as the requests ever were at once.
func (k *rangeLocks) node() *lockedRange {
	r := k.free
	if r == nil {
		r = &lockedRange{}
	} else {
		k.free = r.left
	}
	k.rand = k.rand*6364136223846793005 + 1442695040888963407 // Knuth's linear congruential generator, MMIX
	*r = lockedRange{priority: k.rand >> 16}
	return r
}

// overlaps appends every range of the tree that overlaps [beg, end) to found.
func (r *lockedRange) overlaps(beg, end int64, found []*lockedRange) []*lockedRange {
	for r != nil && r.maxEnd > beg {
		if r.left != nil && r.left.maxEnd > beg {
			found = r.left.overlaps(beg, end, found)
		}
		if r.beg >= end {
			break
		}
		if r.end > beg {
			found = append(found, r)
		}
		r = r.right
	}
	return found
}

func (r *lockedRange) before(o *lockedRange) bool {
	return r.beg < o.beg || (r.beg == o.beg && r.seq < o.seq)
}

// update sets maxEnd from the children.
func (r *lockedRange) update() *lockedRange {
	r.maxEnd = r.end
	if r.left != nil {
		r.maxEnd = max(r.maxEnd, r.left.maxEnd)
	}
	if r.right != nil {
		r.maxEnd = max(r.maxEnd, r.right.maxEnd)
	}
	return r
}

// insert returns the tree r with n in it.
func (r *lockedRange) insert(n *lockedRange) *lockedRange {
	switch {
	case r == nil:
		return n
	case n.priority > r.priority:
		n.left, n.right = r.split(n)
		return n.update()
	case n.before(r):
		r.left = r.left.insert(n)
	default:
		r.right = r.right.insert(n)
	}
	return r.update()
}

// split cuts the tree r into what is before n and what is not.
func (r *lockedRange) split(n *lockedRange) (before, after *lockedRange) {
	if r == nil {
		return nil, nil
	}
	if r.before(n) {
		r.right, after = r.right.split(n)
		return r.update(), after
	}
	before, r.left = r.left.split(n)
	return before, r.update()
}

// remove returns the tree r without n, which is in it.
func (r *lockedRange) remove(n *lockedRange) *lockedRange {
	switch {
	case r == n:
		return join(n.left, n.right)
	case n.before(r):
		r.left = r.left.remove(n)
	default:
		r.right = r.right.remove(n)
	}
	return r.update()
}

// join makes one tree of two, all of a being before all of b.
func join(a, b *lockedRange) *lockedRange {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	case a.priority > b.priority:
		a.right = join(a.right, b)
		return a.update()
	}
	b.left = join(a, b.left)
	return b.update()
}
