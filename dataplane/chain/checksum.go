package chain

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"ankole.storage/dataplane/disk"
)

// Checksum is the content of a snapshot's .checksum file, which other engines read and write too.
type Checksum struct {
	// Method is "crc64": CRC-64 (ISO) over the whole apparent file, holes being zeroes.
	Method string `json:"method"`
	// Checksum is 16 lower-case hexadecimal digits.
	Checksum string `json:"checksum"`
	// ChangeTime is the change time (ctime) of the image that the checksum holds for, as Go prints
	// a time.
	ChangeTime string `json:"change_time"`
	// LastHashedAt is RFC 3339; absent where a file was copied together with its checksum.
	LastHashedAt string `json:"last_hashed_at,omitempty"`
	// SilentlyCorrupted: the file was read again and no longer had this checksum, though nobody had
	// changed it.
	SilentlyCorrupted bool `json:"silently_corrupted"`
}

// checksums is what is recorded about the content of snapshots' files, .checksum and .sums beside
// each, and the one computation of it that the disk bears. Whoever changes a file voids its
// checksums before (void), or says what they will be (outdate).
//
// Its own are these files; voided, by which a computation and a reader notice that the file was
// changed meanwhile; and lock.
type checksums struct {
	*directory
	meta *meta
	// voided counts how often the checksums of a file were voided.
	voided map[string]int
	// lock is held on the folder around the directory while a checksum is computed.
	lock disk.Lock
}

func newChecksums(d *directory, m *meta) *checksums {
	return &checksums{directory: d, meta: m, voided: map[string]int{}}
}

const checksumMethod = "crc64"

// changeTimeLayout is how Go prints a time, and so how the file has it.
const changeTimeLayout = "2006-01-02 15:04:05.999999999 -0700 MST"

// maxChecksumBytes bounds the file: five short values.
const maxChecksumBytes = 4096

// changeTime renders a change time. Engines compare the text, in their own zone, which in their
// Pods is UTC.
func changeTime(t time.Time) string { return t.UTC().String() }

// parseChecksum decodes a .checksum file. Content that is not one is ErrCorrupt, for the caller to
// take for "unknown".
func parseChecksum(data []byte) (Checksum, error) {
	var s Checksum
	if err := json.Unmarshal(data, &s); err != nil {
		return Checksum{}, fmt.Errorf("%w: checksum file: %v", ErrCorrupt, err)
	}
	if raw, err := hex.DecodeString(s.Checksum); err != nil || len(raw) != 8 || s.Method != checksumMethod {
		return Checksum{}, fmt.Errorf("%w: checksum file with method %.20q and checksum %.20q", ErrCorrupt, s.Method,
			s.Checksum)
	}
	return s, nil
}

func (s *Checksum) encode() []byte { return encodeJSON(s, nil) }

// holdsFor tells whether the image has not changed since. The instant counts, not the zone it is
// written in.
func (s *Checksum) holdsFor(image disk.Info) bool {
	t, err := time.Parse(changeTimeLayout, s.ChangeTime)
	return err == nil && t.Equal(image.CTime)
}

// Checksum returns what is recorded about a snapshot's file. valid is false where nothing is known:
// no record, a damaged one, or one from before the file's last change.
func (k *checksums) Checksum(snapshot string) (s Checksum, valid bool, err error) {
	file := snapshotFile(snapshot)
	if k.meta.disks[file] == nil {
		return s, false, fmt.Errorf("%w: there is no snapshot %q", ErrNotFound, snapshot)
	}
	return k.read(file)
}

func (k *checksums) read(file string) (Checksum, bool, error) {
	size, err := k.fs.Stat(k.path(file + checksumSuffix))
	if isNotFound(err) || err == nil && size.Size > maxChecksumBytes {
		return Checksum{}, false, nil
	}
	if err != nil {
		return Checksum{}, false, err
	}
	data, err := k.fs.ReadFile(k.path(file+checksumSuffix), maxChecksumBytes)
	if err != nil && !errors.Is(err, disk.ErrIO) {
		return Checksum{}, false, err
	}
	s := Checksum{}
	if err == nil {
		s, err = parseChecksum(data)
	}
	if err != nil { // what cannot be read is not known
		k.log.Warn("checksum file ignored", "dir", k.dir, "file", file, "error", err)
		return Checksum{}, false, nil
	}
	info, err := k.fs.Stat(k.path(file))
	if err != nil {
		return Checksum{}, false, err
	}
	return s, s.holdsFor(info), nil
}

func (k *checksums) write(file string, s *Checksum) error {
	return k.breaksUnlessFull(k.fs.WriteFileAtomic(k.path(file+checksumSuffix), s.encode()))
}

// void durably removes what is recorded about a file's content, and marks the file in the
// copy of the metadata, before its first byte changes.
func (k *checksums) void(file string) error {
	k.voided[file]++ // a computation that is under way must not record what it has seen
	if err := k.meta.mark(file); err != nil {
		return err
	}
	removed := false
	for _, name := range []string{file + checksumSuffix, file + sumsSuffix} {
		_, err := k.fs.Stat(k.path(name))
		if isNotFound(err) {
			continue
		}
		if err == nil {
			err = k.fs.Remove(k.path(name))
		}
		if err != nil {
			return err
		}
		removed = true
	}
	if !removed {
		return nil
	}
	return k.syncDir()
}

// outdate durably removes the checksum of a whole file, which is about to change. The sums of its
// pieces stay, for the caller to set to what will be there.
func (k *checksums) outdate(file string) error {
	k.voided[file]++
	if _, err := k.fs.Stat(k.path(file + checksumSuffix)); isNotFound(err) {
		return nil
	} else if err != nil {
		return err
	}
	if err := k.fs.Remove(k.path(file + checksumSuffix)); err != nil {
		return err
	}
	return k.syncDir()
}

// remove takes away what is recorded about a file that goes itself.
func (k *checksums) remove(file string) error {
	for _, suffix := range []string{checksumSuffix, sumsSuffix} {
		if err := removeIfThere(k.fs, k.path(file+suffix)); err != nil {
			return err
		}
	}
	return nil
}

// recorded tells whether anything is recorded about a file's content: only who voids it may write.
func (k *checksums) recorded(file string) (bool, error) {
	for _, name := range []string{file + checksumSuffix, file + sumsSuffix} {
		if _, err := k.fs.Stat(k.path(name)); !isNotFound(err) {
			return err == nil, err
		}
	}
	return false, nil
}
