package keeper

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ankole.storage/host/listener"
	"ankole.storage/host/patience"
	"ankole.storage/test/wait"
)

// endsWithin checks that nobody has the write end of a pipe any more.
func endsWithin(t *testing.T, r *os.File, what string) {
	t.Helper()
	if err := r.SetReadDeadline(time.Now().Add(patience.Of(wait.Limit))); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		if errors.Is(err, os.ErrDeadlineExceeded) {
			wait.RanOut(t, what)
		}
		t.Errorf("%s: the device is still kept (%v): its users hang until block-device-wait is over", what, err)
	}
}

// lastWords are what an engine says to a keeper that does not serve yet, before it is killed:
// orders about its device, of which r is the other end.
func lastWords(t *testing.T, orders ...string) (l listener.Unix, r *os.File) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "k")
	l, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	w, r := pipe(t)
	conn, err := dial(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, order := range orders {
		var fds []int
		if order == opKeep {
			fds = []int{int(w.Fd())}
		}
		o := Owner{Volume: "v", Engine: "v-e-0"}
		if err := send(conn, o.request(order, json.RawMessage(`1`)), fds); err != nil {
			t.Fatal(err)
		}
	}
	w.Close()
	conn.Close()
	return l, r
}

// TestAbandonedBeforeItIsRead: an engine gives its device to the keeper and is killed; its end is
// seen, and it is deleted for good (ProcessDelete.last), before the keeper's goroutine has come to
// the message (a busy node, or an instance manager that was stopped for a moment). What it said
// before its end counts for nothing after that: the device ends now.
func TestAbandonedBeforeItIsRead(t *testing.T) {
	l, r := lastWords(t, opKeep)
	s := NewServer(slog.New(slog.DiscardHandler), time.Hour)
	s.Abandon("v", "v-e-0") // process.Config.Gone
	serveOn(t, s, l)
	endsWithin(t, r, "abandoned before the keeper has read its message")
}

// TestAbandonedWhileItComesFromTheSecondHolder: an instance manager was started anew; the next
// engine asks for its device, which the second holder has and is slow to give. The volume is
// detached meanwhile, and the engine ends for good. The device comes after that, and waits for an
// engine that does not follow.
func TestAbandonedWhileItComesFromTheSecondHolder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "second")
	l, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	other := NewServer(slog.New(slog.DiscardHandler), time.Hour)
	w, r := pipe(t)
	fd, err := unix.FcntlInt(w.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	w.Close()
	// It waits there since the instance manager before was killed.
	other.kept["v"] = &device{fds: []int{fd}, state: json.RawMessage(`1`), engine: "v-e-0", wait: time.Hour}

	s := NewServer(slog.New(slog.DiscardHandler), time.Hour).WithSecond(path)
	first := serve(t, s)
	conn, err := dial(first)
	if err != nil {
		t.Fatal(err)
	}
	o := Owner{Volume: "v", Engine: "v-e-0"}
	if err := send(conn, o.request(opTake, nil), nil); err != nil {
		t.Fatal(err)
	}
	asked := func() bool { // the second holder does not answer yet
		if !s.second.mu.TryLock() {
			return true
		}
		s.second.mu.Unlock()
		return false
	}
	wait.Until(t, "the second holder is asked", asked)
	conn.Close()            // the engine is killed
	s.Abandon("v", "v-e-0") // and deleted for good
	serveOn(t, other, l)    // the second holder goes on
	endsWithin(t, r, "abandoned while it came from the second holder")
}

// TestAbandonedWithTheSecondHolder: an instance manager was started anew, and no engine has asked
// it for the device, which the second holder alone has, before the volume is detached.
func TestAbandonedWithTheSecondHolder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "second")
	l, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	other := NewServer(slog.New(slog.DiscardHandler), time.Hour)
	w, r := pipe(t)
	fd, err := unix.FcntlInt(w.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	w.Close()
	other.kept["v"] = &device{fds: []int{fd}, state: json.RawMessage(`1`), engine: "v-e-0", wait: time.Hour}
	serveOn(t, other, l)
	s := NewServer(slog.New(slog.DiscardHandler), time.Hour).WithSecond(path)
	serve(t, s)
	s.Abandon("v", "v-e-0")
	endsWithin(t, r, "abandoned while the second holder alone has it")
}

func serveOn(t *testing.T, s *Server, l listener.Unix) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); s.Serve(ctx, l) }()
	t.Cleanup(func() { cancel(); <-ended })
}

// TestDropBehindAKeepThatWasTooLate: an engine has its device kept anew over its connection, as in
// a live upgrade, and the instance manager is stopped just then: no answer within 5 s. The engine
// gives up what is kept (unkeep), which is not what it uses, and has no answer to that either. When
// the instance manager goes on it carries the first order out, cannot answer it, takes that for the
// end of the engine, and never reads the second one: the device is an orphan with a living engine,
// which believes that nothing is kept. When that engine takes its frontend away (an order, or an
// engine that is stopped to be started anew) whoever has the device open hangs.
func TestDropBehindAKeepThatWasTooLate(t *testing.T) {
	l, r := lastWords(t, opKeep, opDrop) // what Held.Keep and then Held.Drop send when nobody answers in time
	serveOn(t, NewServer(slog.New(slog.DiscardHandler), time.Hour), l)
	endsWithin(t, r, "dropped behind a Keep that was too late")
}
