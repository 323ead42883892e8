package memdisk_test

import (
	"bytes"
	"testing"

	"ankole.storage/dataplane/disk/memdisk"
)

// page returns a page of one letter.
func page(letter string) []byte { return bytes.Repeat([]byte(letter), 4096) }

// TestSyncCoversWhatItWasSubmittedAfter: a sync that is under way makes durable what was written
// before it was submitted. What is written before it completes may be lost, and what was there then
// may not.
func TestSyncCoversWhatItWasSubmittedAfter(t *testing.T) {
	type world struct {
		t    *testing.T
		fs   *memdisk.FS
		file interface {
			WriteAt(p []byte, off int64) (int, error)
			Punch(off, n int64) error
			Sync() error
			Handle() int32
		}
	}
	write := func(w *world, letter string, at int64) {
		w.t.Helper()
		_, err := w.file.WriteAt(page(letter), at*4096)
		must(w.t, err)
	}
	begin := func(w *world) *memdisk.Syncing {
		w.t.Helper()
		s, ok := w.fs.BeginSync(w.file.Handle())
		if !ok {
			w.t.Fatal("no such file")
		}
		return s
	}
	for _, c := range []struct {
		name string
		play func(w *world)
		// want are the letters of page 0 that may be found after a crash; "0" is zeroes.
		want []string
	}{
		{"written before", func(w *world) { write(w, "a", 0); s := begin(w); must(w.t, s.Complete()) }, []string{"a"}},
		{"written meanwhile", func(w *world) {
			write(w, "a", 0)
			s := begin(w)
			write(w, "b", 0)
			must(w.t, s.Complete())
		}, []string{"a", "b", "mixed"}},
		{"only written meanwhile", func(w *world) {
			write(w, "a", 1)
			s := begin(w)
			write(w, "b", 0)
			must(w.t, s.Complete())
		}, []string{"0", "b"}},
		{"punched meanwhile", func(w *world) {
			write(w, "a", 0)
			s := begin(w)
			must(w.t, w.file.Punch(0, 4096))
			must(w.t, s.Complete())
		}, []string{"0", "a"}},
		{"punched before", func(w *world) {
			write(w, "a", 0)
			must(w.t, w.file.Sync())
			must(w.t, w.file.Punch(0, 4096))
			s := begin(w)
			must(w.t, s.Complete())
		}, []string{"0"}},
		{"not completed", func(w *world) { write(w, "a", 0); begin(w) }, []string{"0", "a"}},
		{"abandoned", func(w *world) { write(w, "a", 0); begin(w).Abandon() }, []string{"0", "a"}},
		{"the later one first", func(w *world) {
			write(w, "a", 0)
			s := begin(w)
			write(w, "b", 0)
			later := begin(w)
			must(w.t, later.Complete())
			must(w.t, s.Complete())
		}, []string{"b"}},
		{"another sync meanwhile", func(w *world) {
			write(w, "a", 0)
			s := begin(w)
			write(w, "b", 0)
			must(w.t, w.file.Sync())
			must(w.t, s.Complete())
		}, []string{"b"}},
		{"written again afterwards", func(w *world) {
			write(w, "a", 0)
			s := begin(w)
			write(w, "b", 0)
			must(w.t, s.Complete())
			write(w, "c", 0)
			s = begin(w)
			write(w, "d", 0)
			must(w.t, s.Complete())
		}, []string{"c", "d", "mixed"}},
		{"another sync fails and forgets", func(w *world) {
			write(w, "a", 0)
			s := begin(w)
			stop, err := w.fs.InjectText("sync * forget times 1")
			must(w.t, err)
			if w.file.Sync() == nil {
				w.t.Error("the sync succeeds")
			}
			stop()
			must(w.t, s.Complete())
		}, []string{"0", "a"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			fs := memdisk.New()
			f := create(t, fs, "/f")
			must(t, f.Truncate(8192))
			must(t, f.Sync())
			must(t, fs.SyncDir("/"))
			c.play(&world{t, fs, f})
			wantOutcomes(t, outcomes(fs, func(fs *memdisk.FS) string {
				p := make([]byte, 4096)
				must(t, fs.Peek("/f", p, 0))
				switch {
				case bytes.Equal(p, make([]byte, 4096)):
					return "0"
				case bytes.Equal(p, page(string(p[:1]))):
					return string(p[:1])
				}
				return "mixed"
			}), c.want...)
		})
	}
}
