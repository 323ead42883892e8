package chain

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"

	"ankole.storage/dataplane/chain/twoslot"
	"ankole.storage/dataplane/disk"
)

// A replica that was dropped comes back with the content it had. What has changed since is known by
// the members that stayed: each keeps, per absent member, an Absent entry in the sidecar
// ankole.absent. It says which record was the last one here to name the member, and from then on
// collects every region that leaves the dirty log, and every layer whose file changes otherwise.
// Together with the regions in the dirty logs of both that is all in which the two can differ.
//
// The rule that makes it true is one line in WriteDirty: a region is in every entry, durably,
// before it leaves the log. An entry that is lost costs a comparison of everything; one that says
// too little would cost data, so whatever is doubtful (a sidecar that is void, a set that
// overflows) ends the entry or widens it.
//
// A replica that is being rebuilt keeps an entry of the same kind about itself: what its content
// was when its record was made void, and what it has written on its own. An interrupted rebuild
// goes on from there. So does one that has stored a record which does not name it.

// Bounds of ankole.absent.
const (
	// MaxAbsent is how many members are remembered; the longest absent one is forgotten first.
	MaxAbsent = 8
	// maxAbsentBits is the most a bitmap may take: 4 MiB a bit up to volumes of 1 TiB, coarser above.
	maxAbsentBits = 32 << 10
	// maxChangedBytes bounds the names of changed layers in an entry; above it all layers count as
	// changed.
	maxChangedBytes = 3 << 10
	// absentFixed is room for everything in an entry but its bitmap.
	absentFixed = 4 << 10
)

const (
	absentName  = "ankole.absent"
	absentMagic = "ANKABSNT"
)

// RecordID names a membership record.
type RecordID struct{ Epoch, Generation uint64 }

// ID names the record; the zero RecordID stands for none.
func (r *Record) ID() RecordID { return RecordID{r.Epoch, r.Generation} }

// Structure identifies the names and the order of the live chain's snapshots.
type Structure [16]byte

// Absent is what is known about the differences to a member that is not there.
type Absent struct {
	Member string
	// Since is the last record here that named the member.
	Since RecordID
	// Before is the agreed record that Since was to replace, if Since was never agreed: the member
	// may have missed it.
	Before RecordID
	// Structure is the live chain's at that time.
	Structure Structure
	// First is the snapshot that the head of that time has become, "" while it is the head.
	First string
	// Gone: the head of that time is no longer part of the chain.
	Gone bool
	// Changed are snapshots made since, or whose files have changed since, HeadName for the head
	// itself. AllChanged: they were too many to list.
	Changed    []string
	AllChanged bool
	// Regions have left the dirty log since.
	Regions RegionSet
}

// clone returns an independent copy.
func (a *Absent) clone() Absent {
	b := *a
	b.Changed, b.Regions = slices.Clone(a.Changed), a.Regions.Clone()
	return b
}

// HasChanged reports whether a snapshot's file may be another one than it was, whatever the regions
// say.
func (a *Absent) HasChanged(name string) bool {
	return a.AllChanged || slices.Contains(a.Changed, name)
}

// change adds a snapshot to the changed ones and tells whether that is news.
func (a *Absent) change(name string) bool {
	if a.HasChanged(name) {
		return false
	}
	n := len(name) + 1
	for _, c := range a.Changed {
		n += len(c) + 1
	}
	if n > maxChangedBytes {
		a.Changed, a.AllChanged = nil, true
	} else {
		a.Changed = append(a.Changed, name)
	}
	return true
}

const (
	absentGone = 1 << iota
	absentAllChanged
)

