package chain

import (
	"errors"
	"fmt"
	"slices"

	"ankole.storage/dataplane/disk"
)

// layer is an open file of the chain. It is never changed in place where others can see it: tables
// are copied.
type layer struct {
	name string
	file disk.File
	size int64
	// inode tells one file from another that has taken its name.
	inode uint64
	// readOnly: the file was opened for reading.
	readOnly bool
	// whiteouts hide blocks of the layers below; nil: none.
	whiteouts *whiteoutFile
}

// close closes the layer's files.
func (l *layer) close() error {
	if l.file == nil {
		return nil
	}
	return errors.Join(l.file.Close(), l.whiteouts.close())
}

// table lists the files that blocks are read from. The directory's and that of the data path are
// copies of each other.
type table struct {
	// layers are the files of the live chain from index 1, bottom first; the head is the last. With
	// a backing file that one is index 1.
	layers []layer
	// branches are the files off the live chain that a rebuild has open.
	branches []layer
	backing  bool
	// size and rebuilding are volume.meta's, for the data path: the directory's has them there.
	size       int64
	rebuilding bool
}

func (t *table) headIndex() byte { return byte(len(t.layers) - 1) }

func (t *table) head() *layer { return &t.layers[len(t.layers)-1] }

// bottomIndex is the index of the lowest layer that is not the backing file.
func (t *table) bottomIndex() int {
	if t.backing {
		return 2
	}
	return 1
}

// layerIndex returns the index of a file of the live chain, 0 if it is none.
func (t *table) layerIndex(file string) int {
	for i := t.bottomIndex(); i < len(t.layers); i++ {
		if t.layers[i].name == file {
			return i
		}
	}
	return 0
}

// numbered returns a layer by its number: of the live chain, bottom first, then of the branches
// that are open.
func (t *table) numbered(number int) *layer {
	if k := number - (len(t.layers) - t.bottomIndex()); k >= 0 {
		return &t.branches[k]
	}
	return &t.layers[t.bottomIndex()+number]
}

func (t *table) clone() table {
	c := *t
	c.layers, c.branches = slices.Clone(t.layers), slices.Clone(t.branches)
	return c
}

// Blocks says where the newest data of every block is. It belongs to the thread that carries out
// I/O, a core's loop, and to nobody else: it holds nothing that a metadata operation, which runs
// beside it, reads or writes. What such an operation changes comes as a Change, a value, and what
// it has to know goes to it as one (Where, Look, Below).
//
// No method blocks or fails, so a step core calls them inline. They say which bytes of which file
// an I/O touches; the core does the I/O.
type Blocks struct {
	table
	m blockMap
	// whiteouts are the head's.
	whiteouts headWhiteouts
}

// Change is what a metadata operation has changed about where blocks are read from. The owner of
// Blocks applies it before it begins other I/O, and no I/O is under way between the beginning of
// the operation and that. The zero Change is none.
type Change struct {
	table *table
	// frozen is the layer that was the head before another one was put on top, merged the one that
	// has taken the place of the one above it; 0 for none.
	frozen, merged byte
	// fresh replaces everything: nothing else refers to it.
	fresh *Blocks
}

// changed is the Change of an operation that leaves every block where it is, but may have opened or
// closed files.
func (o *openFiles) changed() Change {
	t := o.tableOfBlocks()
	return Change{table: &t}
}

// tableOfBlocks is the present table for the data path.
func (o *openFiles) tableOfBlocks() table {
	t := o.table.clone()
	t.size, t.rebuilding = o.meta.vm.Size, o.meta.vm.Rebuilding
	return t
}

// replace puts other files of the directory, whose head is a new one, in the place of these. It
// returns the old head's image, which stays open.
func (o *openFiles) replace(next *openFiles) (head disk.File) {
	for _, l := range o.layers[1 : len(o.layers)-1] {
		_ = l.close() // only read
	}
	_ = o.head().whiteouts.close() // given up with the head
	head = o.head().file
	o.layers, o.backing = next.layers, next.backing
	return head
}

// Changes reports whether there is anything to apply.
func (ch *Change) Changes() bool { return ch.table != nil || ch.fresh != nil }

// Apply takes over what a metadata operation has changed.
func (b *Blocks) Apply(ch Change) {
	if ch.fresh != nil {
		b.m.free()
		*b = *ch.fresh
	}
	if ch.frozen != 0 {
		b.m.freezeHead(ch.frozen)
		b.whiteouts = headWhiteouts{}
	}
	if ch.merged != 0 {
		b.m.merge(ch.merged)
	}
	if ch.table == nil {
		return
	}
	b.table = *ch.table
	if n := int(b.size / blockSize); n > len(b.m.b) {
		b.m.extend(n)
	}
}

// Room is the proof that the block map has room for a volume of a size.
type Room struct{ size int64 }

