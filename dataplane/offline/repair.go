package offline

import (
	"context"
	"errors"
	"fmt"
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
	// Warnings are what a person should know before agreeing.
	Warnings []string `json:"warnings"`

	damaged, source *Directory
}

// RepairItem is a snapshot, or Head, whose content differs.
type RepairItem struct {
	Snapshot string `json:"snapshot"`
	Bytes    int64  `json:"bytes"`
}

// PlanRepair compares a damaged directory with a sound one of the same volume. It refuses, with
// ErrRefused, a source that is not sound, and one that is older than the damaged directory unless
// force is set.
func PlanRepair(ctx context.Context, damaged, source *Directory, force bool, progress Progress) (*RepairPlan, error) {
	p := &RepairPlan{Damaged: damaged.Path, Source: source.Path, Items: []RepairItem{}, Warnings: []string{},
		damaged: damaged, source: source}
	if err := p.mayCopy(force); err != nil {
		return nil, err
	}
	compared, err := Compare(ctx, damaged, source, progress)
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
		case !c.Equal:
			p.Items = append(p.Items, RepairItem{c.Snapshot, c.DifferingBytes})
		}
	}
	// Branches were listed after the head. While that is repaired the directory counts as being
	// rebuilt, and no snapshot can be repaired.
	last := func(i RepairItem) int {
		if i.Snapshot == Head {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(p.Items, func(a, b RepairItem) int { return last(a) - last(b) })
	return p, nil
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
	switch {
	case b.State != StateClean && b.State != StateDirty || bm.State == memberStates[chain.MemberWO]:
		return fmt.Errorf("%w: %s is %s and cannot be a source; see: ankole replica inspect %s", ErrRefused,
			b.Directory, b.State, b.Directory)
	case am.Known && bm.Known && am.VolumeUUID != bm.VolumeUUID && am.VolumeUUID != "" && bm.VolumeUUID != "":
		return fmt.Errorf("%w: %s is a replica of volume %s, %s of volume %s", ErrRefused, a.Directory, am.VolumeUUID,
			b.Directory, bm.VolumeUUID)
	case am.Known && bm.Known && am.Generation > bm.Generation && !force:
		return fmt.Errorf("%w: %s is of generation %d, newer than %d of %s: the repair would undo acknowledged "+
			"writes; give --force to do it nevertheless",
			ErrRefused, a.Directory, am.Generation, bm.Generation, b.Directory)
	}
	if !am.Known || !bm.Known {
		p.warn("which of the two is newer is not known, since the membership of one is void: make sure that %s has "+
			"the content you want", b.Directory)
	}
	if b.State == StateDirty {
		p.warn("%s was not closed: what was not flushed may be in it or not", b.Directory)
	}
	if am.Known && bm.Known && am.Generation < bm.Generation {
		p.warn("%s keeps its older generation %d: the next engine will still rebuild it", a.Directory, am.Generation)
	}
	return nil
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
	r := &repairer{c: c, at: func(name string) (*chain.Chain, error) {
		return p.source.soundAt(source, name)
	}, progress: progress, total: p.Bytes()}
	for _, item := range p.Items {
		if item.Snapshot == Head {
			err = r.head(ctx)
		} else {
			err = r.snapshot(ctx, item.Snapshot)
		}
		if err != nil {
			return fmt.Errorf("repair of %s in %s: %w", item.Snapshot, p.Damaged, err)
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
	at          func(name string) (*chain.Chain, error)
	progress    Progress
	done, total int64
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
	v, err := r.c.OpenView(name)
	if err != nil {
		return err
	}
	defer v.Close() // repairs are durable already
	return eachChunk(ctx, want.Size(), nil, func(off int64, p []byte) error {
		if _, err := want.ReadAt(p, off); err != nil {
			return err
		}
		repaired, err := v.Repair(off, p)
		for _, w := range repaired.Written {
			r.wrote(w.Len)
		}
		return err
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
	if err := differences(ctx, r.c, want, nil, func(Range, []byte) error { return errFirst }); !errors.Is(err, errFirst) {
		return err
	}
	if err := r.c.SetRebuilding(); err != nil {
		return err
	}
	if err := differences(ctx, r.c, want, nil, func(at Range, data []byte) error {
		r.wrote(at.Len)
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
	return differences(ctx, have, want, nil, func(at Range, _ []byte) error {
		return fmt.Errorf(
			"%d bytes at %d still differ after they were written; the disk does not keep what is written to it", at.Len, at.Off)
	})
}
