package chain_test

import (
	"strings"
	"testing"

	"ankole.storage/dataplane/disk/memdisk"
)

// A metadata file with a bad sector becomes the reserve of a full disk, since it is replaced
// through the one before. It serves as that like any other: as often as needed and in the next
// process.
func TestFullDiskAndABadSectorOfMetadata(t *testing.T) {
	_, _, metas := metaWorld(t)
	for _, name := range metas {
		t.Run(name, func(t *testing.T) {
			w, fs, _ := metaWorld(t)
			w.open()
			want := w.contents()
			w.must(w.c.Close())
			w.must(fs.Unreadable("/r/"+name, 0, 4096))
			fs.SetCapacity(fs.Used())
			for range 3 {
				w.open()
				if w.contents() != want {
					t.Fatal("the directory says something else")
				}
				w.must(w.c.MarkRemoved("b"))
				w.must(w.c.Close())
				if info, err := fs.Stat("/r/ankole.reserve"); err != nil || info.Allocated < 4096 {
					t.Fatalf("the reserve is gone: %+v %v", info, err)
				}
			}
			fs.SetCapacity(0)
			w.open()
			w.must(w.c.Close())
		})
	}
}

// A reserve that the disk can neither read nor write costs what it is for, and no directory. Its
// own space is then what metadata is written to.
func TestReserveThatCannotBeWritten(t *testing.T) {
	const reserve = "/r/ankole.reserve"
	for name, break_ := range map[string]func(fs *memdisk.FS) error{
		"unreadable": func(fs *memdisk.FS) error { return fs.Unreadable(reserve, 0, 4096) },
		"unwritable": func(fs *memdisk.FS) error { return fs.Unwritable(reserve, 0, 4096) },
		"unwritable, and without its space": func(fs *memdisk.FS) error {
			f, err := fs.Open(reserve, 0)
			if err != nil {
				return err
			}
			if err := f.Punch(0, 4096); err != nil {
				return err
			}
			if err := fs.Unwritable(reserve, 0, 4096); err != nil {
				return err
			}
			return f.Close()
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, fs := newWorld(t, mib)
			w.fill(0, 65536, 1)
			w.snapshot("a")
			w.must(w.c.Close())
			w.must(break_(fs))
			w.open()
			if !strings.Contains(name, "without") {
				fs.SetCapacity(fs.Used())
			}
			w.must(w.c.MarkRemoved("a"))
			w.wantByte(0, 4096, 1)
			fs.SetCapacity(0)
			w.must(w.c.Close())
			w.open()
			if info, err := fs.Stat(reserve); err != nil || info.Allocated < 4096 {
				t.Fatalf("%+v %v", info, err)
			}
			w.must(w.c.Close())
		})
	}
}