// encodeAbsent renders the entries.
func encodeAbsent(entries []Absent) []byte {
	b := []byte{byte(len(entries))}
	for i := range entries {
		a := &entries[i]
		b = appendName(b, a.Member)
		b = binary.LittleEndian.AppendUint64(b, a.Since.Epoch)
		b = binary.LittleEndian.AppendUint64(b, a.Since.Generation)
		b = binary.LittleEndian.AppendUint64(b, a.Before.Epoch)
		b = binary.LittleEndian.AppendUint64(b, a.Before.Generation)
		b = append(b, a.Structure[:]...)
		b = appendName(b, a.First)
		flags := byte(0)
		if a.Gone {
			flags |= absentGone
		}
		if a.AllChanged {
			flags |= absentAllChanged
		}
		b = append(b, flags)
		b = binary.LittleEndian.AppendUint16(b, uint16(len(a.Changed)))
		for _, name := range a.Changed {
			b = appendName(b, name)
		}
		b = append(b, a.Regions.Shift)
		b = binary.LittleEndian.AppendUint32(b, uint32(len(a.Regions.Bits)))
		b = append(b, a.Regions.Bits...)
	}
	return b
}

// absentReader takes an encoded sidecar apart; short is set where it ends too early.
type absentReader struct {
	b     []byte
	short bool
}

func (r *absentReader) take(n int) []byte {
	if n > len(r.b) {
		r.b, r.short = nil, true
		return make([]byte, min(n, 16)) // callers take at most 16 bytes without having checked the length
	}
	p := r.b[:n]
	r.b = r.b[n:]
	return p
}

func (r *absentReader) name() string { return string(r.take(int(r.take(1)[0]))) }

// decodeAbsent is the inverse of encodeAbsent.
func decodeAbsent(b []byte) ([]Absent, error) {
	r := &absentReader{b: b}
	n := int(r.take(1)[0])
	if n > MaxAbsent {
		return nil, fmt.Errorf("%w: %d absent members", ErrCorrupt, n)
	}
	var entries []Absent
	for range n {
		a := Absent{Member: r.name()}
		a.Since.Epoch = binary.LittleEndian.Uint64(r.take(8))
		a.Since.Generation = binary.LittleEndian.Uint64(r.take(8))
		a.Before.Epoch = binary.LittleEndian.Uint64(r.take(8))
		a.Before.Generation = binary.LittleEndian.Uint64(r.take(8))
		a.Structure = Structure(r.take(16))
		a.First = r.name()
		flags := r.take(1)[0]
		a.Gone, a.AllChanged = flags&absentGone != 0, flags&absentAllChanged != 0
		for range binary.LittleEndian.Uint16(r.take(2)) {
			if r.short {
				break
			}
			a.Changed = append(a.Changed, r.name())
		}
		a.Regions.Shift = r.take(1)[0]
		bits := int64(binary.LittleEndian.Uint32(r.take(4)))
		if r.short || bits > int64(len(r.b)) || a.Regions.Shift > maxShift || a.Member == "" ||
			flags > absentGone|absentAllChanged {
			return nil, fmt.Errorf("%w: entry of absent member %q", ErrCorrupt, a.Member)
		}
		if bits > 0 {
			a.Regions.Bits = slices.Clone(r.take(int(bits)))
		}
		entries = append(entries, a)
	}
	if r.short || len(r.b) != 0 {
		return nil, fmt.Errorf("%w: list of absent members has a wrong length", ErrCorrupt)
	}
	return entries, nil
}

// absentSlotSize is the size of a slot that holds MaxAbsent entries of a volume of size bytes.
func absentSlotSize(size int64) int {
	bits := min(maxAbsentBits, (size/RegionSize/8+64)&^63)
	return (twoslot.PayloadAt + 1 + MaxAbsent*(absentFixed+int(bits)) + blockSize - 1) &^ (blockSize - 1)
}

// absentBits is the room for one bitmap in slots of that size.
func absentBits(slot int) int { return (slot-twoslot.PayloadAt-1)/MaxAbsent - absentFixed }

func absentFormat(slot int) twoslot.Format { return twoslot.Format{Magic: absentMagic, Size: slot} }

// createAbsent makes an empty sidecar, durable but for its name.
func createAbsent(fs disk.Meta, dir string, stamp Stamp, size int64) (*slotFile, error) {
	return createSlotFile(fs, dir+"/"+absentName, absentFormat(absentSlotSize(size)), stamp, encodeAbsent(nil))
}

