package sim

import (
	"bytes"
	"fmt"
	"time"

	"ankole.storage/dataplane/block"
)

// Check is something that must hold when everything is healed and idle.
type Check struct {
	Name string
	Do   func(r *run) error
}

const identical = "identical replicas"

// Checks are made in this order; the last one ends the engine.
var Checks []Check

func init() {
	Checks = []Check{
		{"content", (*run).checkContent},
		{identical, (*run).checkIdentical},
		{"account of absences", (*run).checkAccounts},
		{"scrub", (*run).checkScrub},
		{"snapshots", (*run).checkSnapshots},
		{"memory", (*run).checkMemory},
	}
}

// checkPiece is how much is read at once.
const checkPiece = 16 << 10

// pieces calls fn for every piece of the volume that was ever written to, and some that were not.
func (r *run) pieces(fn func(off, n int64) error) error {
	seen := map[int64]bool{}
	at := []int64{0, r.size - 1}
	for off := int64(0); off < r.v.Image.Size; off += r.v.Image.Size/16 + 1 {
		at = append(at, off)
	}
	for _, s := range r.check.Touched {
		at = append(at, s*block.SectorSize)
	}
	for _, off := range at {
		off -= off % checkPiece
		if seen[off] {
			continue
		}
		seen[off] = true
		if err := fn(off, min(checkPiece, r.size-off)); err != nil {
			return err
		}
	}
	return nil
}

// checkContent reads through the engine what was ever written.
func (r *run) checkContent() error {
	return r.pieces(func(off, n int64) error {
		done := false
		began := r.w.Now()
		e := r.v.Current
		e.front.Submit(&Call{Kind: block.Read, Off: off, Len: n, Done: func(code block.Code, data []byte) {
			done = true
			if code != block.OK {
				r.check.Fail(off/block.SectorSize, "read at %d of a healthy volume: %s", off, code)
				return
			}
			r.check.Read(began, r.w.Now(), off, data)
		}})
		if !r.w.Until(time.Minute, func() bool { return done }) {
			return fmt.Errorf("read at %d of a healthy volume hangs", off)
		}
		return r.check.Err
	})
}

// checkIdentical compares the content of all replicas.
func (r *run) checkIdentical() error {
	a, b := make([]byte, checkPiece), make([]byte, checkPiece)
	return r.pieces(func(off, n int64) error {
		first := r.v.Replicas[0]
		if _, err := first.Chain().ReadAt(a[:n], off); err != nil {
			return err
		}
		for _, x := range r.v.Replicas[1:] {
			if _, err := x.Chain().ReadAt(b[:n], off); err != nil {
				return err
			}
			if at := differ(a[:n], b[:n]); at >= 0 {
				r.check.At = (off + at) / block.SectorSize
				return fmt.Errorf("replicas %s and %s differ at %d although both are RW", first.Name, x.Name, off+at)
			}
		}
		return nil
	})
}

// checkAccounts: what replicas know about an absence covers everything that differs, so that a
// rebuild looks in the right places. One that does not is noticed at its end and made good by the
// next, at the price of reading everything.
func (r *run) checkAccounts() error {
	if r.v.Unequal > 0 {
		return fmt.Errorf("%d rebuilds ended in other content than their source's", r.v.Unequal)
	}
	return nil
}

// differ returns where a and b differ first, -1 if nowhere.
func differ(a, b []byte) int64 {
	if bytes.Equal(a, b) {
		return -1
	}
	for i := range a {
		if a[i] != b[i] {
			return int64(i)
		}
	}
	return -1
}
