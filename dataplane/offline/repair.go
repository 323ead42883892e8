package offline

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"ankole.storage/dataplane/chain"
)

// ErrRefused: a repair would do harm, or nobody could tell that it would not.
var ErrRefused = errors.New("repair refused")

// RepairPlan is what a repair would write. Nothing has been changed when there is a plan.
type RepairPlan struct {
	Damaged string `json:"damaged"`
	Source  string `json:"source"`
	// Items are the snapshots that differ, oldest first, Head last.
	Items []RepairItem `json:"items"`
	// Kept are blocks that differ and are not copied, since checksums speak for what is there.
	Kept []KeptItem `json:"kept"`
	// Warnings are what a person should know before agreeing.
	Warnings []string `json:"warnings"`

	damaged, source *Directory
	// kept are the ranges that are not copied, by snapshot and in order.
	kept map[string][]Range
	// common are the snapshots that both have, older ones first, Head last.
	common []string
	// void: the source is not known to have all that the damaged directory's record stands for, which
	// is given up before anything is written.
	void bool
	// unfinished: the damaged directory counts as being rebuilt, equal or not.
	unfinished bool
}

// RepairItem is a snapshot, or Head, whose content differs.
type RepairItem struct {
	Snapshot string `json:"snapshot"`
	Bytes    int64  `json:"bytes"`
}

// KeptItem is what is not copied of a snapshot, or of Head.
type KeptItem struct {
	Snapshot string `json:"snapshot"`
	Bytes    int64  `json:"bytes"`
	// Reason says why, and what to do.
	Reason string `json:"reason"`
}

// PlanRepair compares a damaged directory with a sound one of the same volume. It refuses, with
// ErrRefused, a source that is not sound, and, unless force is set, one that may lack acknowledged
// writes: because the damaged directory is newer, or because its own record does not name it, or
// begins with a person's decision and is not known to be agreed. Where checksums say that the
// source's blocks are wrong they are not copied; nor, without force, where they say that those of
// the damaged directory are right and nothing about the source's.
func PlanRepair(ctx context.Context, damaged, source *Directory, force bool, progress Progress) (*RepairPlan, error) {
	p := &RepairPlan{Damaged: damaged.Path, Source: source.Path, Items: []RepairItem{}, Warnings: []string{},
		Kept: []KeptItem{}, damaged: damaged, source: source}
	if err := p.mayCopy(force); err != nil {
		return nil, err
	}
	j, err := p.judge(ctx, force)
	if err != nil {
		return nil, err
	}
	p.kept = j.kept
	compared, err := compare(ctx, damaged, source, progress, j.begin)
	if err != nil {
		return nil, err
	}
	for _, c := range compared {
		switch {
		case c.In == InFirst:
			p.warn("snapshot %s is only in %s: where it has its content from older snapshots, it reads what they will "+
				"be repaired to", c.Snapshot, damaged.Path)
		case c.In == InSecond:
			p.warn("snapshot %s is only in %s, and is not copied; only a rebuild by an engine brings it", c.Snapshot,
				source.Path)
		case c.SizeBytes != c.OtherSizeBytes:
			return nil, fmt.Errorf("%w: %s has %d bytes in %s and %d in %s; let an engine rebuild the directory",
				ErrRefused, c.Snapshot, c.SizeBytes, damaged.Path, c.OtherSizeBytes, source.Path)
		default:
			p.common = append(p.common, c.Snapshot)
			kept, bytes := j.ofSnapshot(c.Snapshot)
			p.Kept = append(p.Kept, kept...)
			if c.DifferingBytes > bytes {
				p.Items = append(p.Items, RepairItem{c.Snapshot, c.DifferingBytes - bytes})
			}
		}
	}
	// Branches were listed after the head. While that is repaired the directory counts as being
	// rebuilt, and no snapshot can be repaired.
	slices.SortStableFunc(p.Items, func(a, b RepairItem) int { return headLast(a.Snapshot, b.Snapshot) })
	slices.SortStableFunc(p.common, headLast)
	if p.unfinished && len(p.Items) == 0 {
		p.Items = append(p.Items, RepairItem{Snapshot: Head})
		p.warn("%s counts as being rebuilt although nothing differs, and is to count as whole", p.Damaged)
	}
	if p.void = p.void && len(p.Items) > 0; p.void {
		p.warn("%s belongs to no set of replicas afterwards: an engine rebuilds it from others, or asks a person "+
			"before it goes on with it alone", p.Damaged)
	}
	return p, nil
}

