package chain

import (
	"bytes"
	"errors"
	"fmt"

	"ankole.storage/disk"
)

// View is the content at a snapshot, as a reader would see it, kept open for a scrub: reading it, telling whether it is
// what it was when it was hashed, and putting right what is not. It holds a block map of its own, 256 KiB per GiB, until
// it is closed.
//
// Purges, snapshots and reverts may go on beside it; what is read stays the content at the snapshot.
type View struct {
	c *Chain
	// at is a read-only chain whose head is the snapshot.
	at    *Chain
	file  string
	inode uint64
	// sums of the layers, opened when they are first asked for.
	sums map[string]openedSums
	// pinned: purges leave the snapshot alone.
	pinned bool
}

// openedSums are a layer's sums, and how often they had been voided when they were opened.
type openedSums struct {
	*sumsReader
	voids int
}

// OpenView opens a snapshot. The head, and snapshots that are marked removed and may lose their content, have no view.
func (c *Chain) OpenView(snapshot string) (*View, error) {
	if err := c.readable(); err != nil {
		return nil, err
	}
	file := snapshotFile(snapshot)
	switch d := c.disks[file]; {
	case d == nil:
		return nil, fmt.Errorf("%w: there is no snapshot %q in %s", ErrNotFound, snapshot, c.dir)
	case d.Removed:
		return nil, fmt.Errorf("%w: snapshot %q is marked removed", ErrInvalid, snapshot)
	case c.rebuilding:
		return nil, fmt.Errorf("%w: chain %s is being rebuilt; scrub it afterwards", ErrInvalid, c.dir)
	}
	at, err := c.at(snapshot)
	if err != nil {
		return nil, err
	}
	info, err := at.head().file.Stat()
	if err != nil {
		return nil, errors.Join(err, at.release())
	}
	return &View{c: c, at: at, file: file, inode: info.Inode, sums: map[string]openedSums{}}, nil
}

// Close gives back what the view holds. No I/O on its handles may be under way.
func (v *View) Close() error {
	v.unpin()
	return errors.Join(v.dropSums(), v.at.release())
}

func (v *View) dropSums() error {
	var err error
	for name, s := range v.sums {
		err = errors.Join(err, s.close())
		delete(v.sums, name)
	}
	return err
}

// Size is the snapshot's size in bytes, a multiple of 4096.
func (v *View) Size() int64 { return v.at.size }

// ReadPlan is Chain.ReadPlan for the snapshot. It does not block; it must not be asked while Repair runs.
func (v *View) ReadPlan(off, n int64, out []Extent) []Extent { return v.at.ReadPlan(off, n, out) }

// ReadAt reads the blocking way.
func (v *View) ReadAt(p []byte, off int64) (int, error) { return v.at.ReadAt(p, off) }

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

