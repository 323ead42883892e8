package files

import (
	"context"
	"strings"
	"testing"
	"time"

	"ankole.storage/dataplane/backingimage"
	"ankole.storage/dataplane/backingimage/store"
	"ankole.storage/dataplane/disk"
	"ankole.storage/dataplane/disk/memdisk"
	"ankole.storage/dataplane/disk/osdisk"
	"ankole.storage/test/wait"
)

// TestRotIsFound: a file that has changed on the disk, by no write, and one that cannot be read any
// more, are served no longer; the others are.
func TestRotIsFound(t *testing.T) {
	t.Parallel()
	for what, rot := range map[string]func(*testing.T, *memdisk.FS, string){
		"changed": func(t *testing.T, fs *memdisk.FS, name string) {
			before, err := fs.Stat(name)
			if err != nil {
				t.Fatal(err)
			}
			f, err := fs.Open(name, 0)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := f.WriteAt([]byte("x"), 100); err != nil {
				t.Fatal(err)
			}
			if err := fs.Utime(name, before.MTime.UnixNano()); err != nil {
				t.Fatal(err)
			}
		},
		"cannot be read": func(_ *testing.T, fs *memdisk.FS, _ string) {
			fs.Inject(memdisk.Rule{Op: memdisk.OpRead, Name: "backing", Times: 1, Err: disk.ErrIO})
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			fs, d, s := newSet(t)
			other := backingimage.ID{Name: "other", UUID: "0a1b2c3d"}
			ready(t, d, s, id) // the first by name
			ready(t, d, s, other)
			ended := make(chan struct{})
			if err := s.Send(id, func(ctx context.Context, _ disk.File, _ Image) error {
				<-ctx.Done()
				close(ended)
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			rot(t, fs, backingimage.InManager("/data", id).File)
			s.Scrub(Scrubbing{Look: time.Millisecond, Pause: time.Microsecond})
			wait.Until(t, "the file has failed", func() bool { return s.state(id) == "failed" })
			wait.Receive(t, "its transfer has ended", ended)
			if err := s.Read(t.Context(), id, nil); err == nil {
				t.Error("it is still served")
			}
			if i, err := s.Get(other); err != nil || i.File.State != backingimage.Ready {
				t.Errorf("the other one: %+v, %v", i, err)
			}
			if i, err := s.Get(id); err != nil || i.File.Message == "" || strings.Contains(i.File.Message, "canceled") {
				t.Errorf("%+v, %v", i, err)
			}
		})
	}
}

// TestScrubIsDue some time after a file was made, and after it was read.
func TestScrubIsDue(t *testing.T) {
	t.Parallel()
	d := store.New(osdisk.New(nil), t.TempDir(), "", quiet)
	s := New(d, false, quiet)
	defer s.Close()
	if !s.due(id, time.Now()) {
		t.Error("a file without a record is not read")
	}
	m := newMaking(d, id)
	close(m.end)
	before := time.Now().Add(-time.Minute) // the clock of files is not this one
	if _, _, err := s.Order(id, "", "", m.run); err != nil {
		t.Fatal(err)
	}
	wait.Until(t, "the file is ready", func() bool { return s.state(id) == "ready" })
	if s.due(id, before) || !s.due(id, time.Now().Add(time.Minute)) {
		t.Error("a file that was just made")
	}
	past, err := d.LastRead(backingimage.InManager(d.Root(), id))
	if err != nil {
		t.Fatal(err)
	}
	s.scrub(id, time.Microsecond)
	if now, err := d.LastRead(backingimage.InManager(d.Root(), id)); err != nil || !now.After(past) {
		t.Errorf("read, and last read at %v, before at %v, %v", now, past, err)
	}
}
