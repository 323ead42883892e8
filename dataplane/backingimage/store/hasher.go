package store

import (
	"crypto/sha512"
	"encoding/hex"
	"hash"
)

// hasher computes a checksum beside what else is done with the content: SHA-512 takes longer than
// to read or to write it. It has two buffers, one to be filled while the other is hashed.
type hasher struct {
	sum  hash.Hash
	done chan struct{} // of the buffer that is being hashed, nil if none is
	// fill is the buffer to be filled.
	fill, other []byte
}

func newHasher() *hasher { return &hasher{sum: sha512.New(), fill: buffer(), other: buffer()} }

// add hashes the first n bytes of fill, which is another buffer afterwards. What was in it may be
// read until the next call.
func (h *hasher) add(n int) (filled []byte) {
	h.wait()
	filled = h.fill[:n]
	done := make(chan struct{})
	h.done = done
	go func() {
		defer close(done)
		h.sum.Write(filled)
	}()
	h.fill, h.other = h.other, h.fill
	return filled
}

// wait returns when nothing is being hashed.
func (h *hasher) wait() {
	if h.done != nil {
		<-h.done
		h.done = nil
	}
}

// text is the checksum of all that was added.
func (h *hasher) text() string {
	h.wait()
	return hex.EncodeToString(h.sum.Sum(nil))
}
