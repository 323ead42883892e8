package daemon

import (
	"context"
	"errors"
	"fmt"
	"time"

	"ankole.storage/dataplane/engine"
	"ankole.storage/dataplane/frontend/fuseloop"
	"ankole.storage/dataplane/frontend/fuseloop/blockdev"
	"ankole.storage/hostpath"
)

// deviceDir is where users find block devices, as the Pod sees it.
const deviceDir = "/dev/longhorn"

// withdrawWait bounds each half of taking a block device away: a user may keep it open for ever.
const withdrawWait = 10 * time.Second

// startFUSELoop offers the volume as a block device: a one-file FUSE mount with a loop device on it.
func (p *engineProcess) startFUSELoop(ctx context.Context) (string, error) {
	dev, err := blockdev.Open(ctx, blockdev.Config{Volume: p.cfg.VolumeName, DeviceDir: hostpath.Resolve(deviceDir)})
	if err != nil {
		return "", fmt.Errorf("block device of volume %s: %w", p.cfg.VolumeName, err)
	}
	fe, err := fuseloop.New(fuseloop.Config{Owner: engine.OwnerFrontend, Arena: p.arena, Device: dev.Handle(), File: p.cfg.VolumeName, Size: p.size()})
	if err != nil {
		return "", errors.Join(err, dev.Close(ctx, false))
	}
	if err := p.ask(ctx, func(reply func(error)) any { return engine.AttachFrontend{Frontend: fe, Reply: reply} }); err != nil {
		return "", errors.Join(err, dev.Close(ctx, false))
	}
	p.front.stop = func(p *engineProcess) { p.stopFUSELoop(dev) }
	p.front.grown = dev.Resize
	if err := dev.Expose(ctx); err != nil {
		p.front.takeDown(p)
		return "", fmt.Errorf("block device of volume %s: %w", p.cfg.VolumeName, err)
	}
	return dev.Path(), nil
}

// stopFUSELoop takes the device away while the engine still serves, so that what is cached is written back first.
func (p *engineProcess) stopFUSELoop(dev *blockdev.Device) {
	ctx, cancel := context.WithTimeout(context.Background(), withdrawWait)
	defer cancel()
	if err := dev.Withdraw(ctx); err != nil {
		p.cfg.Log.Warn("block device is not gone yet", "device", dev.Path(), "error", err)
	}
	p.detach()
	ctx, cancel = context.WithTimeout(context.Background(), withdrawWait)
	defer cancel()
	if err := dev.Close(ctx, true); err != nil {
		p.cfg.Log.Warn("block device did not close cleanly", "device", dev.Path(), "error", err)
	}
}
