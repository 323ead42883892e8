package handover_test

import (
	"errors"
	"testing"

	"ankole.storage/dataplane/frontend/fuseloop/blockdev"
	"ankole.storage/test/rig"
)

// transports are the frontends that can be given away.
var transports = []string{"nbd-unix", "fuse-loop"}

// withFrontend prepares a volume that is offered by a transport.
func withFrontend(t *testing.T, transport string) *place {
	t.Helper()
	if transport == "fuse-loop" {
		if err := blockdev.Available(); err != nil {
			t.Skip(err)
		}
	}
	return prepare(t, rig.Config{Replicas: 2, Size: 64 << 20, Transport: transport, Keep: true})
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
// goes on with it.
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
