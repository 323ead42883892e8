package chain

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"path"

	"ankole.storage/dataplane/disk"
)

// Sidecar records are overwritten in place, in two slots by turns, so that neither a full file
// system nor a torn write can cost the last good record. Both slots are written once when the file
// is made: afterwards no write to them needs space. What is durable in one slot is written to the
// other one too: were it damaged there, an older record would be taken for the last one, as after a
// torn write. docs/design/format-replica.md has the byte offsets.

// slotSize holds the largest record: 21 members with names of 250 bytes, or 1,024 dirty regions.
const slotSize = 8192

// slotVersion is the format version of every sidecar.
const slotVersion = 1

// Offsets in a slot.
const (
	slotMagicAt    = 0
	slotVersionAt  = 8
	slotLengthAt   = 12
	slotSequenceAt = 16
	slotStampAt    = 24
	slotSumAt      = 40
	slotPayloadAt  = 72

	maxSlotPayload = slotSize - slotPayloadAt
)

// slotFile is an open sidecar of two slots.
type slotFile struct {
	fs    disk.Meta
	path  string
	file  disk.File
	magic string
	stamp Stamp
	// size is that of a slot.
	size int
	// seq is the sequence number of the newest valid slot, which lies in slot seq%2; durable that of
	// the newest one that is durable: either the same, or what seq is a copy of.
	seq, durable uint64
	// twice: both slots have the same payload.
	twice bool
}

func encodeSlotOf(size int, magic string, stamp Stamp, seq uint64, payload []byte) []byte {
	if len(magic) != 8 || len(payload) > size-slotPayloadAt {
		panic(fmt.Sprintf("chain: slot %q with a payload of %d bytes", magic, len(payload)))
	}
	b := make([]byte, size)
	copy(b[slotMagicAt:], magic)
	binary.LittleEndian.PutUint32(b[slotVersionAt:], slotVersion)
	binary.LittleEndian.PutUint32(b[slotLengthAt:], uint32(len(payload)))
	binary.LittleEndian.PutUint64(b[slotSequenceAt:], seq)
	copy(b[slotStampAt:], stamp[:])
	copy(b[slotPayloadAt:], payload)
	sum := slotSum(b)
	copy(b[slotSumAt:], sum[:])
	return b
}

// slotSum covers the whole slot with the sum's own field as zeroes.
func slotSum(b []byte) [sha256.Size]byte {
	h := sha256.New()
	h.Write(b[:slotSumAt])
	var zero [sha256.Size]byte
	h.Write(zero[:])
	h.Write(b[slotPayloadAt:])
	return [sha256.Size]byte(h.Sum(nil))
}

// decodeSlot checks a slot and returns its sequence number, stamp and payload.
func decodeSlot(magic string, b []byte) (seq uint64, stamp Stamp, payload []byte, ok bool) {
	if len(b) <= slotPayloadAt || string(b[:8]) != magic || binary.LittleEndian.Uint32(b[slotVersionAt:]) != slotVersion {
		return 0, Stamp{}, nil, false
	}
	n := binary.LittleEndian.Uint32(b[slotLengthAt:])
	sum := slotSum(b)
	if int64(n) > int64(len(b)-slotPayloadAt) || !bytes.Equal(sum[:], b[slotSumAt:slotPayloadAt]) {
		return 0, Stamp{}, nil, false
	}
	copy(stamp[:], b[slotStampAt:])
	return binary.LittleEndian.Uint64(b[slotSequenceAt:]), stamp, b[slotPayloadAt : slotPayloadAt+int(n)], true
}

// newestSlot returns the payload with the highest sequence number among the valid slots that carry
// stamp.
func newestSlot(magic string, stamp Stamp, data []byte) (seq uint64, payload []byte, ok bool) {
	return newestSlotOf(slotSize, magic, stamp, data)
}

func newestSlotOf(size int, magic string, stamp Stamp, data []byte) (seq uint64, payload []byte, ok bool) {
	for i := range 2 {
		if len(data) < (i+1)*size {
			break
		}
		s, st, p, good := decodeSlot(magic, data[i*size:(i+1)*size])
		if good && st == stamp && s%2 == uint64(i) && (!ok || s > seq) {
			seq, payload, ok = s, p, true
		}
	}
	return seq, payload, ok
}

// createSlotFile makes name a sidecar whose first record is payload, both slots written, replacing
// what was there. Durable when it returns, but for the name: the caller syncs the directory.
func createSlotFile(fs disk.Meta, path, magic string, stamp Stamp, payload []byte) (*slotFile, error) {
	return createSlotFileOf(slotSize, fs, path, magic, stamp, payload)
}

func createSlotFileOf(size int, fs disk.Meta, path, magic string, stamp Stamp, payload []byte) (*slotFile, error) {
	if err := removeIfThere(fs, path); err != nil {
		return nil, err
	}
	f, err := fs.Create(path, disk.Direct)
	if err != nil {
		return nil, err
	}
	data := append(encodeSlotOf(size, magic, stamp, 2, payload), encodeSlotOf(size, magic, stamp, 1, payload)...)
	if _, err = f.WriteAt(data, 0); err == nil {
		err = f.Sync()
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return &slotFile{fs: fs, path: path, file: f, magic: magic, stamp: stamp, size: size, seq: 2, durable: 2,
		twice: true}, nil
}

// errUnreadable: the disk gives an error for a slot. Which of the two is the newer one is not known
// then.
var errUnreadable = errors.New("sidecar cannot be read")

// openSlotFile opens a sidecar and returns its newest payload; a nil slotFile without error means
// that it is void: missing, damaged in both slots, or of another stamp.
func openSlotFile(fs disk.Meta, path, magic string, stamp Stamp, mode disk.Mode) (*slotFile, []byte, error) {
	return openSlotFileOf(slotSize, fs, path, magic, stamp, mode)
}

func openSlotFileOf(size int, fs disk.Meta, path, magic string, stamp Stamp, mode disk.Mode) (*slotFile, []byte,
	error) {
	f, err := fs.Open(path, mode|disk.Direct)
	if isNotFound(err) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	data := make([]byte, 2*size)
	if err := readFull(f, data, 0); err != nil {
		_ = f.Close()
		if errors.Is(err, disk.ErrIO) {
			err = fmt.Errorf("%w: %w", errUnreadable, err)
		}
		return nil, nil, err
	}
	seq, payload, ok := newestSlotOf(size, magic, stamp, data)
	if !ok {
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
	other := data[int(1-seq%2)*size:][:size]
	_, st, copied, whole := decodeSlot(magic, other)
	return &slotFile{fs: fs, path: path, file: f, magic: magic, stamp: stamp, size: size, seq: seq, durable: seq,
		twice: whole && st == stamp && bytes.Equal(copied, payload)}, payload, nil
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
	n, err := createSlotFileOf(s.size, s.fs, s.path+tmpSuffix, s.magic, s.stamp, payload)
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
	_, err := s.file.WriteAt(encodeSlotOf(s.size, s.magic, s.stamp, next, payload), int64(next%2)*int64(s.size))
	return err
}
