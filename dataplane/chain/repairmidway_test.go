package chain_test

import (
	"bytes"
	"testing"

	"ankole.storage/dataplane/chain"
	"ankole.storage/dataplane/disk"
	"ankole.storage/dataplane/disk/memdisk"
)

// A repair brings blocks into a snapshot's file that it has lost. Whatever it has written when it
// fails, the block map knows of it: zeroes at the head are not made by a hole above it.
func TestRepairThatFailsMidwayIsKnown(t *testing.T) {
	for _, hidden := range []bool{false, true} {
		for seed := range 40 {
			w, fs := newWorld(t, mib)
			w.fill(0, 65536, 3)
			if !hidden {
				w.zero(0, 65536)
			}
			w.snapshot("old")
			if hidden {
				w.must(w.c.Discard(0, 65536))
			}
			w.snapshot("base") // of which the blocks are lost
			w.fill(0, 32768, 2)
			for range seed {
				w.fill(mib-4096, 4096, 1) // what a failing write leaves depends on what has happened
			}
			v := w.view("base")
			stop := fs.Inject(memdisk.Rule{Op: memdisk.OpWrite, Name: chain.SnapshotFile("base"), Err: disk.ErrIO,
				Partial: true})
			_, err := v.Repair(0, bytes.Repeat([]byte{1}, 65536))
			wantErr(t, err, disk.ErrIO)
			stop()
			w.must(w.c.CheckMap())
			w.zero(0, 65536)
			w.wantByte(0, 65536, 0)
			w.must(v.Close())
			w.must(w.c.CheckMap())
			w.reopen()
			w.wantByte(0, 65536, 0)
			w.must(w.c.Close())
		}
	}
}