// openAbsent reads the entries. Whatever is wrong with them, they are forgotten: that costs a
// comparison later. Entries of members that the record names were left by a crash: before the
// record without them was written, or after the one that names them again.
func (c *Sidecars) openAbsent(stamp Stamp, mode disk.Mode) error {
	info, err := c.fs.Stat(c.path(absentName))
	if isNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	size := int(info.Size / 2)
	if size%blockSize != 0 || absentBits(size) < 1 || size > absentSlotSize(maxVolumeSize) {
		return nil
	}
	f, payload, err := openSlotFile(c.fs, c.path(absentName), absentFormat(size), stamp, mode)
	if err = c.unreadable(err, true); err != nil || f == nil {
		return err
	}
	c.absentFile = f
	entries, err := decodeAbsent(payload)
	for i := range entries {
		if n, share := len(encodeAbsent(entries[i:i+1])), absentFixed+absentBits(size); err == nil && n > share {
			err = fmt.Errorf("%w: entry of absent member %q has %d bytes, its share is %d", ErrCorrupt,
				entries[i].Member, n, share)
		}
	}
	if err != nil {
		c.log.Warn("list of absent members is damaged and forgotten", "dir", c.dir, "error", err)
		return nil
	}
	c.absent = c.withoutNamed(entries, &c.record)
	return nil
}

// recoverAbsent corrects what a crash between an entry and the change it announced has left: called
// when the layers are known.
func (c *Sidecars) recoverAbsent(m *meta) {
	for i := range c.absent {
		a := &c.absent[i]
		if a.First != "" && !a.Gone && m.disks[snapshotFile(a.First)] == nil {
			a.First = "" // the rotation was not committed
		}
	}
}

// withoutNamed returns the entries that count beside record r: of members it does not name, the
// replica itself included.
func (c *Sidecars) withoutNamed(entries []Absent, r *Record) []Absent {
	return slices.DeleteFunc(slices.Clone(entries), func(a Absent) bool {
		return r.has(a.Member)
	})
}

func (r *Record) has(member string) bool {
	return slices.ContainsFunc(r.Members, func(m Member) bool { return m.Name == member })
}

// Absent returns the entry of a member, the replica's own name for its own.
func (c *Sidecars) Absent(member string) (Absent, bool) {
	for i := range c.absent {
		if c.absent[i].Member == member {
			return c.absent[i].clone(), true
		}
	}
	return Absent{}, false
}

// Structure identifies the present live chain. It must not run beside a metadata operation.
func (o *openFiles) Structure() Structure {
	h := sha256.New()
	for i := o.bottomIndex(); i < len(o.layers)-1; i++ {
		h.Write([]byte(o.layers[i].name + "\n"))
	}
	return Structure(h.Sum(nil)[:16])
}

// beginAbsences is the first half of a new record: entries for the members it no longer names are
// durable before it takes effect.
func (c *Sidecars) beginAbsences(next *Record, structure Structure, anew bool) error {
	if anew {
		return c.forgetAbsent()
	}
	if !c.recordValid || c.record.Generation == 0 || next.Generation == 0 {
		return nil
	}
	entries := slices.Clone(c.absent)
	for _, m := range c.record.Members {
		if next.has(m.Name) {
			continue
		}
		entries = slices.DeleteFunc(entries, func(a Absent) bool { return a.Member == m.Name })
		a := Absent{Member: m.Name, Since: c.record.ID(), Structure: structure}
		if len(c.record.Replaces) > 0 {
			a.Before = c.agreed
		}
		entries = append(entries, a)
	}
	if len(entries) == len(c.absent) && slices.EqualFunc(entries, c.absent, func(a, b Absent) bool {
		return a.Member == b.Member && a.Since == b.Since
	}) {
		return nil
	}
	return c.writeAbsent(entries[max(0, len(entries)-MaxAbsent):])
}

// forgetAbsent forgets what is known about absent members, because another history begins: theirs
// may go beyond the one that is given up here, by themselves or through a rebuild from who had
// more. The file is written even where nothing is known here: it may hold entries that do not count
// beside the record that is replaced, and would count beside the next one.
func (c *Sidecars) forgetAbsent() error { return c.writeAbsent(nil) }

