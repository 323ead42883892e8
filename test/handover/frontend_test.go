package handover_test

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
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

// withDevice prepares a volume that is offered as a block device, by an engine with env.
func withDevice(t *testing.T, replicas int, env ...string) *place {
	t.Helper()
	if err := blockdev.Available(); err != nil {
		lack.Skip(t, err)
	}
	cfg := rig.Config{Replicas: replicas, Size: 64 << 20, Transport: "fuse-loop", Keep: true}
	cfg.EngineEnv = env
	p := prepare(t, cfg)
	p.v.EngineEnv = nil
	p.old.AwaitUp()
	return p
}

// load opens the volume's device and has somebody write to it.
func (p *place) load() (*rig.Load, rig.Target) {
	p.t.Helper()
	d, err := p.old.Target()
	if err != nil {
		p.t.Fatal(err)
	}
	w := rig.StartLoad(p.t, d, p.v.Size, 1)
	w.AwaitMore(p.t, 50)
	return w, d
}

// finish ends the load, and the volume as if nothing had been.
func (p *place) finish(w *rig.Load, d rig.Target) {
	p.t.Helper()
	w.AwaitMore(p.t, 50)
	w.Finish()
	if err := d.Close(); err != nil {
		p.t.Error(err)
	}
	p.v.StopEngine()
}

// passOn makes the processes of the upgrade that is done those that the next one replaces.
func (p *place) passOn() {
	p.t.Helper()
	for _, r := range p.v.Replicas {
		r.Stop()
	}
	p.v.Replicas, p.old = p.next, p.new
	p.next = standbys(p.v)
}

// A volume that is written to passes from engine to engine; whoever uses it keeps the open device,
// and sees no error. In the end the device is taken down as if nothing had been.
func TestDevicePassesOver(t *testing.T) {
	p := withDevice(t, 2)
	w, d := p.load()
	device := deviceID(t, p.old)
	for range 3 {
		w.AwaitMore(t, 50)
		p.new = p.v.Upgrade(nil, p.next...)
		p.taken()
		p.new.AwaitUp()
		if now := deviceID(t, p.new); now != device {
			t.Errorf("the device that was passed over counts as another one: %q, before %q", now, device)
		}
		p.passOn()
		w.Check()
	}
	p.finish(w, d)
}

// TestUpgradePauses measures how long users wait: ANKOLE_UPGRADES says in how many upgrades.
func TestUpgradePauses(t *testing.T) {
	n, err := strconv.Atoi(os.Getenv("ANKOLE_UPGRADES"))
	if err != nil {
		lack.Later(t, "measures; set ANKOLE_UPGRADES to a number of upgrades")
	}
	p := withDevice(t, 3)
	w, d := p.load()
	var engines, users []time.Duration
	for range n {
		w.AwaitMore(t, 50)
		w.TakePause(time.Now())
		p.new = p.v.Upgrade(nil, p.next...)
		p.taken()
		engines = append(engines, p.pause())
		w.AwaitMore(t, 50)
		users = append(users, w.TakePause(time.Now()))
		p.passOn()
	}
	for who, all := range map[string][]time.Duration{"by the engine": engines, "by the writer": users} {
		slices.Sort(all)
		t.Logf("%d pauses %s: median %v, p95 %v, most %v", n, who, all[n/2], all[(n*95+99)/100-1], all[n-1])
	}
	p.finish(w, d)
}

// deviceID is what the engine tells of its device.
func deviceID(t *testing.T, e *rig.Engine) string {
	t.Helper()
	s, err := e.State()
	if err != nil {
		t.Fatal(err)
	}
	if s.DeviceId == "" {
		t.Error("the device has no ID")
	}
	return s.DeviceId
}

