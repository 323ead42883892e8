package keeper

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ankole.storage/host/patience"
	"ankole.storage/test/wait"
)

// start runs a server and returns its socket.
func start(t *testing.T, wait time.Duration) string {
	t.Helper()
	return serve(t, NewServer(slog.New(slog.DiscardHandler), wait))
}

func serve(t *testing.T, s *Server) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "keep") // short: unix sockets have short paths
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "k.sock")
	l, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var work sync.WaitGroup
	work.Go(func() { s.Serve(ctx, l) })
	t.Cleanup(func() {
		cancel()
		work.Wait()
	})
	return path
}

// pipe returns a descriptor to keep, and a reader that ends when the last duplicate of it is
// closed.
func pipe(t *testing.T) (w, r *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	return w, r
}

// eof waits for the end of r.
func eof(t *testing.T, r *os.File) {
	t.Helper()
	if err := r.SetReadDeadline(time.Now().Add(patience.Of(wait.Limit))); err != nil {
		t.Fatal(err)
	}
	n, err := r.Read(make([]byte, 1))
	late := errors.Is(err, os.ErrDeadlineExceeded)
	if late {
		wait.RanOut(t, "the end of the descriptor")
	}
	if n != 0 || late {
		t.Errorf("the descriptor is still open: %d %v", n, err)
	}
}

// orphaned ends an engine as a kill does, and waits until the server knows.
func orphaned(t *testing.T, socket, volume string, h *Held) (*Held, json.RawMessage, []int) {
	t.Helper()
	h.conn.Close()
	var next *Held
	var state json.RawMessage
	var fds []int
	wait.For(t, "the server knows that the engine has ended", func() (err error) {
		if next, state, fds, err = Take(socket, Owner{Volume: volume, Engine: "e"}); err != nil && !errors.Is(err, ErrInUse) {
			t.Fatal(err)
		}
		return err
	})
	return next, state, fds
}

