package daemon

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"ankole.storage/dataplane/device/blockdev"
	"ankole.storage/dataplane/device/journal"
	"ankole.storage/dataplane/device/keeper"
	"ankole.storage/dataplane/device/kept"
	"ankole.storage/dataplane/engine"
	"ankole.storage/dataplane/frontend"
	"ankole.storage/dataplane/frontend/fuseloop"
	"ankole.storage/dataplane/frontend/ublk"
	"ankole.storage/host/hostpath"
)

// deviceDir is where users find block devices, as the Pod sees it.
const deviceDir = "/dev/longhorn"

// withdrawWait bounds each half of taking a block device away: a user may keep it open for ever.
const withdrawWait = 10 * time.Second

// hostDevice is a block device of the node, by whatever way the kernel has it.
type hostDevice interface {
	ID() string
	Path() string
	Endpoint() string
	Resize(ctx context.Context, size int64) error
	Fit(ctx context.Context, size int64) error
	RestoreNode(ctx context.Context) (restored bool, err error)
	Withdraw(ctx context.Context) error
	Close(ctx context.Context, started bool) error
	Kept() blockdev.Kept
	Duplicate() (int, error)
	Leave() error
}

// fuseDevice is a block device in use.
type fuseDevice struct {
	hostDevice
	// held is the instance manager's duplicate of its descriptor, nil if nobody keeps one.
	held *keeper.Held
	// epochs are those of the engines that served the volume through this device alone, this one's
	// last.
	epochs []uint64
	// journal is where its requests are received, nil if nobody keeps the device.
	journal *journal.Journal
}

// startDevice offers the volume as a block device: one of the driver ublk_drv, or a one-file FUSE
// mount with a loop device on it. If the device of an engine before is kept, that one is taken
// over, whatever it is, and whoever uses it notices a pause.
func (p *engineProcess) startDevice(ctx context.Context, transport string) (string, error) {
	cfg := blockdev.Config{Volume: p.cfg.VolumeName, DeviceDir: hostpath.Resolve(deviceDir)}
	dev, err := p.adoptKept(ctx, cfg)
	if err != nil {
		return "", err
	}
	adopted := dev != nil
	if !adopted {
		if dev, err = openDevice(ctx, p, cfg, transport); err != nil {
			return "", fmt.Errorf("block device of volume %s: %w", p.cfg.VolumeName, err)
		}
	}
	fe, err := dev.frontend(p, adopted)
	if err == nil {
		err = p.attach(fe)
	}
	if err != nil {
		return "", errors.Join(err, dev.giveUp(ctx))
	}
	p.holdDevice(dev)
	if adopted {
		p.noteKept(true)
		if u, ok := dev.hostDevice.(*blockdev.Ublk); ok {
			if err := u.Expose(ctx); err != nil {
				// The device stays for the next engine, as this one ends.
				return "", fmt.Errorf("block device of volume %s: %w", p.cfg.VolumeName, err)
			}
		}
		p.fit(ctx, dev)
		return dev.Endpoint(), nil
	}
	if err := dev.hostDevice.(interface{ Expose(context.Context) error }).Expose(ctx); err != nil {
		p.front.takeDown(p)
		return "", fmt.Errorf("block device of volume %s: %w", p.cfg.VolumeName, err)
	}
	p.keepDevice(dev)
	return dev.Endpoint(), nil
}

// openDevice makes a block device.
func openDevice(ctx context.Context, p *engineProcess, cfg blockdev.Config, transport string) (*fuseDevice, error) {
	dev := &fuseDevice{epochs: []uint64{p.epoch()}}
	var err error
	if transport == TransportUblk {
		dev.hostDevice, err = blockdev.OpenUblk(ctx, cfg, p.size())
		return dev, err
	}
	if dev.hostDevice, err = blockdev.Open(ctx, cfg); err == nil {
		dev.journal = p.requestJournal()
	}
	return dev, err
}

