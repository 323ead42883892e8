package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ankole.storage/dataplane/device/blockdev"
	"ankole.storage/dataplane/device/keeper"
	"ankole.storage/dataplane/device/kept"
)

// TestKeptDeviceThatCannotBeTaken: where the keeper has a device and cannot give it now, the engine
// ends before its first record. After that record the device would be one of another time for every
// engine that follows.
func TestKeptDeviceThatCannotBeTaken(t *testing.T) {
	dir := t.TempDir()
	socket := filepath.Join(dir, "k")
	// A keeper that fails at the step that a row names.
	serve := func(t *testing.T, step string) {
		l, err := keeper.Listen(socket)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				fail(c, step)
			}
		}()
	}
	for _, row := range []struct {
		step string
		ends bool
	}{{"take", true}, {"take in use", true}, {"keep", true}, {"none", false}, {"nobody", false}} {
		t.Run(row.step, func(t *testing.T) {
			s, _ := slowEngine(t)
			s.p.cfg.Keeper, s.p.cfg.VolumeUUID, s.p.cfg.Frontend = socket, "u", FrontendBlockdev
			l := s.p.life
			defer context.AfterFunc(l.ctx, l.stop)() // as supervise does: follow waits for the end of the loop
			if row.step != "nobody" {
				serve(t, row.step)
			}
			if l.follow(3000, 4000) {
				t.Error("a frontend goes on")
			}
			cause := context.Cause(l.ctx)
			if (cause != nil) != row.ends || cause != nil && !strings.Contains(cause.Error(), "start it again") {
				t.Errorf("the engine ends with %v", cause)
			}
			if s.p.takeOutKept() != nil {
				t.Error("a device was taken")
			}
		})
		_ = os.Remove(socket)
	}
}

// TestTakeFollowsTheOwner: another instance manager of the node has the device, which was told to
// end. The wait lasts as long as that does, or until there is no need of it any more.
func TestTakeFollowsTheOwner(t *testing.T) {
	const lasts = 3 // requests
	for _, row := range []struct {
		name  string
		wait  time.Duration // for which the device is kept
		end   func(p *engineProcess, cancel func())
		taken bool
	}{
		{"it ends", time.Hour, func(*engineProcess, func()) {}, true},
		{"it does not", time.Nanosecond, func(*engineProcess, func()) {}, false},
		{"the engine cannot go on", time.Hour, func(_ *engineProcess, cancel func()) { cancel() }, false},
		{"the engine is told to end", time.Hour, func(p *engineProcess, _ func()) { p.endKept("it is told to end") }, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			s, _ := slowEngine(t)
			p := s.p
			p.cfg.Keeper, p.cfg.VolumeUUID, p.cfg.Frontend = filepath.Join(t.TempDir(), "k"), "u", FrontendBlockdev
			p.cfg.DeviceWait = row.wait
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			l, err := keeper.Listen(p.cfg.Keeper)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			go func() {
				for i := 0; ; i++ {
					c, err := l.Accept()
					if err != nil {
						return
					}
					if i < lasts {
						row.end(p, cancel)
						fail(c, "take owned")
						continue
					}
					go fail(c, "none of them")
				}
			}()
			taken, err := p.takeKept(ctx, 4000, 3000)
			if taken != row.taken || errors.Is(err, keeper.ErrOwned) == row.taken {
				t.Errorf("taken: %v, %v", taken, err)
			}
			if k := p.takeOutKept(); k != nil {
				closeAll(k.fds)
				if err := k.held.Leave(); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// fail answers the requests of one connection until the given step, which it fails.
func fail(c *net.UnixConn, step string) {
	defer c.Close()
	state := keptState{Kept: blockdev.Kept{Loop: 1}, Owners: kept.Owners{VolumeUUID: "u", Epochs: []uint64{3000}}}
	p := make([]byte, 1<<14)
	for {
		n, err := c.Read(p)
		if err != nil || n == 0 {
			return
		}
		var r struct {
			Op string `json:"op"`
		}
		if err := json.Unmarshal(p[:n], &r); err != nil {
			return
		}
		a, rights := map[string]any{}, []byte(nil)
		switch {
		case step == "none":
			a["error"], a["kind"] = "volume", "none"
		case r.Op == "take" && step == "take in use":
			a["error"], a["kind"] = "volume", "in use"
		case r.Op == "take" && step == "take owned":
			a["error"], a["kind"] = "the second holder", "owned"
		case r.Op == step, r.Op == "drop": // a drop would end the device
			a["error"] = "no descriptor is free"
		default:
			a["state"] = json.RawMessage(state.encode())
			fd, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
			if err != nil {
				return
			}
			rights = unix.UnixRights(fd)
			defer unix.Close(fd)
		}
		answer, err := json.Marshal(a)
		if err != nil {
			return
		}
		if _, _, err := c.WriteMsgUnix(answer, rights, nil); err != nil {
			return
		}
	}
}
