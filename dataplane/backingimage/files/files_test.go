package files

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"ankole.storage/dataplane/backingimage"
	"ankole.storage/dataplane/backingimage/content"
	"ankole.storage/dataplane/backingimage/store"
	"ankole.storage/dataplane/disk"
	"ankole.storage/dataplane/disk/memdisk"
	"ankole.storage/test/wait"
)

var (
	id    = backingimage.ID{Name: "cirros", UUID: "0a1b2c3d"}
	quiet = slog.New(slog.DiscardHandler)
)

func newSet(t *testing.T) (*memdisk.FS, *store.Disk, *Set) {
	t.Helper()
	fs := memdisk.New()
	if err := fs.Mkdir("/data"); err != nil {
		t.Fatal(err)
	}
	d := store.New(fs, "/data", "", quiet)
	s := New(d, false, quiet)
	t.Cleanup(s.Close)
	return fs, d, s
}

// making is a maker that writes, and waits at two places for the test.
type making struct {
	d          *store.Disk
	id         backingimage.ID
	begun, end chan struct{}
	err        error
}

func newMaking(d *store.Disk, id backingimage.ID) *making {
	return &making{d: d, id: id, begun: make(chan struct{}), end: make(chan struct{})}
}

func (m *making) run(ctx context.Context, run Run) (backingimage.Record, error) {
	run.Begun()
	f, err := m.d.Create(backingimage.InManager(m.d.Root(), m.id), m.id.UUID)
	if err != nil {
		return backingimage.Record{}, err
	}
	if _, err := f.ReadFrom(bytes.NewReader(make([]byte, 4096))); err != nil {
		return backingimage.Record{}, errors.Join(err, f.Abort())
	}
	run.Received(4096, 8192)
	close(m.begun)
	select {
	case <-m.end:
	case <-ctx.Done():
		return backingimage.Record{}, errors.Join(ctx.Err(), f.Abort())
	}
	if m.err != nil {
		return backingimage.Record{}, errors.Join(m.err, f.Abort())
	}
	return f.Publish("", content.Info{Format: content.Raw})
}

func (s *Set) state(id backingimage.ID) string {
	i, err := s.Get(id)
	if err != nil {
		return "none"
	}
	return string(i.File.State)
}

// ready has a file made.
func ready(t *testing.T, d *store.Disk, s *Set, id backingimage.ID) {
	t.Helper()
	m := newMaking(d, id)
	close(m.end)
	if _, _, err := s.Order(id, "", "", m.run); err != nil {
		t.Fatal(err)
	}
	wait.Until(t, "the file is ready", func() bool { return s.state(id) == "ready" })
}

// TestOrder: an order that is repeated changes nothing, one that contradicts is refused, and after
// a failure the next one begins anew.
func TestOrder(t *testing.T) {
	t.Parallel()
	_, d, s := newSet(t)
	m := newMaking(d, id)
	m.err = errors.New("no luck")
	if i, began, err := s.Order(id, "", "10.0.0.1:8000", m.run); err != nil || !began ||
		i.File.State != backingimage.Pending {
		t.Fatalf("%+v, %v, %v", i, began, err)
	}
	wait.Receive(t, "the run", m.begun)
	if i, began, err := s.Order(id, "", "", nil); err != nil || began || i.File.State != backingimage.InProgress ||
		i.File.Progress() != 50 || i.Sender != "10.0.0.1:8000" {
		t.Errorf("again: %+v, %v, %v", i, began, err)
	}
	close(m.end)
	wait.Until(t, "the failure", func() bool { return s.state(id) == "failed" })
	if i, err := s.Get(id); err != nil || !strings.Contains(i.File.Message, "no luck") {
		t.Errorf("%+v, %v", i, err)
	}
	ready(t, d, s, id)
	if _, _, err := s.Order(id, strings.Repeat("0", 128), "", nil); !errors.Is(err, ErrConflict) {
		t.Errorf("another checksum: %v", err)
	}
	for _, bad := range []struct {
		id  backingimage.ID
		sum string
	}{{backingimage.ID{Name: "../x", UUID: "0a1b2c3d"}, ""}, {id, "abc"}} {
		if _, _, err := s.Order(bad.id, bad.sum, "", nil); err == nil {
			t.Errorf("%+v is taken", bad)
		}
	}
}

// TestRemoveEndsARun, and returns when nothing of the file is left.
func TestRemoveEndsARun(t *testing.T) {
	t.Parallel()
	fs, d, s := newSet(t)
	m := newMaking(d, id)
	if _, _, err := s.Order(id, "", "", m.run); err != nil {
		t.Fatal(err)
	}
	wait.Receive(t, "the run", m.begun)
	if err := s.Remove(t.Context(), id, false); err != nil {
		t.Fatal(err)
	}
	if names, err := fs.List("/data/" + backingimage.Folder); err != nil || len(names) > 0 || s.state(id) != "none" {
		t.Errorf("%v, %v, %s", names, err, s.state(id))
	}
	if err := s.Remove(t.Context(), id, false); !errors.Is(err, backingimage.ErrUnknown) {
		t.Errorf("again: %v", err)
	}
	ready(t, d, s, id)
	if err := s.Remove(t.Context(), id, true); err != nil || s.state(id) != "none" {
		t.Errorf("forget: %v", err)
	}
	if _, err := fs.Stat(backingimage.InManager("/data", id).File); err != nil {
		t.Errorf("a file that is forgotten is gone: %v", err)
	}
}