// frontend makes the frontend of a block device.
func (d *fuseDevice) frontend(p *engineProcess, adopted bool) (frontend.Frontend, error) {
	gone := func() { go p.deviceGone(d) }
	switch dev := d.hostDevice.(type) {
	case *blockdev.Ublk:
		return ublk.New(ublk.Config{Owner: engine.OwnerFrontend, Arena: p.arena, Device: dev.Handle(), Queues: dev.Queues(),
			Depth: dev.Depth(), Size: p.size(), Asked: dev.Asked, Gone: gone})
	case *blockdev.Device:
		return fuseloop.New(fuseloop.Config{Owner: engine.OwnerFrontend, Arena: p.arena, Device: dev.Handle(),
			File: p.cfg.VolumeName, Size: p.size(), Resume: adopted, Journal: d.journal, Gone: gone})
	}
	panic("daemon: a block device of no known kind")
}

// deviceGone makes the volume's device anew after the kernel has ended the one that is up: somebody
// has unmounted its file system, or aborted the connection. Whoever had it open has got errors.
func (p *engineProcess) deviceGone(dev *fuseDevice) {
	p.front.mu.Lock()
	defer p.front.mu.Unlock()
	if p.front.device != dev || p.front.over {
		return // it was taken down in order, or left
	}
	p.cfg.Log.Error("the kernel has ended the block device, as an administrator may have it do: making another one",
		"device", dev.Path())
	name := p.front.name
	p.front.takeDown(p)
	p.offerAgain(name)
}

// offerAgain brings up a frontend that was lost, or comes back later. front.mu is held.
func (p *engineProcess) offerAgain(name string) {
	err := p.startFrontend(context.Background(), name)
	if err == nil {
		return
	}
	p.cfg.Log.Error("the volume is not offered", "error", err)
	p.offerLater(name)
}

// offerLater notes that a frontend was lost, and brings it up again in a while. front.mu is held.
func (p *engineProcess) offerLater(name string) {
	p.front.lost = name
	if p.front.again != nil {
		p.front.again.Stop()
	}
	p.front.again = time.AfterFunc(keepAgain, func() {
		p.front.mu.Lock()
		defer p.front.mu.Unlock()
		if p.front.lost != "" && p.front.stop == nil && !p.front.over {
			p.offerAgain(p.front.lost)
		}
	})
}

// noteKept tells the core whether the device outlives this process.
func (p *engineProcess) noteKept(kept bool) {
	if l := p.current(); l != nil {
		l.loop.Post(engine.FrontendKept{Kept: kept})
	}
}

// fit tells a device that comes from another engine of the volume's size: the volume may have
// grown, and the one before not come to it.
func (p *engineProcess) fit(ctx context.Context, dev *fuseDevice) {
	if err := dev.Fit(ctx, p.size()); err != nil {
		p.cfg.Log.Warn("block device does not show the volume's size; expand to the same size again", "device",
			dev.Path(), "error", err)
	}
}

// isUblk: the kernel keeps what is under way, and no journal is needed.
func (d *fuseDevice) isUblk() bool {
	_, ok := d.hostDevice.(*blockdev.Ublk)
	return ok
}

// giveUp takes away a device that no frontend serves.
func (d *fuseDevice) giveUp(ctx context.Context) error {
	var err error
	if d.held != nil {
		err = d.held.Drop()
	}
	return errors.Join(err, d.Close(context.WithoutCancel(ctx), false))
}

// holdDevice notes how the block device that is attached is taken down and resized.
func (p *engineProcess) holdDevice(dev *fuseDevice) {
	p.front.device = dev
	p.front.stop = func(p *engineProcess) { p.stopDevice(dev) }
	p.front.grown = dev.Resize
	time.AfterFunc(nodeLook, func() { p.lookForNode(dev) })
}

// nodeLook is how often an engine looks for the node of its device: whoever mounts the volume finds
// it by the node, and anybody with the rights of root may remove it.
const nodeLook = 5 * time.Second

// lookForNode makes the node of a device that is up again if it is gone.
func (p *engineProcess) lookForNode(dev *fuseDevice) {
	p.front.mu.Lock()
	defer p.front.mu.Unlock()
	if p.front.device != dev || p.front.over {
		return
	}
	switch restored, err := dev.RestoreNode(context.Background()); {
	case err != nil:
		p.cfg.Log.Error("the node of the block device is gone, and cannot be made again", "device", dev.Path(), "error", err)
	case restored:
		p.cfg.Log.Warn("the node of the block device was gone; it was made again", "device", dev.Path())
	}
	time.AfterFunc(nodeLook, func() { p.lookForNode(dev) })
}

func closeAll(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}

