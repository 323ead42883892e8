package chain

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Bounds of a Record. MaxMembers is one more than the 20 replicas a volume can have: the joiner.
const (
	MaxMembers    = 21
	MaxNameLength = 250
	// MaxReplaces is a whole set lost but for one, and a joiner given up. All of them fit in a slot
	// if the names are not longer than 170 bytes; the control plane's are a third of that.
	MaxReplaces = MaxMembers
)

// MemberState is what a replica knows itself to be.
type MemberState uint8

// Member states. Values are on disk.
const (
	// MemberUnknown: nothing is known about this replica's content in relation to others'.
	MemberUnknown MemberState = iota
	// MemberRW: a full member of the recorded generation.
	MemberRW
	// MemberWO: being rebuilt.
	MemberWO
)

// Member is one entry of a generation's member list.
type Member struct {
	// Name is the member's data directory name, 1 to 250 bytes.
	Name string
	// Flags belong to the membership protocol; the chain keeps them.
	Flags uint8
}

// Record is a replica's durable memory of the membership protocol.
type Record struct {
	VolumeUUID UUID
	// Promised is the newest epoch whose engine this replica has answered; engines of older ones
	// are refused.
	Promised uint64
	// Epoch is the epoch in which Generation and Members were proposed.
	Epoch, Generation uint64
	State             MemberState
	// Self is the replica's own name, Engine the engine instance that was granted Promised; at most
	// 250 bytes each.
	Self, Engine string
	// Members is the member set of Generation, at most 21.
	Members []Member
	// Replaces are names that competing records have beside Members, at most 21; none once the
	// record is agreed.
	Replaces []string
	// Agreed: the set is known to be committed. Then Replaces is empty.
	Agreed bool
	// Anew: absent members may have more than the content that this record goes on with, so what is
	// known about them is forgotten when it is written. It is not kept.
	Anew bool
}

const memberMagic = "ANKMEMBR"

// validate tells whether the record can be stored.
func (r *Record) validate() error {
	if len(r.Members) > MaxMembers {
		return fmt.Errorf("%w: %d members in a record; at most %d fit", ErrLimit, len(r.Members), MaxMembers)
	}
	if len(r.Replaces) > MaxReplaces {
		return fmt.Errorf("%w: %d replaced names in a record; at most %d fit", ErrLimit, len(r.Replaces), MaxReplaces)
	}
	if r.State > MemberWO {
		return fmt.Errorf("%w: member state %d", ErrInvalid, r.State)
	}
	for _, name := range []string{r.Self, r.Engine} {
		if len(name) > MaxNameLength {
			return fmt.Errorf("%w: name of %d bytes in a record; at most %d fit", ErrLimit, len(name), MaxNameLength)
		}
	}
	if r.Agreed && len(r.Replaces) > 0 {
		return fmt.Errorf("%w: an agreed record replaces nobody", ErrInvalid)
	}
	for _, name := range r.Replaces {
		if name == "" || len(name) > MaxNameLength {
			return fmt.Errorf("%w: replaced name of %d bytes; 1 to %d are possible", ErrInvalid, len(name), MaxNameLength)
		}
	}
	for _, m := range r.Members {
		if m.Name == "" || len(m.Name) > MaxNameLength {
			return fmt.Errorf("%w: member name of %d bytes; 1 to %d are possible", ErrInvalid, len(m.Name), MaxNameLength)
		}
	}
	if n, room := len(r.encode()), format(memberMagic).Room(); n > room {
		return fmt.Errorf("%w: a record of %d bytes; %d fit", ErrLimit, n, room)
	}
	return nil
}

// encode renders a valid record.
func (r *Record) encode() []byte {
	b := make([]byte, 0, 512)
	b = append(b, r.VolumeUUID[:]...)
	b = binary.LittleEndian.AppendUint64(b, r.Promised)
	b = binary.LittleEndian.AppendUint64(b, r.Epoch)
	b = binary.LittleEndian.AppendUint64(b, r.Generation)
	b = append(b, byte(r.State), byte(len(r.Members)))
	b = appendName(b, r.Self)
	b = appendName(b, r.Engine)
	for _, m := range r.Members {
		b = append(b, m.Flags)
		b = appendName(b, m.Name)
	}
	if len(r.Replaces) > 0 || r.Agreed {
		b = append(b, byte(len(r.Replaces)))
		for _, name := range r.Replaces {
			b = appendName(b, name)
		}
	}
	return b
}

func appendName(b []byte, name string) []byte { return append(append(b, byte(len(name))), name...) }

const recordFixed = 16 + 8 + 8 + 8 + 2

