package keeper

import (
	"encoding/json"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"ankole.storage/host/patience"
	"ankole.storage/test/wait"
)

// TestEndIsTold: whoever has to remove a device that does not end with its last descriptor is told
// when this server has none of it any more, and again when the second holder has none, and finds it
// closed then.
func TestEndIsTold(t *testing.T) {
	const volume = "demo"
	o := Owner{Volume: volume, Engine: "demo-e-0", Wait: time.Millisecond}
	told := make(chan string, 10)
	is := func(t *testing.T) {
		t.Helper()
		select {
		case v := <-told:
			if v != volume {
				t.Errorf("told of %q", v)
			}
		case <-time.After(patience.Of(wait.Limit)):
			wait.RanOut(t, "being told")
			t.Fatal("nobody is told")
		}
	}
	keep := func(t *testing.T, s *Server) (h *Held, end func(t *testing.T)) {
		t.Helper()
		socket := serve(t, s.WithEnded(func(v string) { told <- v }))
		w, r := pipe(t)
		h, err := Keep(socket, o, json.RawMessage(`1`), int(w.Fd()))
		if err != nil {
			t.Fatal(err)
		}
		w.Close()
		return h, func(t *testing.T) { t.Helper(); eof(t, r) }
	}
	t.Run("no engine comes", func(t *testing.T) {
		h, end := keep(t, NewServer(slog.New(slog.DiscardHandler), 0))
		h.conn.Close()
		is(t)
		end(t)
	})
	t.Run("dropped", func(t *testing.T) {
		h, end := keep(t, NewServer(slog.New(slog.DiscardHandler), 0))
		if err := h.Drop(); err != nil {
			t.Fatal(err)
		}
		is(t)
		end(t)
	})
	t.Run("abandoned before it is read", func(t *testing.T) {
		l, r := lastWords(t, opKeep)
		s := NewServer(slog.New(slog.DiscardHandler), time.Hour).WithEnded(func(string) { told <- volume })
		s.Abandon("v", "v-e-0")
		serveOn(t, s, l)
		is(t)
		eof(t, r)
	})
	t.Run("with a second holder", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "second")
		l, err := Listen(path)
		if err != nil {
			t.Fatal(err)
		}
		other := NewServer(slog.New(slog.DiscardHandler), time.Hour)
		serveOn(t, other, l)
		s := NewServer(slog.New(slog.DiscardHandler), 0).WithSecond(path)
		h, end := keep(t, s)
		wait.Until(t, "the second holder has it", func() bool { return s.HeldElsewhere()[o.Engine] })
		if err := h.Drop(); err != nil {
			t.Fatal(err)
		}
		is(t)
		is(t)
		end(t)
	})
}
