package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"ankole.storage/dataplane/engine"
	"ankole.storage/dataplane/frontend"
	"ankole.storage/dataplane/frontend/fuseloop"
	"ankole.storage/dataplane/frontend/fuseloop/blockdev"
	"ankole.storage/hostpath"
	"ankole.storage/instancemanager/keeper"
)

// deviceDir is where users find block devices, as the Pod sees it.
const deviceDir = "/dev/longhorn"

// withdrawWait bounds each half of taking a block device away: a user may keep it open for ever.
const withdrawWait = 10 * time.Second

// fuseDevice is a block device in use.
type fuseDevice struct {
	*blockdev.Device
	// held is the instance manager's duplicate of its descriptor, nil if nobody keeps one.
	held *keeper.Held
}

// startFUSELoop offers the volume as a block device: a one-file FUSE mount with a loop device on it. If an engine before was
// killed and its device is kept, that one is taken over and whoever uses it notices a pause.
func (p *engineProcess) startFUSELoop(ctx context.Context) (string, error) {
	cfg := blockdev.Config{Volume: p.cfg.VolumeName, DeviceDir: hostpath.Resolve(deviceDir)}
	dev, adopted := p.adoptDevice(ctx, cfg), true
	if dev == nil {
		opened, err := blockdev.Open(ctx, cfg)
		if err != nil {
			return "", fmt.Errorf("block device of volume %s: %w", p.cfg.VolumeName, err)
		}
		dev, adopted = &fuseDevice{Device: opened}, false
	}
	fe, err := fuseloop.New(fuseloop.Config{Owner: engine.OwnerFrontend, Arena: p.arena, Device: dev.Handle(), File: p.cfg.VolumeName,
		Size: p.size(), Resume: adopted})
	if err != nil {
		return "", errors.Join(err, dev.Close(ctx, false))
	}
	if err := p.attach(ctx, fe); err != nil {
		return "", errors.Join(err, dev.Close(ctx, false))
	}
	p.holdFUSE(dev)
	if adopted {
		// The volume may have grown when the engine before was killed.
		if err := dev.Resize(ctx); err != nil {
			p.cfg.Log.Warn("block device does not show the volume's size", "device", dev.Path(), "error", err)
		}
		return dev.Path(), nil
	}
	if err := dev.Expose(ctx); err != nil {
		p.front.takeDown(p)
		return "", fmt.Errorf("block device of volume %s: %w", p.cfg.VolumeName, err)
	}
	p.keepDevice(dev)
	return dev.Path(), nil
}

// holdFUSE notes how the block device that is attached is taken down, resized and given away.
func (p *engineProcess) holdFUSE(dev *fuseDevice) {
	p.front.stop = func(p *engineProcess) { p.stopFUSELoop(dev) }
	p.front.grown = dev.Resize
	p.front.export = func(x *frontend.Export) { p.giveFUSE(dev, x) }
}

// adoptDevice takes over the device of an engine that was killed, nil if none is kept or it is not what it was.
func (p *engineProcess) adoptDevice(ctx context.Context, cfg blockdev.Config) *fuseDevice {
	if p.cfg.Keeper == "" {
		return nil
	}
	held, state, fd, err := keeper.Take(p.cfg.Keeper, p.cfg.VolumeName)
	if errors.Is(err, keeper.ErrNone) {
		return nil
	}
	if err != nil {
		p.cfg.Log.Warn("the instance manager does not say whether a device is kept", "error", err)
		return nil
	}
	var kept blockdev.Kept
	if err = json.Unmarshal(state, &kept); err != nil {
		err = errors.Join(err, unix.Close(fd))
	} else if dev, adoptErr := blockdev.Adopt(ctx, cfg, kept, fd); adoptErr == nil {
		p.cfg.Log.Info("block device of an engine that was killed is taken over", "device", dev.Path())
		return &fuseDevice{Device: dev, held: held}
	} else {
		err = adoptErr
	}
	p.cfg.Log.Warn("kept block device cannot be taken over, making a new one", "error", errors.Join(err, held.Drop()))
	return nil
}

// keepDevice has the instance manager keep the device, so that it outlives this process. Without that the volume works as well;
// its device would fail with the engine.
func (p *engineProcess) keepDevice(dev *fuseDevice) {
	if p.cfg.Keeper == "" || !kernelResends() {
		return
	}
	state, err := json.Marshal(dev.Kept())
	if err == nil {
		var fd int
		if fd, err = dev.Duplicate(); err == nil {
			dev.held, err = keeper.Keep(p.cfg.Keeper, p.cfg.VolumeName, state, fd)
			err = errors.Join(err, unix.Close(fd))
		}
	}
	if err != nil {
		p.cfg.Log.Warn("block device is not kept: it will fail if this engine is killed", "device", dev.Path(), "error", err)
	}
}

// kernelResends tells whether a successor can ask the kernel for requests that were taken and not answered: Linux 6.9 and later.
func kernelResends() bool {
	var name unix.Utsname
	if unix.Uname(&name) != nil {
		return false
	}
	var major, minor int
	if _, err := fmt.Sscanf(unix.ByteSliceToString(name.Release[:]), "%d.%d", &major, &minor); err != nil {
		return false
	}
	return major > 6 || major == 6 && minor >= 9
}

// stopFUSELoop takes the device away while the engine still serves, so that what is cached is written back first.
func (p *engineProcess) stopFUSELoop(dev *fuseDevice) {
	ctx, cancel := context.WithTimeout(context.Background(), withdrawWait)
	defer cancel()
	if err := dev.Withdraw(ctx); err != nil {
		p.cfg.Log.Warn("block device is not gone yet", "device", dev.Path(), "error", err)
	}
	if dev.held != nil {
		// Before the frontend closes its own descriptor: the last one ends the connection, and with it whatever still waits.
		if err := dev.held.Drop(); err != nil {
			p.cfg.Log.Warn("the instance manager still keeps the device", "device", dev.Path(), "error", err)
		}
	}
	p.detach()
	ctx, cancel = context.WithTimeout(context.Background(), withdrawWait)
	defer cancel()
	if err := dev.Close(ctx, true); err != nil {
		p.cfg.Log.Warn("block device did not close cleanly", "device", dev.Path(), "error", err)
	}
}