// TestRemovalThatFails is told, and can be repeated.
func TestRemovalThatFails(t *testing.T) {
	t.Parallel()
	fs, d, s := newSet(t)
	ready(t, d, s, id)
	stop := fs.Inject(memdisk.Rule{Op: memdisk.OpRemove, Err: disk.ErrIO})
	if err := s.Remove(t.Context(), id, false); err == nil || s.state(id) != "failed" {
		t.Errorf("%v, %s", err, s.state(id))
	}
	stop()
	if err := s.Remove(t.Context(), id, false); err != nil || s.state(id) != "none" {
		t.Errorf("%v, %s", err, s.state(id))
	}
}

// TestReaders: a few are sent at a time, more are refused; a removal ends them, and waits for them.
func TestReaders(t *testing.T) {
	t.Parallel()
	_, d, s := newSet(t)
	none := func(context.Context, disk.File, Image) error { return nil }
	if err := s.Send(id, none); !errors.Is(err, backingimage.ErrUnknown) {
		t.Errorf("a file that is not known: %v", err)
	}
	ready(t, d, s, id)
	ended := make(chan error, MaxSends)
	for range MaxSends {
		if err := s.Send(id, func(ctx context.Context, f disk.File, i Image) error {
			<-ctx.Done()
			_, err := f.ReadAt(make([]byte, 4096), 0) // it is there until the last reader has ended
			ended <- err
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	if i, err := s.Get(id); err != nil || i.File.Sending != MaxSends {
		t.Errorf("%+v, %v", i, err)
	}
	if err := s.Send(id, none); !errors.Is(err, ErrBusy) {
		t.Errorf("one more: %v", err)
	}
	if err := s.Read(t.Context(), id, none); err != nil {
		t.Errorf("a download beside them: %v", err)
	}
	if err := s.Remove(t.Context(), id, false); err != nil {
		t.Fatal(err)
	}
	for range MaxSends {
		if err := wait.Receive(t, "the end of a reader", ended); err != nil {
			t.Error(err)
		}
	}
	ready(t, d, s, id)
	if err := s.Send(id, none); err != nil {
		t.Errorf("the slots did not come back: %v", err)
	}
}

// TestFound: a file with its record is ready at once; without, it is read first; one that has
// changed is failed and stays.
func TestFound(t *testing.T) {
	t.Parallel()
	fs, d, s := newSet(t)
	for n := range 3 {
		ready(t, d, s, backingimage.ID{Name: fmt.Sprint("image", n), UUID: "0a1b2c3d"})
	}
	path := func(n int) backingimage.Paths {
		return backingimage.InManager("/data", backingimage.ID{Name: fmt.Sprint("image", n), UUID: "0a1b2c3d"})
	}
	if err := fs.Remove(path(1).Record); err != nil {
		t.Fatal(err)
	}
	f, err := fs.Open(path(2).File, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("x"), 0); err != nil {
		t.Fatal(err)
	}
	later := New(d, false, quiet)
	defer later.Close()
	all, err := d.Scan()
	if err != nil || len(all) != 3 {
		t.Fatalf("%v, %v", all, err)
	}
	for _, found := range all {
		if err := later.Take(found); err != nil {
			t.Fatal(err)
		}
	}
	for n, want := range []string{"ready", "ready", "failed"} {
		wait.Until(t, "image "+fmt.Sprint(n)+" is "+want, func() bool { return later.state(all[n].ID) == want })
		if _, err := fs.Stat(path(n).File); err != nil {
			t.Errorf("image %d: %v", n, err)
		}
	}
	if got, err := d.Scan(); err != nil || !got[1].Proven {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestClose ends runs and readers, and takes nothing more.
func TestClose(t *testing.T) {
	t.Parallel()
	_, d, s := newSet(t)
	ready(t, d, s, id)
	if err := s.Send(id, func(ctx context.Context, _ disk.File, _ Image) error { <-ctx.Done(); return nil }); err != nil {
		t.Fatal(err)
	}
	other := backingimage.ID{Name: "other", UUID: "0a1b2c3d"}
	m := newMaking(d, other)
	if _, _, err := s.Order(other, "", "", m.run); err != nil {
		t.Fatal(err)
	}
	wait.Receive(t, "the run", m.begun)
	changed := s.Changed()
	s.Close()
	wait.Receive(t, "a change", changed)
	if s.state(other) != "failed" || s.state(id) != "ready" {
		t.Errorf("%s, %s", s.state(other), s.state(id))
	}
	if _, _, err := s.Order(other, "", "", m.run); err == nil {
		t.Error("an order after the end")
	}
	if err := s.Remove(t.Context(), id, false); err == nil {
		t.Error("a removal after the end")
	}
}
