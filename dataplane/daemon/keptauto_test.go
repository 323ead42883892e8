package daemon

import (
	"context"
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"ankole.storage/dataplane/device/blockdev"
	"ankole.storage/dataplane/device/journal"
	"ankole.storage/dataplane/device/keeper"
	"ankole.storage/dataplane/device/kept"
	"ankole.storage/test/lack"
)

// TestKeptDeviceWithTransportAuto: an engine has taken a kept device over and brings its frontend
// up with transport auto, which is the setting's default and what the control plane passes. No
// descriptor is free at that moment. It must end and leave the device to the next one, and
// not conclude that this host has no block devices, end the device and offer a socket.
func TestKeptDeviceWithTransportAuto(t *testing.T) {
	if err := blockdev.Available(); err != nil {
		lack.Skip(t, err)
	}
	socket, null := keeperHere(t)
	owner := keeper.Owner{Volume: "vol", Engine: "e"}
	state := keptState{Kept: blockdev.Kept{Loop: 3}, Owners: kept.Owners{VolumeUUID: "u", Epochs: []uint64{4}}}
	requests, err := journal.Create()
	if err != nil {
		t.Fatal(err)
	}
	defer requests.CloseFD()
	before, err := keeper.Keep(socket, owner, state.encode(), int(null.Fd()), requests.FD())
	if err != nil {
		t.Fatal(err)
	}
	if err := before.Leave(); err != nil {
		t.Fatal(err)
	}
	s, _ := slowEngine(t)
	p := s.p
	p.cfg.Keeper, p.cfg.VolumeUUID, p.cfg.Frontend, p.cfg.Transport = socket, "u", FrontendBlockdev, TransportAuto
	if taken, err := p.takeKept(t.Context(), 5, 4); !taken || err != nil {
		t.Fatalf("taken: %v, %v", taken, err)
	}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	short := limit
	short.Cur = 0
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &short); err != nil {
		t.Fatal(err)
	}
	p.front.mu.Lock()
	err = p.startFrontend(context.Background(), FrontendBlockdev)
	p.front.mu.Unlock()
	if lerr := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); lerr != nil {
		t.Fatal(lerr)
	}
	t.Log("start of the frontend:", err)
	if _, _, _, err := keeper.Take(socket, owner); errors.Is(err, keeper.ErrNone) {
		t.Error("the kept device has been ended: its users got I/O errors")
	}
}
