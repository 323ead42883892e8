package offline

import (
	"cmp"
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
	// parents are the snapshots that those of the damaged directory are based on.
	parents map[string]string
	// kept are the blocks that are not copied, by snapshot and in order; bytes counts them by
	// snapshot and reason.
	kept  map[string][]Range
	bytes map[KeptItem]int64
}

// sides are what is asked about the blocks of one snapshot.
type sides struct {
	damaged, source *chain.Judge
	// parent is the source at the snapshot that this one is based on, nil if nothing was kept there or
	// the source does not have it; keptThere is what was.
	parent    *chain.Judge
	keptThere []Range
	close     func() error
}

// begin implements onDifference. Snapshots come after those that they are based on.
func (j *judge) begin(name string, damaged, source *chain.Chain) (func(off int64, differ []bool) error, func() error) {
	s, broken := j.open(name, damaged, source)
	piece := func(off int64, differ []bool) error {
		if broken != nil {
			return broken
		}
		// What the source reads from different files was written at different times.
		groups := map[string][]int64{}
		for i, d := range differ {
			if at := off + int64(i)*block.Size; d {
				from := s.source.From(at)
				groups[from] = append(groups[from], at)
			}
		}
		for from, blocks := range groups {
			if err := j.weigh(name, s, from, blocks); err != nil {
				return err
			}
		}
		return nil
	}
	return piece, func() error {
		j.inOrder(name)
		return s.close()
	}
}

func (j *judge) open(name string, damaged, source *chain.Chain) (*sides, error) {
	s := &sides{damaged: chain.NewJudge(damaged), source: chain.NewJudge(source)}
	s.close = func() error { return errors.Join(s.damaged.Close(), s.source.Close()) }
	parent := j.parents[name]
	if s.keptThere = j.kept[parent]; parent == "" || len(s.keptThere) == 0 {
		return s, nil
	}
	whole, err := j.source.d.open()
	if err != nil {
		return s, err
	}
	at, err := whole.At(parent)
	if err != nil { // it is not there, though the damaged directory has it
		return s, whole.Close()
	}
	s.parent = chain.NewJudge(at)
	s.close = func() error {
		return errors.Join(s.damaged.Close(), s.source.Close(), s.parent.Close(), at.Close(), whole.Close())
	}
	return s, nil
}

// inherited says whether a block that differs, and that the source reads from a file, differs at
// the parent already and was kept there: nothing newer is in it.
func (s *sides) inherited(at int64, from string) bool {
	return s.parent != nil && s.parent.From(at) == from && len(outside(s.keptThere, at, block.Size)) == 0
}

// weigh keeps those of blocks, which the source reads from one file, that are not to be copied.
func (j *judge) weigh(name string, s *sides, from string, blocks []int64) error {
	theirs, err := j.source.of(j.ctx, s.source, blocks, false)
	switch {
	case err != nil || theirs == chain.VerdictGood:
		return err
	case theirs == chain.VerdictRotten:
		j.keep(name, sourceRotten, blocks)
		return nil
	case j.force:
		return nil
	}
	var kept, same, other []int64
	for _, at := range blocks {
		switch {
		case s.inherited(at, from):
			kept = append(kept, at)
		case s.damaged.From(at) == from:
			same = append(same, at)
		default:
			other = append(other, at)
		}
	}
	// Where the two read different files, the newer block may be what is lost here: then checksums
	// have to speak for all files that could have it.
	for strict, blocks := range map[bool][]int64{false: same, true: other} {
		if len(blocks) == 0 {
			continue
		}
		ours, err := j.damaged.of(j.ctx, s.damaged, blocks, strict)
		if err != nil {
			return err
		}
		if ours == chain.VerdictGood {
			kept = append(kept, blocks...)
		}
	}
	if len(kept) > 0 {
		j.keep(name, targetRight, kept)
	}
	return nil
}

func (j *judge) keep(name, why string, blocks []int64) {
	for _, at := range blocks {
		j.kept[name] = append(j.kept[name], Range{at, block.Size})
	}
	j.bytes[KeptItem{Snapshot: name, Reason: why}] += int64(len(blocks)) * block.Size
}

// inOrder sorts what is kept of a snapshot.
func (j *judge) inOrder(name string) {
	if len(j.kept[name]) > 0 {
		slices.SortFunc(j.kept[name], func(a, b Range) int { return cmp.Compare(a.Off, b.Off) })
		j.kept[name] = joined(j.kept[name])
	}
}

// ofSnapshot returns how much of a snapshot is not copied.
func (j *judge) ofSnapshot(name string) (items []KeptItem, bytes int64) {
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

// of says what they tell about blocks of one piece. strict: files that could have the blocks, but
// do not, have to match theirs too.
func (c *checksums) of(ctx context.Context, j *chain.Judge, blocks []int64, strict bool) (chain.Verdict, error) {
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
		case (l.Read || strict) && l.Verdict != chain.VerdictGood:
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
