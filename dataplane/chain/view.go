package chain

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"ankole.storage/dataplane/disk"
)

// View is the content at a snapshot as one thread has it, for tools and tests.
type View struct {
	*ViewFiles
	*Blocks
	of *Chain
}

// ViewFiles is the content at a snapshot, as a reader would see it, kept open for a scrub: telling
// whether it is what it was when it was hashed, and putting right what is not. Where its blocks are
// say Blocks of its own, 256 KiB per GiB, which the thread that carries out I/O has; both are given
// back at the end.
//
// Purges, snapshots and reverts may go on beside it; what is read stays the content at the
// snapshot.
type ViewFiles struct {
	c *readers
	// at are read-only files with the snapshot as head.
	at    *Files
	file  string
	inode uint64
	// sums of the layers, opened when they are first asked for.
	sums map[string]openedSums
	// pinned: purges leave the snapshot alone.
	pinned bool
	// repaired: the snapshot's image was written to.
	repaired bool
}

// readers are the views that are open, and which snapshots they keep. What a view writes to its own
// snapshot (Repair, Keep) goes by it: that ends a merge of the file and outdates its checksums.
//
// Its own are pins and views.
type readers struct {
	*directory
	meta      *meta
	checksums *checksums
	openFiles *openFiles
	merges    *merges
	// pins counts the open views that keep a snapshot from being purged.
	pins map[string]int
	// views are those that are open.
	views []*ViewFiles
}

// openedSums are a layer's sums, and how often they had been voided when they were opened.
type openedSums struct {
	*sumsReader
	voids int
}

// OpenView opens a snapshot. The head, and snapshots that are marked removed and may lose their
// content, have no view.
func (c *Files) OpenView(snapshot string) (*ViewFiles, *Blocks, error) {
	if err := c.readable(); err != nil {
		return nil, nil, err
	}
	file := snapshotFile(snapshot)
	switch d := c.meta.disks[file]; {
	case d == nil:
		return nil, nil, fmt.Errorf("%w: there is no snapshot %q in %s", ErrNotFound, snapshot, c.dir)
	case d.Removed:
		return nil, nil, fmt.Errorf("%w: snapshot %q is marked removed", ErrInvalid, snapshot)
	case c.meta.vm.Rebuilding:
		return nil, nil, fmt.Errorf("%w: chain %s is being rebuilt; scrub it afterwards", ErrInvalid, c.dir)
	}
	at, err := c.at(snapshot)
	if err != nil {
		return nil, nil, err
	}
	v := &ViewFiles{c: c.readers, at: at.Files, file: file, inode: at.Files.openFiles.head().inode,
		sums: map[string]openedSums{}}
	c.readers.add(v)
	return v, at.Blocks, nil
}

// add takes in a view that was opened.
func (c *readers) add(v *ViewFiles) { c.views = append(c.views, v) }

// OpenView is Files.OpenView.
func (c *Chain) OpenView(snapshot string) (*View, error) {
	files, blocks, err := c.Files.OpenView(snapshot)
	if err != nil {
		return nil, err
	}
	return &View{files, blocks, c}, nil
}

// size is the volume's at the snapshot.
func (v *ViewFiles) size() int64 { return v.at.meta.vm.Size }

// Close gives back what the view holds. No I/O on its handles may be under way.
func (v *ViewFiles) Close() error {
	v.unpin()
	if v.repaired {
		v.c.merges.settled(v.file)
	}
	v.c.views = slices.DeleteFunc(v.c.views, func(o *ViewFiles) bool { return o == v })
	return errors.Join(v.dropSums(), v.at.release())
}

// Close is ViewFiles.Close, and gives back the memory of the block map.
func (v *View) Close() error {
	v.Free()
	return v.ViewFiles.Close()
}

func (v *ViewFiles) dropSums() error {
	var err error
	for name, s := range v.sums {
		err = errors.Join(err, s.close())
		delete(v.sums, name)
	}
	return err
}

// Verdict is what a replica's own checksums say about a range.
type Verdict uint8

// Verdicts.
const (
	// VerdictUnknown: of some block that is read there nothing is known.
	VerdictUnknown Verdict = iota
	// VerdictGood: everything that is read there is what it was when it was hashed.
	VerdictGood
	// VerdictRotten: something is not, or cannot be read.
	VerdictRotten
)

// String names the verdict in reports and messages.
func (v Verdict) String() string { return [...]string{"unknown", "good", "rotten"}[v] }

