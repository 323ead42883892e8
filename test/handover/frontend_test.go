package handover_test

import (
	"errors"
	"testing"

	"ankole.storage/dataplane/frontend/fuseloop/blockdev"
	"ankole.storage/test/rig"
)

// transports are the frontends that can be given away.
var transports = []string{"nbd-unix", "fuse-loop", journaled}

// journaled is a block device on a kernel that does not send requests again.
const journaled = "fuse-loop with a journal"

// noResend has an engine take the kernel for such a one.
const noResend = "ANKOLE_FUSE_RESEND=off"

// withFrontend prepares a volume that is offered by a transport.
func withFrontend(t *testing.T, transport string) *place {
	t.Helper()
	if transport != "nbd-unix" {
		if err := blockdev.Available(); err != nil {
			t.Skip(err)
		}
	}
	cfg := rig.Config{Replicas: 2, Size: 64 << 20, Transport: transport, Keep: true}
	if transport == journaled {
		cfg.Transport, cfg.EngineEnv = "fuse-loop", []string{noResend}
	}
	return prepare(t, cfg)
}

// A volume that is written to goes from engine to engine; whoever uses it keeps the connection or the open device, and sees no
// error. In the end the device is taken down as if nothing had been.
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
			w := rig.StartLoad(t, d, p.v.Size, 1)
			for range 3 {
				w.AwaitMore(t, 50)
				p.new = p.v.Upgrade(nil, p.next...)
				p.taken()
				p.new.AwaitUp()
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

// An upgrade that fails leaves the old engine serving, with the very connection and device that it had given away.
func TestFrontendsComeBack(t *testing.T) {
	for _, transport := range transports {
		for _, at := range []string{"prepared:refuse", "asked-for:die", "offered-to:refuse", "offered-to:die", "ready:die"} {
			t.Run(transport+" "+at, func(t *testing.T) {
				t.Parallel()
				if !*deep && at != "offered-to:die" {
					t.Skip("takes a while with all the others; run with -deep")
				}
				p := withFrontend(t, transport)
				p.old.AwaitUp()
				d, err := p.old.Target()
				if err != nil {
					t.Fatal(err)
				}
				w := rig.StartLoad(t, d, p.v.Size, 1)
				w.AwaitMore(t, 50)
				p.new = p.v.Upgrade([]string{"ANKOLE_STOP_AT=" + at}, p.next...)
				if code := p.new.Exit(); code == 0 {
					t.Errorf("the new engine ended with 0\n%s", p.new.Log())
				}
				w.AwaitMore(t, 50)
				w.Finish()
				if err := d.Close(); err != nil {
					t.Error(err)
				}
				p.v.StopEngine()
			})
		}
	}
}

// After an upgrade the block device is kept for the new engine as it was for the old one: when that is killed, the next one
// goes on with it. The two may be of different minds about the kernel: what counts is what the one that was killed did.
func TestDeviceIsKeptAfterHandOver(t *testing.T) {
	for _, row := range []struct {
		name     string
		old, new string
	}{
		{"sent again", "fuse-loop", ""},
		{"with a journal", journaled, noResend},
		{"with a journal of the new engine", "fuse-loop", noResend},
	} {
		t.Run(row.name, func(t *testing.T) { keptAfterHandOver(t, row.old, row.new) })
	}
}

func keptAfterHandOver(t *testing.T, old, env string) {
	p := withFrontend(t, old)
	p.v.EngineEnv = []string{env}
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
