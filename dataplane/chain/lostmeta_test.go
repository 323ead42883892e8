package chain_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"ankole.storage/dataplane/chain"
	"ankole.storage/dataplane/disk/memdisk"
)

// TestLostVolumeMeta: a crash of an engine that does not sync it may leave volume.meta empty, or
// not there. It is made anew where what is to be in it is clear.
func TestLostVolumeMeta(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(w *world, fs *memdisk.FS)
		opts    func(o *chain.Options)
		want    error
	}{
		"empty":   {func(w *world, fs *memdisk.FS) { w.put("volume.meta", "") }, nil, nil},
		"missing": {func(w *world, fs *memdisk.FS) { w.must(fs.Remove("/r/volume.meta")) }, nil, nil},
		"size not given": {func(w *world, fs *memdisk.FS) {
			w.put("volume.meta", "")
		}, func(o *chain.Options) { o.Size = 0 }, chain.ErrInvalid},
		"an empty second head": {func(w *world, fs *memdisk.FS) {
			w.put("volume.meta", "")
			w.image("volume-head-000.img", 0)
		}, nil, nil},
		"two heads with data": {func(w *world, fs *memdisk.FS) {
			w.put("volume.meta", "")
			w.image("volume-head-000.img", 9)
		}, nil,
			chain.ErrCorrupt},
		"two heads, one chosen": {func(w *world, fs *memdisk.FS) {
			w.put("volume.meta", "")
			w.image("volume-head-000.img", 9)
		},
			func(o *chain.Options) { o.RecoverHead = "volume-head-001.img" }, nil},
		"a head that is not there": {func(w *world, fs *memdisk.FS) { w.put("volume.meta", "") },
			func(o *chain.Options) { o.RecoverHead = "volume-head-007.img" }, chain.ErrNotFound},
		"no head either": {func(w *world, fs *memdisk.FS) {
			w.put("volume.meta", "")
			w.must(fs.Remove("/r/volume-head-001.img"))
		}, nil, chain.ErrNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			w, fs := strayBase(t)
			w.must(fs.Remove("/r/ankole.member")) // an engine of another kind has had it alone
			c.prepare(w, fs)
			w.opts.Size = mib
			if heads, _ := fs.List("/r"); slices.Contains(heads, "volume-head-001.img") {
				// Creating leaves it to opening: there is data.
				w.must(chain.Create(fs, "/r", testSpec(mib), w.opts))
			}
			if c.opts != nil {
				c.opts(&w.opts)
			}
			got, err := chain.Open(fs, "/r", w.opts)
			if c.want != nil {
				wantErr(t, err, c.want)
				if n := fs.OpenFiles(); n != 0 {
					t.Fatalf("%d files left open", n)
				}
				return
			}
			w.must(err)
			w.c = got
			w.wantByte(0, 4096, 1)
			w.wantByte(4096, 4096, 2)
			if _, valid := w.c.Record(); valid {
				t.Error("the record of a recovered directory is valid")
			}
			if _, err := readRaw(fs, "/r", false); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestLostVolumeMetaOfOurs: beside a member record an empty or missing volume.meta is damage. It is
// named, nothing is written, however often it is tried, and what was there before is good again;
// only a person who names the head goes on without it.
func TestLostVolumeMetaOfOurs(t *testing.T) {
	for name, written := range map[string]bool{"empty": true, "missing": true, "empty, never written to": false} {
		t.Run(name, func(t *testing.T) {
			w, fs := newWorld(t, mib)
			if written {
				w.must(w.write(0, bytes.Repeat([]byte{1}, 4096)))
			}
			w.must(w.c.Close())
			whole, err := fs.ReadFile("/r/volume.meta", 1<<20)
			w.must(err)
			w.opts.Size = mib
			if name == "missing" {
				w.must(fs.Remove("/r/volume.meta"))
			} else {
				w.put("volume.meta", "")
			}
			damaged, err := fs.List("/r")
			w.must(err)
			for range 3 {
				err := chain.Create(fs, "/r", testSpec(mib), w.opts)
				if err == nil {
					_, err = chain.Open(fs, "/r", w.opts)
				}
				wantErr(t, err, chain.ErrCorrupt)
				if !strings.Contains(err.Error(), "/r/volume.meta is missing or empty") {
					t.Fatal(err)
				}
			}
			if now, _ := fs.List("/r"); !slices.Equal(now, damaged) {
				t.Fatalf("files %v, before the tries %v", now, damaged)
			}
			if data, err := fs.ReadFile("/r/volume.meta", 1<<20); err == nil && len(data) > 0 {
				t.Fatalf("volume.meta was written over: %s", data)
			}
			w.put("volume.meta", string(whole))
			w.open()
			if _, valid := w.c.Record(); !valid {
				t.Error("the record is void once volume.meta is back")
			}
			if written {
				w.wantByte(0, 4096, 1)
			}
			w.must(w.c.Close())
			w.put("volume.meta", "")
			w.opts.RecoverHead = "volume-head-000.img"
			w.openOnly()
			w.must(w.c.Close())
		})
	}
}