// LayerRot is rot in one file of the chain.
type LayerRot struct {
	// Snapshot is the name of the layer's snapshot, which may be an older one.
	Snapshot string
	Rot
}

// Verify compares what is read at [off, off+n) of the snapshot with the checksums of the files it
// comes from; where says which those are. It reads every file that has something there, so n should
// be no more than a few pieces. It may run beside I/O, but not beside another metadata operation.
func (v *ViewFiles) Verify(off, n int64, where Where) (Verdict, []LayerRot, error) {
	if err := v.c.readable(); err != nil {
		return VerdictUnknown, nil, err
	}
	verdict, rot := VerdictGood, []LayerRot(nil)
	for number := uint32(off / SumPiece); int64(number)*SumPiece < off+n; number++ {
		read := where.layersOf(number)
		if v.at.openFiles.backing && read[1] {
			verdict = VerdictUnknown // there are no checksums of a backing file
		}
		for i := v.at.openFiles.bottomIndex(); i < len(v.at.openFiles.layers); i++ {
			known, bad, err := v.verifyPiece(&v.at.openFiles.layers[i], number)
			if err != nil {
				return VerdictUnknown, nil, err
			}
			if bad != nil {
				rot = append(rot, *bad)
			} else if read[i] && !known {
				verdict = VerdictUnknown
			}
		}
	}
	if len(rot) > 0 {
		verdict = VerdictRotten
	}
	return verdict, rot, nil
}

// Verify is ViewFiles.Verify.
func (v *View) Verify(off, n int64) (Verdict, []LayerRot, error) {
	return v.ViewFiles.Verify(off, n, v.Where(off, n))
}

// layersOf tells from which layers some block of a piece is read.
func (w *Where) layersOf(number uint32) (read [maxChain + 2]bool) {
	first := int64(number) * (SumPiece / blockSize)
	for n := first; n < min(first+SumPiece/blockSize, w.first+int64(len(w.index))); n++ {
		read[w.at(n)] = true
	}
	read[inNone] = false
	return read
}

// verifyPiece compares a piece of a layer with its sum, where there is one.
func (v *ViewFiles) verifyPiece(l *layer, number uint32) (known bool, bad *LayerRot, err error) {
	p := filePiece{number: number}
	if damaged, err := l.whiteouts.damaged(p.off()); err != nil || damaged {
		return false, &LayerRot{Snapshot: displayName(l.name),
			Rot: Rot{Off: p.off(), Len: min(SumPiece, v.size()-p.off())}}, err
	}
	s, err := v.sumsOf(l)
	if err != nil {
		return false, nil, err
	}
	want, known, err := s.find(number)
	if err != nil || !known {
		return false, nil, err
	}
	got, err := v.sumOf(l.file, &p)
	unreadable := errors.Is(err, disk.ErrIO)
	if err != nil && !unreadable {
		return false, nil, err
	}
	if unreadable || got != want {
		bad = &LayerRot{Snapshot: displayName(l.name),
			Rot: Rot{Off: p.off(), Len: min(SumPiece, l.size-p.off()), Unreadable: unreadable}}
	}
	return true, bad, nil
}

// sumOf looks up which blocks of a piece the file has, and computes its sum.
func (v *ViewFiles) sumOf(f disk.File, p *filePiece) (sum, error) {
	extents, _, err := f.Extents(p.off(), nil)
	if err != nil {
		return sum{}, err
	}
	list, _ := piecesOf(extents, p.off(), p.off()+SumPiece, 1)
	if len(list) > 0 && list[0].number == p.number {
		p.blocks = list[0].blocks
	}
	return readPiece(f, *p, make([]byte, SumPiece), nil)
}

func (v *ViewFiles) sumsOf(l *layer) (*sumsReader, error) {
	voids := v.c.checksums.voided[l.name]
	if s, ok := v.sums[l.name]; ok {
		if s.voids == voids {
			return s.sumsReader, nil
		}
		delete(v.sums, l.name)
		if err := s.close(); err != nil {
			return nil, err
		}
	}
	info, err := l.file.Stat()
	if err != nil {
		return nil, err
	}
	if now, err := v.c.fs.Stat(v.c.path(l.name)); isNotFound(err) || err == nil && now.Inode != info.Inode {
		return nil, nil // a purge has put another file in its place, and the sums are that one's
	} else if err != nil {
		return nil, err
	}
	s, err := v.c.checksums.openSums(l.name, info.Size, disk.ReadOnly)
	if s != nil { // void ones may be computed in a moment
		v.sums[l.name] = openedSums{s, voids}
	}
	return s, err
}