func headLast(a, b string) int {
	switch {
	case a == b:
		return 0
	case a == Head:
		return 1
	case b == Head:
		return -1
	}
	return 0
}

func (p *RepairPlan) judge(ctx context.Context, force bool) (*judge, error) {
	parents, err := p.damaged.parents()
	if err != nil {
		return nil, err
	}
	j := &judge{ctx: ctx, force: force, parents: parents, kept: map[string][]Range{}, bytes: map[KeptItem]int64{}}
	if j.damaged, err = newChecksums(p.damaged); err == nil {
		j.source, err = newChecksums(p.source)
	}
	return j, err
}

func (p *RepairPlan) warn(format string, args ...any) {
	p.Warnings = append(p.Warnings, fmt.Sprintf(format, args...))
}

// mayCopy compares what the two directories remember of themselves.
func (p *RepairPlan) mayCopy(force bool) error {
	a, err := p.damaged.Inspect()
	if err != nil {
		return err
	}
	b, err := p.source.Inspect()
	if err != nil {
		return err
	}
	am, bm := a.Membership, b.Membership
	p.unfinished = a.State == StateRebuilding
	same := am.Known && bm.Known && am.compare(bm) == 0
	newer := am.Known && bm.Known && am.compare(bm) > 0
	switch {
	case b.State != StateClean && b.State != StateDirty || bm.State == memberStates[chain.MemberWO]:
		return fmt.Errorf("%w: %s is %s and cannot be a source; see: ankole replica inspect %s", ErrRefused,
			b.Directory, b.State, b.Directory)
	case am.Known && bm.Known && am.VolumeUUID != bm.VolumeUUID && am.VolumeUUID != "" && bm.VolumeUUID != "":
		return fmt.Errorf("%w: %s is a replica of volume %s, %s of volume %s", ErrRefused, a.Directory, am.VolumeUUID,
			b.Directory, bm.VolumeUUID)
	case newer && !am.Undecided && !force:
		return fmt.Errorf("%w: %s is of %s, newer than %s of %s: the repair would undo acknowledged "+
			"writes; give --force to do it nevertheless",
			ErrRefused, a.Directory, am.of(), bm.of(), b.Directory)
	case bm.Undecided && !same && !force:
		return fmt.Errorf("%w: %s of %s begins with a person's decision (--accept-data-loss) and is not known to be "+
			"agreed: it may lack acknowledged writes; give --force to do it nevertheless", ErrRefused, bm.of(), b.Directory)
	case bm.replaced() && !force:
		return fmt.Errorf("%w: %s is no member of %s, which has %s: it may lack acknowledged writes; give --force "+
			"to do it nevertheless", ErrRefused, b.Directory, bm.of(), bm.names())
	}
	if !am.Known || !bm.Known {
		p.warn("which of the two is newer is not known, since the membership of one is void: make sure that %s has "+
			"the content you want", b.Directory)
	}
	if newer && am.Undecided {
		p.warn("%s of %s begins with a person's decision (--accept-data-loss) and is not known to be agreed, so that it "+
			"does not count as newer; if the volume was used after that decision, %s lacks what was written then",
			am.of(), a.Directory, b.Directory)
	}
	if b.State == StateDirty {
		p.warn("%s was not closed: what was not flushed may be in it or not", b.Directory)
	}
	p.void = am.Known && am.Generation > 0 && (!bm.Known || newer || bm.Undecided && !same || bm.replaced())
	if !p.void && am.Known && bm.Known && am.Generation > 0 && am.compare(bm) < 0 {
		p.warn("%s keeps its older %s: the next engine will still rebuild it", a.Directory, am.of())
	}
	return nil
}

