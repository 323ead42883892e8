package offline

import (
	"context"
	"errors"
	"slices"

	"ankole.storage/block"
	"ankole.storage/dataplane/chain"
)

// Why blocks that differ are left as they are.
const (
	sourceRotten = "the source's does not match its checksum; repair the source first"
	targetRight  = "what is there matches its checksum, and the source has none; --force copies it nevertheless"
)

// judge decides what a repair copies, by the checksums of both sides.
type judge struct {
	ctx context.Context
	// damaged and source say whose checksums are asked.
	damaged, source *checksums
	force           bool
	// age orders the damaged directory's snapshots, oldest first.
	age []string
	// kept are the blocks that are not copied, by snapshot and in order; bytes counts them by
	// snapshot and reason.
	kept  map[string][]Range
	bytes map[KeptItem]int64
}

// begin implements onDifference.
func (j *judge) begin(name string, damaged, source *chain.Chain) (func(off int64, differ []bool) error, func() error) {
	a, b := chain.NewJudge(damaged), chain.NewJudge(source)
	piece := func(off int64, differ []bool) error {
		// What the source reads from different files was written at different times.
		groups := map[string][]int64{}
		for i, d := range differ {
			if at := off + int64(i)*block.Size; d {
				from := b.From(at)
				groups[from] = append(groups[from], at)
			}
		}
		for from, blocks := range groups {
			why, err := j.weigh(a, b, from, blocks)
			if err != nil {
				return err
			}
			if why != "" {
				j.keep(name, why, blocks)
			}
		}
		return nil
	}
	return piece, func() error { return errors.Join(a.Close(), b.Close()) }
}

// weigh says why blocks, which the source reads from one file, are not copied; "" if they are.
func (j *judge) weigh(a, b *chain.Judge, from string, blocks []int64) (string, error) {
	theirs, err := j.source.of(j.ctx, b, blocks)
	if err != nil || theirs == chain.VerdictGood {
		return "", err
	}
	if theirs == chain.VerdictRotten {
		return sourceRotten, nil
	}
	if j.force || from == "" {
		return "", nil
	}
	for _, at := range blocks {
		// What the source has from a newer snapshot may be what is lost here.
		if j.ageOf(a.From(at)) < j.ageOf(from) {
			return "", nil
		}
	}
	ours, err := j.damaged.of(j.ctx, a, blocks)
	if err != nil || ours != chain.VerdictGood {
		return "", err
	}
	return targetRight, nil
}

// ageOf is the place of a snapshot among those of the damaged directory, as if one that is not
// there were newer than all.
func (j *judge) ageOf(name string) int {
	switch i := slices.Index(j.age, name); {
	case name == "":
		return -1
	case i < 0:
		return len(j.age)
	default:
		return i
	}
}

func (j *judge) keep(name, why string, blocks []int64) {
	for _, at := range blocks {
		j.kept[name] = append(j.kept[name], Range{at, block.Size})
	}
	j.bytes[KeptItem{Snapshot: name, Reason: why}] += int64(len(blocks)) * block.Size
}

// ofSnapshot returns how much of a snapshot is not copied, and puts the blocks in order.
func (j *judge) ofSnapshot(name string) (items []KeptItem, bytes int64) {
	slices.SortFunc(j.kept[name], func(a, b Range) int { return int(a.Off/block.Size - b.Off/block.Size) })
	j.kept[name] = joined(j.kept[name])
	for _, why := range []string{sourceRotten, targetRight} {
		item := KeptItem{Snapshot: name, Reason: why}
		if item.Bytes = j.bytes[item]; item.Bytes > 0 {
			items = append(items, item)
			bytes += item.Bytes
		}
	}
	return items, bytes
}

// joined makes ranges that follow each other one.
func joined(ranges []Range) (out []Range) {
	for _, r := range ranges {
		if n := len(out); n > 0 && out[n-1].Off+out[n-1].Len == r.Off {
			out[n-1].Len += r.Len
			continue
		}
		out = append(out, r)
	}
	return out
}

// outside returns the parts of [off, off+n) that are in none of the ranges, which are in order.
func outside(ranges []Range, off, n int64) (out []Range) {
	end := off + n
	i, _ := slices.BinarySearchFunc(ranges, off, func(r Range, off int64) int {
		if r.Off+r.Len <= off {
			return -1
		}
		return 1
	})
	for ; i < len(ranges) && ranges[i].Off < end; i++ {
		if ranges[i].Off > off {
			out = append(out, Range{off, ranges[i].Off - off})
		}
		off = ranges[i].Off + ranges[i].Len
	}
	if off < end {
		out = append(out, Range{off, end - off})
	}
	return out
}

// checksums are those of one directory: of pieces where it has them, else of whole files.
type checksums struct {
	d     *Directory
	s     *chain.Survey
	files map[string]chain.Verdict
}

func newChecksums(d *Directory) (*checksums, error) {
	s, err := chain.ReadSurvey(d.fs, d.Path)
	return &checksums{d: d, s: s, files: map[string]chain.Verdict{}}, err
}

// of says what they tell about blocks of one piece.
func (c *checksums) of(ctx context.Context, j *chain.Judge, blocks []int64) (chain.Verdict, error) {
	layers, err := j.Layers(blocks)
	verdict, read := chain.VerdictGood, false
	for i := 0; i < len(layers) && err == nil; i++ {
		l := &layers[i]
		if l.Verdict == chain.VerdictUnknown {
			l.Verdict, err = c.file(ctx, l.Snapshot)
		}
		switch {
		case l.Verdict == chain.VerdictRotten:
			return l.Verdict, err
		case l.Read && l.Verdict != chain.VerdictGood:
			verdict = chain.VerdictUnknown
		}
		read = read || l.Read
	}
	if err != nil || !read {
		verdict = chain.VerdictUnknown
	}
	return verdict, err
}

// file compares a snapshot's file with the checksum of the whole, once.
func (c *checksums) file(ctx context.Context, snapshot string) (chain.Verdict, error) {
	file := chain.SnapshotFile(snapshot)
	if v, ok := c.files[file]; ok || !slices.Contains(c.s.Names, file+checksumSuffix) {
		return v, nil
	}
	rd := &reader{d: c.d, s: c.s, r: &CheckReport{}}
	if err := rd.file(ctx, file); err != nil {
		return chain.VerdictUnknown, err
	}
	v := chain.VerdictUnknown
	switch rd.r.Files[0].Checksum {
	case ChecksumRight:
		v = chain.VerdictGood
	case ChecksumWrong:
		v = chain.VerdictRotten
	}
	c.files[file] = v
	return v, nil
}
