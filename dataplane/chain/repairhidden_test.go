package chain_test

import (
	"bytes"
	"testing"

	"ankole.storage/dataplane/chain"
	"ankole.storage/dataplane/disk"
	"ankole.storage/dataplane/disk/memdisk"
)

// A repair of an old snapshot does not show through what newer ones hide, whatever a purge has done
// to these: not at the head, and not to a reader who has a newer one open.
func TestRepairBelowAMergeStaysHidden(t *testing.T) {
	for name, finish := range map[string]bool{"merge complete": false, "merge in place": true} {
		t.Run(name, func(t *testing.T) {
			w, fs := newWorld(t, mib)
			w.fill(0, 65536, 1)
			w.snapshot("base")
			w.must(w.c.Discard(0, 32768))
			w.snapshot("gone")
			w.must(w.c.Discard(32768, 32768))
			w.snapshot("kept")
			reader := w.view("kept")
			w.must(w.c.MarkRemoved("gone"))
			p, err := w.c.NewPurge()
			w.must(err)
			step, _ := p.Next()
			for done := false; !done; {
				w.must(p.Note(w.c.Sidecars, &step))
				done, err = p.Work(&step, w.c.DurableWhiteouts(step.Whiteouts()))
				w.must(err)
			}
			if finish {
				w.must(finishStep(w.c, p, &step))
			}
			w.must(fs.Rot("/r/"+chain.SnapshotFile("base"), 0, 65536))
			v := w.view("base")
			r, err := v.Repair(0, bytes.Repeat([]byte{1}, 65536))
			w.must(err)
			w.must(v.Close())
			reader.Blocks.Repaired(r)
			w.must(w.c.CheckMap())
			w.wantByte(0, 65536, 0)
			got := make([]byte, 65536)
			_, err = reader.ReadAt(got, 0)
			w.must(err)
			if !bytes.Equal(got, make([]byte, 65536)) {
				t.Fatal("a reader of a newer snapshot sees what it hides")
			}
			w.must(reader.Close())
		})
	}
}

// So it is with what a repair has written before it failed.
func TestFailedRepairStaysHidden(t *testing.T) {
	w, fs := newWorld(t, mib)
	w.fill(0, 65536, 1)
	w.snapshot("base")
	w.must(w.c.Discard(0, 65536))
	w.snapshot("kept")
	for _, off := range []int64{0, 8192} {
		w.must(fs.Rot("/r/"+chain.SnapshotFile("base"), off, 1))
	}
	v := w.view("base")
	stop := fs.Inject(memdisk.Rule{Op: memdisk.OpWrite, Name: chain.SnapshotFile("base"), Skip: 1, Err: disk.ErrNoSpace})
	r, err := v.Repair(0, bytes.Repeat([]byte{1}, 65536))
	wantErr(t, err, disk.ErrNoSpace)
	stop()
	if len(r.Written) != 1 {
		t.Fatalf("written %v", r.Written)
	}
	w.must(v.Close())
	w.must(w.c.CheckMap())
	w.wantByte(0, 65536, 0)
}
