package chain

import (
	"errors"
	"maps"
	"math"
	"slices"

	"ankole.storage/dataplane/disk"
)

// Next returns the next step, false when nothing is left to do: then Err says what was left out.
// What gives space and takes none comes first: removals. Merges follow, the smallest first, and the
// snapshot behind the head is pruned last. One with several children is left for when it has fewer,
// one that is pinned (View.Pin) for the next purge.
func (p *Purge) Next() (PurgeStep, bool) {
	c := p.c
	var merge, prune PurgeStep
	least := int64(math.MaxInt64)
	for _, file := range slices.Sorted(maps.Keys(c.meta.disks)) {
		if !c.meta.disks[file].Removed || isHeadFile(file) || c.readers.pins[file] > 0 || p.failed[file] != nil {
			continue
		}
		children := c.meta.children(file)
		switch {
		case len(children) == 0:
			return PurgeStep{Action: PurgeRemove, Source: file}, true
		case len(children) > 1:
		case children[0] != c.meta.vm.Head:
			if n := c.mostToCopy(children[0]); merge.Action == "" || n < least {
				merge, least = PurgeStep{Action: PurgeCoalesce, Source: file, Target: children[0]}, n
			}
		case !p.pruned[file]:
			prune = PurgeStep{Action: PurgePrune, Source: file, Target: children[0]}
		}
	}
	if merge.Action != "" {
		return merge, true
	}
	return prune, prune.Action != ""
}

// mostToCopy is how many bytes a merge of this child copies at most. One that cannot be looked at
// comes last.
func (c *removal) mostToCopy(child string) int64 {
	info, err := c.fs.Stat(c.path(child))
	if err != nil {
		return math.MaxInt64
	}
	return info.Allocated
}

// Fail takes in that a step has failed. It reports whether the purge goes on with others: one for
// which the disk has no room, or which meets a sector that cannot be read or written, says nothing
// about them.
func (p *Purge) Fail(s *PurgeStep, err error) bool {
	if p.c.broken != nil || !givesUp(err) {
		return false
	}
	p.failed[s.Source] = err
	p.c.log.Warn("step of a purge is left out", "dir", p.c.dir, "action", s.Action, "snapshot", s.Source,
		"error", err)
	return true
}

// givesUp reports whether an error ends a step and not the purge.
func givesUp(err error) bool { return errors.Is(err, disk.ErrNoSpace) || errors.Is(err, disk.ErrIO) }

// Retry lets Next return the steps for which there was no room again: some has come.
func (p *Purge) Retry() {
	maps.DeleteFunc(p.failed, func(_ string, err error) bool { return errors.Is(err, disk.ErrNoSpace) })
}

// Err is why steps were left out, nil if none was.
func (p *Purge) Err() error {
	var all error
	for _, file := range slices.Sorted(maps.Keys(p.failed)) {
		all = errors.Join(all, p.failed[file])
	}
	return all
}

// Purge does a whole purge with I/O held back, for tools. progress, unless nil, is told
// percentages.
func (c *Chain) Purge(progress func(percent int)) error {
	p, err := c.removal.NewPurge()
	if err != nil {
		return err
	}
	for step, more := p.Next(); more; step, more = p.Next() {
		if err := c.purgeStep(p, &step); err != nil && !p.Fail(&step, err) {
			return err
		}
		if progress != nil {
			progress(p.Progress())
		}
	}
	return p.Err()
}

func (c *Chain) purgeStep(p *Purge, step *PurgeStep) error {
	for done := false; !done; {
		err := p.Note(c.Sidecars, step)
		if err == nil {
			done, err = p.Work(step, c.DurableWhiteouts(step.Whiteouts()))
		}
		if err != nil {
			return err
		}
	}
	ch, err := p.Finish(c.Sidecars, step)
	c.Apply(ch)
	return errors.Join(err, c.removal.unlinked.close())
}
