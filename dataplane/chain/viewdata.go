package chain

import (
	"errors"
	"fmt"
	"slices"
)

// Pin keeps purges from giving the view's snapshot up, even if it is marked removed meanwhile,
// until the view is closed: a purge leaves it for the next one. It must not run beside a metadata
// operation.
func (v *ViewFiles) Pin() {
	if v.pinned {
		return
	}
	v.pinned = true
	v.c.pins[v.file]++
}

func (v *ViewFiles) unpin() {
	if !v.pinned {
		return
	}
	v.pinned = false
	if v.c.pins[v.file]--; v.c.pins[v.file] == 0 {
		delete(v.c.pins, v.file)
	}
}

// Keep makes what the snapshot reads at [off, off+n), whole blocks, independent of the older
// snapshot below: what is read from that one's file or further down, nothing included, is written
// to the snapshot's own file. Nothing is known of the pieces written to until they are hashed.
// Otherwise it is as Repair; ErrNotFound, too, if the snapshot does not stand on below.
func (v *ViewFiles) Keep(s *Sidecars, below string, off, n int64, where Where) (Repaired, error) {
	if err := errors.Join(s.usable(), v.repairable(off, n)); err != nil {
		return Repaired{}, err
	}
	floor := v.at.openFiles.layerIndex(snapshotFile(below))
	if floor == 0 {
		return Repaired{}, fmt.Errorf("%w: there is no snapshot %q below %s", ErrNotFound, below, v.file)
	}
	data, runs := make([]byte, n), []Rot(nil)
	for at := int64(0); at < n; at += blockSize {
		if err := v.readBlock(data[at:at+blockSize], off+at, where); err != nil {
			return Repaired{}, err
		}
		if int(where.at((off+at)/blockSize)) <= floor {
			runs = addBlock(runs, off+at, false)
		}
	}
	return v.write(s, off, data, nil, runs, where)
}

// rangesLook bounds how many blocks one call of Ranges looks at: 64 GiB of a volume, some
// milliseconds.
const rangesLook = 16 << 20

// Ranges lists where there is data from off on, [start, end) in bytes, whole blocks, in order and
// apart: what some file of the chain holds and no whiteout hides, zeroes that somebody wrote
// included. Everything else reads as zeroes. So does what whiteouts hide of a backing file, which
// is listed: another volume on that file would show it. There are at most as many as asked for, and
// fewer where there is much to look at. next is where the rest begins, which may be in the middle
// of a range; -1: there is none. It looks at memory only.
func (b *Blocks) Ranges(off int64, most int) (ranges [][2]int64, next int64) {
	return b.rangesAbove(inNone, off, most)
}

// RangesSince is Ranges of what lies in the files above that of the snapshot since: blocks that
// were written after it. ViewFiles.HiddenSince has those that were given back. ok is false if the
// chain has no such snapshot.
func (b *Blocks) RangesSince(since string, off int64, most int) (ranges [][2]int64, next int64, ok bool) {
	floor := b.layerIndex(snapshotFile(since))
	if floor == 0 {
		return nil, 0, false
	}
	ranges, next = b.rangesAbove(byte(floor), off, most)
	return ranges, next, true
}

func (b *Blocks) rangesAbove(floor byte, off int64, most int) (ranges [][2]int64, next int64) {
	at, looked := max(off, 0)/blockSize, 0
	for end := int64(len(b.m.b)); at < end; {
		switch {
		case at%mapPage == 0 && !b.m.isUsed(int(at/mapPage)) && !b.backed(at):
			at += mapPage
			continue
		case looked == rangesLook:
			return ranges, at * blockSize
		}
		looked++
		if b.readFrom(at) > floor || floor == inNone && b.m.b[at] == inVoid && b.backed(at) {
			if n := len(ranges); n > 0 && ranges[n-1][1] == at*blockSize {
				ranges[n-1][1] += blockSize
			} else if n == most {
				return ranges, at * blockSize
			} else {
				ranges = append(ranges, [2]int64{at * blockSize, (at + 1) * blockSize})
			}
		}
		at++
	}
	return ranges, -1
}

// HiddenSince adds to a page of RangesSince, which begins at off and ends at next or with the
// volume, what whiteouts above the snapshot since hide: blocks that read otherwise since, or may.
// It cuts the page where that is more than most ranges, and where it has to. disk.ErrIO if it is
// not known which whiteouts there are. It must not run beside a metadata operation.
func (v *ViewFiles) HiddenSince(since string, page [][2]int64, off, next int64, most int) ([][2]int64, int64, error) {
	floor := v.at.openFiles.layerIndex(snapshotFile(since))
	if floor == 0 {
		return nil, 0, fmt.Errorf("%w: there is no snapshot %q below this one", ErrNotFound, since)
	}
	end := next
	if next < 0 {
		end = v.size()
	}
	whole := end
	page = slices.Clone(page)
	for i := floor + 1; i < len(v.at.openFiles.layers); i++ {
		hidden, stop, err := v.at.openFiles.Hides(i-v.at.openFiles.bottomIndex(), blockSize, off, end, most)
		if err != nil {
			return nil, 0, err
		}
		page, end = union(append(page, hidden...), min(end, stop), most)
	}
	if end == whole {
		return page, next, nil
	}
	return page, end, nil
}

// union joins ranges and cuts them at end, or earlier where they are more than most. It returns
// where that is.
func union(ranges [][2]int64, end int64, most int) (out [][2]int64, cut int64) {
	slices.SortFunc(ranges, func(a, b [2]int64) int { return int(a[0]/blockSize - b[0]/blockSize) })
	for _, r := range ranges {
		if r[1] = min(r[1], end); r[0] >= r[1] {
			continue
		}
		switch n := len(out); {
		case n > 0 && out[n-1][1] >= r[0]:
			out[n-1][1] = max(out[n-1][1], r[1])
		case n == most:
			return out, r[0]
		default:
			out = append(out, r)
		}
	}
	return out, end
}

// Keep is ViewFiles.Keep, made known to the chain and to the view.
func (v *View) Keep(below string, off, n int64) (Repaired, error) {
	if err := v.repairable(off, n); err != nil {
		return Repaired{}, err
	}
	r, err := v.ViewFiles.Keep(v.of.Sidecars, below, off, n, v.Where(off, n))
	v.of.Blocks.Repaired(r)
	v.Blocks.Repaired(r)
	return r, err
}
