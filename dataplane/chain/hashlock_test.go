package chain_test

import (
	"errors"
	"testing"

	"ankole.storage/dataplane/chain"
)

// One file at a time is read on a disk; what is known already is told without that.
func TestHashLock(t *testing.T) {
	w, fs := hashWorld(t)
	w.hash("a", false)
	locked := func() bool {
		l, err := w.c.HashLocked()
		w.must(err)
		return l
	}
	other, err := fs.Lock("/") // a replica beside it on the disk
	w.must(err)
	if !locked() {
		t.Error("the lock is not seen")
	}
	if r := w.hash("a", false); !r.Reused {
		t.Errorf("%+v", r)
	}
	if _, err := w.c.NewHash("b", false); !errors.Is(err, chain.ErrInUse) {
		t.Errorf("beside another computation: %v", err)
	}
	w.must(other.Close())
	h, err := w.c.NewHash("b", false)
	w.must(err)
	if _, err := w.c.NewHash("c", false); !errors.Is(err, chain.ErrInUse) || !locked() {
		t.Errorf("two at a time: %v", err)
	}
	w.must(h.Close())
	if locked() {
		t.Error("the lock is not given back")
	}
	if _, err = w.c.NewHash("c", false); err != nil { // left open: the end of the chain gives it back
		t.Fatal(err)
	}
	w.must(w.c.Abandon())
	if other, err = fs.Lock("/"); err != nil {
		t.Fatal(err)
	}
	w.must(other.Close())
}
