package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"ankole.storage/dataplane/device/blockdev"
	"ankole.storage/dataplane/device/keeper"
	"ankole.storage/dataplane/device/kept"
	"ankole.storage/dataplane/engine"
	"ankole.storage/dataplane/frontend"
	"ankole.storage/dataplane/frontend/fuseloop"
	"ankole.storage/dataplane/frontend/nbd"
	"ankole.storage/dataplane/quorum"
	"ankole.storage/host/hostpath"
)

// This file passes frontends between engine processes: what the blocking half adds to an export,
// and both halves made again from one.

// Descriptors that the blocking half of a block device adds.
const (
	// kindLock holds the volume's lock; its state is blockdev.Kept.
	kindLock = "lock"
	// kindKeeper is the connection to the instance manager's keeper, which takes whoever has it for
	// the device's owner.
	kindKeeper = "keeper"
)

// importFrontend makes a frontend of the transport from what another one has given away, without
// touching anything on the host; attach begins to serve it. Both are called with front.mu held. The
// descriptors are the frontend's unless there is an error. epoch is that of the engine that has
// given it away.
func (p *engineProcess) importFrontend(name string, x *frontend.Export, epoch uint64) (attach func() error, err error) {
	if follows := p.current().follows; !kept.GoesOnAfter(epoch, follows) {
		return nil, fmt.Errorf("the frontend was given away under epoch %s, and another engine has served the volume "+
			"since, under epoch %s: its users cannot go on",
			quorum.EpochText(epoch), quorum.EpochText(follows))
	}
	switch x.Transport {
	case nbd.Transport:
		return p.importNBD(name, x)
	case fuseloop.Transport:
		return p.importFUSELoop(name, x, epoch)
	}
	return nil, fmt.Errorf("frontend %s by transport %q cannot be taken over: this engine does not have it", name,
		x.Transport)
}

// noteEpoch tells the keeper of a block device that was given away and is taken back under which
// epoch that is, before the first record of it is written anywhere: the engine may be killed before
// it has the device, and the next one finds that record.
func (p *engineProcess) noteEpoch(left *engine.Left, follows, epoch uint64) {
	if !kept.GoesOnAfter(left.Epoch, follows) {
		return
	}
	p.front.mu.Lock()
	defer p.front.mu.Unlock()
	if p.front.given != left.Export {
		return // the engine ends, and has withdrawn it
	}
	var connection *frontend.Descriptor
	var fds []int
	state := keptState{Owners: kept.Owners{VolumeUUID: p.cfg.VolumeUUID,
		Epochs: []uint64{left.Epoch, kept.Successor(left.Epoch), epoch}}}
	for i := range left.Export.Descriptors {
		switch d := &left.Export.Descriptors[i]; d.Kind {
		case fuseloop.KindDevice:
			fds = append(fds, d.FD)
		case kindLock:
			if err := json.Unmarshal(d.State, &state.Kept); err != nil {
				panic(err) // it is this process's own
			}
		case kindKeeper:
			connection = d
		}
	}
	if connection == nil {
		return
	}
	if j := p.front.journal; j != nil {
		fds = append(fds, j.FD())
	}
	held, err := keeper.Receive(connection.FD, p.deviceOwner())
	if err == nil {
		err = held.Keep(state.encode(), fds...)
		var gerr error
		if connection.FD, gerr = held.Give(); gerr != nil {
			err = errors.Join(err, gerr, held.Leave())
		}
	}
	if err != nil {
		p.cfg.Log.Warn("block device will fail if this engine is killed before it has it back", "error", err)
	}
}

func (p *engineProcess) importNBD(name string, x *frontend.Export) (attach func() error, err error) {
	path, err := socketOf(p.cfg.VolumeName, x)
	if err != nil {
		return nil, err
	}
	fe, err := nbd.Import(nbd.Config{Owner: engine.OwnerFrontend, Arena: p.arena, Export: p.cfg.VolumeName}, *x)
	if err != nil {
		return nil, err
	}
	return func() error {
		p.front.given = nil
		if err := p.attach(fe); err != nil {
			return err
		}
		p.holdNBD(path)
		p.offered(name, nbdEndpoint(p.cfg.VolumeName, path))
		return nil
	}, nil
}

// attach gives a frontend to the core, or says that the core does not have it: nothing in between,
// so that somebody closes its descriptors. The core answers in the step that takes the message.
func (p *engineProcess) attach(fe frontend.Frontend) error {
	return p.ask(context.Background(), func(reply func(error)) any {
		return engine.AttachFrontend{Frontend: fe, Reply: reply}
	})
}

