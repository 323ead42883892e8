package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"ankole.storage/dataplane/device/blockdev"
	"ankole.storage/dataplane/device/keeper"
	"ankole.storage/dataplane/device/kept"
)

// TestKeptStateIsBounded, and arrives as it was sent.
func TestKeptStateIsBounded(t *testing.T) {
	k := keptState{Kept: blockdev.Kept{Loop: 3}, Owners: kept.Owners{VolumeUUID: "u"}}
	for e := range uint64(2 * kept.MaxEpochs) {
		k.Add(e + 1)
	}
	if n := len(k.Epochs); n != kept.MaxEpochs || k.Epochs[n-1] != 2*kept.MaxEpochs {
		t.Errorf("epochs %v", k.Epochs)
	}
	var got keptState
	if err := json.Unmarshal(k.encode(), &got); err != nil || !reflect.DeepEqual(got, k) {
		t.Errorf("%+v arrives as %+v: %v", k, got, err)
	}
}

// keeperHere serves a keeper of block devices until the test ends, and opens what can be kept.
func keeperHere(t *testing.T) (socket string, null *os.File) {
	t.Helper()
	socket, answer := keeperAt(t, keeper.NewServer(slog.New(slog.DiscardHandler), 0))
	answer()
	var err error
	if null, err = os.Open(os.DevNull); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { null.Close() })
	return socket, null
}

// keeperAt has a keeper listen at one more socket until the test ends. It answers there from the
// call of answer on.
func keeperAt(t *testing.T, s *keeper.Server) (socket string, answer func()) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "k")
	l, err := keeper.Listen(socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return socket, func() {
		served := make(chan struct{})
		ctx, cancel := context.WithCancel(context.Background())
		go func() { defer close(served); s.Serve(ctx, l) }()
		t.Cleanup(func() { cancel(); <-served })
	}
}

// TestDeviceWithoutItsJournalIsNotKept: a device goes on in an engine that cannot make a journal of
// its requests. What is kept for it has the journal of the engine before: the next engine would
// find nothing there of what this one has received, and nobody would ever answer that.
func TestDeviceWithoutItsJournalIsNotKept(t *testing.T) {
	socket, null := keeperHere(t)
	held, err := keeper.Keep(socket, keeper.Owner{Volume: "vol", Engine: "e"}, nil, int(null.Fd()), int(null.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	s, _ := slowEngine(t)
	s.p.cfg.Keeper = socket
	s.p.keepDevice(&fuseDevice{held: held})
	if _, _, _, err := keeper.Take(socket, keeper.Owner{Volume: "vol", Engine: "e"}); !errors.Is(err, keeper.ErrNone) {
		t.Errorf("what is kept: %v", err)
	}
}
