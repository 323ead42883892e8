package handover_test

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	enginev1 "ankole.storage/api/rpc/engine/v1"
	"ankole.storage/dataplane/device/blockdev"
	"ankole.storage/test/lack"
	"ankole.storage/test/rig"
	"ankole.storage/test/wait"
)

// transports are the frontends that can be given away.
var transports = []string{"nbd-unix", "fuse-loop"}

// withFrontend prepares a volume that is offered by a transport, by an engine with env.
func withFrontend(t *testing.T, transport string, env ...string) *place {
	t.Helper()
	if transport != "nbd-unix" {
		if err := blockdev.Available(); err != nil {
			lack.Skip(t, err)
		}
	}
	cfg := rig.Config{Replicas: 2, Size: 64 << 20, Transport: transport, Keep: true}
	cfg.EngineEnv = env
	return prepare(t, cfg)
}

// A volume that is written to goes from engine to engine; whoever uses it keeps the connection or
// the open device, and sees no error. In the end the device is taken down as if nothing had been.
func TestFrontendsPassOver(t *testing.T) {
	for _, transport := range transports {
		t.Run(transport, func(t *testing.T) {
			p := withFrontend(t, transport)
			p.old.AwaitUp()
			d, err := p.old.Target()
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			device := deviceID(t, p.old, transport)
			w := rig.StartLoad(t, d, p.v.Size, 1)
			for range 3 {
				w.AwaitMore(t, 50)
				p.new = p.v.Upgrade(nil, p.next...)
				p.taken()
				p.new.AwaitUp()
				if now := deviceID(t, p.new, transport); now != device {
					t.Errorf("the device that was passed over counts as another one: %q, before %q", now, device)
				}
				for _, r := range p.v.Replicas {
					r.Stop()
				}
				p.v.Replicas, p.old = p.next, p.new
				p.next = standbys(p.v)
				w.Check()
			}
			w.AwaitMore(t, 50)
			w.Finish()
			if err := d.Close(); err != nil && !errors.Is(err, errors.ErrUnsupported) {
				t.Error(err)
			}
			p.v.StopEngine()
		})
	}
}

// deviceID is what the engine tells of its device; a socket is none.
func deviceID(t *testing.T, e *rig.Engine, transport string) string {
	t.Helper()
	s, err := e.State()
	if err != nil {
		t.Fatal(err)
	}
	if (s.DeviceId == "") != (transport == "nbd-unix") {
		t.Errorf("offered by %s, ID of the device %q", transport, s.DeviceId)
	}
	return s.DeviceId
}

// An upgrade that fails leaves the old engine serving, with the very connection and device that it
// had given away.
func TestFrontendsComeBack(t *testing.T) {
	for _, transport := range transports {
		for _, at := range []string{"prepared:refuse", "asked-for:die", "offered-to:refuse", "offered-to:die", "ready:die"} {
			t.Run(transport+" "+at, func(t *testing.T) {
				t.Parallel()
				if !*deep && at != "offered-to:die" {
					lack.Later(t, "takes a while with all the others; run with -deep")
				}
				p := withFrontend(t, transport)
				p.old.AwaitUp()
				d, err := p.old.Target()
				if err != nil {
					t.Fatal(err)
				}
				device := deviceID(t, p.old, transport)
				w := rig.StartLoad(t, d, p.v.Size, 1)
				w.AwaitMore(t, 50)
				p.new = p.v.Upgrade([]string{"ANKOLE_STOP_AT=" + at}, p.next...)
				if code := p.new.Exit(); code == 0 {
					t.Errorf("the new engine ended with 0\n%s", p.new.Log())
				}
				w.AwaitMore(t, 50)
				if now := deviceID(t, p.old, transport); now != device {
					t.Errorf("the device that was taken back counts as another one: %q, before %q", now, device)
				}
				w.Finish()
				if err := d.Close(); err != nil {
					t.Error(err)
				}
				p.v.StopEngine()
			})
		}
	}
}

// After an upgrade the block device is kept for the new engine as it was for the old one: when that
// is killed, the next one goes on with it.
func TestDeviceIsKeptAfterHandOver(t *testing.T) {
	p := withFrontend(t, "fuse-loop")
	p.old.AwaitUp()
	d, err := p.old.Target()
	if err != nil {
		t.Fatal(err)
	}
	w := rig.StartLoad(t, d, p.v.Size, 1)
	w.AwaitMore(t, 50)
	p.new = p.v.Upgrade(nil, p.next...)
	p.taken()
	p.new.AwaitUp()
	w.AwaitMore(t, 50)
	if !p.new.Host.DeviceOwned(p.v.Name) {
		t.Fatal("the keeper takes the device for one without an engine, and will give it up")
	}
	p.v.KillEngine()
	p.v.StartEngine(p.next...)
	w.AwaitMore(t, 50)
	w.Finish()
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	p.v.StopEngine()
}

