package chain

import (
	"bytes"
	"fmt"
	"math"
	"strconv"

	"ankole.storage/disk"
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

// RevisionCounter reads revision.counter; exists is false where another engine never made one.
func (c *Files) RevisionCounter() (value int64, exists bool, err error) {
	data, err := c.fs.ReadFile(c.path(revisionName), revisionSize)
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
func (c *Files) SetRevisionCounter(v int64) error {
	if err := c.usable(); err != nil {
		return err
	}
	if v < 0 {
		return fmt.Errorf("%w: revision counter %d is negative", ErrInvalid, v)
	}
	f, err := c.fs.Open(c.path(revisionName), disk.Direct)
	if isNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close() // its error would say nothing that Sync did not
	// One page in place: the digits lie in one sector, so the write cannot be torn within the number.
	if _, err := f.WriteAt(encodeRevision(v), 0); err != nil {
		return c.breaks(err)
	}
	return c.syncFile(f)
}

func (c *Files) raiseRevisionCounter() error {
	v, exists, err := c.RevisionCounter()
	if err != nil || !exists {
		return err
	}
	if v == math.MaxInt64 {
		return fmt.Errorf("%w: %s cannot be raised any more", ErrLimit, revisionName)
	}
	return c.SetRevisionCounter(v + 1)
}
