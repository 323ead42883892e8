package chain_test

import (
	"errors"
	"strings"
	"testing"

	"ankole.storage/dataplane/chain"
	"ankole.storage/dataplane/disk"
	"ankole.storage/dataplane/disk/memdisk"
)

// metaWorld is a directory that was used and closed: snapshots of a live chain and of a branch,
// labels, whiteouts, a record.
func metaWorld(t *testing.T) (*world, *memdisk.FS, []string) {
	w, fs := sidecarWorld(t)
	w.open()
	w.fill(0, 65536, 1)
	w.snapshot("a")
	w.fill(0, 4096, 2)
	w.must(w.c.Snapshot("b", true, "2026-01-01T00:00:00Z", map[string]string{"label": "\xff"}))
	w.must(w.c.Revert("a", ""))
	w.must(w.c.Discard(8192, 4096))
	w.fill(4096, 4096, 3)
	w.must(w.c.Close())
	var metas []string
	names, err := fs.List(w.dir)
	w.must(err)
	for _, name := range names {
		if strings.HasSuffix(name, ".meta") && strings.HasPrefix(name, "volume") {
			metas = append(metas, name)
		}
	}
	if len(metas) != 4 {
		t.Fatalf("%v", metas)
	}
	return w, fs, metas
}

// contents is what the directory says and holds.
func (w *world) contents() string {
	list, err := w.c.Snapshots()
	w.must(err)
	record, ok := w.c.Record()
	if !ok {
		w.t.Error("there is no record")
	}
	var b strings.Builder
	for _, s := range list {
		b.WriteString(s.Name + " " + s.Parent + " " + s.Created + " " + s.Labels["label"] + "\n")
	}
	b.WriteString(record.Self)
	b.Write(w.read(0, 65536))
	return b.String()
}

// A metadata file that the disk cannot read, or that has rotted, is read from its copy and made
// whole by the next open.
func TestDamagedMetadataIsMended(t *testing.T) {
	damages := map[string]func(fs *memdisk.FS, name string) error{
		"unreadable": func(fs *memdisk.FS, name string) error { return fs.Unreadable(name, 0, 4096) },
		"no JSON":    func(fs *memdisk.FS, name string) error { return fs.Rot(name, 0, 20) },
		"another digit": func(fs *memdisk.FS, name string) error {
			data, err := fs.ReadFile(name, mib)
			if err != nil {
				return err
			}
			return fs.Rot(name, int64(strings.IndexByte(string(data), ':')+3), 1)
		},
	}
	for what, damage := range damages {
		_, _, metas := metaWorld(t)
		for _, name := range metas {
			t.Run(what+" "+name, func(t *testing.T) {
				w, fs, _ := metaWorld(t)
				w.open()
				want := w.contents()
				w.must(w.c.Close())
				w.must(damage(fs, "/r/"+name))
				if info, err := chain.Inspect(fs, w.dir); err != nil || info.SizeBytes != 64*mib || info.Dirty {
					t.Errorf("inspected: %+v, %v", info, err)
				}
				spec := testSpec(64 * mib)
				w.must(chain.Create(fs, w.dir, spec, w.opts)) // it is there
				w.open()
				if w.contents() != want {
					t.Error("the directory says something else")
				}
				w.must(w.c.CheckMap())
				w.must(w.c.Close())
				w.must(fs.Remove("/r/ankole.meta"))
				w.open()
				if w.contents() != want {
					t.Error("the file was not made whole")
				}
				w.must(w.c.Close())
			})
		}
	}
}

// A copy says nothing about another file than the one that it is of, whoever has replaced that.
func TestCopyOfWhatWasReplaced(t *testing.T) {
	replaced := map[string]func(w *world, fs *memdisk.FS){
		"by a process that was killed": func(w *world, _ *memdisk.FS) {
			w.open()
			w.snapshot("c")
			w.must(w.c.Abandon())
		},
		"by another engine": func(w *world, fs *memdisk.FS) {
			data, err := fs.ReadFile("/r/volume.meta", mib)
			w.must(err)
			w.must(fs.WriteFileAtomic("/r/volume.meta", data))
		},
		"by a person": func(w *world, fs *memdisk.FS) {
			f, err := fs.Open("/r/volume.meta", 0)
			w.must(err)
			_, err = f.WriteAt([]byte("{"), 0)
			w.must(errors.Join(err, f.Close()))
		},
		"and the copy has rotted": func(w *world, fs *memdisk.FS) { w.must(fs.Rot("/r/ankole.meta", 100, 1)) },
	}
	for name, replace := range replaced {
		t.Run(name, func(t *testing.T) {
			w, fs, _ := metaWorld(t)
			replace(w, fs)
			w.must(fs.Unreadable("/r/volume.meta", 0, 4096))
			_, err := chain.Open(fs, w.dir, w.opts)
			wantErr(t, err, disk.ErrIO)
			fs.Readable()
			w.open()
			w.must(w.c.Close())
		})
	}
}

// Copying changes nothing of what a directory is, however far it comes, and needs no room.
func TestCrashDuringCopyMeta(t *testing.T) {
	base, fs, _ := metaWorld(t)
	base.open()
	want := base.contents()
	base.must(base.c.Abandon())
	for step, done := int64(0), false; !done; step++ {
		w := *base
		w.fs = fs.Crash(0)
		w.openOnly()
		w.mem().CrashAfter(step)
		done = w.c.CopyMeta() == nil
		for seed := range crashSeeds {
			x := w
			x.fs, x.opts = w.mem().Crash(outcome(step, seed)), testOptions()
			x.open()
			if x.contents() != want {
				t.Fatalf("step %d, seed %d: the directory says something else", step, seed)
			}
			x.must(x.c.Close())
		}
	}
	base.openOnly()
	fs.SetCapacity(fs.Used())
	if err := base.c.CopyMeta(); err == nil || base.c.MetaStale() || base.c.State() == chain.StateError {
		t.Errorf("on a full disk: %v, stale %v, %s", err, base.c.MetaStale(), base.c.State())
	}
	base.must(base.c.Close())
}