// giveUp makes the record one of no set, if the plan says so. Content of two times would be in the
// directory otherwise, under a record that says it is the one of all members.
func (p *RepairPlan) giveUp(c *chain.Chain) error {
	r, known := c.Record()
	if !p.void || !known {
		return nil
	}
	r.Epoch, r.Generation, r.State, r.Members, r.Replaces, r.Agreed = 0, 0, chain.MemberUnknown, nil, nil, false
	r.Anew = true // nor is it known any more what others have missed
	return c.WriteRecord(r)
}

// Bytes is how much the repair would write.
func (p *RepairPlan) Bytes() (n int64) {
	for _, i := range p.Items {
		n += i.Bytes
	}
	return n
}

// Run carries the plan out: blocks of the source go into the damaged directory, and nothing else is
// touched. It is safe to stop, or to crash, at any moment and to run again. While the head is being
// repaired the directory counts as being rebuilt, so that no engine takes a mixture for the volume.
// At the end everything is compared once more.
func (p *RepairPlan) Run(ctx context.Context, progress Progress) (err error) {
	locked := p.damaged.lock != nil
	if err := p.damaged.Close(); err != nil { // the chain takes the lock for itself
		return err
	}
	o := p.damaged.chainOptions()
	o.ReadOnly = false
	c, err := chain.Open(p.damaged.fs, p.damaged.Path, o)
	if err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, c.Close())
		if err == nil && locked {
			p.damaged.lock, err = hold(p.damaged.Path)
		}
	}()
	source, err := p.source.open()
	if err != nil {
		return err
	}
	defer source.Close() // read-only: nothing to lose
	if err := p.giveUp(c); err != nil {
		return err
	}
	r := &repairer{c: c, kept: p.kept, marked: map[chain.Region]bool{}, at: func(name string) (*chain.Chain, error) {
		return p.source.soundAt(source, name)
	}, progress: progress, total: p.Bytes(), changed: map[int64]bool{}}
	differ := map[string]bool{}
	for _, item := range p.Items {
		differ[item.Snapshot] = true
	}
	for _, name := range p.common {
		if err := r.one(ctx, name, differ[name]); err != nil {
			return fmt.Errorf("repair of %s in %s: %w", name, p.Damaged, err)
		}
	}
	if c.Rebuilding() {
		return c.FinishRebuild()
	}
	return nil
}

type repairer struct {
	c *chain.Chain
	// at opens the source's content at a snapshot, or at Head.
	at func(name string) (*chain.Chain, error)
	// kept are what is not copied, marked the regions that are in the dirty log.
	kept   map[string][]Range
	marked map[chain.Region]bool
	// changed are the pieces (chain.SumPiece) that were written to, by offset.
	changed     map[int64]bool
	progress    Progress
	done, total int64
}

// one repairs a snapshot, or Head, that differs. One that was equal is looked at where an older one
// was written to: it may read that through a block which it has not, since there was nothing to
// hide.
func (r *repairer) one(ctx context.Context, name string, differs bool) error {
	if !differs {
		var err error
		if differs, err = r.affected(ctx, name); err != nil || !differs {
			return err
		}
	}
	if name == Head {
		return r.head(ctx)
	}
	return r.snapshot(ctx, name)
}

// affected says whether a snapshot differs where others were written to.
func (r *repairer) affected(ctx context.Context, name string) (bool, error) {
	if len(r.changed) == 0 {
		return false, nil
	}
	want, err := r.at(name)
	if err != nil {
		return false, err
	}
	defer want.Close() // read-only: nothing to lose
	have, err := r.c.At(name)
	if err != nil {
		return false, err
	}
	defer have.Close() // read-only: nothing to lose
	theirs := make([]byte, chain.SumPiece)
	ours := make([]byte, chain.SumPiece)
	for _, off := range slices.Sorted(maps.Keys(r.changed)) {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		n := min(chain.SumPiece, have.Size()-off, want.Size()-off)
		if n <= 0 {
			continue
		}
		if _, err := want.ReadAt(theirs[:n], off); err != nil {
			return false, err
		}
		lost, err := readWhatCan(have, ours[:n], off)
		if err != nil || slices.Contains(lost, true) || !bytes.Equal(ours[:n], theirs[:n]) {
			return err == nil, err
		}
	}
	return false, nil
}

