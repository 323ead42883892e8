package store

import (
	"fmt"
	"io"

	"ankole.storage/dataplane/backingimage/content"
)

// Inspect reads a file that was written at any place: its checksum, size and format. progress is as
// PublishRead has it.
func (m *Making) Inspect(progress func(done int64) error) (sum string, size int64, info content.Info, err error) {
	if err = m.file.Truncate(m.size); err != nil {
		return "", 0, info, err
	}
	if err = m.file.Sync(); err != nil {
		return "", 0, info, noSpace(err)
	}
	if info, err = describe(m.file); err != nil {
		return "", 0, info, err
	}
	sum, size, err = checksum(m.file, progress)
	return sum, size, info, err
}

// Move moves the content of a file that was written at any place towards its end by that many
// bytes, or towards its beginning if there are less than none, and has it changed on the way:
// change is given each piece, and where that is in the content. The bytes before the content are
// what they were, or are gone. by is a multiple of 4096, and at least 1 MiB.
func (m *Making) Move(by int64, change func(p []byte, off int64), progress func(done int64) error) error {
	from, to := max(-by, 0), max(by, 0)
	size := m.size - from
	if size < 0 {
		return fmt.Errorf("%w: %d bytes are to be left out of %d", content.ErrRefused, from, m.size)
	}
	if by > 0 {
		if err := m.Resize(size + to); err != nil {
			return err
		}
	}
	m.size = size + to
	p := buffer()
	pieces := (size + chunk - 1) / chunk
	for i := range pieces {
		at := i * chunk
		if by > 0 {
			at = (pieces - 1 - i) * chunk // what is overwritten was moved before
		}
		piece := p[:min(chunk, size-at)]
		if err := m.fill(piece, from+at); err != nil {
			return err
		}
		change(piece, at)
		if err := m.put(piece, to+at); err != nil {
			return err
		}
		if err := progress(min((i+1)*chunk, size)); err != nil {
			return err
		}
	}
	return m.Resize(m.size)
}

// Head writes the first n bytes of the file to w.
func (m *Making) Head(w io.Writer, n int64) error {
	p := buffer()
	for at := int64(0); at < n; at += chunk {
		piece := p[:min(chunk, n-at)]
		if err := m.fill(piece, at); err != nil {
			return err
		}
		if _, err := w.Write(piece); err != nil {
			return err
		}
	}
	return nil
}

// SetHead overwrites the first n bytes of the file, a multiple of 4096.
func (m *Making) SetHead(r io.Reader, n int64) error {
	p := buffer()
	for at := int64(0); at < n; at += chunk {
		piece := p[:min(chunk, n-at)]
		if _, err := io.ReadFull(r, piece); err != nil {
			return err
		}
		if err := m.put(piece, at); err != nil {
			return err
		}
	}
	return nil
}

// fill reads a part of the file into the beginning of a buffer, which has room for whole blocks.
func (m *Making) fill(p []byte, off int64) error {
	whole := p[:(len(p)+alignment-1)/alignment*alignment]
	n, err := readFull(m.file, whole, off)
	if err == nil && n < len(p) {
		err = fmt.Errorf("%w: %d bytes from %d on, of which %d are there", content.ErrRefused, len(p), off, n)
	}
	return err
}

// put writes over what a part of the file had; zeroes become holes.
func (m *Making) put(p []byte, off int64) error {
	return runs(p, func(begin, end int, zero bool) error {
		if zero {
			return m.Punch(off+int64(begin), int64(end-begin))
		}
		return m.WriteAt(p[begin:end], off+int64(begin))
	})
}

// runs splits p into runs of grains that are all zero, and of others.
func runs(p []byte, each func(begin, end int, zero bool) error) error {
	for begin := 0; begin < len(p); {
		end := min(begin+grain, len(p))
		zero := isZero(p[begin:end])
		for end < len(p) && isZero(p[end:min(end+grain, len(p))]) == zero {
			end = min(end+grain, len(p))
		}
		if err := each(begin, end, zero); err != nil {
			return err
		}
		begin = end
	}
	return nil
}