// Verify compares what is read at [off, off+n) of the snapshot with the checksums of the files it comes from. It reads
// every file that has something there, so n should be no more than a few pieces. It may run beside I/O, but not beside
// another metadata operation.
func (v *View) Verify(off, n int64) (Verdict, []LayerRot, error) {
	if err := v.c.readable(); err != nil {
		return VerdictUnknown, nil, err
	}
	v.at.checkRange(off, n)
	verdict, rot := VerdictGood, []LayerRot(nil)
	for number := uint32(off / SumPiece); int64(number)*SumPiece < off+n; number++ {
		read := v.readFrom(number)
		if v.at.backing && read[1] {
			verdict = VerdictUnknown // nothing of ours vouches for a backing file
		}
		for i := v.at.bottomIndex(); i < len(v.at.layers); i++ {
			known, bad, err := v.verifyPiece(&v.at.layers[i], number)
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

// readFrom tells from which layers some block of a piece is read.
func (v *View) readFrom(number uint32) (read [maxChain + 2]bool) {
	first := int64(number) * (SumPiece / blockSize)
	for b := first; b < min(first+SumPiece/blockSize, int64(len(v.at.m.b))); b++ {
		read[v.at.index(v.at.m.b[b])] = true
	}
	read[inNone] = false
	return read
}

// verifyPiece compares a piece of a layer with its sum, where there is one.
func (v *View) verifyPiece(l *layer, number uint32) (known bool, bad *LayerRot, err error) {
	s, err := v.sumsOf(l)
	if err != nil {
		return false, nil, err
	}
	want, known, err := s.find(number)
	if err != nil || !known {
		return false, nil, err
	}
	p := filePiece{number: number}
	got, err := v.sumOf(l.file, &p)
	unreadable := errors.Is(err, disk.ErrIO)
	if err != nil && !unreadable {
		return false, nil, err
	}
	if unreadable || got != want {
		bad = &LayerRot{Snapshot: displayName(l.name), Rot: Rot{Off: p.off(), Len: min(SumPiece, l.size-p.off()), Unreadable: unreadable}}
	}
	return true, bad, nil
}

// sumOf looks up which blocks of a piece the file has, and computes its sum.
func (v *View) sumOf(f disk.File, p *filePiece) (sum, error) {
	extents, _, err := f.Extents(p.off(), nil)
	if err != nil {
		return sum{}, err
	}
	list, _ := piecesOf(extents, p.off(), p.off()+SumPiece)
	if len(list) > 0 && list[0].number == p.number {
		p.blocks = list[0].blocks
	}
	return readPiece(f, *p, make([]byte, SumPiece), nil)
}

func (v *View) sumsOf(l *layer) (*sumsReader, error) {
	voids := v.c.voided[l.name]
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
	s, err := v.c.openSums(l.name, info.Size, disk.ReadOnly)
	if s != nil { // void ones may be computed in a moment
		v.sums[l.name] = openedSums{s, voids}
	}
	return s, err
}

// Repair makes the snapshot read data at [off, off+len(data)), whole blocks, where it does not yet. Only blocks that read
// otherwise, or cannot be read, are written, and always to the snapshot's own file: what older snapshots read does not
// change. data must be what all replicas are to have there. It is durable when it returns nil, and returns the ranges
// that were written.
//
// It needs I/O to be held back. Errors: ErrNotFound and ErrInvalid where the snapshot went away or is being removed,
// ErrNoSpace; any of them may leave part of the range written.
func (v *View) Repair(off int64, data []byte) (written []Rot, err error) {
	n := int64(len(data))
	if err := v.repairable(off, n); err != nil {
		return nil, err
	}
	if written, err = v.differing(off, data); err != nil || len(written) == 0 {
		return nil, err
	}
	f, err := v.c.fs.Open(v.c.path(v.file), disk.Direct)
	if err != nil {
		return nil, err
	}
	defer f.Close() // synced below
	if err := v.expect(f, off, data, written); err != nil {
		return nil, err
	}
	for _, w := range written {
		if _, err := f.WriteAt(data[w.Off-off:][:w.Len], w.Off); err != nil {
			return nil, err
		}
		v.raise(w)
	}
	if err := v.c.syncFile(f); err != nil {
		return nil, err
	}
	got := make([]byte, n)
	if _, err := v.ReadAt(got, off); err != nil {
		return nil, err
	}
	if !bytes.Equal(got, data) {
		return nil, fmt.Errorf("%w: %s reads other bytes than were just written to it", disk.ErrIO, v.file)
	}
	return written, nil
}

func (v *View) repairable(off, n int64) error {
	c := v.c
	if err := c.usable(); err != nil {
		return err
	}
	d := c.disks[v.file]
	switch {
	case off < 0 || n <= 0 || (off|n)%blockSize != 0 || off > v.Size() || n > v.Size()-off:
		return fmt.Errorf("%w: repair of [%d,+%d) in %s of %d bytes", ErrInvalid, off, n, v.file, v.Size())
	case d == nil:
		return fmt.Errorf("%w: %s is gone", ErrNotFound, v.file)
	case d.Removed || c.rebuilding:
		return fmt.Errorf("%w: %s is being removed or rebuilt", ErrInvalid, v.file)
	}
	info, err := c.fs.Stat(c.path(v.file))
	if err == nil && info.Inode != v.inode {
		err = fmt.Errorf("%w: %s has become another file; open it again", ErrInvalid, v.file)
	}
	return err
}

// differing returns the blocks that do not read as data, in runs.
func (v *View) differing(off int64, data []byte) (out []Rot, err error) {
	got := make([]byte, blockSize)
	for at := int64(0); at < int64(len(data)); at += blockSize {
		_, err := v.ReadAt(got, off+at)
		unreadable := errors.Is(err, disk.ErrIO)
		switch {
		case err != nil && !unreadable:
			return nil, err
		case err == nil && bytes.Equal(got, data[at:at+blockSize]):
			continue
		}
		if k := len(out) - 1; k >= 0 && out[k].Off+out[k].Len == off+at && out[k].Unreadable == unreadable {
			out[k].Len += blockSize
			continue
		}
		out = append(out, Rot{Off: off + at, Len: blockSize, Unreadable: unreadable})
	}
	return out, nil
}

// expect durably makes the snapshot's checksums say what will be there, before any of it is written: a repair that a
// crash cuts short leaves pieces that are seen to be rotten. Of pieces that are not repaired whole nothing is known.
func (v *View) expect(f disk.File, off int64, data []byte, written []Rot) error {
	c := v.c
	c.voided[v.file]++
	if err := errors.Join(c.layersChange(v.file), v.dropSums()); err != nil {
		return err
	}
	if _, err := c.fs.Stat(c.path(v.file + checksumSuffix)); err == nil {
		if err := c.fs.Remove(c.path(v.file + checksumSuffix)); err != nil {
			return err
		}
		if err := c.syncDir(); err != nil {
			return err
		}
	} else if !isNotFound(err) {
		return err
	}
	info, err := f.Stat()
	if err != nil {
		return err
	}
	s, err := c.openSums(v.file, info.Size, 0)
	if err != nil || s == nil {
		return err
	}
	err = v.expectSums(s, f, off, data, written)
	if err == nil {
		err = c.syncFile(s.file)
	}
	return errors.Join(err, s.close())
}

func (v *View) expectSums(s *sumsReader, f disk.File, off int64, data []byte, written []Rot) error {
	end := off + int64(len(data))
	for number := off / SumPiece; number*SumPiece < end; number++ {
		p := filePiece{number: uint32(number)}
		changed := blocksIn(written, number)
		if changed == 0 {
			continue
		}
		var want sum
		if p.off() >= off && min(p.off()+SumPiece, v.Size()) <= end {
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

// sumOfData is the sum of a piece that has the given blocks with the content in data, which begins with the piece.
func sumOfData(blocks uint64, data []byte) sum {
	s := newPieceSum(blocks)
	for i := range int64(SumPiece / blockSize) {
		if blocks>>i&1 != 0 {
			s.add(data[i*blockSize:][:blockSize])
		}
	}
	return s.sum()
}

// raise records that the snapshot's file has the blocks now.
func (v *View) raise(w Rot) {
	first, end := w.Off/blockSize, (w.Off+w.Len)/blockSize
	v.at.m.setLower(first, end, v.at.headIndex())
	if i := v.c.layerIndex(v.file); i != 0 {
		v.c.m.raise(first, end, byte(i), v.c.headIndex())
	}
}
