package chain

import "fmt"

// Extent is a contiguous piece of a read: bytes [Off, Off+Len) of the volume, found at the same offset of one file.
type Extent struct {
	// Handle is the file's loop handle, or NoHandle where the piece reads as zeroes.
	Handle   int32
	Off, Len int64
}

// NoHandle marks an Extent that is in no file.
const NoHandle int32 = -1

// Size returns the volume's size in bytes, a multiple of 4096.
func (c *Chain) Size() int64 { return c.size }

// HeadHandle returns the loop handle of the head, where every write goes. It changes with Snapshot and Expand.
func (c *Chain) HeadHandle() int32 { return c.head().file.Handle() }

// WriteAllowed tells whether writes may be sent to the head: the chain is open for writing and no sync has failed. It
// is settled when a metadata operation has returned; it must not be asked while one runs.
func (c *Chain) WriteAllowed() bool { return c.broken == nil && !c.opts.ReadOnly && !c.closed }

// ReadPlan appends to out where the bytes [off, off+n) of the volume are, in order and without gaps; neighbouring
// blocks of the same file are one extent. Extents of a file never reach beyond its end. The range must lie within
// the volume. The plan holds until the next MarkWritten, MarkPunched or metadata operation on an overlapping range.
func (c *Chain) ReadPlan(off, n int64, out []Extent) []Extent {
	c.checkRange(off, n)
	start, end := len(out), off+n
	for off < end {
		b := off / blockSize
		v := c.index(c.m.b[b])
		last := (end - 1) / blockSize
		for b++; b <= last && c.index(c.m.b[b]) == v; b++ {
		}
		stop := min(b*blockSize, end)
		out = c.appendRun(out, start, v, off, stop)
		off = stop
	}
	return out
}

// index resolves a map value to an index into layers.
func (c *Chain) index(v byte) byte {
	switch {
	case v == inHeadOnly:
		return c.headIndex()
	case v == inNone && c.backing:
		return 1
	}
	return v
}

// appendRun appends the range of one layer, cut at the layer's end: what is beyond reads as zeroes.
func (c *Chain) appendRun(out []Extent, start int, v byte, off, stop int64) []Extent {
	if v != inNone {
		l := &c.layers[v]
		if in := min(stop, l.size); off < in {
			out = appendExtent(out, start, Extent{Handle: l.file.Handle(), Off: off, Len: in - off})
			off = in
		}
	}
	if off < stop {
		out = appendExtent(out, start, Extent{Handle: NoHandle, Off: off, Len: stop - off})
	}
	return out
}

func appendExtent(out []Extent, start int, e Extent) []Extent {
	if i := len(out) - 1; i >= start && out[i].Handle == e.Handle && out[i].Off+out[i].Len == e.Off {
		out[i].Len += e.Len
		return out
	}
	return append(out, e)
}

func (c *Chain) inHead(b int64) bool {
	v := c.m.b[b]
	return v == inHeadOnly || v == c.headIndex()
}

// MarkWritten records that a write of [off, off+n) to the head has completed: reads find it there from now on. Every
// block the range touches must now be in the head whole: a file holds a block whole or not at all, so the caller widens a write to
// whole blocks, by what ReadPlan finds at its edges, and holds back other writes to these. It must not be called for a failed
// write: where the file system did not allocate, the head still has a hole; use Remap then.
func (c *Chain) MarkWritten(off, n int64) {
	c.checkRange(off, n)
	if n == 0 {
		return
	}
	first, end := off/blockSize, (off+n-1)/blockSize+1
	c.m.setHead(first, end, c.headIndex(), c.backing)
}

// ZeroRange is a step of making a range read as zeroes.
type ZeroRange struct {
	Off, Len int64
	// Punch: the range is whole blocks that only the head has: punch a hole there, then call MarkPunched. Otherwise
	// write zeroes like any other write: something below would show through a hole.
	Punch bool
}

// ZeroPlan appends to out what must be done to the head so that [off, off+n) reads as zeroes; parts that read as
// zeroes because no file has them are left out. Zeroes are always written, never preallocated: an unwritten extent
// could not be told from an interrupted write after a crash.
func (c *Chain) ZeroPlan(off, n int64, out []ZeroRange) []ZeroRange {
	c.checkRange(off, n)
	start, end := len(out), off+n
	for off < end {
		b := off / blockSize
		stop := min((b+1)*blockSize, end)
		v := c.m.b[b]
		if v != inNone || c.backing && off < c.layers[1].size {
			whole := stop-off == blockSize
			out = appendZero(out, start, ZeroRange{Off: off, Len: stop - off, Punch: whole && v == inHeadOnly})
		}
		off = stop
	}
	return out
}

func appendZero(out []ZeroRange, start int, r ZeroRange) []ZeroRange {
	if i := len(out) - 1; i >= start && out[i].Punch == r.Punch && out[i].Off+out[i].Len == r.Off {
		out[i].Len += r.Len
		return out
	}
	return append(out, r)
}

// DiscardPlan is ZeroPlan for the whole blocks inside [off, off+n): a discarded range reads as zeroes on every
// replica, whatever layers each of them has at the moment, so replicas stay identical while one purges and another
// does not. Where the plan has no Punch a discard costs writes; who wants only the space asks every replica for its
// Punch ranges and zeroes what they have in common.
func (c *Chain) DiscardPlan(off, n int64, out []ZeroRange) []ZeroRange {
	c.checkRange(off, n)
	first := (off + blockSize - 1) / blockSize * blockSize
	end := (off + n) / blockSize * blockSize
	if first >= end {
		return out
	}
	return c.ZeroPlan(first, end-first, out)
}

// MarkPunched records that a hole was punched into the head at a Punch range of ZeroPlan.
func (c *Chain) MarkPunched(off, n int64) {
	c.checkRange(off, n)
	if off%blockSize != 0 || n%blockSize != 0 {
		panic(fmt.Sprintf("chain: punched range [%d,+%d) is not whole blocks", off, n))
	}
	first, end := off/blockSize, (off+n)/blockSize
	for _, v := range c.m.b[first:end] {
		if v != inNone && v != inHeadOnly {
			panic(fmt.Sprintf("chain: punched range [%d,+%d) has blocks below the head", off, n))
		}
	}
	c.m.clear(first, end)
}

// checkRange asserts what callers have checked against Size: a range outside the volume is a bug, not an input.
func (c *Chain) checkRange(off, n int64) {
	if off < 0 || n < 0 || off > c.size || n > c.size-off {
		panic(fmt.Sprintf("chain: range [%d,+%d) is outside the volume of %d bytes", off, n, c.size))
	}
}