// An upgrade that fails before the old engine has left changes nothing for it and its users.
func TestDeviceStaysIfAnUpgradeFails(t *testing.T) {
	p := withDevice(t, 2)
	w, d := p.load()
	device := deviceID(t, p.old)
	for _, at := range []string{"prepared:refuse", "prepared:die"} {
		p.new = p.v.Upgrade([]string{"ANKOLE_STOP_AT=" + at}, p.next...)
		if code := p.new.Exit(); code == 0 {
			t.Errorf("the new engine ended with 0\n%s", p.new.Log())
		}
		w.AwaitMore(t, 50)
		if now := deviceID(t, p.old); now != device {
			t.Errorf("the device counts as another one: %q, before %q", now, device)
		}
	}
	p.finish(w, d)
}

// A volume on an NBD socket is not upgraded while it is attached: the old engine says why, and what
// to do, and its clients notice nothing.
func TestSocketStays(t *testing.T) {
	p := prepare(t, rig.Config{Replicas: 2, Size: 64 << 20, Transport: "nbd-unix", Keep: true})
	p.old.AwaitUp()
	w, d := p.load()
	p.new = p.v.Upgrade(nil, p.next...)
	if code := p.new.Exit(); code != 1 || !strings.Contains(p.new.Log(), "NBD socket") ||
		!strings.Contains(p.new.Log(), "detach the volume") {
		t.Errorf("the new engine ended with %d:\n%s", code, p.new.Log())
	}
	w.AwaitMore(t, 50)
	w.Finish()
	_ = d.Close()
	p.v.StopEngine()
}

// After an upgrade the block device is kept for the new engine as it was for the old one: when that
// is killed, the next one goes on with it.
func TestDeviceIsKeptAfterHandOver(t *testing.T) {
	p := withDevice(t, 2)
	w, d := p.load()
	p.new = p.v.Upgrade(nil, p.next...)
	p.taken()
	p.new.AwaitUp()
	w.AwaitMore(t, 50)
	if !p.new.Host.DeviceOwned(p.v.Name) {
		t.Fatal("the keeper takes the device for one without an engine, and will give it up")
	}
	p.v.KillEngine()
	p.v.StartEngine(p.next...)
	p.finish(w, d)
}

// TestDeviceOutlivesAFailedUpgrade: one of the engines is killed when the old one has left, or is
// about to. The next engine goes on with the device.
func TestDeviceOutlivesAFailedUpgrade(t *testing.T) {
	for _, c := range []struct{ old, new string }{{old: "left:die"}, {old: "leaving:die"}, {new: "told:die"},
		{new: "offering:die"}} {
		t.Run("old "+c.old+" new "+c.new, func(t *testing.T) {
			t.Parallel()
			p := withDevice(t, 2, "ANKOLE_STOP_AT="+c.old)
			w, d := p.load()
			device := deviceID(t, p.old)
			p.new = p.v.Upgrade([]string{"ANKOLE_STOP_AT=" + c.new}, p.next...)
			if p.new.Exit() == 0 || (p.old.Exit() == 0) != (c.old == "") {
				t.Errorf("the engines ended with %d and %d", p.old.Exit(), p.new.Exit())
			}
			p.startAgain()
			p.v.Engine().AwaitUp()
			if now := deviceID(t, p.v.Engine()); now != device {
				t.Errorf("the device counts as another one: %q, before %q", now, device)
			}
			p.finish(w, d)
		})
	}
}

// TestGrowthBesideAHandOver: an upgrade waits for an expansion, and the old engine has left before
// it has told its block device of the new size. The next one tells it.
func TestGrowthBesideAHandOver(t *testing.T) {
	t.Parallel()
	p := withDevice(t, 2)
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
	p.new = p.v.Upgrade(nil, p.next...)
	// It asks as soon as its replicas are ready; the old engine waits for 3 s at most.
	wait.Until(
		t,
		"the upgrade waits",
		func() bool { return strings.Contains(p.old.Log(), "live upgrade is asked for") },
	)
	slow.Signal(syscall.SIGCONT)
	p.taken()
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
}

// TestGrowthOfAKilledEngineReachesItsDevice: an engine is killed when the volume has grown and its
// block device has not been told. The next engine goes on with the device and tells it.
func TestGrowthOfAKilledEngineReachesItsDevice(t *testing.T) {
	t.Parallel()
	p := withDevice(t, 2, "ANKOLE_STOP_AT=grown:die")
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
