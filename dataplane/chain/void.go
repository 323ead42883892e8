package chain

import (
	"errors"
)

// VoidForRebuild makes the record void, because the replica is about to become the copy of another
// one, and remembers in the replica's own entry what its content is: base is kept over any number
// of interrupted rebuilds. fresh are the snapshots that will be made anew, or changed wherever they
// differ, HeadName for the head; they are never taken for what they were at the base. What is known
// about other absent members is forgotten: the regions that leave the others' logs meanwhile are
// not seen here.
func (c *Files) VoidForRebuild(s *Sidecars, void Record, first string, fresh []string) error {
	if err := errors.Join(c.usable(), s.usable()); err != nil {
		return err
	}
	own := Absent{Member: void.Self, Since: s.record.ID(), Structure: c.Structure()}
	known := s.recordValid && s.record.has(void.Self)
	if a, ok := s.Absent(void.Self); ok && !known {
		own, known = a, true
	}
	var entries []Absent
	if known {
		if first != "" && own.First == "" && !own.Gone && !own.HasChanged(HeadName) {
			own.First = first
		}
		for _, name := range fresh {
			own.change(name)
		}
		entries = []Absent{own}
	}
	if err := s.writeAbsent(entries); err != nil {
		return err
	}
	void.Epoch, void.Generation, void.Members, void.State = 0, 0, nil, MemberWO
	if err := c.WriteRecord(s, void); err != nil {
		return err
	}
	// Whatever it wrote alone goes from the log, which is the engine's from now on, into its own
	// entry.
	return s.WriteDirty([]Region{})
}

// VoidForRebuild is Files.VoidForRebuild.
func (c *Chain) VoidForRebuild(void Record, first string, fresh []string) error {
	return c.Files.VoidForRebuild(c.Sidecars, void, first, fresh)
}
