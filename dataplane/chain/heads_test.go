package chain_test

import (
	"strings"
	"testing"

	"ankole.storage/dataplane/chain"
	"ankole.storage/dataplane/disk"
	"ankole.storage/dataplane/disk/memdisk"
)

// TestHeadThatNoEngineWrote: a directory in which two heads hold data, or whose head is not as long
// as the volume, is refused with both in the reason, and nothing in it is changed.
func TestHeadThatNoEngineWrote(t *testing.T) {
	edit := func(w *world, old, text string) {
		p, err := w.fs.ReadFile(w.dir+"/volume.meta", 1<<20)
		w.must(err)
		if !strings.Contains(string(p), old) {
			t.Fatalf("no %s in %s", old, p)
		}
		w.put("volume.meta", strings.Replace(string(p), old, text, 1))
	}
	for name, c := range map[string]struct {
		do   func(w *world)
		says []string
	}{
		"another head is named": {func(w *world) {
			w.image("volume-head-009.img", 9)
			w.put("volume-head-009.img.meta", headMeta("volume-snap-a.img"))
			edit(w, `"Head":"volume-head-001.img"`, `"Head":"volume-head-009.img"`)
		}, []string{"volume-head-009.img", "volume-head-001.img"}},
		"in both keys": {func(w *world) {
			w.image("volume-head-009.img", 9)
			w.put("volume-head-009.img.meta", headMeta("volume-snap-a.img"))
			edit(w, `"Head":"volume-head-001.img"`, `"Head":"volume-head-009.img"`)
			edit(w, `"AnkoleHead":"volume-head-001.img"`, `"AnkoleHead":"volume-head-009.img"`)
		}, []string{"volume-head-009.img", "volume-head-001.img", "both hold data"}},
		"as if another engine had": {func(w *world) {
			w.image("volume-head-009.img", 9)
			w.put("volume-head-009.img.meta", headMeta("volume-snap-a.img"))
			w.put("volume.meta", strings.Replace(foreignMeta, "head-001", "head-009", 1))
		}, []string{"volume-head-009.img", "volume-head-001.img", "both hold data"}},
		"a second head lies there": {func(w *world) { w.image("volume-head-000.img", 9) },
			[]string{"volume-head-000.img", "volume-head-001.img", "both hold data"}},
		"the head on another snapshot": {func(w *world) { w.put("volume-head-001.img.meta", headMeta("")) },
			[]string{"volume-snap-a.img", "volume-head-001.img.meta"}},
		"a larger volume": {func(w *world) { edit(w, `"Size":1048576`, `"Size":2097152`) },
			[]string{"2097152", "1048576", "volume-head-001.img"}},
		"a smaller volume": {func(w *world) { edit(w, `"Size":1048576`, `"Size":524288`) },
			[]string{"524288", "1048576", "volume-head-001.img"}},
	} {
		t.Run(name, func(t *testing.T) {
			w, fs := strayBase(t)
			w.open()
			w.must(w.c.WriteRecord(chain.Record{VolumeUUID: testUUID, Epoch: 1, Generation: 1, State: chain.MemberRW,
				Self: "v-1", Members: []chain.Member{{Name: "v-1"}}}))
			w.must(w.c.Close())
			w.unseal()
			c.do(w)
			before := dump(t, fs)
			_, err := chain.Open(fs, w.dir, w.opts)
			wantErr(t, err, chain.ErrCorrupt)
			for _, text := range c.says {
				if err != nil && !strings.Contains(err.Error(), text) {
					t.Errorf("%v does not say %s", err, text)
				}
			}
			if after := dump(t, fs); after != before {
				t.Errorf("the refused open changed the directory:\n%s\n%s", before, after)
			}
		})
	}
}

// TestHeadLeftByARevert: a revert that is cut off after its commit leaves the head that it gave up,
// with what is in it. It is known as such.
func TestHeadLeftByARevert(t *testing.T) {
	w, fs := strayBase(t)
	w.open()
	stop, err := fs.InjectText("remove volume-head-* eio")
	w.must(err)
	w.must(w.c.Revert("a", "2026-11-21T09:00:00Z"))
	w.snapshot("b")
	w.must(w.c.Abandon())
	stop()
	names, err := fs.List(w.dir)
	w.must(err)
	if !strings.Contains(strings.Join(names, " "), "volume-head-001.img ") {
		t.Fatalf("nothing is left: %v", names)
	}
	w.open()
	w.wantByte(0, 8192, 1)
	if names, _ = fs.List(w.dir); strings.Contains(strings.Join(names, " "), "volume-head-001.img ") {
		t.Errorf("the head that was given up stays: %v", names)
	}
}

// unseal has a directory that was closed taken as it is, whatever is done to it.
func (w *world) unseal() {
	w.t.Helper()
	w.must(w.fs.Remove(w.dir + "/ankole.meta"))
}

// giveUp makes a head one that a revert has left.
func (w *world) giveUp(head string) {
	w.t.Helper()
	p, err := w.fs.ReadFile(w.dir+"/volume.meta", 1<<20)
	w.must(err)
	w.put("volume.meta", strings.Replace(string(p), "{", `{"AnkoleGivenUp":["`+head+`"],`, 1))
}

// An old head's name that could not be removed is gone before the snapshot that is the same file
// is: else it would look like a head with data that nobody knows.
func TestOldHeadThatCouldNotBeRemoved(t *testing.T) {
	w, fs := newWorld(t, mib)
	w.fill(0, 4096, 1)
	w.snapshot("a")
	w.fill(4096, 4096, 2)
	stop := fs.Inject(memdisk.Rule{Op: memdisk.OpRemove, Name: "volume-head-001.img", Err: disk.ErrIO})
	w.snapshot("b")
	w.fill(8192, 4096, 3)
	w.snapshot("c")
	w.must(w.c.MarkRemoved("a"))
	wantErr(t, w.c.Purge(nil), disk.ErrIO)
	w.must(w.c.Abandon())
	stop()
	w.open()
	w.must(w.c.Purge(nil))
	w.reopen()
	for i := range int64(3) {
		w.wantByte(i*4096, 4096, byte(i+1))
	}
	w.must(w.c.Close())
}
