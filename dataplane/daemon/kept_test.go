package daemon

import (
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"ankole.storage/dataplane/frontend/fuseloop/blockdev"
	"ankole.storage/dataplane/kept"
	"ankole.storage/instancemanager/keeper"
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

// TestDeviceWithoutItsJournalIsNotKept: a device goes on in an engine that cannot make a journal of
// its requests. What is kept for it has the journal of the engine before: the next engine would
// find nothing there of what this one has received, and nobody would ever answer that.
func TestDeviceWithoutItsJournalIsNotKept(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "k")
	l, err := keeper.Listen(socket)
	if err != nil {
		t.Fatal(err)
	}
	go keeper.NewServer(slog.New(slog.DiscardHandler), 0).Serve(t.Context(), l)
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	held, err := keeper.Keep(socket, keeper.Owner{Volume: "vol", Engine: "e"}, nil, int(null.Fd()), int(null.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	s, _ := slowEngine(t)
	s.p.cfg.Keeper, s.p.cfg.NoResend = socket, true
	s.p.keepDevice(&fuseDevice{held: held})
	if _, _, _, err := keeper.Take(socket, keeper.Owner{Volume: "vol", Engine: "e"}); !errors.Is(err, keeper.ErrNone) {
		t.Errorf("what is kept: %v", err)
	}
}
