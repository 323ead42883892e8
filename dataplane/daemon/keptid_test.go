package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"golang.org/x/sys/unix"

	"ankole.storage/dataplane/device/keeper"
)

// TestKeptDeviceGetsAnID: a device that was made by a program that gave none has one from the next
// engine on, and keeps it whatever becomes of that engine.
func TestKeptDeviceGetsAnID(t *testing.T) {
	socket, owner := standInsDevice(t) // of a program that gave none
	ids := map[string]bool{}
	for epoch := range uint64(3) {
		s, _ := slowEngine(t)
		p := s.p
		p.cfg.Keeper, p.cfg.VolumeUUID, p.cfg.Frontend, p.cfg.Transport = socket, "u", FrontendBlockdev, TransportFUSELoop
		p.cfg.VolumeName, p.cfg.Instance = owner.Volume, owner.Engine
		if taken, err := p.takeKept(t.Context(), epoch+5, epoch+4); !taken || err != nil {
			t.Fatalf("taken: %v, %v", taken, err)
		}
		k := p.takeOutKept()
		closeAll(k.fds)
		if err := k.held.Leave(); err != nil {
			t.Fatal(err)
		}
		held, text, fds, err := keeper.Take(socket, owner)
		if err != nil {
			t.Fatal(err)
		}
		closeAll(fds)
		var state keptState
		if err := errors.Join(json.Unmarshal(text, &state), held.Leave()); err != nil {
			t.Fatal(err)
		}
		ids[state.ID] = true
		if state.ID == "" || state.ID != k.state.ID {
			t.Errorf("the keeper has ID %q, the engine %q", state.ID, k.state.ID)
		}
	}
	if len(ids) != 1 {
		t.Errorf("IDs of one device: %v", ids)
	}
}

// TestLooksThatCameToNothing: what only says that a device could not be looked at now does not end
// it.
func TestLooksThatCameToNothing(t *testing.T) {
	for err, want := range map[error]bool{
		unix.EMFILE: true, unix.ENOMEM: true, context.DeadlineExceeded: true, context.Canceled: true,
		unix.ENXIO: false, errors.New("it lies on another file"): false} {
		if passes(fmt.Errorf("block device v: %w", err)) != want {
			t.Errorf("%v: %v", err, !want)
		}
	}
}
