package chain

import (
	"fmt"
	"io"
)

// Extent is a contiguous piece of a read: bytes [Off, Off+Len) of the volume, found at the same
// offset of one file.
type Extent struct {
	// Handle is the file's loop handle, or NoHandle where the piece reads as zeroes.
	Handle   int32
	Off, Len int64
}

const (
	// NoHandle marks an Extent that is in no file.
	NoHandle int32 = -1
	// PackedHandle marks one of a backing file that no loop can read: Blocks.Packed does, which
	// blocks.
	PackedHandle int32 = -2
)

// Packed reads what extents with PackedHandle are in, as long as the chain is open.
func (b *Blocks) Packed() io.ReaderAt { return b.layers[1].file }

// Size returns the volume's size in bytes, a multiple of 4096.
func (b *Blocks) Size() int64 { return b.size }

// HeadHandle returns the loop handle of the head, where every write goes. It changes with Snapshot
// and Expand.
func (b *Blocks) HeadHandle() int32 { return b.head().file.Handle() }

// ReadPlan appends to out where the bytes [off, off+n) of the volume are, in order and without
// gaps; neighbouring blocks of the same file are one extent. Extents of a file never reach beyond
// its end. The range must lie within the volume. The plan holds until the next MarkWritten,
// MarkPunched or metadata operation on an overlapping range.
func (b *Blocks) ReadPlan(off, n int64, out []Extent) []Extent {
	b.checkRange(off, n)
	start, end := len(out), off+n
	for off < end {
		at := off / blockSize
		v := b.index(b.m.b[at])
		last := (end - 1) / blockSize
		for at++; at <= last && b.index(b.m.b[at]) == v; at++ {
		}
		stop := min(at*blockSize, end)
		out = b.appendRun(out, start, v, off, stop)
		off = stop
	}
	return out
}

// index resolves a map value to an index into layers.
func (b *Blocks) index(v byte) byte {
	switch {
	case v == inHeadOnly:
		return b.headIndex()
	case v == inNone && b.backing:
		return 1
	case v == inVoid:
		return inNone
	}
	return v
}

// appendRun appends the range of one layer, cut at the layer's end: what is beyond reads as zeroes.
func (b *Blocks) appendRun(out []Extent, start int, v byte, off, stop int64) []Extent {
	if v != inNone {
		l := &b.layers[v]
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

func (b *Blocks) inHead(n int64) bool {
	v := b.m.b[n]
	return v == inHeadOnly || v == b.headIndex()
}

// MarkWritten records that a write of [off, off+n) to the head has completed: reads find it there
// from now on. Every block the range touches must now be in the head whole: a file holds a block
// whole or not at all, so the caller widens a write to whole blocks, by what ReadPlan finds at its
// edges, and holds back other writes to these. It must not be called for a failed write: where the
// file system did not allocate, the head still has a hole; use Remap then.
func (b *Blocks) MarkWritten(off, n int64) {
	b.checkRange(off, n)
	if n == 0 {
		return
	}
	first, end := off/blockSize, (off+n-1)/blockSize+1
	b.m.setHead(first, end, b.headIndex(), b.backing)
}

// ZeroRange is a step of making a range read as zeroes.
type ZeroRange struct {
	Off, Len int64
	// Punch: the range is whole blocks that only the head has: punch a hole there, then call
	// MarkPunched. Otherwise write zeroes like any other write: something below would show through
	// a hole.
	Punch bool
	// Whiteout, of DiscardPlan only: something below would show through a hole. Set whiteouts,
	// which hide it, have them written, if Punch is set too have them synced and then punch, and
	// call MarkHidden.
	Whiteout bool
}

// ZeroPlan appends to out what must be done to the head so that [off, off+n) reads as zeroes; parts
// that read as zeroes because no file has them are left out. The plan holds as long as nothing is
// written below the head there. Zeroes are always written, never preallocated: an unwritten extent
// could not be told from an interrupted write after a crash.
func (b *Blocks) ZeroPlan(off, n int64, out []ZeroRange) []ZeroRange {
	b.checkRange(off, n)
	start, end := len(out), off+n
	for off < end {
		at := off / blockSize
		stop := min((at+1)*blockSize, end)
		v := b.m.b[at]
		if v != inNone || b.backed(at) {
			whole := stop-off == blockSize
			out = appendZero(out, start, ZeroRange{Off: off, Len: stop - off, Punch: whole && v == inHeadOnly})
		}
		off = stop
	}
	return out
}

func appendZero(out []ZeroRange, start int, r ZeroRange) []ZeroRange {
	if i := len(out) - 1; i >= start && out[i].Punch == r.Punch && out[i].Whiteout == r.Whiteout &&
		out[i].Off+out[i].Len == r.Off {
		out[i].Len += r.Len
		return out
	}
	return append(out, r)
}

// DiscardPlan appends to out what must be done so that the whole blocks inside [off, off+n) read as
// zeroes and take no space, here and after any crash: on every replica, whatever layers each of
// them has at the moment, so replicas stay identical while one purges and another does not.
func (b *Blocks) DiscardPlan(off, n int64, out []ZeroRange) []ZeroRange {
	b.checkRange(off, n)
	start, end := len(out), (off+n)/blockSize
	for at := (off + blockSize - 1) / blockSize; at < end; at++ {
		r := ZeroRange{Off: at * blockSize, Len: blockSize}
		switch v := b.m.b[at]; {
		case v == inVoid && b.whiteouts.failed[at/whiteoutBlocks]:
			r.Whiteout = true // what hides it is possibly in memory only
		case v == inVoid, v == inNone && !b.backed(at):
			continue
		case v == inHeadOnly:
			r.Punch = true
		default:
			r.Whiteout, r.Punch = true, v == b.headIndex()
		}
		out = appendZero(out, start, r)
	}
	return out
}

// MarkPunched records that a hole was punched into the head at a Punch range of ZeroPlan.
func (b *Blocks) MarkPunched(off, n int64) {
	b.checkRange(off, n)
	if off%blockSize != 0 || n%blockSize != 0 {
		panic(fmt.Sprintf("chain: punched range [%d,+%d) is not whole blocks", off, n))
	}
	first, end := off/blockSize, (off+n)/blockSize
	for _, v := range b.m.b[first:end] {
		if v != inNone && v != inHeadOnly {
			panic(fmt.Sprintf("chain: punched range [%d,+%d) has blocks below the head", off, n))
		}
	}
	b.m.clear(first, end)
}

// checkRange asserts what callers have checked against Size: a range outside the volume is a bug,
// not an input.
func (b *Blocks) checkRange(off, n int64) {
	if off < 0 || n < 0 || off > b.size || n > b.size-off {
		panic(fmt.Sprintf("chain: range [%d,+%d) is outside the volume of %d bytes", off, n, b.size))
	}
}
