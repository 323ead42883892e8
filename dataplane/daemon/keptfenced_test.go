package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"testing"

	"ankole.storage/dataplane/device/blockdev"
	"ankole.storage/dataplane/device/keeper"
	"ankole.storage/dataplane/device/kept"
)

// TestKeptDeviceOfAFencedEngine: an engine has taken a kept device over, and cannot go on before it
// has brought it up. A newer engine serves the volume, or it is told to end: nobody may go on with
// the device, and its users get errors at once. There are not enough replicas: it stays for the
// next engine. The same where the keeper is slow, and the engine has its device only when it has
// ended.
func TestKeptDeviceOfAFencedEngine(t *testing.T) {
	for _, row := range []struct {
		reason error // nil: it is told to end
		stays  bool
	}{{ErrFenced, false}, {nil, false}, {ErrNoReplica, true}} {
		for _, late := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v, late %v", row.reason, late), func(t *testing.T) {
				endsWithKept(t, row.reason, late, row.stays)
			})
		}
	}
}

func endsWithKept(t *testing.T, reason error, late, stays bool) {
	keeping := keeper.NewServer(slog.New(slog.DiscardHandler), 0)
	socket, answer := keeperAt(t, keeping)
	answer()
	slow, answerAtLast := keeperAt(t, keeping)
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	owner := keeper.Owner{Volume: "vol", Engine: "e"}
	state := keptState{Kept: blockdev.Kept{Loop: 3}, Owners: kept.Owners{VolumeUUID: "u", Epochs: []uint64{4}}}
	before, err := keeper.Keep(socket, owner, state.encode(), int(null.Fd()))
	if err == nil {
		err = before.Leave()
	}
	if err != nil {
		t.Fatal(err)
	}
	s, _ := slowEngine(t)
	p := s.p
	p.cfg.Keeper, p.cfg.VolumeUUID, p.cfg.Frontend = slow, "u", FrontendBlockdev
	p.life.start = nil // it does not serve
	taken := make(chan error, 1)
	go func() { // in place of a worker of its loop
		_, err := p.takeKept(t.Context(), 5, 4)
		taken <- err
	}()
	answered := func() {
		answerAtLast()
		if err := <-taken; err != nil {
			t.Fatal(err)
		}
	}
	if !late {
		answered()
	}
	ctx, tell := context.WithCancel(context.Background())
	defer tell()
	if reason != nil {
		p.life.fatal(fmt.Errorf("%w: reason", reason))
	} else {
		tell()
	}
	if err := p.supervise(ctx); !errors.Is(err, reason) {
		t.Errorf("it ends with %v", err)
	}
	if late {
		answered()
	}
	if k := p.takeOutKept(); k != nil { // the end of the process
		if err := k.held.Leave(); err != nil {
			t.Fatal(err)
		}
		closeAll(k.fds)
	}
	held, _, fds, err := keeper.Take(socket, owner)
	if errors.Is(err, keeper.ErrNone) == stays {
		t.Errorf("what is kept then: %v", err)
	}
	if err == nil {
		closeAll(fds)
		if err := held.Drop(); err != nil {
			t.Error(err)
		}
	}
}