func (p *engineProcess) importFUSELoop(name string, x *frontend.Export, epoch uint64) (attach func() error, err error) {
	fuse, lock, device, toKeeper := -1, -1, blockdev.Kept{}, -1
	for _, d := range x.Descriptors {
		switch d.Kind {
		case fuseloop.KindDevice:
			fuse = d.FD
		case kindLock:
			lock = d.FD
			if err := json.Unmarshal(d.State, &device); err != nil {
				return nil, fmt.Errorf("block device of volume %s: what should be known of it: %w", p.cfg.VolumeName, err)
			}
		case kindKeeper:
			toKeeper = d.FD
		}
	}
	device.Identify()
	dev, err := blockdev.Receive(blockdev.Config{Volume: p.cfg.VolumeName, DeviceDir: hostpath.Resolve(deviceDir)},
		device, fuse, lock)
	if err != nil {
		return nil, err
	}
	own := &fuseDevice{hostDevice: dev, journal: p.requestJournal(),
		epochs: []uint64{epoch, kept.Successor(epoch), p.epoch()}}
	fe, err := fuseloop.Import(fuseloop.Config{Owner: engine.OwnerFrontend, Arena: p.arena, File: p.cfg.VolumeName,
		Journal: own.journal, Gone: func() { go p.deviceGone(own) }}, *x)
	if err != nil {
		return nil, err
	}
	return func() error {
		p.front.given = nil
		if toKeeper >= 0 {
			if own.held, err = keeper.Receive(toKeeper, p.deviceOwner()); err != nil {
				p.cfg.Log.Warn("connection to the instance manager is not taken over", "device", dev.Path(), "error", err)
				unix.Close(toKeeper) // another one is made
			}
		}
		p.keepDevice(own) // before a request is in a journal that nobody keeps, or answered under an epoch that nobody knows
		if err := p.attach(fe); err != nil {
			return err
		}
		p.holdDevice(own)
		p.fit(context.Background(), own)
		p.offered(name, dev.Endpoint())
		return nil
	}, nil
}

// withdraw takes a frontend away that was given away and that nobody goes on with. front.mu is
// held.
func (p *engineProcess) withdraw(x *frontend.Export) {
	p.dropKeeper(x)
	var socket string
	var err error
	if x.Transport == nbd.Transport {
		socket, err = socketOf(p.cfg.VolumeName, x) // while its descriptors are open
	}
	lock, kept := -1, blockdev.Kept{}
	for _, d := range x.Descriptors {
		switch d.Kind {
		case kindKeeper: // closed
		case kindLock:
			lock = d.FD
			if err := json.Unmarshal(d.State, &kept); err != nil {
				panic(err) // it is this process's own
			}
		default:
			unix.Close(d.FD) // of a block device: its I/O fails from now on
		}
	}
	if lock >= 0 {
		var dev *blockdev.Device
		cfg := blockdev.Config{Volume: p.cfg.VolumeName, DeviceDir: hostpath.Resolve(deviceDir)}
		if dev, err = blockdev.Receive(cfg, kept, -1, lock); err == nil {
			ctx, cancel := context.WithTimeout(context.Background(), withdrawWait)
			defer cancel()
			err = dev.Close(ctx, true)
		}
	} else if socket != "" {
		_ = os.Remove(socket) // one that stays is replaced at the next start
	}
	p.cfg.Log.Warn("the frontend that was given away is not taken back: the engine ends", "transport", x.Transport,
		"error", err)
}

// dropKeeper has the keeper give up a device that was given away.
func (p *engineProcess) dropKeeper(x *frontend.Export) {
	for _, d := range x.Descriptors {
		if d.Kind != kindKeeper {
			continue
		}
		held, err := keeper.Receive(d.FD, p.deviceOwner())
		if err == nil {
			err = held.Drop()
		}
		if err != nil {
			p.cfg.Log.Warn("the instance manager still keeps the device", "error", err)
		}
	}
}

// giveFUSE adds what the blocking half holds to an export.
func (p *engineProcess) giveFUSE(dev *fuseDevice, x *frontend.Export) {
	device, lock := dev.hostDevice.(*blockdev.Device).Give()
	state, err := json.Marshal(device)
	if err != nil {
		panic(err) // numbers can be encoded
	}
	x.Descriptors = append(x.Descriptors, frontend.Descriptor{Kind: kindLock, FD: lock, State: state})
	if dev.held == nil {
		return
	}
	// The successor may be killed as soon as it has the volume, and the next engine must find its
	// epoch.
	dev.epochs = append(dev.epochs, kept.Successor(p.epoch()))
	p.keepDevice(dev)
	if dev.held == nil {
		return
	}
	fd, err := dev.held.Give()
	if err != nil {
		// The next engine has the device all the same, and asks for itself.
		p.cfg.Log.Warn("connection to the instance manager is not given away", "device", dev.Path(), "error",
			errors.Join(err, dev.held.Leave()))
		return
	}
	x.Descriptors = append(x.Descriptors, frontend.Descriptor{Kind: kindKeeper, FD: fd})
}
