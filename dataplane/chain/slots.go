package chain

import (
	"errors"
	"fmt"
	"path"

	"ankole.storage/dataplane/chain/twoslot"
	"ankole.storage/dataplane/disk"
)

// Sidecar records are overwritten in place, in two slots by turns, so that neither a full file
// system nor a torn write can cost the last good record. Both slots are written once when the file
// is made: afterwards no write to them needs space. What is durable in one slot is written to the
// other one too: were it damaged there, an older record would be taken for the last one, as after a
// torn write. Package twoslot has the bytes.

// slotSize holds the largest record: 21 members with names of 250 bytes, or 1,024 dirty regions.
const slotSize = 8192

// format is that of a sidecar with slots of slotSize.
func format(magic string) twoslot.Format { return twoslot.Format{Magic: magic, Size: slotSize} }

// slotFile is an open sidecar of two slots.
type slotFile struct {
	fs     disk.Meta
	path   string
	file   disk.File
	format twoslot.Format
	stamp  Stamp
	// seq is the sequence number of the newest valid slot, which lies in slot seq%2; durable that of
	// the newest one that is durable: either the same, or what seq is a copy of.
	seq, durable uint64
	// twice: both slots have the same payload.
	twice bool
}

// createSlotFile makes name a sidecar whose first record is payload, both slots written, replacing
// what was there. Durable when it returns, but for the name: the caller syncs the directory.
func createSlotFile(fs disk.Meta, path string, format twoslot.Format, stamp Stamp, payload []byte) (*slotFile, error) {
	if err := removeIfThere(fs, path); err != nil {
		return nil, err
	}
	f, err := fs.Create(path, disk.Direct)
	if err != nil {
		return nil, err
	}
	o := twoslot.Owner{Key: stamp}
	data := append(format.Encode(o, 2, payload), format.Encode(o, 1, payload)...)
	if _, err = f.WriteAt(data, 0); err == nil {
		err = f.Sync()
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return &slotFile{fs: fs, path: path, file: f, format: format, stamp: stamp, seq: 2, durable: 2, twice: true}, nil
}

// errUnreadable: the disk gives an error for a slot. Which of the two is the newer one is not known
// then.
var errUnreadable = errors.New("sidecar cannot be read")

// openSlotFile opens a sidecar and returns its newest payload; a nil slotFile without error means
// that it is void: missing, damaged in both slots, or of another stamp.
func openSlotFile(fs disk.Meta, path string, format twoslot.Format, stamp Stamp, mode disk.Mode) (*slotFile, []byte,
	error) {
	f, err := fs.Open(path, mode|disk.Direct)
	if isNotFound(err) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	data := make([]byte, 2*format.Size)
	if err := readFull(f, data, 0); err != nil {
		_ = f.Close()
		if errors.Is(err, disk.ErrIO) {
			err = fmt.Errorf("%w: %w", errUnreadable, err)
		}
		return nil, nil, err
	}
	newest := format.Newest(twoslot.Owner{Key: stamp}, data)
	if newest.Valid == 0 {
		return nil, nil, f.Close()
	}
	if mode&disk.ReadOnly == 0 {
		// A process that was killed may not have synced the newer slot: the older one is written
		// over next.
		if err := f.Sync(); err != nil {
			_ = f.Close()
			return nil, nil, fmt.Errorf("sync %s: %w", path, err)
		}
	}
	return &slotFile{fs: fs, path: path, file: f, format: format, stamp: stamp, seq: newest.Seq, durable: newest.Seq,
		twice: newest.Twice}, newest.Payload, nil
}

// write replaces the slot that need not stay; durable when it returns nil. After an error the other
// slot still holds.
func (s *slotFile) write(payload []byte) error {
	next := s.next()
	err := s.put(payload)
	if errors.Is(err, disk.ErrIO) {
		return s.renew(payload)
	}
	if err != nil {
		return err
	}
	if err := s.file.Sync(); err != nil {
		return err
	}
	s.seq, s.durable, s.twice = next, next, false
	return nil
}

// renew puts another file in the place of one with sectors that cannot be written. Durable
// when it returns nil.
func (s *slotFile) renew(payload []byte) error {
	n, err := createSlotFile(s.fs, s.path+tmpSuffix, s.format, s.stamp, payload)
	if err != nil {
		return err
	}
	old := s.file
	s.file, s.seq, s.durable, s.twice = n.file, n.seq, n.durable, n.twice
	_ = old.Close() // what it held is not needed any more
	if err := s.fs.Rename(s.path+tmpSuffix, s.path); err != nil {
		return err
	}
	return s.fs.SyncDir(path.Dir(s.path))
}

// writeTwice is write for both slots.
func (s *slotFile) writeTwice(payload []byte) error {
	for range 2 {
		if err := s.write(payload); err != nil {
			return err
		}
	}
	s.twice = true
	return nil
}

// copy writes the payload that is durable to the other slot too, unless it is there. The copy is
// not durable, and the next write goes to its place: no crash takes the one that is.
func (s *slotFile) copy(payload []byte) error {
	if s.twice {
		return nil
	}
	next := s.next()
	if err := s.put(payload); err != nil {
		return err
	}
	s.seq, s.twice = next, true
	return nil
}

// next is the sequence number of the next slot to be written, which is not the durable one.
func (s *slotFile) next() uint64 {
	if s.seq == s.durable {
		return s.seq + 1
	}
	return s.seq + 2
}

// put is the half of write before the sync.
func (s *slotFile) put(payload []byte) error {
	next := s.next()
	slot := s.format.Encode(twoslot.Owner{Key: s.stamp}, next, payload)
	_, err := s.file.WriteAt(slot, int64(next%2)*int64(s.format.Size))
	return err
}
