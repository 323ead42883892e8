package chain

import (
	"ankole.storage/disk"
)

// Pin keeps purges from giving the view's snapshot up, even if it is marked removed meanwhile, until the view is closed: a
// purge leaves it for the next one. It must not run beside a metadata operation.
func (v *View) Pin() {
	if v.pinned {
		return
	}
	v.pinned = true
	v.c.pins[v.file]++
}

func (v *View) unpin() {
	if !v.pinned {
		return
	}
	v.pinned = false
	if v.c.pins[v.file]--; v.c.pins[v.file] == 0 {
		delete(v.c.pins, v.file)
	}
}

// Ranges lists where the snapshot has data, [start, end) in bytes, whole blocks, in order and apart: what some file of its chain
// holds, zeroes that somebody wrote included. Everything else reads as zeroes. It reads extents, no data; it may run beside I/O,
// but not beside a metadata operation. 16 bytes of memory for each range are the caller's.
func (v *View) Ranges() ([][2]int64, error) {
	if err := v.c.readable(); err != nil {
		return nil, err
	}
	var all [][2]int64
	for i := 1; i < len(v.at.layers); i++ {
		var own [][2]int64
		err := v.at.eachExtent(&v.at.layers[i], func(e disk.Extent) error {
			beg, end := e.Off&^(blockSize-1), min((e.Off+e.Len+blockSize-1)&^(blockSize-1), v.at.size)
			if n := len(own); n > 0 && own[n-1][1] >= beg {
				own[n-1][1] = max(own[n-1][1], end)
			} else if beg < end {
				own = append(own, [2]int64{beg, end})
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		all = unite(all, own)
	}
	return all, nil
}

// unite merges two lists of ranges that are in order.
func unite(a, b [][2]int64) [][2]int64 {
	if len(a) == 0 {
		return b
	}
	out := make([][2]int64, 0, len(a)+len(b))
	for len(a)+len(b) > 0 {
		var r [2]int64
		if len(b) == 0 || (len(a) > 0 && a[0][0] <= b[0][0]) {
			r, a = a[0], a[1:]
		} else {
			r, b = b[0], b[1:]
		}
		if n := len(out); n > 0 && out[n-1][1] >= r[0] {
			out[n-1][1] = max(out[n-1][1], r[1])
			continue
		}
		out = append(out, r)
	}
	return out
}

// Repaired tells a view of what another one has written to a file with Repair, so that it reads it too. It needs I/O to be held
// back.
func (v *View) Repaired(by *View, written []Rot) {
	i := v.at.layerIndex(by.file)
	if i == 0 || v == by || v.c != by.c {
		return
	}
	for _, w := range written {
		first, end := w.Off/blockSize, (w.Off+w.Len)/blockSize
		if index := byte(i); index == v.at.headIndex() {
			v.at.m.setLower(first, end, index)
		} else {
			v.at.m.raise(first, end, index, v.at.headIndex())
		}
	}
}