// TestSuccessorTakesOver: whatever becomes of the first engine's descriptor, its successor's is the
// same file, with the state.
func TestSuccessorTakesOver(t *testing.T) {
	socket := start(t, 0)
	w, r := pipe(t)
	first, err := Keep(socket, Owner{Volume: "demo", Engine: "e"}, json.RawMessage(`{"loop":3}`), int(w.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	if _, _, _, err := Take(socket, Owner{Volume: "demo", Engine: "e"}); !errors.Is(err, ErrInUse) {
		t.Errorf("a living engine's device: %v", err)
	}
	if _, err := Keep(socket, Owner{Volume: "demo", Engine: "e"}, nil, int(w.Fd())); !errors.Is(err, ErrInUse) {
		t.Errorf("a living engine's device is replaced: %v", err)
	}
	w.Close()
	second, state, fds := orphaned(t, socket, "demo", first)
	if string(state) != `{"loop":3}` {
		t.Errorf("state %s", state)
	}
	if len(fds) != 1 {
		t.Fatalf("%d descriptors", len(fds))
	}
	taken := os.NewFile(uintptr(fds[0]), "taken")
	if _, err := taken.WriteString("x"); err != nil {
		t.Error(err)
	}
	if n, err := r.Read(make([]byte, 1)); n != 1 || err != nil {
		t.Errorf("%d %v", n, err)
	}
	taken.Close()
	// And again: the instance manager has kept its own.
	third, _, fds := orphaned(t, socket, "demo", second)
	closeAll(fds)
	if err := third.Drop(); err != nil {
		t.Fatal(err)
	}
	eof(t, r)
	if _, _, _, err := Take(socket, Owner{Volume: "demo", Engine: "e"}); !errors.Is(err, ErrNone) {
		t.Errorf("after the drop: %v", err)
	}
}

// TestTwoDescriptors are kept and found again in their order, and replaced by their owner.
func TestTwoDescriptors(t *testing.T) {
	socket := start(t, 0)
	w1, r1 := pipe(t)
	w2, r2 := pipe(t)
	first, err := Keep(socket, Owner{Volume: "demo", Engine: "e"}, nil, int(w1.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Keep(json.RawMessage(`{"loop":4}`), int(w2.Fd()), int(w1.Fd())); err != nil {
		t.Fatal(err)
	}
	w1.Close()
	w2.Close()
	second, state, fds := orphaned(t, socket, "demo", first)
	if len(fds) != 2 || string(state) != `{"loop":4}` {
		t.Fatalf("%d descriptors, state %s", len(fds), state)
	}
	for i, r := range []*os.File{r2, r1} {
		f := os.NewFile(uintptr(fds[i]), "taken")
		if _, err := f.WriteString("x"); err != nil {
			t.Error(err)
		}
		if n, err := r.Read(make([]byte, 1)); n != 1 || err != nil {
			t.Errorf("descriptor %d: %d %v", i, n, err)
		}
		f.Close()
	}
	if err := second.Drop(); err != nil {
		t.Fatal(err)
	}
	eof(t, r1)
	eof(t, r2)
}

// TestOrphanIsGivenUp: a device that nobody takes is closed after the time that its last owner
// named, so that its I/O fails instead of hanging for ever.
func TestOrphanIsGivenUp(t *testing.T) {
	const short = time.Millisecond
	for name, row := range map[string]struct{ server, first, second time.Duration }{
		"no time is named":           {server: short},
		"the owner's time":           {first: short},
		"the time of the last owner": {server: time.Hour, first: time.Hour, second: short},
	} {
		t.Run(name, func(t *testing.T) {
			socket := start(t, row.server)
			w, r := pipe(t)
			o := Owner{Volume: "demo", Engine: "e", Wait: row.first}
			h, err := Keep(socket, o, nil, int(w.Fd()))
			if err != nil {
				t.Fatal(err)
			}
			w.Close()
			h.conn.Close()
			if row.second != 0 {
				o.Wait = row.second
				next, _, fds, err := Take(socket, o)
				if err != nil {
					t.Fatal(err)
				}
				closeAll(fds)
				next.conn.Close()
			}
			eof(t, r)
		})
	}
}

// TestEndClosesAll: the end of the instance manager ends what it keeps.
func TestEndClosesAll(t *testing.T) {
	w, r := pipe(t)
	t.Run("server", func(t *testing.T) {
		if _, err := Keep(start(t, 0), Owner{Volume: "demo", Engine: "e"}, nil, int(w.Fd())); err != nil {
			t.Fatal(err)
		}
		w.Close()
	})
	eof(t, r)
}

// TestBadMessages change nothing and leave no descriptor open.
func TestBadMessages(t *testing.T) {
	socket := start(t, 0)
	w, r := pipe(t)
	for _, row := range []struct {
		r    request
		fds  []int
		says string
	}{
		{request{Op: "fly", Volume: "demo"}, []int{int(w.Fd())}, "unknown request"},
		{request{Op: opKeep, Volume: "demo"}, nil, "descriptor"},
		{request{Op: opKeep}, []int{int(w.Fd()), int(w.Fd())}, "no volume"},
		{request{Op: opKeep, Volume: "demo"}, []int{int(w.Fd()), int(w.Fd()), int(w.Fd())}, "EOF"},
		{request{Op: opDrop, Volume: "demo"}, nil, "demo"},
	} {
		conn, err := dial(socket)
		if err != nil {
			t.Fatal(err)
		}
		h := &Held{conn: conn}
		if _, _, err := h.ask(row.r, row.fds...); err == nil || !strings.Contains(err.Error(), row.says) {
			t.Errorf("%+v: %v", row.r, err)
		}
		conn.Close()
	}
	garbage, err := dial(socket)
	if err != nil {
		t.Fatal(err)
	}
	if err := send(garbage, "not a request", []int{int(w.Fd())}); err != nil {
		t.Fatal(err)
	}
	garbage.Close()
	if _, err := Keep(socket, Owner{Volume: "demo"}, json.RawMessage(`"`+strings.Repeat("x", maxMessage)+`"`),
		int(w.Fd())); err == nil {
		t.Error("a message that is too long is sent")
	}
	w.Close()
	eof(t, r)
	if _, _, _, err := Take(socket, Owner{Volume: "demo", Engine: "e"}); !errors.Is(err, ErrNone) {
		t.Errorf("something is kept: %v", err)
	}
	nobody := filepath.Join(filepath.Dir(socket), "no.sock")
	if _, err := Keep(nobody, Owner{Volume: "demo"}, nil, 0); !errors.As(err, new(*net.OpError)) {
		t.Errorf("no instance manager: %v", err)
	}
}

// TestAbandon: the device of an engine that ends for good ends with it, whether its end was seen on
// the connection or not; those of others stay.
func TestAbandon(t *testing.T) {
	s := NewServer(slog.New(slog.DiscardHandler), 0)
	socket := serve(t, s)
	readers := map[string]*os.File{}
	held := map[string]*Held{}
	for _, volume := range []string{"orphan", "owned", "other"} {
		w, r := pipe(t)
		h, err := Keep(socket, Owner{Volume: volume, Engine: volume + "-e-0"}, nil, int(w.Fd()))
		if err != nil {
			t.Fatal(err)
		}
		w.Close()
		readers[volume], held[volume] = r, h
	}
	next, _, fds := orphaned(t, socket, "orphan", held["orphan"])
	closeAll(fds)
	next.conn.Close()
	for volume := range readers {
		if volume != "other" {
			s.Abandon(volume, volume+"-e-0")
		}
	}
	// The last one to take it was engine "e".
	s.Abandon("orphan", "e")
	eof(t, readers["orphan"])
	eof(t, readers["owned"])
	if _, _, _, err := Take(socket, Owner{Volume: "other", Engine: "e"}); !errors.Is(err, ErrInUse) {
		t.Errorf("the device of another engine: %v", err)
	}
}

// TestEndOfAnOwnerNobodyHasSeen: an engine is killed, and the next one asks before the server has
// got round to the end of that connection. The device is its own then: "in use" would cost whoever
// has it open their device.
func TestEndOfAnOwnerNobodyHasSeen(t *testing.T) {
	dir, err := os.MkdirTemp("", "keep")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	l, err := Listen(filepath.Join(dir, "k.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	connect := func() (engine, server *net.UnixConn) {
		engine, err := dial(filepath.Join(dir, "k.sock"))
		if err == nil {
			server, err = l.Accept()
		}
		if err != nil {
			t.Fatal(err)
		}
		return engine, server
	}
	s := NewServer(slog.New(slog.DiscardHandler), 0)
	killed, owner := connect()
	next, conn := connect()
	defer next.Close()
	w, r := pipe(t)
	kept, err := unix.Dup(int(w.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	w.Close()
	if a, _ := s.handle(owner, &request{Op: opKeep, Volume: "demo", Engine: "e"}, []int{kept}); a.Error != "" {
		t.Fatal(a.Error)
	}
	if a, _ := s.handle(conn, &request{Op: opTake, Volume: "demo", Engine: "e"}, nil); a.Kind != kindInUse {
		t.Errorf("a living engine's device: %+v", a)
	}
	killed.Close()
	a, fds := s.handle(conn, &request{Op: opTake, Volume: "demo", Engine: "e"}, nil)
	closeAll(fds)
	if a.Error != "" || len(fds) != 1 {
		t.Errorf("the device of an engine that was killed: %+v, %d descriptors", a, len(fds))
	}
	if a, _ := s.handle(owner, &request{Op: opDrop, Volume: "demo"}, nil); a.Kind != kindInUse {
		t.Errorf("what the engine that was killed had said before is carried out afterwards: %+v", a)
	}
	s.serve(owner) // its end is seen at last
	if d := s.kept["demo"]; d == nil || d.owner != conn {
		t.Errorf("the next engine does not have the device: %+v", d)
	}
	s.forgetAll()
	eof(t, r)
}
