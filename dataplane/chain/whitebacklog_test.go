package chain_test

import (
	"fmt"
	"testing"

	"ankole.storage/dataplane/disk/memdisk"
)

// However much was discarded since the last flush, or snapshot: a flush, the one after it and a
// snapshot write a bounded number of pages, since requests wait for all of that.
func TestWhiteoutsAreNeverFarBehind(t *testing.T) {
	const (
		page  = 64 * mib
		pages = 600
		most  = 300 // changes of the disk, a page written being one
	)
	for name, after := range map[string]func(w *world) error{
		"flush":               func(w *world) error { return nil },
		"flush after a flush": func(w *world) error { return w.c.Sync() },
	} {
		t.Run(name, func(t *testing.T) {
			w, fs := newWorld(t, pages*page)
			for n := range int64(pages) {
				w.fill(n*page, 4096, 1)
			}
			w.snapshot("a")
			discard := func() {
				t.Helper()
				for n := range int64(pages) {
					if err := costs(fs, most, func() error { return w.c.Discard(n*page, 4096) }); err != nil {
						t.Fatalf("discard %d: %v", n, err)
					}
				}
			}
			discard()
			w.must(after(w))
			if err := costs(fs, most, w.c.Sync); err != nil {
				t.Error(err)
			}
			w.must(w.c.CheckMap())
			w.snapshot("b")
			for n := range int64(pages) {
				w.fill(n*page, 4096, 2)
			}
			w.snapshot("c")
			discard()
			w.must(after(w))
			if err := costs(fs, most, func() error {
				return w.c.Snapshot("d", true, "2026-11-21T08:00:00Z", nil)
			}); err != nil {
				t.Error(err)
			}
			w.reopen()
			for n := range int64(pages) {
				w.wantByte(n*page, 4096, 0)
			}
			w.must(w.c.CheckMap())
		})
	}
}

// costs does something and fails if it takes more changes of the disk.
func costs(fs *memdisk.FS, most int64, do func() error) error {
	before := fs.Changes()
	if err := do(); err != nil {
		return err
	}
	if n := fs.Changes() - before; n > most {
		return fmt.Errorf("%d changes, %d at most are expected", n, most)
	}
	return nil
}