// noteAgreed remembers the last record that names nobody it competes with.
func (c *Sidecars) noteAgreed() {
	if c.recordValid && c.record.Generation > 0 && len(c.record.Replaces) == 0 {
		c.agreed = c.record.ID()
	}
}

// endAbsences is the second half: members that the record names are there again.
func (c *Sidecars) endAbsences() error {
	left := c.withoutNamed(c.absent, &c.record)
	if len(left) == len(c.absent) {
		return nil
	}
	return c.writeAbsent(left)
}

// writeAbsent makes entries durable. A directory whose sidecar is missing gets one; where none can
// be made the entries are lost, which a full comparison makes good.
func (c *Sidecars) writeAbsent(entries []Absent) error {
	if c.absentFile == nil {
		if len(entries) == 0 {
			c.absent = nil
			return nil
		}
		f, err := createAbsent(c.fs, c.dir, c.stamp, c.size)
		if err != nil {
			c.log.Warn("what an absent replica misses cannot be remembered; it will be compared in full", "dir", c.dir,
				"error", err)
			c.absent = nil
			return removeIfThere(c.fs, c.path(absentName))
		}
		c.absentFile = f
		if err := c.syncDir(); err != nil {
			return err
		}
	}
	// Both slots: were the newer one damaged later, the older one must not be found to know less.
	if err := c.breaks(c.absentFile.writeTwice(encodeAbsent(entries))); err != nil {
		return err
	}
	c.absent = entries
	return nil
}

// editAbsent changes every entry by fn, which tells whether it changed anything, and makes that
// durable.
func (c *Sidecars) editAbsent(fn func(a *Absent) bool) error {
	if len(c.absent) == 0 {
		return nil
	}
	entries, changed := make([]Absent, len(c.absent)), false
	for i := range c.absent {
		entries[i] = c.absent[i].clone()
		changed = fn(&entries[i]) || changed
	}
	if !changed {
		return nil
	}
	return c.writeAbsent(entries)
}

// regionsLeave puts the regions that are in the dirty log and not in next into every entry. nil is
// every region.
func (c *Sidecars) regionsLeave(next []Region) error {
	if len(c.absent) == 0 || next == nil {
		return nil
	}
	stay := make(map[Region]bool, len(next))
	for _, r := range next {
		stay[r] = true
	}
	limit := absentBits(c.absentFile.format.Size)
	return c.editAbsent(func(a *Absent) bool {
		if !c.regionsKnown {
			a.Regions.AddAll(c.size, limit)
			return true
		}
		changed := false
		for _, r := range c.regions {
			if !stay[r] && !a.Regions.Has(r) {
				a.Regions.Add(r, limit)
				changed = true
			}
		}
		return changed
	})
}

// headBecomes notes, before it happens, that the head becomes a snapshot.
func (c *Sidecars) headBecomes(m *meta, file string) error {
	c.recoverAbsent(m) // an earlier attempt may have failed
	name := displayName(file)
	return c.editAbsent(func(a *Absent) bool {
		if a.First == "" && !a.Gone && !a.HasChanged(HeadName) {
			a.First = name
			return true
		}
		return a.change(name)
	})
}

// headGoes notes, before it happens, that the head is given up.
func (c *Sidecars) headGoes() error {
	return c.editAbsent(func(a *Absent) bool {
		if a.First != "" || a.Gone {
			return false
		}
		a.Gone = true
		return true
	})
}

// layersChange notes, before it happens, that the files of snapshots change or go.
func (c *Sidecars) layersChange(files ...string) error {
	return c.editAbsent(func(a *Absent) bool {
		changed := false
		for _, f := range files {
			changed = a.change(displayName(f)) || changed
		}
		return changed
	})
}

// layerGoes notes, before it happens, that a snapshot is removed.
func (c *Sidecars) layerGoes(file string) error {
	name := displayName(file)
	return c.editAbsent(func(a *Absent) bool {
		gone := a.First == name && !a.Gone
		a.Gone = a.Gone || gone
		return a.change(name) || gone
	})
}
