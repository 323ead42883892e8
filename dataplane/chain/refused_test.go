package chain_test

import (
	"testing"

	"ankole.storage/dataplane/chain"
	"ankole.storage/dataplane/disk"
	"ankole.storage/dataplane/disk/memdisk"
)

// A directory that is refused is as it was, with everything in it that an open would clear: a
// person may need it. (Where only something outside of it is missing, a purge that was cut off has
// been finished, which loses nothing.)
func TestRefusedOpenChangesNothing(t *testing.T) {
	for name, c := range map[string]struct {
		breakIt func(w *world, fs *memdisk.FS)
		want    error
	}{
		"a snapshot is missing": {func(w *world, fs *memdisk.FS) { w.must(fs.Remove(image("a"))) }, chain.ErrCorrupt},
		"its metadata is missing": {func(w *world, fs *memdisk.FS) {
			w.must(fs.Remove(image("a") + ".meta"))
		}, chain.ErrCorrupt},
		"no backing file": {func(w *world, _ *memdisk.FS) { w.opts.BackingFile = "/none" }, disk.ErrNotFound},
		"extents cannot be listed": {func(_ *world, fs *memdisk.FS) {
			fs.Inject(memdisk.Rule{Op: memdisk.OpExtents, Err: disk.ErrUnsupported})
		}, disk.ErrUnsupported},
	} {
		t.Run(name, func(t *testing.T) {
			w, fs := strayBase(t)
			w.image("volume-head-000.img", 9)
			w.put("volume-head-000.img.meta", headMeta(""))
			w.giveUp("volume-head-000.img")
			w.put("volume.meta.tmp", "{")
			if c.want == chain.ErrCorrupt {
				w.image("volume-snap-s.img", 7)
				w.must(fs.Link(image("s"), image("x")))
				w.put("volume-snap-s.img.meta", `{"Parent":"volume-snap-a.img","Removed":true}`)
				w.put("volume-snap-x.img.meta", `{"Parent":"volume-snap-s.img"}`)
			}
			c.breakIt(w, fs)
			before := dump(t, fs)
			_, err := chain.Open(fs, w.dir, w.opts)
			wantErr(t, err, c.want)
			fs.ClearRules()
			if after := dump(t, fs); after != before {
				t.Errorf("the refused open changed the directory:\n%s\n%s", before, after)
			}
		})
	}
}
