package store

import (
	"crypto/sha512"
	"encoding/hex"
	"hash"
	"sync/atomic"
)

// pieces is how many pieces of content are under way at once: one is filled, one is hashed, one is
// written, and the fourth makes up for a disk and a network that are not even.
const pieces = 4

// hasher computes a checksum beside what else is done with the content: SHA-512 takes longer than
// to read or to write it. It has pieces in buffers, which it hashes in their order, and stores in
// their order, each on a processor of its own.
type hasher struct {
	sum hash.Hash
	// fill is the buffer to be filled, of chunk bytes; nil before the first one.
	fill []byte
	free chan []byte
	made int // buffers
	// hashed and stored are closed once the last piece is, nil before there is one.
	hashed, stored chan struct{}
	failed         atomic.Pointer[error] // the first error of storing
}

func newHasher() *hasher { return &hasher{sum: sha512.New(), free: make(chan []byte, pieces)} }

// room is the buffer to be filled. It waits until there is one.
func (h *hasher) room() []byte {
	switch {
	case h.fill != nil:
	case h.made < pieces:
		h.fill = buffer()
		h.made++
	default:
		h.fill = <-h.free
	}
	return h.fill
}

// add hashes the first n bytes of the buffer, and has store, if any, called with all of it beside
// that; nothing more is stored after an error. It returns the error of an earlier piece.
func (h *hasher) add(n int, store func(buffer []byte) error) error {
	p, users := h.fill, new(atomic.Int32)
	users.Store(2)
	h.fill = nil
	done := func() {
		if users.Add(-1) == 0 {
			h.free <- p
		}
	}
	h.hashed = after(h.hashed, func() {
		h.sum.Write(p[:n])
		done()
	})
	h.stored = after(h.stored, func() {
		if store != nil && h.failed.Load() == nil {
			if err := store(p); err != nil {
				h.failed.Store(&err)
			}
		}
		done()
	})
	return h.err()
}

// after does something on its own goroutine, when that before has been closed.
func after(before <-chan struct{}, do func()) chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		if before != nil {
			<-before
		}
		do()
	}()
	return done
}

func (h *hasher) err() error {
	if err := h.failed.Load(); err != nil {
		return *err
	}
	return nil
}

// wait returns when nothing is being hashed or stored, with the error of storing.
func (h *hasher) wait() error {
	for _, done := range []chan struct{}{h.hashed, h.stored} {
		if done != nil {
			<-done
		}
	}
	return h.err()
}

// text is the checksum of all that was added.
func (h *hasher) text() string {
	if h.hashed != nil {
		<-h.hashed
	}
	return hex.EncodeToString(h.sum.Sum(nil))
}
