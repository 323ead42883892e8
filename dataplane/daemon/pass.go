package daemon

import (
	"context"
	"encoding/json"
	"fmt"

	"ankole.storage/dataplane/engine"
	"ankole.storage/dataplane/frontend"
	"ankole.storage/dataplane/frontend/fuseloop"
	"ankole.storage/dataplane/frontend/fuseloop/blockdev"
	"ankole.storage/dataplane/frontend/nbd"
	"ankole.storage/hostpath"
	"ankole.storage/instancemanager/keeper"
)

// This file passes frontends between engine processes: what the blocking half adds to an export, and both halves made again
// from one.

// Descriptors that the blocking half of a block device adds.
const (
	// kindLock holds the volume's lock; its state is blockdev.Kept.
	kindLock = "lock"
	// kindKeeper is the connection to the instance manager's keeper, which takes whoever has it for the device's owner.
	kindKeeper = "keeper"
)

// importFrontend makes a frontend of the transport from what another one has given away, without touching anything on the host;
// attach begins to serve it. Both are called with front.mu held. The descriptors are the frontend's unless there is an error.
func (p *engineProcess) importFrontend(name string, x *frontend.Export) (attach func(ctx context.Context) error, err error) {
	switch x.Transport {
	case nbd.Transport:
		return p.importNBD(name, x)
	case fuseloop.Transport:
		return p.importFUSELoop(name, x)
	}
	return nil, fmt.Errorf("frontend %s by transport %q cannot be taken over: this engine does not have it", name, x.Transport)
}

func (p *engineProcess) importNBD(name string, x *frontend.Export) (attach func(ctx context.Context) error, err error) {
	path, err := socketPath(p.cfg.VolumeName)
	if err != nil {
		return nil, err
	}
	fe, err := nbd.Import(nbd.Config{Owner: engine.OwnerFrontend, Arena: p.arena, Export: p.cfg.VolumeName}, *x)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		if err := p.attach(ctx, fe); err != nil {
			return err
		}
		p.holdNBD(path)
		p.offered(name, nbdEndpoint(p.cfg.VolumeName, path))
		return nil
	}, nil
}

// attach gives a frontend to the core.
func (p *engineProcess) attach(ctx context.Context, fe frontend.Frontend) error {
	return p.ask(ctx, func(reply func(error)) any { return engine.AttachFrontend{Frontend: fe, Reply: reply} })
}

func (p *engineProcess) importFUSELoop(name string, x *frontend.Export) (attach func(ctx context.Context) error, err error) {
	fuse, lock, kept, toKeeper := -1, -1, blockdev.Kept{}, -1
	for _, d := range x.Descriptors {
		switch d.Kind {
		case fuseloop.KindDevice:
			fuse = d.FD
		case kindLock:
			lock = d.FD
			if err := json.Unmarshal(d.State, &kept); err != nil {
				return nil, fmt.Errorf("block device of volume %s: what should be known of it: %w", p.cfg.VolumeName, err)
			}
		case kindKeeper:
			toKeeper = d.FD
		}
	}
	dev, err := blockdev.Receive(blockdev.Config{Volume: p.cfg.VolumeName, DeviceDir: hostpath.Resolve(deviceDir)}, kept, fuse, lock)
	if err != nil {
		return nil, err
	}
	own := &fuseDevice{Device: dev, journal: p.requestJournal()}
	fe, err := fuseloop.Import(fuseloop.Config{Owner: engine.OwnerFrontend, Arena: p.arena, File: p.cfg.VolumeName, Journal: own.journal}, *x)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		if toKeeper >= 0 {
			if own.held, err = keeper.Receive(toKeeper, p.cfg.VolumeName); err != nil {
				p.cfg.Log.Warn("block device is not kept any more: it will fail if this engine is killed", "device", dev.Path(), "error", err)
			}
		}
		if own.journal != nil && own.held != nil {
			p.keepDevice(own) // before a request is in a journal that nobody keeps
		}
		if err := p.attach(ctx, fe); err != nil {
			p.front.journal = nil // whether the core has it is not known
			return err
		}
		p.holdFUSE(own)
		p.offered(name, dev.Path())
		return nil
	}, nil
}

// giveFUSE adds what the blocking half holds to an export.
func (p *engineProcess) giveFUSE(dev *fuseDevice, x *frontend.Export) {
	kept, lock := dev.Give()
	state, err := json.Marshal(kept)
	if err != nil {
		panic(err) // numbers can be encoded
	}
	x.Descriptors = append(x.Descriptors, frontend.Descriptor{Kind: kindLock, FD: lock, State: state})
	if dev.held == nil {
		return
	}
	fd, err := dev.held.Give()
	if err != nil {
		// The next engine has the device all the same. This one is its owner in the keeper's eyes until it ends.
		p.cfg.Log.Warn("block device will not be kept: it will fail if the next engine is killed", "device", dev.Path(), "error", err)
		return
	}
	x.Descriptors = append(x.Descriptors, frontend.Descriptor{Kind: kindKeeper, FD: fd})
}
