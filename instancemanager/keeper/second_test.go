package keeper

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// holds waits until a server keeps the device of a volume in this state, or none for "".
func holds(t *testing.T, s *Server, volume, state string) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(20 * time.Second); ; <-tick.C {
		s.mu.Lock()
		got := ""
		if d := s.kept[volume]; d != nil {
			got = string(d.state)
		}
		s.mu.Unlock()
		if got == state {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the second holder has %q, want %q", got, state)
		}
	}
}

// TestDeviceOutlivesItsKeeper: what one server keeps is held by the second one too, as it is at the
// moment. When the first one has been killed together with its engines the next one of the node has
// the device from the second one, which holds it on. One that is dropped is dropped there too.
func TestDeviceOutlivesItsKeeper(t *testing.T) {
	other := NewServer(slog.New(slog.DiscardHandler), time.Hour)
	second := serve(t, other)
	next := func() (socket string, kill func()) {
		s := NewServer(slog.New(slog.DiscardHandler), time.Hour).WithSecond(second)
		return serve(t, s), func() {
			// As the kernel does with a process that is killed: connections end, nothing is told.
			s.second.mu.Lock()
			s.second.hangUp()
			s.second.socket = "/nowhere"
			s.second.mu.Unlock()
		}
	}
	w, _ := pipe(t)
	o := Owner{Volume: "demo", Engine: "e"}
	first, kill := next()
	h, err := Keep(first, o, json.RawMessage(`1`), int(w.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	w.Close()
	holds(t, other, "demo", `1`)
	other.mu.Lock()
	fd, err := unix.FcntlInt(uintptr(other.kept["demo"].fds[0]), unix.F_DUPFD_CLOEXEC, 0)
	other.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Keep(json.RawMessage(`2`), fd); err != nil {
		t.Fatal(err)
	}
	unix.Close(fd)
	holds(t, other, "demo", `2`)
	elsewhere, _ := next()
	if _, _, _, err := Take(elsewhere, o); !errors.Is(err, ErrNone) {
		t.Errorf("another instance manager of the node is given a device whose own lives: %v", err)
	}
	kill()
	again, _ := next()
	taken, state, fds, err := Take(again, o)
	if err != nil || string(state) != `2` || len(fds) != 1 {
		t.Fatalf("taken: %s, %d descriptors, %v", state, len(fds), err)
	}
	if err := taken.Keep(json.RawMessage(`3`), fds...); err != nil {
		t.Fatal(err)
	}
	closeAll(fds)
	holds(t, other, "demo", `3`)
	h.conn.Close()
	if err := taken.Drop(); err != nil {
		t.Fatal(err)
	}
	holds(t, other, "demo", "")
}

// TestSecondHolderIsToldAgain: one that is started anew has everything soon.
func TestSecondHolderIsToldAgain(t *testing.T) {
	dir := t.TempDir()
	s := NewServer(slog.New(slog.DiscardHandler), time.Hour).WithSecond(dir + "/s")
	first := serve(t, s)
	w, _ := pipe(t)
	if _, err := Keep(first, Owner{Volume: "demo", Engine: "e"}, json.RawMessage(`1`), int(w.Fd())); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		l, err := Listen(dir + "/s")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		other, ended := NewServer(slog.New(slog.DiscardHandler), time.Hour), make(chan struct{})
		go func() { defer close(ended); other.Serve(ctx, l) }()
		holds(t, other, "demo", `1`)
		cancel()
		<-ended
	}
}
