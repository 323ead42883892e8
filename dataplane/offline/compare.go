package offline

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/chain"
	"ankole.storage/dataplane/disk"
)

// maxListedRanges bounds the differing ranges a report lists: enough to see a pattern.
const maxListedRanges = 16

// Range is a piece of a volume, in bytes.
type Range struct {
	Off int64 `json:"off"`
	Len int64 `json:"len"`
}

// Comparison is what two replicas hold of one snapshot.
type Comparison struct {
	Snapshot string `json:"snapshot"`
	// In says where the snapshot is: "both", "first" or "second".
	In    string `json:"in"`
	Equal bool   `json:"equal"`
	// SizeBytes and OtherSizeBytes are the volume's size at the snapshot in the two directories.
	SizeBytes      int64 `json:"sizeBytes"`
	OtherSizeBytes int64 `json:"otherSizeBytes"`
	// DifferingBytes is in whole blocks of 4 KiB; Ranges are the first of them.
	DifferingBytes int64   `json:"differingBytes"`
	Ranges         []Range `json:"ranges"`
	// Explained: every difference lies where a write was under way when the replicas stopped.
	Explained bool `json:"explained"`
}

// Where a snapshot is.
const (
	InBoth   = "both"
	InFirst  = "first"
	InSecond = "second"
)

// Compare compares what two directories hold of every snapshot that both have, and of the head.
// Only content counts: the replicas may have it in different files.
func Compare(ctx context.Context, a, b *Directory, progress Progress) ([]Comparison, error) {
	ca, err := a.open()
	if err != nil {
		return nil, err
	}
	defer ca.Close() // read-only: nothing to lose
	cb, err := b.open()
	if err != nil {
		return nil, err
	}
	defer cb.Close() // read-only: nothing to lose
	names, theirs := comparedNames(ca, cb)
	var out []Comparison
	for i, name := range names {
		if !slices.Contains(theirs, name) {
			out = append(out, Comparison{Snapshot: name, In: InFirst, Ranges: []Range{}})
			continue
		}
		one, err := compareAt(ctx, ca, cb, name, share(progress, i, len(names)))
		if err != nil {
			return nil, fmt.Errorf("comparing %s and %s at %s: %w", a.Path, b.Path, name, err)
		}
		out = append(out, one)
	}
	for _, name := range theirs {
		if !slices.Contains(names, name) {
			out = append(out, Comparison{Snapshot: name, In: InSecond, Ranges: []Range{}})
		}
	}
	return out, nil
}

// comparedNames returns the names of both, without the snapshots that either is about to remove: a
// purge may already have taken away what only those read.
func comparedNames(a, b *chain.Chain) (names, theirs []string) {
	removed := map[string]bool{}
	for _, c := range []*chain.Chain{a, b} {
		list, err := c.Snapshots()
		for _, s := range list {
			removed[s.Name] = removed[s.Name] || s.Removed && err == nil
		}
	}
	going := func(name string) bool { return removed[name] }
	return slices.DeleteFunc(orderedNames(a), going), slices.DeleteFunc(orderedNames(b), going)
}

// share turns the progress of step i of n into that of the whole.
func share(p Progress, i, n int) Progress {
	if p == nil {
		return nil
	}
	return func(done, total int64) { p(int64(i)*total+done, int64(n)*total) }
}

func compareAt(ctx context.Context, a, b *chain.Chain, name string, progress Progress) (Comparison, error) {
	c := Comparison{Snapshot: name, In: InBoth, Ranges: []Range{}}
	va, err := a.At(name)
	if err != nil {
		return c, err
	}
	defer va.Close() // read-only: nothing to lose
	vb, err := b.At(name)
	if err != nil {
		return c, err
	}
	defer vb.Close() // read-only: nothing to lose
	c.SizeBytes, c.OtherSizeBytes = va.Size(), vb.Size()
	explained := name == Head
	dirty := dirtyTest(a, b)
	err = differences(ctx, va, vb, progress, func(r Range) {
		c.add(r)
		explained = explained && dirty(r)
	})
	c.Equal = c.DifferingBytes == 0 && c.SizeBytes == c.OtherSizeBytes
	c.Explained = !c.Equal && explained && c.SizeBytes == c.OtherSizeBytes
	return c, err
}

// add counts a range that differs.
func (c *Comparison) add(r Range) {
	c.DifferingBytes += r.Len
	if n := len(c.Ranges); n > 0 && c.Ranges[n-1].Off+c.Ranges[n-1].Len == r.Off {
		c.Ranges[n-1].Len += r.Len
	} else if n < maxListedRanges {
		c.Ranges = append(c.Ranges, r)
	}
}

// dirtyTest tells whether a range lies in regions that either replica knows to be unsettled.
func dirtyTest(a, b *chain.Chain) func(Range) bool {
	set := map[chain.Region]bool{}
	for _, c := range []*chain.Chain{a, b} {
		regions, known := c.Dirty()
		if !known {
			return func(Range) bool { return false } // nothing is known, so nothing is explained
		}
		for _, r := range regions {
			set[r] = true
		}
	}
	return func(r Range) bool {
		for at := r.Off / chain.RegionSize; at <= (r.Off+r.Len-1)/chain.RegionSize; at++ {
			if !set[chain.Region(at)] {
				return false
			}
		}
		return true
	}
}

// differences calls fn for runs of blocks that differ within the size both have. What cannot be
// read in a differs; b must be readable.
func differences(ctx context.Context, a, b *chain.Chain, progress Progress, fn func(Range)) error {
	size := min(a.Size(), b.Size())
	other := make([]byte, min(chunk, size))
	return eachChunk(ctx, size, progress, func(off int64, p []byte) error {
		if isHole(a, off, int64(len(p))) && isHole(b, off, int64(len(p))) {
			return nil
		}
		q := other[:len(p)]
		if _, err := b.ReadAt(q, off); err != nil {
			return err
		}
		differ, err := readWhatCan(a, p, off)
		if err != nil {
			return err
		}
		for i := range differ {
			at := i * block.Size
			differ[i] = differ[i] || !bytes.Equal(p[at:at+block.Size], q[at:at+block.Size])
		}
		runsOf(off, differ, fn)
		return nil
	})
}

// runsOf calls fn for each run of blocks that differ.
func runsOf(off int64, differ []bool, fn func(Range)) {
	for i := 0; i < len(differ); {
		end := i
		for end < len(differ) && differ[end] {
			end++
		}
		if end > i {
			fn(Range{off + int64(i)*block.Size, int64(end-i) * block.Size})
		}
		i = end + 1
	}
}

// readWhatCan fills p and tells which of its blocks the disk does not give back.
func readWhatCan(c *chain.Chain, p []byte, off int64) (lost []bool, err error) {
	lost = make([]bool, (len(p)+block.Size-1)/block.Size)
	if _, err := c.ReadAt(p, off); !errors.Is(err, disk.ErrIO) {
		return lost, err
	}
	for i := 0; i < len(p); i += block.Size {
		_, err := c.ReadAt(p[i:i+block.Size], off+int64(i))
		if lost[i/block.Size] = errors.Is(err, disk.ErrIO); err != nil && !lost[i/block.Size] {
			return lost, err
		}
	}
	return lost, nil
}

// isHole tells whether a range is in no file.
func isHole(c *chain.Chain, off, n int64) bool {
	plan := c.ReadPlan(off, n, nil)
	return len(plan) == 1 && plan[0].Handle == chain.NoHandle
}
