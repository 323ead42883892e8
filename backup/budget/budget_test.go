package budget

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ankole.storage/backup/object"
	"ankole.storage/backup/object/objecttest"
)

const mebi = 1 << 20

// clock is a machine's, on which nothing happens but waits.
type clock struct{ now time.Duration }

// worker is a process of its own on that machine.
func (c *clock) worker(t *testing.T, folder string, bytesPerSecond int64) *Budget {
	t.Helper()
	b, err := Open(folder, bytesPerSecond)
	if err != nil {
		t.Fatal(err)
	}
	b.now = func() time.Duration { return c.now }
	b.wait = func(ctx context.Context, d time.Duration) error {
		c.now += d
		return ctx.Err()
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

// TestRateOfANode: whatever workers take, together they take no more than the rate.
func TestRateOfANode(t *testing.T) {
	t.Parallel()
	c, folder := &clock{now: time.Hour}, t.TempDir()
	a, b := c.worker(t, folder, 10*mebi), c.worker(t, folder, 10*mebi)
	take := func(w *Budget, n int, want time.Duration) {
		t.Helper()
		if err := w.take(t.Context(), n); err != nil {
			t.Fatal(err)
		}
		if got := c.now - time.Hour; got.Round(time.Millisecond) != want {
			t.Errorf("%s have passed, want %s", got, want)
		}
	}
	take(a, 2*mebi, 200*time.Millisecond)
	take(b, 2*mebi, 400*time.Millisecond)
	take(a, 16*mebi, 2*time.Second)
	for range 100 { // they wait for nothing, and cost what they are
		take(b, 16<<10, 2*time.Second)
	}
	take(a, 2*mebi, 2*time.Second+200*time.Millisecond+156*time.Millisecond)
	c.now = 2 * time.Hour // what is not taken is not saved up
	take(b, 10*mebi, time.Hour+time.Second)
	slower := c.worker(t, folder, mebi)
	take(slower, 2*mebi, time.Hour+3*time.Second)
	take(a, 10*mebi, time.Hour+4*time.Second)
}

// TestQueue: of two that wait at a time the second one waits for both.
func TestQueue(t *testing.T) {
	t.Parallel()
	c, folder := &clock{}, t.TempDir()
	for i, w := range []*Budget{c.worker(t, folder, mebi), c.worker(t, folder, mebi)} {
		if d, err := w.spend(3 * mebi); err != nil || d != time.Duration(i+1)*3*time.Second {
			t.Errorf("number %d waits %s, %v", i, d, err)
		}
	}
}

// TestWhatNobodyHasWritten: a time of before the last start of the machine, or none at all, holds
// nobody up.
func TestWhatNobodyHasWritten(t *testing.T) {
	t.Parallel()
	c, folder := &clock{now: time.Minute}, t.TempDir()
	b := c.worker(t, folder, mebi)
	name := b.file.Name()
	spends := func(what string) {
		t.Helper()
		if d, err := b.spend(mebi); err != nil || d != time.Second {
			t.Errorf("%s: %s, %v", what, d, err)
		}
	}
	spends("a new file")
	b.boot = "00000000-0000-0000-0000-000000000000"
	spends("another start of the machine")
	for what, content := range map[string]string{"nothing": "", "text": strings.Repeat("what is this? ", 8),
		"far ahead": b.boot + " 09000000000000000000\n"} {
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		spends(what)
	}
	if fi, err := os.Stat(name); err != nil || fi.Mode().Perm() != 0o600 || filepath.Dir(name) != folder {
		t.Errorf("%v, %v", fi, err)
	}
}

// TestNoLimit: 0 bounds nothing and needs no file.
func TestNoLimit(t *testing.T) {
	t.Parallel()
	b, err := Open("/no/such/folder", 0)
	s := &objecttest.Memory{}
	if err != nil || b != nil || b.Limit(s) != object.Store(s) || b.Close() != nil {
		t.Errorf("%v, %v", b, err)
	}
	if _, err := Open("/no/such/folder", 1); err == nil {
		t.Error("a limit that cannot be shared is taken")
	}
}

// TestLimitedStore: a store with a budget is one, and takes what is read and written from it.
func TestLimitedStore(t *testing.T) {
	t.Parallel()
	c, folder := &clock{}, t.TempDir()
	objecttest.Suite(t, func(t *testing.T) object.Store {
		return c.worker(t, folder, 1<<40).Limit(&objecttest.Memory{})
	})
	c = &clock{}
	s := c.worker(t, t.TempDir(), mebi).Limit(&objecttest.Memory{})
	if err := s.Put(t.Context(), "a/b", make([]byte, 2*mebi)); err != nil || c.now != 2*time.Second {
		t.Errorf("%s, %v", c.now, err)
	}
	data, err := s.Get(t.Context(), "a/b", []byte("before"), 4*mebi)
	if err != nil || len(data) != 2*mebi+6 || c.now != 4*time.Second {
		t.Errorf("%d bytes, %s, %v", len(data), c.now, err)
	}
	if _, err := s.Get(t.Context(), "a/none", nil, mebi); !errors.Is(err, object.ErrNotFound) || c.now != 4*time.Second {
		t.Errorf("%s, %v", c.now, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Put(ctx, "a/c", make([]byte, mebi)); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if _, err := s.Stat(t.Context(), "a/c"); !errors.Is(err, object.ErrNotFound) {
		t.Errorf("it was written all the same: %v", err)
	}
}

// TestWaits: a wait ends with its context.
func TestWaits(t *testing.T) {
	t.Parallel()
	if err := sleep(t.Context(), time.Nanosecond); err != nil {
		t.Error(err)
	}
	cause := errors.New("the lock is lost")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	if err := sleep(ctx, time.Hour); !errors.Is(err, cause) {
		t.Error(err)
	}
	if a, b := monotonic(), monotonic(); a <= 0 || b < a {
		t.Errorf("%s, %s", a, b)
	}
}

// TestFolder: workers go by the folder that Pods of a node share, where there is one.
func TestFolder(t *testing.T) {
	node, tmp := t.TempDir(), t.TempDir()
	t.Setenv("TMPDIR", tmp)
	if got := Folder(func(p string) string { return filepath.Join(node, p) }); got != tmp {
		t.Errorf("without one: %s", got)
	}
	if got := Folder(func(string) string { return node }); got != node {
		t.Errorf("%s", got)
	}
}