// requestJournal returns a journal for a device's requests: the process's own, made at the first
// need. nil: none is needed, since nobody keeps the device, or none can be had.
func (p *engineProcess) requestJournal() *journal.Journal {
	if p.cfg.Keeper == "" || !kernelAtLeast(4, 20) {
		return nil
	}
	if j := p.front.journal; j != nil {
		return j
	}
	j, err := journal.Create()
	if err != nil {
		p.cfg.Log.Warn("block device has no journal of its requests", "error", err)
		return nil
	}
	p.front.journal = j
	return j
}

// keepAgain is how soon it is tried again to have a block device kept.
const keepAgain = 2 * time.Second

// keepDevice has the instance manager keep the device, so that it outlives this process. Without
// that the volume works as well; its device would fail with the engine. So it is tried again until
// it is kept: an instance manager that is stopped, or short of descriptors, is so for a while.
// front.mu is held.
func (p *engineProcess) keepDevice(dev *fuseDevice) {
	if p.cfg.Keeper == "" {
		return
	}
	if dev.journal == nil && !dev.isUblk() {
		p.unkeep(dev) // what was kept for it has the journal of somebody else
		return
	}
	if err := p.tryKeep(dev); err != nil {
		p.cfg.Log.Warn("block device is not kept yet: it will fail if this engine is killed", "device", dev.Path(),
			"error", err)
	}
}

// tryKeep has the device kept, or comes back later.
func (p *engineProcess) tryKeep(dev *fuseDevice) error {
	err := p.keep(dev)
	if err != nil {
		p.unkeep(dev)
		p.front.again = time.AfterFunc(keepAgain, func() { p.keepLater(dev) })
	}
	p.noteKept(err == nil)
	return err
}

// keepLater tries again, if the device is still there.
func (p *engineProcess) keepLater(dev *fuseDevice) {
	p.front.mu.Lock()
	defer p.front.mu.Unlock()
	if p.front.device == dev && dev.held == nil && p.tryKeep(dev) == nil {
		p.cfg.Log.Info("block device is kept", "device", dev.Path())
	}
}

// unkeep has the instance manager give up what it keeps, which is not what this engine uses.
func (p *engineProcess) unkeep(dev *fuseDevice) {
	if dev.held == nil {
		return
	}
	if err := dev.held.Drop(); err != nil {
		p.cfg.Log.Warn("the instance manager still keeps the device", "error", err)
	}
	dev.held = nil
}

// keep gives duplicates of the device's descriptors to the instance manager, in the place of those
// that it has.
func (p *engineProcess) keep(dev *fuseDevice) error {
	fd, err := dev.Duplicate()
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	fds := []int{fd}
	if dev.journal != nil {
		fds = append(fds, dev.journal.FD())
	}
	state := keptState{Kept: dev.Kept(), Owners: kept.Owners{VolumeUUID: p.cfg.VolumeUUID, Epochs: dev.epochs}}
	if dev.held != nil {
		return dev.held.Keep(state.encode(), fds...)
	}
	dev.held, err = keeper.Keep(p.cfg.Keeper, p.deviceOwner(), state.encode(), fds...)
	return err
}

// kernelAtLeast compares the version of the kernel.
func kernelAtLeast(major, minor int) bool {
	var name unix.Utsname
	if unix.Uname(&name) != nil {
		return false
	}
	var x, y int
	if _, err := fmt.Sscanf(unix.ByteSliceToString(name.Release[:]), "%d.%d", &x, &y); err != nil {
		return false
	}
	return x > major || x == major && y >= minor
}

// stopDevice takes the device away while the engine still serves, so that what is cached is
// written back first.
func (p *engineProcess) stopDevice(dev *fuseDevice) {
	p.noteKept(false) // from here on nobody goes on with it
	ctx, cancel := context.WithTimeout(context.Background(), withdrawWait)
	defer cancel()
	if err := dev.Withdraw(ctx); err != nil {
		p.cfg.Log.Warn("block device is not gone yet", "device", dev.Path(), "error", err)
	}
	// Before the frontend closes its own descriptor: the last one ends the connection, and with it
	// whatever still waits.
	p.unkeep(dev)
	p.detach()
	ctx, cancel = context.WithTimeout(context.Background(), withdrawWait)
	defer cancel()
	if err := dev.Close(ctx, true); err != nil {
		p.cfg.Log.Warn("block device did not close cleanly", "device", dev.Path(), "error", err)
	}
}
