package powerdisk

import "bytes"

const (
	// SectorSize is the grain at which a write can be torn, in bytes.
	SectorSize = 512
	pageSize   = 4096
)

type page = [pageSize]byte

var zeroPage page

// Image is the content of a disk. Its pages are never changed, only exchanged, so that clones share
// them. It has no lock.
type Image struct {
	pages []*page // nil reads as zeroes
}

// NewImage returns size bytes of zeroes; size is a multiple of 4096.
func NewImage(size int64) *Image { return &Image{pages: make([]*page, size/pageSize)} }

// Size in bytes.
func (m *Image) Size() int64 { return int64(len(m.pages)) * pageSize }

// Clone returns a copy that shares what neither of them changes.
func (m *Image) Clone() *Image { return &Image{pages: append([]*page(nil), m.pages...)} }

// Read fills p from off; all of it must lie inside.
func (m *Image) Read(p []byte, off int64) {
	for len(p) > 0 {
		in := int(off % pageSize)
		n := min(len(p), pageSize-in)
		if pg := m.pages[off/pageSize]; pg != nil {
			copy(p[:n], pg[in:])
		} else {
			clear(p[:n])
		}
		p, off = p[n:], off+int64(n)
	}
}

// Write puts p at off. The image keeps p: nobody may change it afterwards.
func (m *Image) Write(p []byte, off int64) {
	for len(p) > 0 {
		in := int(off % pageSize)
		n := min(len(p), pageSize-in)
		pg := &m.pages[off/pageSize]
		switch {
		case n == pageSize && bytes.Equal(p[:n], zeroPage[:]):
			*pg = nil
		case n == pageSize:
			*pg = (*page)(p)
		default:
			next := new(page)
			if *pg != nil {
				*next = **pg
			}
			copy(next[in:], p[:n])
			*pg = next
		}
		p, off = p[n:], off+int64(n)
	}
}

// Zero makes n bytes at off zeroes.
func (m *Image) Zero(off, n int64) {
	for n > 0 {
		in := off % pageSize
		k := min(n, pageSize-in)
		if k == pageSize {
			m.pages[off/pageSize] = nil
		} else {
			m.Write(make([]byte, k), off)
		}
		off, n = off+k, n-k
	}
}
