package chain

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strconv"

	"ankole.storage/dataplane/disk"
)

// revisionSize is the length of revision.counter: decimal digits, then NUL bytes.
const revisionSize = 4096

func encodeRevision(v int64) []byte {
	b := make([]byte, revisionSize)
	copy(b, strconv.FormatInt(v, 10))
	return b
}

func parseRevision(b []byte) (int64, error) {
	s := string(bytes.TrimRight(b, "\x00"))
	v, err := strconv.ParseInt(s, 10, 64)
	if err != nil || v < 0 {
		return 0, fmt.Errorf("%w: %s does not hold a decimal number", ErrCorrupt, revisionName)
	}
	return v, nil
}

// revision is the file revision.counter. It keeps nothing in memory.
type revision struct{ *directory }

// RevisionCounter reads revision.counter; exists is false where another engine never made one.
func (r revision) RevisionCounter() (value int64, exists bool, err error) {
	data, err := r.fs.ReadFile(r.path(revisionName), revisionSize)
	if isNotFound(err) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, err
	}
	value, err = parseRevision(data)
	return value, true, err
}

// SetRevisionCounter overwrites revision.counter where it exists and does nothing otherwise;
// durable when it returns nil.
func (r revision) SetRevisionCounter(v int64) error {
	if err := r.usable(); err != nil {
		return err
	}
	if v < 0 {
		return fmt.Errorf("%w: revision counter %d is negative", ErrInvalid, v)
	}
	f, err := r.fs.Open(r.path(revisionName), disk.Direct)
	if isNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close() // its error would say nothing that Sync did not
	// One page in place: the digits lie in one sector, so the write cannot be torn within the number.
	_, err = f.WriteAt(encodeRevision(v), 0)
	if errors.Is(err, disk.ErrIO) { // other sectors may do
		return r.replace(encodeRevision(v))
	}
	if err != nil {
		return r.breaks(err)
	}
	return r.syncFile(f)
}

func (r revision) replace(data []byte) error {
	return r.breaksUnlessFull(r.fs.WriteFileAtomic(r.path(revisionName), data))
}

// raise is for engines that know only the counter. One that is damaged costs nothing
// here: no engine takes it for a number.
func (r revision) raise() error {
	v, exists, err := r.RevisionCounter()
	switch {
	case errors.Is(err, disk.ErrIO):
		// The error may pass, and the counter would be one from before: it is made no number.
		r.log.Warn("revision counter cannot be read and is given up", "dir", r.dir, "error", err)
		if err = r.replace(make([]byte, revisionSize)); errors.Is(err, disk.ErrNoSpace) {
			err = nil
		}
		return err
	case errors.Is(err, ErrCorrupt):
		r.log.Warn("revision counter is damaged and not raised", "dir", r.dir, "error", err)
		return nil
	case err != nil || !exists:
		return err
	case v == math.MaxInt64:
		return fmt.Errorf("%w: %s cannot be raised any more", ErrLimit, revisionName)
	}
	return r.SetRevisionCounter(v + 1)
}