// Reserve makes room for a volume that grows to size bytes, so that Apply cannot fail. ErrNoMemory,
// ErrInvalid.
func (b *Blocks) Reserve(size int64) (Room, error) {
	if err := validateSize(size); err != nil {
		return Room{}, err
	}
	return Room{size}, b.m.reserve(size)
}

// Free gives back the memory of the map. Nothing may be asked afterwards.
func (b *Blocks) Free() { b.m.free() }

// Retired is a block map that nothing will be read by any more: it is for the process that comes
// next. Whoever has it frees it.
type Retired struct{ m *blockMap }

// Retire ends the use of b and returns its map.
func (b *Blocks) Retire() Retired {
	m := b.m
	b.m = blockMap{}
	return Retired{&m}
}

// Free gives back the memory.
func (r Retired) Free() { r.m.free() }

// Where says which layers some blocks are read from. It is a copy, for metadata operations to read.
type Where struct {
	first int64
	// index has the layer of each block from first on, inNone for none.
	index []byte
}

// Where tells where the blocks of all pieces (SumPiece) are that [off, off+n) touches.
func (b *Blocks) Where(off, n int64) Where {
	b.checkRange(off, n)
	first := off / SumPiece * SumPiece / blockSize
	end := min((off+n+SumPiece-1)/SumPiece*SumPiece/blockSize, int64(len(b.m.b)))
	w := Where{first, slices.Clone(b.m.b[first:end])}
	for i, v := range w.index {
		w.index[i] = b.index(v)
	}
	return w
}

// at returns the layer of a block.
func (w *Where) at(n int64) byte { return w.index[n-w.first] }

// Repaired is what View.Repair has written to a snapshot's file.
type Repaired struct {
	Written []Rot
	inode   uint64
	// hidden are the blocks of these that layers hide, by whiteout file.
	hidden map[whiteoutID]map[int64]bool
}

// Repaired records that a repair has written blocks to a file, if that is one of the layers here.
func (b *Blocks) Repaired(w Repaired) {
	i := slices.IndexFunc(b.layers, func(l layer) bool { return l.file != nil && l.inode == w.inode })
	if i < b.bottomIndex() {
		return
	}
	for _, r := range w.Written {
		first, end := r.Off/blockSize, (r.Off+r.Len)/blockSize
		if index := byte(i); index == b.headIndex() {
			b.m.setLower(first, end, index)
		} else {
			b.raise(first, end, index, w.hidden)
		}
	}
}

// raise records that layer index, below the head, has the blocks [first, end) now: they are read
// from it unless something above it has or hides them.
func (b *Blocks) raise(first, end int64, index byte, hidden map[whiteoutID]map[int64]bool) {
	b.m.raise(first, end, index, b.headIndex())
	for at := first; at < end; at++ {
		v := &b.m.b[at]
		if *v != inVoid && *v != index {
			continue
		}
		*v = index
		if b.whiteouts.has(at) || slices.ContainsFunc(b.layers[index+1:], func(l layer) bool {
			return l.whiteouts != nil && hidden[l.whiteouts.id][at]
		}) {
			*v = inVoid
		}
	}
}

// Found is what the head has of a range after a write there has failed.
type Found struct {
	off  int64
	have []blockFound
	// was tells which of the blocks were in the head before.
	was []bool
}

// Look prepares to find out which blocks of [off, off+n) are in the head after a write there has
// failed; look does it, and blocks. One of which only a part was written, or for which space was
// allocated and nothing written (on a file system that filled up meanwhile), is punched: it reads
// as zeroes and would hide what is below. Found takes the result over; no other I/O to the range
// may go on until then.
func (b *Blocks) Look(off, n int64) (look func() (Found, error)) {
	b.checkRange(off, n)
	first, last := off/blockSize, (off+n+blockSize-1)/blockSize
	f := Found{off: first * blockSize, was: make([]bool, last-first)}
	for i := range f.was {
		f.was[i] = b.inHead(first + int64(i))
	}
	head := b.head().file
	return func() (Found, error) {
		var err error
		if f.have, err = foundIn(head, first, last); err != nil {
			return Found{}, err
		}
		for i, x := range f.have {
			if at := first + int64(i); !f.was[i] && x.allocated && x.written < blockSize {
				if err := head.Punch(at*blockSize, blockSize); err != nil {
					return Found{}, err
				}
			}
		}
		return f, nil
	}
}

// Found records what was found: blocks that were in the head before stay there, unless a hole was
// punched before something else failed.
func (b *Blocks) Found(f Found) {
	for i, x := range f.have {
		at := f.off/blockSize + int64(i)
		switch {
		case b.m.b[at] == inHeadOnly && !x.allocated:
			b.m.clear(at, at+1)
		case b.inHead(at) && !x.allocated && b.whiteouts.has(at):
			b.MarkHidden(at*blockSize, blockSize)
		case !f.was[i] && x.written == blockSize:
			b.m.setHead(at, at+1, b.headIndex(), b.backing)
		}
	}
}