// Repair makes the snapshot read data at [off, off+len(data)), whole blocks, where it does not yet;
// where says what it reads from. Only blocks that read otherwise, or cannot be read, are written,
// and always to the snapshot's own file: what older snapshots read does not change. data must be
// what all replicas are to have there. It is durable when it returns nil. Whatever was written is
// for Blocks.Repaired of the chain and of every view, also beside an error.
//
// It needs I/O to be held back. Errors: ErrNotFound and ErrInvalid where the snapshot went away or
// is being removed, ErrNoSpace; any of them may leave part of the range written.
func (v *ViewFiles) Repair(s *Sidecars, off int64, data []byte, where Where) (Repaired, error) {
	if err := errors.Join(s.usable(), v.repairable(off, int64(len(data)))); err != nil {
		return Repaired{}, err
	}
	differ, err := v.differing(off, data, where)
	if err != nil {
		return Repaired{}, err
	}
	return v.write(s, off, data, data, differ, where)
}

// write writes runs of data, which begins at off, to the snapshot's own file, durably. The
// snapshot's checksums say before that what will be there of expected, which begins there, too, and
// nothing of the rest of what is written.
func (v *ViewFiles) write(s *Sidecars, off int64, data, expected []byte, runs []Rot, where Where) (r Repaired,
	err error) {
	r.inode = v.inode
	if len(runs) == 0 {
		return r, nil
	}
	if r.hidden, err = v.c.hiddenBy(v.inode, runs); err != nil {
		return r, err
	}
	f, err := v.c.fs.Open(v.c.path(v.file), disk.Direct)
	if err != nil {
		return r, err
	}
	defer f.Close() // synced below
	if err := v.fill(runs, where); err != nil {
		return r, err
	}
	if err := v.expect(s, f, off, expected, runs); err != nil {
		return r, err
	}
	for _, w := range runs {
		if _, err := f.WriteAt(data[w.Off-off:][:w.Len], w.Off); err != nil {
			left, lost := v.leftOf(f, w, where)
			r.Written = append(r.Written, left...)
			return r, errors.Join(err, lost)
		}
		r.Written = append(r.Written, w)
	}
	if err := v.c.syncFile(f); err != nil {
		return r, err
	}
	got := make([]byte, len(data))
	for _, w := range runs {
		part := got[w.Off-off:][:w.Len]
		if err := readFull(f, part, w.Off); err != nil {
			return r, err
		}
		if !bytes.Equal(part, data[w.Off-off:][:w.Len]) {
			return r, fmt.Errorf("%w: %s reads other bytes than were just written to it", disk.ErrIO, v.file)
		}
	}
	return r, nil
}

// leftOf finds out which blocks of a run have come into the snapshot's file by a write that has
// failed: the block map has to know of each. Those that have come in part are taken away, durably,
// since what is below the head decides how zeroes are made. If that fails the chain breaks.
func (v *ViewFiles) leftOf(f disk.File, run Rot, where Where) (left []Rot, err error) {
	first := run.Off / blockSize
	found, err := foundIn(f, first, first+run.Len/blockSize)
	for i, x := range found {
		at := first + int64(i)
		switch {
		case !x.allocated || err != nil || where.at(at) == v.at.openFiles.headIndex(): // it was there before
		case x.written < blockSize:
			err = f.Punch(at*blockSize, blockSize)
		default:
			left = append(left, Rot{Off: at * blockSize, Len: blockSize})
		}
	}
	if err == nil {
		err = f.Sync()
	}
	return left, v.c.breaks(err)
}

// Repair is ViewFiles.Repair, made known to the chain and to the view.
func (v *View) Repair(off int64, data []byte) (Repaired, error) {
	n := int64(len(data))
	if err := v.repairable(off, n); err != nil {
		return Repaired{}, err // before the range is looked up
	}
	r, err := v.ViewFiles.Repair(v.of.Sidecars, off, data, v.Where(off, n))
	v.of.Blocks.Repaired(r)
	v.Blocks.Repaired(r)
	return r, err
}

