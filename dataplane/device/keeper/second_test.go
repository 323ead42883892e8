package keeper

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ankole.storage/host/listener"
	"ankole.storage/test/wait"
)

// holds waits until a server keeps the device of a volume in this state, or none for "".
func holds(t *testing.T, s *Server, volume, state string) {
	t.Helper()
	wait.For(t, "state of the second holder", func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		got := ""
		if d := s.kept[volume]; d != nil {
			got = string(d.state)
		}
		if got != state {
			return fmt.Errorf("it has %q, want %q", got, state)
		}
		return nil
	})
}

// TestDeviceOutlivesItsKeeper: what one server keeps is held by the second one too, as it is at the
// moment. When the first one has been killed together with its engines the next one of the node has
// the device from the second one, which holds it on. One that is dropped is dropped there too.
func TestDeviceOutlivesItsKeeper(t *testing.T) {
	other := NewServer(slog.New(slog.DiscardHandler), time.Hour)
	second := serve(t, other)
	next := func() (socket string, kill func()) {
		s := NewServer(slog.New(slog.DiscardHandler), time.Hour).WithSecond(second)
		s.second.ends = 0
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
	if _, _, _, err := Take(elsewhere, o); !errors.Is(err, ErrOwned) {
		t.Errorf("another instance manager of the node, where the device's own lives, hears: %v", err)
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

// TestTakeWaitsForTheEndOfTheOwner: the engine of an instance manager that is about to end is
// started in the one beside it before it has ended. It has the device as soon as that has.
func TestTakeWaitsForTheEndOfTheOwner(t *testing.T) {
	other := NewServer(slog.New(slog.DiscardHandler), time.Hour)
	second := serve(t, other)
	_, old, end := serveUntil(t, func(s *Server) { s.WithSecond(second) })
	s, beside, _ := serveUntil(t, func(s *Server) { s.WithSecond(second) })
	s.second.ends = time.Hour
	w, _ := pipe(t)
	o := Owner{Volume: "demo", Engine: "e"}
	if _, err := Keep(old, o, json.RawMessage(`1`), int(w.Fd())); err != nil {
		t.Fatal(err)
	}
	w.Close()
	holds(t, other, "demo", `1`)
	asked := make(chan error, 1)
	go func() {
		r := o.request(opTake, nil)
		asked <- s.second.take(&r)
	}()
	wait.For(t, "the one beside it has asked", func() error {
		other.mu.Lock()
		defer other.mu.Unlock()
		if len(other.conns) < 2 {
			return fmt.Errorf("%d connections", len(other.conns))
		}
		return nil
	})
	end()
	if err := wait.Receive(t, "the answer", asked); err != nil {
		t.Fatal(err)
	}
	h, state, fds, err := Take(beside, o)
	if err != nil || string(state) != `1` || len(fds) != 1 {
		t.Fatalf("taken: %s, %d descriptors, %v", state, len(fds), err)
	}
	closeAll(fds)
	if err := h.Drop(); err != nil {
		t.Fatal(err)
	}
}

// TestEndDoesNotWaitForAnotherOwner: a server that ends waits for no device that another one of the
// node owns.
func TestEndDoesNotWaitForAnotherOwner(t *testing.T) {
	other := NewServer(slog.New(slog.DiscardHandler), time.Hour)
	second := serve(t, other)
	_, owner, _ := serveUntil(t, func(s *Server) { s.WithSecond(second) })
	s, beside, end := serveUntil(t, func(s *Server) { s.WithSecond(second) })
	s.second.ends = time.Hour
	w, _ := pipe(t)
	o := Owner{Volume: "demo", Engine: "e"}
	if _, err := Keep(owner, o, json.RawMessage(`1`), int(w.Fd())); err != nil {
		t.Fatal(err)
	}
	w.Close()
	holds(t, other, "demo", `1`)
	asked := make(chan error, 1)
	go func() {
		_, _, _, err := Take(beside, o)
		asked <- err
	}()
	wait.For(t, "both are known to the second holder", func() error {
		other.mu.Lock()
		defer other.mu.Unlock()
		if len(other.conns) < 2 {
			return fmt.Errorf("%d connections", len(other.conns))
		}
		return nil
	})
	end()
	if err := wait.Receive(t, "the answer", asked); err == nil || errors.Is(err, ErrNone) {
		t.Errorf("the engine that asked hears: %v", err)
	}
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

// TestOrderlyEndLeavesDevicesToTheSecondHolder: a server that ends in order drops nothing that it
// keeps, whether or not the engine lives: the second holder has all of it as it was last, and gives
// it to the next server. What was dropped or given up before is dropped there too, and engines are
// named only as long as the second holder has their devices.
func TestOrderlyEndLeavesDevicesToTheSecondHolder(t *testing.T) {
	other, second, endOther := serveUntil(t, nil)
	s, first, end := serveUntil(t, func(s *Server) { s.WithSecond(second) })
	if held := s.HeldElsewhere(); len(held) > 0 {
		t.Errorf("held before anything is kept: %v", held)
	}
	keep := func(volume string) (*Held, *os.File, *os.File) {
		w, r := pipe(t)
		h, err := Keep(first, Owner{Volume: volume, Engine: volume + "-e-0"}, json.RawMessage(`1`), int(w.Fd()))
		if err != nil {
			t.Fatal(err)
		}
		holds(t, other, volume, `1`)
		return h, w, r
	}
	serves, w, _ := keep("serves")
	orphan, ow, _ := keep("orphan")
	dropped, dw, dropping := keep("dropped")
	_, aw, abandoning := keep("abandoned")
	holdsElsewhere(t, s, "abandoned-e-0", "dropped-e-0", "orphan-e-0", "serves-e-0")
	orphan.conn.Close()
	ow.Close()
	dw.Close()
	aw.Close()
	// The second holder is not told of these before the end, unless it has been already.
	if err := serves.Keep(json.RawMessage(`2`), int(w.Fd())); err != nil {
		t.Fatal(err)
	}
	w.Close()
	if err := dropped.Drop(); err != nil {
		t.Fatal(err)
	}
	s.Abandon("abandoned", "abandoned-e-0")
	end()
	holds(t, other, "serves", `2`)
	holds(t, other, "orphan", `1`)
	holds(t, other, "dropped", "")
	holds(t, other, "abandoned", "")
	eof(t, dropping)
	eof(t, abandoning)

	next, again, _ := serveUntil(t, func(s *Server) { s.WithSecond(second) })
	for volume, state := range map[string]string{"serves": `2`, "orphan": `1`} {
		_, got, fds, err := Take(again, Owner{Volume: volume, Engine: volume + "-e-0"})
		if err != nil || string(got) != state || len(fds) != 1 {
			t.Fatalf("taken: %s, %d descriptors, %v", got, len(fds), err)
		}
		closeAll(fds)
	}
	holdsElsewhere(t, next, "orphan-e-0", "serves-e-0")
	endOther()
	holdsElsewhere(t, next)
}

// holdsElsewhere waits until a server names these engines.
func holdsElsewhere(t *testing.T, s *Server, want ...string) {
	t.Helper()
	wait.For(t, "devices of the second holder", func() error {
		if got := slices.Sorted(maps.Keys(s.HeldElsewhere())); !slices.Equal(got, want) {
			return fmt.Errorf("it has those of %v, want %v", got, want)
		}
		return nil
	})
}

// serveUntil serves until end is called.
func serveUntil(t *testing.T, change func(*Server)) (s *Server, socket string, end func()) {
	t.Helper()
	s = NewServer(slog.New(slog.DiscardHandler), time.Hour)
	if change != nil {
		change(s)
	}
	l, err := Listen(filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); s.Serve(ctx, l) }()
	end = func() { cancel(); <-ended }
	t.Cleanup(end)
	return s, l.Addr().String(), end
}

// TestDroppedWhileTheSecondHolderIsAway: what is dropped while the second holder cannot be told is
// dropped there when it can, and not kept until an engine has been waited for. What another
// instance manager has got from there meanwhile stays, and keeps nothing else from being told.
func TestDroppedWhileTheSecondHolderIsAway(t *testing.T) {
	other := NewServer(slog.New(slog.DiscardHandler), time.Hour)
	socket := serve(t, other)
	s := NewServer(slog.New(slog.DiscardHandler), time.Hour).WithSecond(socket)
	first := serve(t, s)
	w, _ := pipe(t)
	held := map[string]*Held{}
	for _, volume := range []string{"dropped", "moved", "kept"} {
		h, err := Keep(first, Owner{Volume: volume, Engine: volume}, json.RawMessage(`1`), int(w.Fd()))
		if err != nil {
			t.Fatal(err)
		}
		held[volume] = h
		holds(t, other, volume, `1`)
	}
	s.second.mu.Lock() // nobody tells it anything
	s.second.hangUp()
	elsewhere := NewServer(slog.New(slog.DiscardHandler), time.Hour).WithSecond(socket)
	var err error
	taken, _, fds, err := Take(serve(t, elsewhere), Owner{Volume: "moved", Engine: "elsewhere"})
	if err == nil {
		closeAll(fds)
		err = taken.Keep(json.RawMessage(`2`), int(w.Fd()))
	}
	for _, volume := range []string{"dropped", "moved"} {
		err = errors.Join(err, held[volume].Drop())
	}
	err = errors.Join(err, held["kept"].Keep(json.RawMessage(`2`), int(w.Fd())))
	s.second.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	holds(t, other, "kept", `2`)
	holds(t, other, "dropped", "")
	holds(t, other, "moved", `2`)
	s.second.tell()
	s.second.mu.Lock()
	defer s.second.mu.Unlock()
	if len(s.second.told) != 1 {
		t.Errorf("the second holder is still to be told of %v", s.second.told)
	}
}

// TestTakenFromTheSecondHolderAndDropped: a device comes from the second holder to an engine that
// gives it up at once, since another engine has served the volume meanwhile. Nothing of that was
// told by then. It ends with the second holder too, which would keep it for as long as this process
// lives.
func TestTakenFromTheSecondHolderAndDropped(t *testing.T) {
	other := NewServer(slog.New(slog.DiscardHandler), time.Hour)
	socket := serve(t, other)
	w, _ := pipe(t)
	h, err := Keep(socket, Owner{Volume: "v", Engine: "before"}, json.RawMessage(`1`), int(w.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Leave(); err != nil { // with the instance manager
		t.Fatal(err)
	}
	s := NewServer(slog.New(slog.DiscardHandler), time.Hour).WithSecond(socket) // it tells nobody by itself
	if err := s.fetch(&request{Op: opTake, Volume: "v", Engine: "after"}); err != nil {
		t.Fatal(err)
	}
	a, fds := s.handle(nil, &request{Op: opTake, Volume: "v", Engine: "after"}, nil)
	closeAll(fds)
	if a.Error != "" || len(fds) != 1 {
		t.Fatalf("%+v, %d descriptors", a, len(fds))
	}
	if a, _ = s.handle(nil, &request{Op: opDrop, Volume: "v", Engine: "after"}, nil); a.Error != "" {
		t.Fatal(a.Error)
	}
	if s.second.tell() {
		t.Error("there is more to tell")
	}
	holds(t, other, "v", "")
}

// TestSecondHolderBehindALongPath: the kernel takes 107 bytes for the path of a socket; a folder
// with a longer name, as that of a standalone cluster may have, makes no difference.
func TestSecondHolderBehindALongPath(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("long", 30))
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	l, err := Listen(filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	other := NewServer(slog.New(slog.DiscardHandler), time.Hour)
	serveOn(t, other, l)
	s := NewServer(slog.New(slog.DiscardHandler), time.Hour).WithSecond(filepath.Join(dir, "s"))
	w, _ := pipe(t)
	if _, err := Keep(serve(t, s), Owner{Volume: "demo", Engine: "e"}, json.RawMessage(`1`), int(w.Fd())); err != nil {
		t.Fatal(err)
	}
	holds(t, other, "demo", `1`)
}

// TestHolderThatCannotBeThere: an engine for which a device may be kept with the second holder
// starts without one where there can be none, and is told to come again where there may be one.
func TestHolderThatCannotBeThere(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	stream, err := listener.ListenUnix("unix", filepath.Join(dir, "stream"))
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	for _, socket := range []string{"/nowhere/s", file, file + "/s", filepath.Join(dir, "stream"),
		filepath.Join(dir, strings.Repeat("x", 120)), filepath.Join(dir, strings.Repeat("x", 300))} {
		s := NewServer(slog.New(slog.DiscardHandler), 0).WithSecond(socket)
		if _, _, _, err := Take(serve(t, s), Owner{Volume: "demo", Engine: "e"}); !errors.Is(err, ErrNone) {
			t.Errorf("%.60s: %v", socket, err)
		}
	}
	for reason, no := range map[error]bool{unix.EMFILE: false, unix.ENOMEM: false, unix.EAGAIN: false, unix.EACCES: true} {
		if got := isNoWay(fmt.Errorf("%w: %w", errNoDial, reason)); got != no {
			t.Errorf("%v while dialling: %v", reason, got)
		}
	}
	if isNoWay(unix.EINVAL) {
		t.Error("an error after dialling says that nothing is there")
	}
}