// Remap is Look and Found in one, for tools and tests.
func (c *Chain) Remap(off, n int64) error {
	found, err := c.Look(off, n)()
	if err == nil {
		c.Found(found)
	}
	return err
}

// Layers returns how many files the live chain has, without the backing file.
func (b *Blocks) Layers() int { return len(b.layers) - b.bottomIndex() }

// Layer returns the file name, handle and size of layer i of the live chain, 0 being the bottom and
// Layers()-1 the head. It does not block or allocate.
func (b *Blocks) Layer(i int) (file string, handle int32, size int64) {
	l := &b.layers[b.bottomIndex()+i]
	return l.name, l.file.Handle(), l.size
}

// Empty tells whether nothing was ever written to the volume: there is no snapshot, and no block in
// the head, also none that was punched since Open. It does not block, and does not look at the
// whole map.
func (b *Blocks) Empty() bool {
	wasUsed := func(word uint64) bool { return word != 0 }
	return len(b.layers) == b.bottomIndex()+1 && !slices.ContainsFunc(b.m.used, wasUsed)
}

// OnImage tells whether there is a backing file: an empty volume does not read as zeroes then.
func (b *Blocks) OnImage() bool { return b.backing }

// LayerHandle returns the loop handle of a file of the live chain for a rebuild's writes. Snapshots
// can be written only while the chain is Rebuilding.
func (b *Blocks) LayerHandle(file string) (int32, bool) {
	if i := b.layerIndex(file); i != 0 {
		return b.layers[i].file.Handle(), true
	}
	return NoHandle, false
}

// MarkLayerWritten records that a rebuild has written [off, off+n), whole blocks, of a layer. It
// does not block.
func (b *Blocks) MarkLayerWritten(file string, off, n int64) {
	b.checkRange(off, n)
	i := b.layerIndex(file)
	if i == 0 || off%blockSize != 0 || n%blockSize != 0 {
		panic(fmt.Sprintf("chain: [%d,+%d) of layer %q was not written by a rebuild", off, n, file))
	}
	first, end := off/blockSize, (off+n)/blockSize
	if i == len(b.layers)-1 {
		b.m.setHead(first, end, byte(i), b.backing)
		return
	}
	b.m.raise(first, end, byte(i), b.headIndex())
}

// Rebuilding tells whether the chain is an incomplete rebuild target.
func (b *Blocks) Rebuilding() bool { return b.rebuilding }

// MayWriteLayer tells whether a rebuild may write to a layer, by its number: not to a snapshot of
// which checksums are recorded, since Reshape was told that it is left alone. It does not block.
func (b *Blocks) MayWriteLayer(number int) bool { return b.rebuilding && !b.numbered(number).readOnly }

// LayerFile returns the file of layer i of the live chain, for reading it beside I/O. It does not
// block.
func (b *Blocks) LayerFile(i int) disk.File { return b.layers[b.bottomIndex()+i].file }

// Below prepares to find out which blocks of [off, off+n), whole blocks, the layers below the head
// have. It does not block; find does, and may run beside I/O but not beside metadata operations.
// SetBelow takes its result over.
func (b *Blocks) Below(off, n int64) (find func() ([]byte, error)) {
	b.checkRange(off, n)
	lower := slices.Clone(b.layers[b.bottomIndex() : len(b.layers)-1])
	first := byte(b.bottomIndex())
	return func() ([]byte, error) {
		top := make([]byte, n/blockSize)
		for i := range lower {
			err := lower[i].whiteouts.blocks(off/blockSize, (off+n)/blockSize, func(at int64) { top[at-off/blockSize] = inVoid })
			if err != nil {
				return nil, err
			}
			extents, _, err := lower[i].file.Extents(off, nil)
			if err != nil {
				return nil, err
			}
			for _, e := range extents {
				for at := max(e.Off, off) / blockSize; at*blockSize < min(e.Off+e.Len, off+n); at++ {
					top[at-off/blockSize] = first + byte(i)
				}
			}
		}
		return top, nil
	}
}

// SetBelow records which layer below the head is the topmost to have each block from off on, after
// a rebuild has punched one of them, or the head if punched is set. It does not block.
func (b *Blocks) SetBelow(off int64, top []byte, punched bool) {
	for i, v := range top {
		at := off/blockSize + int64(i)
		if b.whiteouts.has(at) {
			v = inVoid
		}
		switch {
		case !punched && b.inHead(at):
			// Whether something is below decides how zeroes are made.
			b.m.b[at] = inNone
			if v != inNone {
				b.m.setLower(at, at+1, v)
			}
			b.m.setHead(at, at+1, b.headIndex(), b.backing)
		case v == inNone:
			b.m.clear(at, at+1)
		default:
			b.m.setLower(at, at+1, v)
		}
	}
}