func (v *ViewFiles) repairable(off, n int64) error {
	c := v.c
	if err := c.usable(); err != nil {
		return err
	}
	d := c.meta.disks[v.file]
	switch {
	case off < 0 || n <= 0 || n > maxFilling || (off|n)%blockSize != 0 || off > v.size() || n > v.size()-off:
		return fmt.Errorf("%w: repair of [%d,+%d) in %s of %d bytes", ErrInvalid, off, n, v.file, v.size())
	case d == nil:
		return fmt.Errorf("%w: %s is gone", ErrNotFound, v.file)
	case d.Removed || c.meta.vm.Rebuilding:
		return fmt.Errorf("%w: %s is being removed or rebuilt", ErrInvalid, v.file)
	}
	info, err := c.fs.Stat(c.path(v.file))
	if err == nil && info.Inode != v.inode {
		err = fmt.Errorf("%w: %s has become another file; open it again", ErrInvalid, v.file)
	}
	return err
}

// differing returns the blocks that do not read as data, in runs.
func (v *ViewFiles) differing(off int64, data []byte, where Where) (out []Rot, err error) {
	got := make([]byte, blockSize)
	for at := int64(0); at < int64(len(data)); at += blockSize {
		err := v.readBlock(got, off+at, where)
		unreadable := errors.Is(err, disk.ErrIO)
		switch {
		case err != nil && !unreadable:
			return nil, err
		case err == nil && bytes.Equal(got, data[at:at+blockSize]):
			continue
		}
		out = addBlock(out, off+at, unreadable)
	}
	return out, nil
}

// addBlock adds a block to runs of blocks in order.
func addBlock(runs []Rot, off int64, unreadable bool) []Rot {
	if k := len(runs) - 1; k >= 0 && runs[k].Off+runs[k].Len == off && runs[k].Unreadable == unreadable {
		runs[k].Len += blockSize
		return runs
	}
	return append(runs, Rot{Off: off, Len: blockSize, Unreadable: unreadable})
}

// readBlock reads one block of the snapshot.
func (v *ViewFiles) readBlock(p []byte, off int64, where Where) error {
	clear(p)
	i := where.at(off / blockSize)
	if i == inNone {
		return nil
	}
	l := &v.at.openFiles.layers[i]
	return readFull(l.file, p[:max(min(blockSize, l.size-off), 0)], off)
}

// expect durably makes the snapshot's checksums say what will be there, before any of it is
// written: a repair that a crash cuts short leaves pieces that are seen to be rotten. Of pieces
// that are not repaired whole nothing is known.
func (v *ViewFiles) expect(side *Sidecars, f disk.File, off int64, data []byte, written []Rot) error {
	c := v.c
	err := errors.Join(c.merges.endOf(v.file), side.layersChange(v.file), v.dropSums(), c.meta.mark(v.file))
	if err != nil {
		return err
	}
	v.repaired = true
	if err := c.checksums.outdate(v.file); err != nil {
		return err
	}
	info, err := f.Stat()
	if err != nil {
		return err
	}
	s, err := c.checksums.openSums(v.file, info.Size, 0)
	if err != nil || s == nil {
		return err
	}
	err = v.expectSums(s, f, off, data, written)
	if err == nil {
		err = c.syncFile(s.file)
	}
	return errors.Join(err, s.close())
}

func (v *ViewFiles) expectSums(s *sumsReader, f disk.File, off int64, data []byte, written []Rot) error {
	last := written[len(written)-1]
	for number := written[0].Off / SumPiece; number*SumPiece < last.Off+last.Len; number++ {
		p := filePiece{number: uint32(number)}
		changed := blocksIn(written, number)
		if changed == 0 {
			continue
		}
		var want sum
		if p.off() >= off && min(p.off()+SumPiece, v.size()) <= off+int64(len(data)) {
			if _, err := v.sumOf(f, &p); err != nil && !errors.Is(err, disk.ErrIO) {
				return err
			}
			p.blocks |= changed
			want = sumOfData(p.blocks, data[p.off()-off:])
		}
		if err := s.set(p.number, want); err != nil {
			return err
		}
	}
	return nil
}

// blocksIn has a bit for every block of a piece that is in one of the runs.
func blocksIn(runs []Rot, number int64) (blocks uint64) {
	for _, r := range runs {
		for b := r.Off / blockSize; b < (r.Off+r.Len)/blockSize; b++ {
			if b*blockSize/SumPiece == number {
				blocks |= 1 << (b % (SumPiece / blockSize))
			}
		}
	}
	return blocks
}

// sumOfData is the sum of a piece that has the given blocks with the content in data, which begins
// with the piece.
func sumOfData(blocks uint64, data []byte) sum {
	s := newPieceSum(blocks)
	for i := range int64(SumPiece / blockSize) {
		if blocks>>i&1 != 0 {
			s.add(data[i*blockSize:][:blockSize])
		}
	}
	return s.sum()
}