// TestDeviceStaysThroughAKilledTakeBack: an upgrade fails, and the old engine is killed when it has
// its epoch and its first record and not the device yet. That is a record that the next engine
// finds, of an engine that has served nobody in another way.
func TestDeviceStaysThroughAKilledTakeBack(t *testing.T) {
	t.Parallel()
	p := withFrontend(t, "fuse-loop", "ANKOLE_STOP_AT=taken-back:die")
	p.v.EngineEnv = nil
	p.old.AwaitUp()
	d, err := p.old.Target()
	if err != nil {
		t.Fatal(err)
	}
	w := rig.StartLoad(t, d, p.v.Size, 1)
	w.AwaitMore(t, 50)
	p.new = p.v.Upgrade([]string{"ANKOLE_STOP_AT=offered-to:die"}, p.next...)
	if p.new.Exit() == 0 || p.old.Exit() == 0 {
		t.Error("an engine ended with 0")
	}
	p.v.KillEngine()
	p.v.StartEngine()
	w.AwaitMore(t, 50)
	w.Finish()
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	p.v.StopEngine()
}

// TestGrowthBesideAHandOver: an upgrade waits for an expansion, and the volume is given away before
// the old engine has told its block device of the new size. Whoever has the volume in the end tells
// it.
func TestGrowthBesideAHandOver(t *testing.T) {
	for _, at := range []string{"", "ready:die"} {
		t.Run("new engine "+at, func(t *testing.T) {
			t.Parallel()
			p := withFrontend(t, "fuse-loop")
			p.old.AwaitUp()
			d, err := p.old.Target()
			if err != nil {
				t.Fatal(err)
			}
			size := p.v.Size + 32<<20
			slow := p.v.Replicas[0]
			slow.Signal(syscall.SIGSTOP)
			wait.Until(t, "a replica is stopped", slow.Stopped)
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			expanded := make(chan error, 1)
			control := p.v.Control()
			go func() {
				_, err := control.Expand(ctx, &enginev1.ExpandRequest{Size: size})
				expanded <- err
			}()
			p.v.Await("the expansion begins", func(s *enginev1.State) bool { return s.Expanding })
			p.new = p.v.Upgrade([]string{"ANKOLE_STOP_AT=" + at}, p.next...)
			// It asks as soon as its replicas are ready; the old engine waits for 3 s at most.
			wait.Until(
				t,
				"the upgrade waits",
				func() bool { return strings.Contains(p.old.Log(), "live upgrade is asked for") },
			)
			slow.Signal(syscall.SIGCONT)
			if at == "" {
				p.taken()
			} else if p.new.Exit() == 0 {
				t.Error("the new engine ended with 0")
			}
			if err := <-expanded; err != nil {
				t.Errorf("expand: %v", err)
			}
			e := p.v.Engine()
			wait.Until(t, "the device grows", func() bool {
				s, err := e.State()
				return err == nil && s.FrontendState == "up" && deviceSize(t, p.v) == size
			})
			if _, err := d.WriteAt(rig.Aligned(4096), size-4096); err != nil {
				t.Errorf("a write to what was added: %v", err)
			}
			if err := d.Close(); err != nil {
				t.Error(err)
			}
			p.v.StopEngine()
		})
	}
}

// TestGrowthOfAKilledEngineReachesItsDevice: an engine is killed when the volume has grown and its
// block device has not been told. The next engine goes on with the device and tells it.
func TestGrowthOfAKilledEngineReachesItsDevice(t *testing.T) {
	t.Parallel()
	p := withFrontend(t, "fuse-loop", "ANKOLE_STOP_AT=grown:die")
	p.v.EngineEnv = nil
	p.old.AwaitUp()
	d, err := p.old.Target()
	if err != nil {
		t.Fatal(err)
	}
	size := p.v.Size + 32<<20
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if _, err := p.v.Control().Expand(ctx, &enginev1.ExpandRequest{Size: size}); err == nil {
		t.Error("an engine that was killed says that it has expanded the volume")
	}
	if n := deviceSize(t, p.v); n != p.v.Size {
		t.Errorf("the device has %d bytes before anybody has told it, want %d", n, p.v.Size)
	}
	p.v.KillEngine()
	p.v.StartEngine()
	wait.Until(t, "the device grows", func() bool { return deviceSize(t, p.v) == size })
	if _, err := d.WriteAt(rig.Aligned(4096), size-4096); err != nil {
		t.Errorf("a write to what was added: %v", err)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	p.v.StopEngine()
}

// deviceSize is what the kernel takes for the size of the volume's device.
func deviceSize(t *testing.T, v *rig.Volume) int64 {
	t.Helper()
	f, err := os.Open(filepath.Join(v.Engine().Host.Devices(), v.Name))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	n, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