// decodeRecord is the inverse of encode.
func decodeRecord(b []byte) (Record, error) {
	var r Record
	if len(b) < recordFixed {
		return r, fmt.Errorf("%w: member record of %d bytes", ErrCorrupt, len(b))
	}
	copy(r.VolumeUUID[:], b)
	r.Promised = binary.LittleEndian.Uint64(b[16:])
	r.Epoch = binary.LittleEndian.Uint64(b[24:])
	r.Generation = binary.LittleEndian.Uint64(b[32:])
	r.State = MemberState(b[40])
	count := int(b[41])
	b = b[recordFixed:]
	short := false
	name := func() string {
		if len(b) == 0 || len(b) < 1+int(b[0]) {
			short = true
			return ""
		}
		n := 1 + int(b[0])
		s := string(b[1:n])
		b = b[n:]
		return s
	}
	r.Self, r.Engine = name(), name()
	for range count {
		if short || len(b) == 0 {
			short = true
			break
		}
		flags := b[0]
		b = b[1:]
		r.Members = append(r.Members, Member{Flags: flags, Name: name()})
	}
	if !short && len(b) > 0 {
		replaced := int(b[0])
		b = b[1:]
		r.Agreed = replaced == 0
		for range replaced {
			r.Replaces = append(r.Replaces, name())
		}
	}
	if short || len(b) != 0 {
		return Record{}, fmt.Errorf("%w: member record has a wrong length", ErrCorrupt)
	}
	if err := r.validate(); err != nil {
		return Record{}, fmt.Errorf("%w: member record: %v", ErrCorrupt, err)
	}
	return r, nil
}

// Record returns the member record. It is not valid, which means "unknown" and never "fine", when
// there is none, when both of its slots are damaged, or when another engine has rewritten
// volume.meta since.
func (c *Sidecars) Record() (Record, bool) {
	if !c.recordValid {
		return Record{}, false
	}
	r := c.record
	r.Members = append([]Member(nil), r.Members...)
	r.Replaces = append([]string(nil), r.Replaces...)
	return r, true
}

// WriteRecord replaces the member record; durable when it returns nil. On a change of generation
// revision.counter, where it exists, is raised first, so that an engine which knows only the
// counter sees who is ahead. In a directory without a valid stamp it first gives it a new one,
// which is one replacement of volume.meta. It may run while I/O goes on, but not beside another
// metadata operation.
func (c *Files) WriteRecord(s *Sidecars, r Record) error {
	if err := errors.Join(c.usable(), s.usable()); err != nil {
		return err
	}
	if err := r.validate(); err != nil {
		return err
	}
	r.Members = append([]Member(nil), r.Members...)
	r.Replaces = append([]string(nil), r.Replaces...)
	anew := r.Anew
	r.Anew = false
	if !s.recordValid || s.record.Generation != r.Generation {
		if err := c.revision.raise(); err != nil {
			return err
		}
	}
	if s.member == nil {
		return c.adopt(s, r)
	}
	if err := s.beginAbsences(&r, c.openFiles.Structure(), anew); err != nil {
		return err
	}
	if err := s.breaks(s.member.writeTwice(r.encode())); err != nil {
		return err
	}
	s.record, s.recordValid = r, true
	s.noteAgreed()
	return s.endAbsences()
}

// WriteRecord is Files.WriteRecord.
func (c *Chain) WriteRecord(r Record) error { return c.Files.WriteRecord(c.Sidecars, r) }

// adopt gives the directory a new stamp and sidecars. A crash on the way leaves volume.meta without
// the stamp they carry, so they stay void.
func (c *Files) adopt(s *Sidecars, r Record) error {
	stamp, err := newStamp(c.meta.rand)
	if err != nil {
		return err
	}
	if s.dirty != nil {
		_ = s.dirty.file.Close() // only read so far; nothing to lose
		s.dirty = nil
	}
	if s.absentFile != nil {
		_ = s.absentFile.file.Close()
		s.absentFile, s.absent = nil, nil
	}
	member, dirty, err := createSidecars(c.fs, c.dir, stamp, &r, allDirty, c.opts.Boot)
	if err != nil {
		return err
	}
	vm := c.meta.vm
	// Open has settled the head's unwritten extents, so from now on it is like one of our own.
	vm.AnkoleStamp, vm.AnkoleHead = stamp.String(), vm.Head
	if err = c.syncDir(); err == nil {
		err = c.meta.writeVolumeMeta(&vm)
	}
	if err != nil {
		_ = member.file.Close()
		_ = dirty.file.Close()
		return err
	}
	c.meta.stamped = true
	s.stamp, s.member, s.dirty = stamp, member, dirty
	s.record, s.recordValid = r, true
	s.regions, s.regionsKnown, s.regionsBoot = nil, false, s.boot
	return nil
}

func newStamp(random io.Reader) (Stamp, error) {
	var s Stamp
	for s == (Stamp{}) {
		if _, err := io.ReadFull(random, s[:]); err != nil {
			return s, fmt.Errorf("draw a stamp: %w", err)
		}
	}
	return s, nil
}

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
	own := Absent{Member: void.Self, Since: s.record.ID(), Structure: c.openFiles.Structure()}
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
