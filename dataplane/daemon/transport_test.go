package daemon

import (
	"encoding/json"
	"errors"
	"testing"

	"ankole.storage/dataplane/device/blockdev"
	"ankole.storage/dataplane/device/kept"
)

// TestChoiceOfATransport: what was asked for counts; then the best that the host has, and why it is
// not a better one is said.
func TestChoiceOfATransport(t *testing.T) {
	missing := errors.New("missing")
	for _, tt := range []struct {
		name           string
		asked          string
		kept, byItself bool
		ublk, fuse     error
		resizes        bool
		want           string
		reasons        int
	}{
		{"all there", "auto", false, true, nil, nil, true, TransportUblk, 0},
		{"nothing asked", "", false, true, nil, nil, true, TransportUblk, 0},
		{"not by itself", "auto", false, false, nil, nil, true, TransportFUSELoop, 0},
		{"no growth in use", "auto", false, true, nil, nil, false, TransportFUSELoop, 1},
		{"no ublk", "auto", false, true, missing, nil, false, TransportFUSELoop, 1},
		{"no device", "auto", false, true, missing, missing, false, TransportNBDUnix, 2},
		{"taken over", "auto", true, true, missing, missing, false, TransportFUSELoop, 0},
		{"asked for ublk", "ublk", false, false, missing, nil, false, TransportUblk, 0},
		{"asked for FUSE", "fuse-loop", false, true, nil, missing, true, TransportFUSELoop, 0},
		{"asked for a socket", "nbd-unix", false, true, nil, nil, true, TransportNBDUnix, 0},
	} {
		c := chosen{asked: tt.asked, kept: tt.kept, ublk: tt.byItself,
			haveUblk: func() (bool, error) { return tt.resizes, tt.ublk }, haveFUSE: func() error { return tt.fuse }}
		if got, reasons := c.transport(); got != tt.want || len(reasons) != tt.reasons {
			t.Errorf("%s: %s, for %v", tt.name, got, reasons)
		}
	}
}

// TestKeptStateOfUblk: what the keeper has of a ublk device leads to it again, and what it has of
// another one leads to no ublk device.
func TestKeptStateOfUblk(t *testing.T) {
	number := uint32(0)
	k := keptState{Kept: blockdev.Kept{Loop: -1, ID: "id", Ublk: &number}, Owners: kept.Owners{VolumeUUID: "u",
		Epochs: []uint64{3}}}
	var back keptState
	if err := json.Unmarshal(k.encode(), &back); err != nil || back.Ublk == nil || *back.Ublk != 0 || back.ID != "id" {
		t.Errorf("%+v: %v", back, err)
	}
	back = keptState{}
	if err := json.Unmarshal([]byte(`{"loop":3,"id":"x","volumeUUID":"u","epochs":[1]}`), &back); err != nil ||
		back.Ublk != nil || back.Loop != 3 {
		t.Errorf("%+v: %v", back, err)
	}
}
