package chain

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

// rangesLook bounds how many blocks one call of Ranges looks at: 64 GiB of a volume, some
// milliseconds.
const rangesLook = 16 << 20

// Ranges lists where there is data from off on, [start, end) in bytes, whole blocks, in order and
// apart: what some file of the chain holds and no whiteout hides, zeroes that somebody wrote
// included. Everything else reads as zeroes. There are at most as many as asked for, and fewer
// where there is much to look at. next is where the rest begins, which may be in the middle of a
// range; -1: there is none. It looks at memory only.
func (b *Blocks) Ranges(off int64, most int) (ranges [][2]int64, next int64) {
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
		if b.readFrom(at) != inNone {
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