// mark durably puts what is about to be written into the dirty log, so that the next engine makes
// all replicas the same there: others may differ from both directories.
func (r *repairer) mark(at Range) error {
	var add []chain.Region
	for n := at.Off / chain.RegionSize; n*chain.RegionSize < at.Off+at.Len; n++ {
		if region := chain.Region(n); !r.marked[region] {
			r.marked[region] = true
			add = append(add, region)
		}
	}
	if len(add) == 0 {
		return nil
	}
	return r.c.AddDirty(add)
}

func (r *repairer) wrote(n int64) {
	r.done += n
	if r.progress != nil {
		r.progress(min(r.done, r.total), max(r.total, r.done))
	}
}

// snapshot repairs a snapshot's own file; older snapshots, which were repaired before, keep what
// they read.
func (r *repairer) snapshot(ctx context.Context, name string) error {
	want, err := r.at(name)
	if err != nil {
		return err
	}
	defer want.Close() // read-only: nothing to lose
	have, err := r.c.At(name)
	if err != nil {
		return err
	}
	defer have.Close() // read-only: nothing to lose
	v, err := r.c.OpenView(name)
	if err != nil {
		return err
	}
	defer v.Close() // repairs are durable already
	// Whole pieces: their checksums can be told beforehand then.
	return differingPieces(ctx, have, want, nil, func(off int64, data []byte, _ []bool) error {
		for _, at := range outside(r.kept[name], off, int64(len(data))) {
			if err := r.mark(at); err != nil {
				return err
			}
			repaired, err := v.Repair(at.Off, data[at.Off-off:][:at.Len])
			for _, w := range repaired.Written {
				r.changed[off] = true
				r.wrote(w.Len)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// errFirst ends a search at the first difference.
var errFirst = errors.New("differs")

// head repairs the writable layer.
func (r *repairer) head(ctx context.Context) error {
	want, err := r.at(Head)
	if err != nil {
		return err
	}
	defer want.Close() // read-only: nothing to lose
	// Mostly nothing is left to do: what the head reads from older layers has been repaired there.
	if err := r.headDiffers(ctx, r.c, want, func(Range, []byte) error { return errFirst }); !errors.Is(err, errFirst) {
		return err
	}
	if err := r.c.SetRebuilding(); err != nil {
		return err
	}
	if err := r.headDiffers(ctx, r.c, want, func(at Range, data []byte) error {
		r.wrote(at.Len)
		if err := r.mark(at); err != nil {
			return err
		}
		return r.c.WriteHead(data, at.Off)
	}); err != nil {
		return err
	}
	if err := r.c.Sync(); err != nil {
		return err
	}
	have, err := r.c.At(Head) // from the files, not from what was remembered while writing
	if err != nil {
		return err
	}
	defer have.Close() // read-only: nothing to lose
	return r.headDiffers(ctx, have, want, func(at Range, _ []byte) error {
		return fmt.Errorf(
			"%d bytes at %d still differ after they were written; the disk does not keep what is written to it", at.Len, at.Off)
	})
}

// headDiffers is differences at the head without what is kept.
func (r *repairer) headDiffers(ctx context.Context, have, want *chain.Chain,
	fn func(at Range, data []byte) error) error {
	return differences(ctx, have, want, nil, func(run Range, data []byte) error {
		for _, at := range outside(r.kept[Head], run.Off, run.Len) {
			if err := fn(at, data[at.Off-run.Off:][:at.Len]); err != nil {
				return err
			}
		}
		return nil
	})
}
